// The layers besides attention: normalization, dropout, and the softmax of the loss. Rows do not depend on each
// other.
#pragma once

#include "cpu/elementwise/dropout.h"
#include "cpu/simd/elements.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Layer normalization -------------------------------------------------------------------------------------

inline float sum_of(const float* x, std::int64_t count) {
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + kSums * kWidth <= count; i += kSums * kWidth) {
    SACCADE_UNROLL
    for (int s = 0; s < kSums; ++s) sums[s] = add(sums[s], loadu(x + i + s * kWidth));
  }
  for (; i < count; i += kWidth) sums[0] = add(sums[0], load_part(x + i, count - i));
  return reduce_sums(sums);
}

/// The mean of a row as mean + rest, which has more bits than a float, and 1 / sqrt(variance + eps).
struct RowMoments {
  float mean, rest, inverse;
};

/// Two passes: the second sums the deviations, which gives the rounding error of the mean.
inline RowMoments moments_of(const float* x, std::int64_t dim, double eps) {
  const auto count = static_cast<float>(dim);
  const float mean = sum_of(x, dim) / count;
  Vec sums[kSums] = {zero(), zero(), zero(), zero()}, squares[kSums] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + kSums * kWidth <= dim; i += kSums * kWidth) {
    SACCADE_UNROLL
    for (int s = 0; s < kSums; ++s) {
      const Vec deviation = sub(loadu(x + i + s * kWidth), broadcast(mean));
      sums[s] = add(sums[s], deviation);
      squares[s] = fma(deviation, deviation, squares[s]);
    }
  }
  for (; i < dim; i += kWidth) {
    const Vec deviation = fill_rest(sub(load_part(x + i, dim - i), broadcast(mean)), dim - i, zero());
    sums[0] = add(sums[0], deviation);
    squares[0] = fma(deviation, deviation, squares[0]);
  }
  const float rest = reduce_sums(sums) / count;
  const double variance =
      std::max(0.0, double{reduce_sums(squares)} / static_cast<double>(dim) - double{rest} * rest);
  return {mean, rest, static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

inline void layer_norm(const LayerNormParams& p, std::int64_t row, std::int64_t row_end) {
  for (; row < row_end; ++row) {
    const float* const x = p.x + row * p.x_stride;
    const RowMoments moments = moments_of(x, p.dim, p.eps);
    if (p.normalised) p.inverse[row] = moments.inverse;
    for (std::int64_t i = 0; i < p.dim; i += kWidth) {
      const std::int64_t left = p.dim - i;
      const Vec deviation = sub(sub(load_part(x + i, left), broadcast(moments.mean)), broadcast(moments.rest));
      const Vec normalised = mul(deviation, broadcast(moments.inverse));
      if (p.normalised) store_part(p.normalised + row * p.dim + i, left, normalised);
      store_part(p.y + row * p.y_stride + i, left,
                 fma(normalised, load_part(p.scale + i, left), load_part(p.shift + i, left)));
    }
  }
}

/// With g = dout * scale and n = normalized: dx = inverse * (g - mean(g) - n * mean(g * n)).
inline void layer_norm_backward_row(const LayerNormBackwardParams& p, std::int64_t row, float* dscale,
                                    float* dshift) {
  const float *const n = p.normalised + row * p.dim, *const dout = p.dout + row * p.dim;
  Vec sum = zero(), sum_of_products = zero();
  for (std::int64_t i = 0; i < p.dim; i += kWidth) {
    const std::int64_t left = p.dim - i;
    const Vec d = load_part(dout + i, left), normalised = load_part(n + i, left), product = mul(d, normalised);
    store_part(dscale + i, left, add(load_part(dscale + i, left), product));
    store_part(dshift + i, left, add(load_part(dshift + i, left), d));
    const Vec scale = load_part(p.scale + i, left);
    sum = fma(d, scale, sum);
    sum_of_products = fma(product, scale, sum_of_products);
  }
  const auto count = static_cast<float>(p.dim);
  const Vec mean = broadcast(reduce_add(sum) / count),
            mean_of_products = broadcast(reduce_add(sum_of_products) / count);
  const Vec inverse = broadcast(p.inverse[row]);
  for (std::int64_t i = 0; i < p.dim; i += kWidth) {
    const std::int64_t left = p.dim - i;
    const Vec g = sub(mul(load_part(dout + i, left), load_part(p.scale + i, left)), mean);
    store_part(p.dx + row * p.dim + i, left, mul(inverse, sub(g, mul(load_part(n + i, left), mean_of_products))));
  }
}

inline void layer_norm_backward(const LayerNormBackwardParams& p, std::int64_t row, std::int64_t row_end,
                                float* sums) {
  std::memset(sums, 0, static_cast<std::size_t>(2 * p.dim) * sizeof(float));
  for (; row < row_end; ++row) layer_norm_backward_row(p, row, sums, sums + p.dim);
}

/// y = scale * x / sqrt(mean of squares + eps)
inline void rms_norm(const RmsNormParams& p, std::int64_t row, std::int64_t row_end) {
  for (; row < row_end; ++row) {
    const float* const x = p.x + row * p.x_stride;
    Vec squares[kSums] = {zero(), zero(), zero(), zero()};
    std::int64_t i = 0;
    for (; i + kSums * kWidth <= p.dim; i += kSums * kWidth) {
      SACCADE_UNROLL
      for (int s = 0; s < kSums; ++s) {
        const Vec v = loadu(x + i + s * kWidth);
        squares[s] = fma(v, v, squares[s]);
      }
    }
    for (; i < p.dim; i += kWidth) {
      const Vec v = load_part(x + i, p.dim - i);
      squares[0] = fma(v, v, squares[0]);
    }
    const double mean = double{reduce_sums(squares)} / static_cast<double>(p.dim);
    const Vec inverse = broadcast(static_cast<float>(1.0 / std::sqrt(mean + p.eps)));
    for (i = 0; i < p.dim; i += kWidth)
      store_part(p.y + row * p.y_stride + i, p.dim - i,
                 mul(mul(load_part(x + i, p.dim - i), inverse), load_part(p.scale + i, p.dim - i)));
  }
}

// ---- Dropout -------------------------------------------------------------------------------------------------

inline void dropout(const DropoutParams& p, std::int64_t row, std::int64_t row_end) {
  const Dropout draw(p.p, p.seed, p.offset);
  const Vec factor = broadcast(static_cast<float>(1.0 / (1.0 - p.p)));
  alignas(64) float piece[128] = {};  // columns drawn at once
  for (; row < row_end; ++row) {
    for (std::int64_t column = 0; column < p.dim; column += 128) {
      const float* const x = p.x + row * p.dim + column;
      float* const y = p.y + row * p.dim + column;
      const std::int64_t columns = std::min<std::int64_t>(128, p.dim - column);
      for (std::int64_t i = 0; i < columns; i += kWidth)
        store(piece + i, mul(load_part(x + i, columns - i), factor));
      draw.apply(piece, 0, static_cast<int>(columns), 0, static_cast<std::uint32_t>(row), column);
      for (std::int64_t i = 0; i < columns; i += kWidth) store_part(y + i, columns - i, load(piece + i));
    }
  }
}

// ---- Softmax of the loss -------------------------------------------------------------------------------------

inline float largest_of(const float* x, std::int64_t count) {
  Vec largest = broadcast(-kInfinity);
  for (std::int64_t i = 0; i < count; i += kWidth)
    largest = max(largest, fill_rest(load_part(x + i, count - i), count - i, broadcast(-kInfinity)));
  return reduce_max(largest);
}

/// e^(x - maximum); NaN passes, but not its payload.
SACCADE_INLINE Vec exp_below(Vec x, float maximum) {
  return exp2(canonical_nan(mul(sub(x, broadcast(maximum)), broadcast(kLog2E))));
}

inline SoftmaxSum softmax_sum(const float* x, float* exponentials, std::int64_t count) {
  const float maximum = largest_of(x, count);
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + kSums * kWidth <= count; i += kSums * kWidth) {
    SACCADE_UNROLL
    for (int s = 0; s < kSums; ++s) {
      const Vec e = exp_below(loadu(x + i + s * kWidth), maximum);
      if (exponentials) storeu(exponentials + i + s * kWidth, e);
      sums[s] = add(sums[s], e);
    }
  }
  for (; i < count; i += kWidth) {
    const Vec e = fill_rest(exp_below(load_part(x + i, count - i), maximum), count - i, zero());
    if (exponentials) store_part(exponentials + i, count - i, e);
    sums[0] = add(sums[0], e);
  }
  return {maximum, reduce_sums(sums)};
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
