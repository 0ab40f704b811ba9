#include <utility>

#include "backend/layer_kernels.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/layers/rows.h"
#include "nn/seed.h"
#include "saccade/layers.h"

namespace saccade {

Dropout::Dropout(double p) : Module("Dropout"), p_(p) {
  if (!(p >= 0.0 && p <= 1.0)) refuse(name(), "p must be in [0, 1], got ", p);
}

std::vector<Module::Part> Dropout::parts() { return {}; }

void Dropout::seed_dropout(std::uint64_t seed) {
  seed_ = seed;
  calls_ = 0;
}

/// Drops with the random numbers of call calls_ - 1.
Tensor Dropout::dropped(const TensorView& x) const {
  const Rows from(x);
  Tensor y = Tensor::uninitialized(DType::f32, shape_of(x));
  const DropoutParams params{.dim = from.columns(),
                             .p = p_,
                             .seed = *seed_,
                             .offset = calls_ - 1,
                             .x = from.data(),
                             .y = y.mutable_view().as<float>()};
  const LayerKernels& kernels = layer_kernels();
  for_blocks(from.rows(), from.columns(),
             [&](std::int64_t row, std::int64_t row_end) { kernels.dropout(params, row, row_end); });
  return y;
}

Tensor Dropout::forward(const TensorView& x) {
  check_input(name(), x);
  if (!training()) return Tensor::copy_of(x);
  if (!seed_) seed_ = seed_from_operating_system();
  ++calls_;
  shape_ = shape_of(x);
  return p_ == 0.0 ? Tensor::copy_of(x) : dropped(x);
}

Tensor Dropout::backward(const TensorView& dout) {
  require_forward(name(), !shape_.empty());
  check_dout(name(), dout, shape_);
  shape_.clear();
  return p_ == 0.0 ? Tensor::copy_of(dout) : dropped(dout);
}

}  // namespace saccade
