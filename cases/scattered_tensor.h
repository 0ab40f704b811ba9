// A tensor with gaps in its memory.
#pragma once

#include <saccade/quantize.h>
#include <saccade/tensor.h>

#include <cstdint>
#include <vector>

#include "cases/random.h"

namespace saccade::cases {

/// A tensor whose dimensions are stored in any order, with gaps. The gaps and all elements not yet written hold
/// NaN, so that reading a wrong element is noticed.
class ScatteredTensor {
 public:
  ScatteredTensor() = default;

  /// `order` lists the outer dimensions from the slowest to the fastest; the last dimension stays innermost.
  ScatteredTensor(DType dtype, Shape shape, const std::vector<int>& order, std::int64_t gap);

  /// Quantized numbers, without gaps.
  explicit ScatteredTensor(const QuantizedTensor& numbers);

  TensorView view() const { return {memory_.data(), dtype_, shape_, strides_}; }
  MutableTensorView view() { return {memory_.data(), dtype_, shape_, strides_}; }

  /// Sets all elements to NaN, in the tensor and in the gaps.
  void clear();

  /// The number of elements in the memory, gaps included, that have been written: those that are not the NaN of
  /// clear().
  std::int64_t written() const;

  const Tensor& memory() const { return memory_; }

 private:
  Shape shape_;
  std::vector<std::int64_t> strides_;
  DType dtype_ = DType::f32;
  Tensor memory_;
};

/// Sets each element of a floating-point view to `scale` times a nearly normal number.
void draw_numbers(const MutableTensorView& view, double scale, Random& random);

/// Fills a floating-point view with one number.
void fill(const MutableTensorView& view, double number);

}  // namespace saccade::cases
