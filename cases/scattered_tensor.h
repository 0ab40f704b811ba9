// A tensor in memory larger than itself.
#pragma once

#include <saccade/tensor.h>

#include <cstdint>
#include <vector>

#include "cases/random.h"

namespace saccade::cases {

/// The dimensions in another order, with gaps, and NaN in the gaps and wherever nothing was written, so that
/// reading a wrong element shows.
class ScatteredTensor {
 public:
  ScatteredTensor() = default;

  /// `order` lists the outer dimensions from the slowest to the fastest; the last dimension stays innermost.
  ScatteredTensor(DType dtype, Shape shape, const std::vector<int>& order, std::int64_t gap);

  TensorView view() const { return {memory_.data(), memory_.dtype(), shape_, strides_}; }
  MutableTensorView view() { return {memory_.data(), memory_.dtype(), shape_, strides_}; }

  /// All elements become NaN, in the tensor and in the gaps.
  void clear();

  /// Elements of the memory that are not the NaN of clear(): what was written.
  std::int64_t written() const;

  const Tensor& memory() const { return memory_; }

 private:
  Shape shape_;
  std::vector<std::int64_t> strides_;
  Tensor memory_;
};

/// Fills a floating-point view with scale times a nearly normal number each.
void draw_numbers(const MutableTensorView& view, double scale, Random& random);

/// Fills a floating-point view with one number.
void fill(const MutableTensorView& view, double number);

}  // namespace saccade::cases
