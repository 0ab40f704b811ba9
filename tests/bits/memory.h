// The parts of random problems: choices, tensors filled with numbers, and hashes of results.
#pragma once

#include <saccade/saccade.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace saccade::bits {

/// SplitMix64: the same choices for the same seed everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// A whole number from `least` to `most`.
  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-23F - 1.0F; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[from(0, static_cast<std::int64_t>(values.size()) - 1)];
  }

 private:
  std::uint64_t state_;
};

/// FNV-1a over the elements of results. All NaN count as equal: the compiler chooses which operand's payload a sum
/// keeps.
class Hash {
 public:
  void add(const Tensor& tensor) {
    for (const std::int64_t length : tensor.shape()) add_bits(static_cast<std::uint64_t>(length));
    switch (tensor.dtype()) {
      case DType::f64:
        return add_numbers<std::uint64_t>(tensor, 0x7ff0000000000000U);
      case DType::f32:
        return add_numbers<std::uint32_t>(tensor, 0x7f800000U);
      case DType::f16:
        return add_numbers<std::uint16_t>(tensor, 0x7c00U);
      case DType::bf16:
        return add_numbers<std::uint16_t>(tensor, 0x7f80U);
      case DType::i32:
        return add_numbers<std::uint32_t>(tensor, ~0U);
      default:
        return add_numbers<std::uint64_t>(tensor, ~std::uint64_t{0});
    }
  }
  void add(double number) { add(Tensor::of<double>({number})); }
  std::uint64_t value() const { return value_; }

 private:
  void add_bits(std::uint64_t bits) {
    for (int byte = 0; byte < 8; ++byte) value_ = (value_ ^ (bits >> 8 * byte & 0xff)) * 0x100000001b3U;
  }
  template <class Bits>
  void add_numbers(const Tensor& tensor, Bits infinity) {
    const auto* numbers = static_cast<const Bits*>(tensor.data());
    constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      add_bits(infinity <= kMagnitude && (numbers[i] & kMagnitude) > infinity ? 0x4e614eU : numbers[i]);
  }

  std::uint64_t value_ = 0xcbf29ce484222325U;
};

/// The tensors of one problem: contiguous, with gaps between rows, or with two axes exchanged in memory.
class Memory {
 public:
  explicit Memory(Random& random) : random_(random) {}

  /// Numbers in [-1, 1); booleans are true with a probability of 0.7.
  MutableTensorView input(const Shape& shape, DType dtype) {
    const MutableTensorView view = place(shape, dtype, inputs_);
    Tensor& memory = inputs_.back();
    Tensor numbers(DType::f32, memory.shape());
    for (float& number : numbers.values<float>()) number = random_.uniform();
    if (dtype == DType::boolean)
      for (float& number : numbers.values<float>()) number = number < 0.4F ? 1.0F : 0.0F;
    copy(numbers, memory);
    return view;
  }

  template <class T>
  TensorView integers(const std::vector<std::int64_t>& values) {
    Tensor& memory = inputs_.emplace_back(dtype_of<T>, Shape{static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) memory.values<T>()[i] = static_cast<T>(values[i]);
    return memory;
  }
  /// The same as i32 or i64.
  TensorView integers(const std::vector<std::int64_t>& values) {
    return random_.chance(0.5) ? integers<std::int32_t>(values) : integers<std::int64_t>(values);
  }

  /// Memory for results. The hash covers all of it, including gaps.
  MutableTensorView output(const Shape& shape, DType dtype) { return place(shape, dtype, outputs_); }

  void add_to(Hash& hash) const {
    for (const Tensor& tensor : outputs_) hash.add(tensor);
  }

 private:
  MutableTensorView place(const Shape& shape, DType dtype, std::deque<Tensor>& into) {
    Shape stored = shape;
    const int rank = static_cast<int>(shape.size());
    const bool has_gaps = random_.chance(0.25), is_exchanged = rank >= 3 && random_.chance(0.25);
    if (is_exchanged) std::swap(stored[shape.size() - 2], stored[shape.size() - 3]);
    if (has_gaps) stored.back() += random_.from(1, 5);
    MutableTensorView view = into.emplace_back(dtype, stored);
    if (has_gaps) view = view.slice(rank - 1, 0, shape.back());
    return is_exchanged ? view.transposed(-2, -3) : view;
  }

  Random& random_;
  std::deque<Tensor> inputs_, outputs_;
};

/// Writes the same number everywhere.
inline void fill(const MutableTensorView& view, float number) {
  Tensor numbers(DType::f32, Shape(view.dims().begin(), view.dims().end()));
  for (float& each : numbers.values<float>()) each = number;
  copy(numbers, view);
}

}  // namespace saccade::bits
