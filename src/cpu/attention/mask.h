// What happens to a score between the product and the softmax: softcap, score modifier, ALiBi, masks, and
// visibility by position (backend/visibility.h). Scores are in natural units if any of these uses a score's value,
// else in the unit of the product.
#pragma once

#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Columns [begin, end) of the key block at `first_key`, multiples of the vector width.
struct Columns {
  std::int64_t first_key = 0;
  int begin = 0, end = 0;
};

inline void apply_scale(Scalar* scores, Columns c, Scalar scale) {
  for (int j = c.begin; j < c.end; j += kWidth) store(scores + j, mul(broadcast(scale), load(scores + j)));
}

inline void apply_softcap(Scalar* scores, Columns c, Scalar softcap) {
  const Vec bound = broadcast(softcap), inverse = broadcast(1 / softcap);
  for (int j = c.begin; j < c.end; j += kWidth)
    store(scores + j, mul(bound, tanh(mul(inverse, load(scores + j)))));
}

/// Adds -slope * |position - key|.
inline void apply_alibi(Scalar* scores, Columns c, Scalar slope, std::int64_t position) {
  const Vec factor = broadcast(-slope);
  for (int j = c.begin; j < c.end; j += kWidth) {
    const Vec distance = abs(sub(broadcast(static_cast<Scalar>(position - c.first_key - j)), lane_index()));
    store(scores + j, fma(factor, distance, load(scores + j)));
  }
}

/// For a whole subtile, the usual case: the constant count lets every compiler vectorize the loop.
template <class T, class Convert>
SACCADE_INLINE void convert_subtile(const T* __restrict from, Scalar* __restrict to, Convert convert) {
  if constexpr (std::is_same_v<T, Scalar>) {
    SACCADE_UNROLL
    for (int j = 0; j < kKeySubtile; j += kWidth) store(to + j, loadu(from + j));
  } else {
    for (int j = 0; j < kKeySubtile; ++j) to[j] = convert(from[j]);
  }
}

/// A subtile of a mask's row as numbers to add: 0 or -inf for a boolean mask, -inf beyond the last key (from
/// `keys` on).
inline void read_mask_row(const MaskParams& mask, std::int64_t batch, std::int64_t head, std::int64_t row,
                          Columns c, std::int64_t keys, Scalar* out) {
  const int end = static_cast<int>(std::clamp<std::int64_t>(keys - c.first_key, c.begin, c.end));
  const std::int64_t stride = mask.column_stride;
  const auto read = [&](const auto* data, auto convert) __attribute__((always_inline)) {
    data += mask.row(batch, head, row) + (c.first_key + c.begin) * stride;
    if (stride == 1 && end == c.end)
      convert_subtile(data, out + c.begin, convert);
    else
      for (int j = c.begin; j < end; ++j) out[j] = convert(data[(j - c.begin) * stride]);
  };
  switch (mask.type) {
    case MaskType::boolean:
      read(static_cast<const std::uint8_t*>(mask.data), [](std::uint8_t x) { return x ? Scalar{0} : -kInfinity; });
      break;
    case MaskType::f32:
      read(static_cast<const float*>(mask.data), [](float x) { return static_cast<Scalar>(x); });
      break;
    case MaskType::f64:
      read(static_cast<const double*>(mask.data), [](double x) { return static_cast<Scalar>(x); });
      break;
    case MaskType::none:
      return;
  }
  for (int j = end; j < c.end; ++j) out[j] = -kInfinity;
}

/// Whether a mask row leaves any key of the columns visible.
inline bool lets_through(const Scalar* mask, Columns c) {
  const Vec hidden = broadcast(-kInfinity);
  Vec largest = hidden;
  bool nan = false;
  for (int j = c.begin; j < c.end; j += kWidth) {
    const Vec x = load(mask + j);
    nan |= any(is_nan(x));
    largest = max(x, largest);
  }
  return nan || any(less(hidden, largest));
}

/// Adds a mask row and returns the largest score of each lane. Where the mask is -inf, the key is hidden whatever
/// its score.
inline Vec apply_mask(Scalar* scores, Columns c, const Scalar* mask) {
  const Vec hidden = broadcast(-kInfinity);
  Vec largest = hidden;
  for (int j = c.begin; j < c.end; j += kWidth) {
    const Vec bias = load(mask + j);
    const Vec s = select(equal(bias, hidden), hidden, canonical_nan(add(bias, load(scores + j))));
    store(scores + j, s);
    largest = max(largest, s);
  }
  return largest;
}

/// Clears the payload of NaNs: a modifier may have written any.
inline void apply_canonical_nan(Scalar* scores, Columns c) {
  for (int j = c.begin; j < c.end; j += kWidth) store(scores + j, canonical_nan(load(scores + j)));
}

/// The blocks of a block mask that cover a rectangle of rows and keys.
class BlockMask {
 public:
  enum class Cover : std::uint8_t { none, some, all };

  BlockMask(const AttentionParams& params, std::int64_t batch, std::int64_t head)
      : p_(params), data_(static_cast<const std::uint8_t*>(params.block_mask.data)), batch_(batch), head_(head) {}

  explicit operator bool() const { return data_ != nullptr; }

  /// How much of the rectangle of rows [row, row + rows) and keys [key, key + keys) is open.
  Cover cover(std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) const {
    std::int64_t blocks = 0, open = 0;
    row += p_.origin.row;
    key += p_.origin.key;
    for (std::int64_t i = row / p_.block_mask_q; i <= (row + rows - 1) / p_.block_mask_q; ++i)
      for (std::int64_t j = key / p_.block_mask_k; j <= (key + keys - 1) / p_.block_mask_k; ++j, ++blocks)
        open += is_open(i, j);
    return open == 0 ? Cover::none : open == blocks ? Cover::all : Cover::some;
  }

  /// Hides the keys of one row's closed blocks, up to key `keys`.
  void apply(Scalar* scores, Columns c, std::int64_t row, std::int64_t keys) const {
    const std::int64_t origin = p_.origin.key, i = (row + p_.origin.row) / p_.block_mask_q;
    const std::int64_t end = std::min(c.first_key + c.end, keys);
    for (std::int64_t key = c.first_key + c.begin; key < end;) {
      const std::int64_t j = (key + origin) / p_.block_mask_k;
      const std::int64_t next = std::min((j + 1) * p_.block_mask_k - origin, end);
      if (!is_open(i, j)) std::fill_n(scores + (key - c.first_key), next - key, -kInfinity);
      key = next;
    }
  }

 private:
  bool is_open(std::int64_t i, std::int64_t j) const {
    return data_[p_.block_mask.row(batch_, head_, i) + j * p_.block_mask.column_stride] != 0;
  }

  const AttentionParams& p_;
  const std::uint8_t* data_;
  std::int64_t batch_, head_;
};

/// Hides the keys outside [visible.begin, visible.end) and returns the largest score of each lane.
inline Vec apply_range(Scalar* scores, Columns c, KeyRange visible) {
  const int from = static_cast<int>(std::clamp<std::int64_t>(visible.begin - c.first_key, c.begin, c.end));
  const int to = static_cast<int>(std::clamp<std::int64_t>(visible.end - c.first_key, c.begin, c.end));
  const Vec hidden = broadcast(-kInfinity);
  Vec largest = hidden;
  for (int j = c.begin; j < c.end; j += kWidth) {
    const Vec s = select(columns_within(j, from, to), load(scores + j), hidden);
    store(scores + j, s);
    largest = max(largest, s);
  }
  return largest;
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
