#include "nn/elementwise.h"

#include "backend/layer_kernels.h"
#include "core/parallel.h"
#include "nn/layers/rows.h"

namespace saccade {

void add_to(const MutableTensorView& sum, const TensorView& x) {
  const Rows from(x);
  float* const to = sum.as<float>();
  const LayerKernels& kernels = layer_kernels();
  for_blocks(sum.size(), 1,
             [&](std::int64_t i, std::int64_t end) { kernels.add_to(from.data() + i, to + i, end - i); });
}

void add_to_each_entry(Tensor& x, const TensorView& rows) {
  const Rows from(rows);
  const std::int64_t count = rows.size();
  float* const to = x.mutable_view().as<float>();
  const LayerKernels& kernels = layer_kernels();
  for_blocks(x.shape(0), count, [&](std::int64_t entry, std::int64_t end) {
    for (; entry < end; ++entry) kernels.add_to(from.data(), to + entry * count, count);
  });
}

Tensor sum_of_entries(const TensorView& x) {
  const Rows from(x);
  Tensor sum(DType::f32, Shape(x.dims().begin() + 1, x.dims().end()));
  const std::int64_t count = sum.size();
  float* const to = sum.mutable_view().as<float>();
  const LayerKernels& kernels = layer_kernels();
  for_blocks(count, x.shape[0], [&](std::int64_t i, std::int64_t end) {
    for (std::int64_t entry = 0; entry < x.shape[0]; ++entry)
      kernels.add_to(from.data() + entry * count + i, to + i, end - i);
  });
  return sum;
}

}  // namespace saccade
