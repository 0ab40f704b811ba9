#include "saccade/rope.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>
#include <utility>

#include "core/axes.h"
#include "core/ceil_div.h"
#include "core/check.h"
#include "core/parallel.h"
#include "saccade/runtime.h"

namespace saccade::detail {

/// The rotation at position p is the product of two rotations: one for p rounded down to a multiple of kNear,
/// one for the remainder. So two short tables cover every position. 64 sines and cosines take 1 microsecond,
/// their products 0.04 (Zen 4).
struct RopeTable {
  static constexpr std::int64_t kNear = 256;
  static constexpr std::int64_t kFar = 256;  // multiples of kNear in the table; others are computed

  using Turn = std::complex<double>;  // cos t + i sin t

  RopePairs pairs;
  std::vector<double> frequencies;
  std::vector<Turn> near, far;  // [position][frequency], [position / kNear][frequency]

  RopeTable(RopePairs which, std::vector<double> radians) : pairs(which), frequencies(std::move(radians)) {
    near.resize(static_cast<std::size_t>(kNear) * frequencies.size());
    far.resize(static_cast<std::size_t>(kFar) * frequencies.size());
    for (std::int64_t i = 0; i < kNear; ++i) compute(i, near.data() + row(i));
    for (std::int64_t i = 0; i < kFar; ++i) compute(i * kNear, far.data() + row(i));
  }

  std::size_t row(std::int64_t i) const { return static_cast<std::size_t>(i) * frequencies.size(); }

  void compute(std::int64_t position, Turn* turns) const {
    for (const double frequency : frequencies)
      *turns++ = std::polar(1.0, static_cast<double>(position) * frequency);
  }

  /// The cosines and sines at `position`, one for each frequency.
  template <class T>
  void read(std::int64_t position, T* cosines, T* sines) const {
    const std::int64_t rest = position & (kNear - 1), multiple = (position - rest) / kNear;
    std::vector<Turn> computed;
    const bool is_tabled = multiple >= 0 && multiple < kFar;
    if (!is_tabled) {
      computed.resize(frequencies.size());
      compute(multiple * kNear, computed.data());
    }
    const Turn* a = is_tabled ? far.data() + row(multiple) : computed.data();
    const Turn* b = near.data() + row(rest);
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      cosines[i] = static_cast<T>(a[i].real() * b[i].real() - a[i].imag() * b[i].imag());
      sines[i] = static_cast<T>(a[i].imag() * b[i].real() + a[i].real() * b[i].imag());
    }
  }
};

}  // namespace saccade::detail

