// Projections with weights that do not change: those of a model that is loaded once and then used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "saccade/functional.h"
#include "saccade/linear.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

class PackedProduct;

/// Options of a PackedLinear; fill it with designated initializers.
struct PackedLinearOptions {
  WeightLayout weight_layout = WeightLayout::out_in;  ///< of the weight
  /// Added to every row: [d_out], f32, bf16 or f16; default: none.
  TensorView bias{};
  /// Applied to the result.
  Activation activation = Activation::none;
};

/// y = f(x W + b), with W packed in the order in which the matrix product reads it. linear() packs the weights in
/// every call, which is most of its time where x has few rows.
///
/// Weights keep their type: bf16 and f16 are half as much to read as f32. x and y are f32, and so is the
/// arithmetic. Without an activation the bits are those of linear() with the same weights in f32. Several threads
/// may call at once.
class PackedLinear {
 public:
  /// No projection, as a target of assignment.
  PackedLinear();
  /// weight: f32, bf16 or f16, by `weight_layout`; its innermost dimension is contiguous. The weights and the bias
  /// are copied. Uses the instruction set that is active now. Throws std::invalid_argument for other shapes and
  /// types, and for widths below 1.
  explicit PackedLinear(const TensorView& weight, const PackedLinearOptions& options = {});
  ~PackedLinear();
  PackedLinear(PackedLinear&&) noexcept;
  PackedLinear& operator=(PackedLinear&&) noexcept;

  explicit operator bool() const { return weight_ != nullptr; }
  std::int64_t d_in() const { return d_in_; }
  std::int64_t d_out() const { return d_out_; }
  /// The memory of the weights.
  std::size_t bytes() const;

  /// x [..., d_in] -> y [..., d_out], both f32, innermost dimension contiguous; the outer dimensions are equal and
  /// may have any strides. num_threads as in LinearOptions. Throws std::invalid_argument.
  void forward(const TensorView& x, const MutableTensorView& y, int num_threads = 0) const;
  Tensor forward(const TensorView& x, int num_threads = 0) const;
  /// y += x W + b, on num_threads threads. Also throws if there is an activation.
  void add_to(const TensorView& x, const MutableTensorView& y, int num_threads = 0) const;
  /// The gradient of the loss with respect to x, [..., d_in], from dout, the gradient with respect to y. x is read
  /// only if there is an activation. Each call unpacks the weights, d_in * d_out floats: meant for inspecting a
  /// model now and then, not for training. num_threads as in LinearOptions. Throws std::invalid_argument.
  Tensor backward(const TensorView& x, const TensorView& dout, int num_threads = 0) const;

 private:
  void run(const TensorView& x, const MutableTensorView& y, bool adds, int num_threads) const;

  std::unique_ptr<PackedProduct> weight_;
  std::vector<float> bias_;
  std::int64_t d_in_ = 0, d_out_ = 0;
  Activation activation_ = Activation::none;
};

}  // namespace saccade
#pragma GCC visibility pop
