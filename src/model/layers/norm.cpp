#include "model/layers/norm.h"

#include <cmath>

#include "core/parallel.h"

namespace saccade::model {

NormLayer::NormLayer(const StackTable& table, const Checkpoint& checkpoint, const std::string& name,
                     std::int64_t dim)
    : kind_(table.norm), eps_(table.norm_eps) {
  if (name.empty()) return;
  const bool is_old = !checkpoint.has(name + ".weight") && checkpoint.has(name + ".gamma");
  scale_ = checkpoint.numbers(name + (is_old ? ".gamma" : ".weight"), {dim});
  for (float& scale : scale_.values<float>()) scale += static_cast<float>(table.norm_offset);
  if (kind_ == NormKind::layer) shift_ = checkpoint.numbers(name + (is_old ? ".beta" : ".bias"), {dim});
}

void NormLayer::operator()(const TensorView& x, const MutableTensorView& y) const {
  if (kind_ == NormKind::layer)
    layer_norm(x, scale_, shift_, y, eps_);
  else
    rms_norm(x, scale_, y, eps_);
}

Tensor NormLayer::backward(const TensorView& x, const TensorView& dout) const {
  // With n = (x - mean) / deviation and g = scale dout: dx = (g - mean(g) - n mean(g n)) / deviation. An RMS norm
  // has no means.
  const Tensor from = Tensor::copy_of(x), gradient = Tensor::copy_of(dout);
  Tensor dx = Tensor::uninitialized(DType::f32, from.shape());
  const std::int64_t dim = scale_.size(), rows = from.size() / dim;
  const auto count = static_cast<double>(dim);
  const auto back = [&](std::int64_t row) {
    const float* const x_row = from.values<float>().data() + row * dim;
    const float* const dout_row = gradient.values<float>().data() + row * dim;
    const float* const scale = scale_.values<float>().data();
    const auto mean = [&](const auto& term) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < dim; ++i) sum += term(i);
      return sum / count;
    };
    const bool is_centred = kind_ == NormKind::layer;
    const double middle = is_centred ? mean([&](std::int64_t i) { return x_row[i]; }) : 0.0;
    const double deviation =
        std::sqrt(mean([&](std::int64_t i) { return (x_row[i] - middle) * (x_row[i] - middle); }) + eps_);
    const auto n = [&](std::int64_t i) { return (x_row[i] - middle) / deviation; };
    const auto g = [&](std::int64_t i) { return static_cast<double>(scale[i]) * dout_row[i]; };
    const double shift = is_centred ? mean(g) : 0.0, slope = mean([&](std::int64_t i) { return g(i) * n(i); });
    float* const to = dx.values<float>().data() + row * dim;
    for (std::int64_t i = 0; i < dim; ++i) to[i] = static_cast<float>((g(i) - shift - n(i) * slope) / deviation);
  };
  for_blocks(rows, dim, [&](std::int64_t row, std::int64_t row_end) {
    for (; row < row_end; ++row) back(row);
  });
  return dx;
}

}  // namespace saccade::model