namespace saccade {
namespace {

using detail::RopeTable;

constexpr std::string_view kRope = "Rope";
constexpr std::string_view kRotate = "Rope::rotate";

/// Tokens rotated together, so that all heads share their sines and cosines.
constexpr std::int64_t kTokens = 64;

std::vector<double> frequencies_of(std::int64_t dim, const RopeOptions& options) {
  if (dim < 1 || dim > kMaxLength) refuse(kRope, "dim must lie between 1 and 2^40, got ", dim);
  const std::int64_t rotary_dim = options.rotary_dim == 0 ? dim : options.rotary_dim;
  if (rotary_dim < 0 || rotary_dim > dim || rotary_dim % 2 != 0)
    refuse(kRope, "rotary_dim must be even and at most dim = ", dim, ", got ", rotary_dim);
  if (!(options.base > 0.0) || !std::isfinite(options.base))
    refuse(kRope, "base must be a positive number, got ", options.base);
  if (!(options.scaling_factor > 0.0) || !std::isfinite(options.scaling_factor))
    refuse(kRope, "scaling_factor must be a positive number, got ", options.scaling_factor);
  std::vector<double> frequencies = options.frequencies;
  if (frequencies.empty()) {
    frequencies.reserve(static_cast<std::size_t>(rotary_dim / 2));  // a huge dim fails at once
    for (std::int64_t i = 0; i < rotary_dim; i += 2)
      frequencies.push_back(std::pow(options.base, -static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  if (static_cast<std::int64_t>(frequencies.size()) != rotary_dim / 2)
    refuse(kRope, "rotary_dim ", rotary_dim, " takes ", rotary_dim / 2, " frequencies, got ", frequencies.size());
  for (double& frequency : frequencies) {
    if (!std::isfinite(frequency)) refuse(kRope, "frequencies must be finite numbers, got ", frequency);
    frequency /= options.scaling_factor;
  }
  return frequencies;
}

void check_position(std::int64_t position) {
  if (position < -kMaxLength || position > kMaxLength)
    refuse(kRotate, "start and positions must be within 2^40 of 0, but a position is ", position);
}

/// Rotates the pairs of a vector in place.
template <class T>
void turn(RopePairs pairs, std::int64_t count, const T* cosines, const T* sines, T* vector) {
  if (pairs == RopePairs::half) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T a = vector[i], b = vector[i + count];
      vector[i] = a * cosines[i] - b * sines[i];
      vector[i + count] = b * cosines[i] + a * sines[i];
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const T a = vector[2 * i], b = vector[2 * i + 1];
      vector[2 * i] = a * cosines[i] - b * sines[i];
      vector[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
  }
}

/// One call in bhsd order. `positions` is [batch, seqlen] with batch_stride between entries: 0 if they share
/// positions.
template <class T>
void rotate_all(const RopeTable& table, const TensorView& x, const MutableTensorView& y,
                const std::int64_t* positions, std::int64_t batch_stride) {
  const std::int64_t heads = x.shape[1], seqlen = x.shape[2], dim = x.shape[3];
  const auto count = static_cast<std::int64_t>(table.frequencies.size());
  const std::int64_t blocks = ceil_div(seqlen, kTokens), items = x.shape[0] * blocks;
  parallel_for(threads_for_numbers(items, x.size()), items, 0, [&](std::int64_t item, auto*) {
    const std::int64_t batch = item / blocks, first = item % blocks * kTokens;
    const std::int64_t tokens = std::min(kTokens, seqlen - first);
    std::vector<T> vectors(static_cast<std::size_t>(tokens * dim)),
        turns(static_cast<std::size_t>(tokens * 2 * count));
    T* const cosines = turns.data();  // [tokens, count]
    T* const sines = cosines + tokens * count;
    for (std::int64_t i = 0; i < tokens; ++i)
      table.read(positions[batch * batch_stride + first + i], cosines + i * count, sines + i * count);
    const MutableTensorView block(vectors.data(), {tokens, dim});
    for (std::int64_t head = 0; head < heads; ++head) {
      copy(x.select(0, batch).select(0, head).slice(0, first, first + tokens), block);
      for (std::int64_t i = 0; i < tokens; ++i)
        turn(table.pairs, count, cosines + i * count, sines + i * count, vectors.data() + i * dim);
      copy(block, y.select(0, batch).select(0, head).slice(0, first, first + tokens));
    }
  });
}

void check_vectors(std::string_view name, const TensorView& view, std::int64_t dim) {
  if (view.rank < 2 || view.rank > 4)
    refuse(kRotate, name, " must have rank 2, 3 or 4, but it has shape ", to_string(view.dims()));
  if (!is_floating(view.dtype))
    refuse(kRotate, name, " must be of a floating-point type, but it is ", name_of(view.dtype));
  if (view.shape[view.rank - 1] != dim)
    refuse(kRotate, name, " has dim ", view.shape[view.rank - 1], " but the embedding is for ", dim);
  if (view.data == nullptr && view.size() > 0)
    refuse(kRotate, name, " has shape ", to_string(view.dims()), " but no data (null pointer)");
}

void check_both(const TensorView& x, const MutableTensorView& y, std::int64_t dim) {
  check_vectors("x", x, dim);
  check_vectors("y", y, dim);
  if (!std::ranges::equal(x.dims(), y.dims()))
    refuse(kRotate, "y must have the shape of x, ", to_string(x.dims()), ", but it has shape ",
           to_string(y.dims()));
}

void rotate_any(const RopeTable& table, const TensorView& x, const MutableTensorView& y, Layout layout,
                const std::vector<std::int64_t>& positions, std::int64_t batch_stride) {
  if (x.size() == 0) return;
  const auto rotate = x.dtype == DType::f64 ? rotate_all<double> : rotate_all<float>;
  rotate(table, as_bhsd(x, layout), as_bhsd(y, layout), positions.data(), batch_stride);
}

}  // namespace

Rope::Rope(std::int64_t dim, const RopeOptions& options)
    : dim_(dim), table_(std::make_shared<const RopeTable>(options.pairs, frequencies_of(dim, options))) {}

RopeOptions Rope::options() const {
  return {.rotary_dim = 2 * static_cast<std::int64_t>(table_->frequencies.size()),
          .pairs = table_->pairs,
          .frequencies = table_->frequencies};
}

void Rope::rotate(const TensorView& x, const MutableTensorView& y, std::int64_t start, Layout layout) const {
  check_both(x, y, dim_);
  const std::int64_t seqlen = as_bhsd(x, layout).shape[2];
  check_position(start);
  check_position(start + seqlen);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(seqlen));
  std::iota(positions.begin(), positions.end(), start);
  rotate_any(*table_, x, y, layout, positions, 0);
}

void Rope::rotate(const TensorView& x, const MutableTensorView& y, const TensorView& positions,
                  Layout layout) const {
  check_both(x, y, dim_);
  if (positions.dtype != DType::i32 && positions.dtype != DType::i64)
    refuse(kRotate, "positions must be i32 or i64, but they are ", name_of(positions.dtype));
  const TensorView tokens = as_bhsd(x, layout);
  if (positions.rank == 2)
    check_shape(kRotate, "positions", positions, {tokens.shape[0], tokens.shape[2]});
  else
    check_shape(kRotate, "positions", positions, {tokens.shape[2]});
  check_memory(kRotate, "positions", positions);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(positions.size()));
  const Shape shape(positions.dims().begin(), positions.dims().end());
  copy(positions, MutableTensorView(numbers.data(), DType::i64, shape));
  for (const std::int64_t position : numbers) check_position(position);
  rotate_any(*table_, x, y, layout, numbers, positions.rank == 2 ? tokens.shape[2] : 0);
}

}  // namespace saccade
