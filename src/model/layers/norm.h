// A normalization layer with its weights.
#pragma once

#include <string>

#include "model/checkpoint/checkpoint.h"
#include "model/table.h"

namespace saccade::model {

class NormLayer {
 public:
  NormLayer() = default;
  /// NAME.weight, and for a layer norm NAME.bias (in old files gamma and beta); nothing for an empty name.
  NormLayer(const StackTable& table, const Checkpoint& checkpoint, const std::string& name, std::int64_t dim);

  explicit operator bool() const { return scale_.rank() != 0; }
  /// y may be x.
  void operator()(const TensorView& x, const MutableTensorView& y) const;
  /// The gradient of the loss with respect to x, from that with respect to the result; contiguous.
  Tensor backward(const TensorView& x, const TensorView& dout) const;

 private:
  Tensor scale_, shift_;
  NormKind kind_ = NormKind::layer;
  double eps_ = 0.0;
};

}  // namespace saccade::model
