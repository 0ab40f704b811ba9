#include "model/norm.h"

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

}  // namespace saccade::model
