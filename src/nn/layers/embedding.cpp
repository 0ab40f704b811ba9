#include <algorithm>
#include <utility>

#include "backend/layer_kernels.h"
#include "core/ceil_div.h"
#include "core/check.h"
#include "core/parallel.h"
#include "nn/layers/rows.h"
#include "saccade/layers.h"

namespace saccade {

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t dim) : Module("Embedding") {
  if (num_embeddings < 1 || dim < 1)
    refuse(name(), "num_embeddings and dim must be at least 1, got ", num_embeddings, " and ", dim);
  weight_.value = Tensor(DType::f32, {num_embeddings, dim});
}

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t dim, TorchGenerator& generator)
    : Embedding(num_embeddings, dim) {
  weight_.value = generator.normal({num_embeddings, dim}, 0.0, 1.0);
}

std::vector<Module::Part> Embedding::parts() { return {Part("weight", weight_)}; }

Tensor Embedding::forward(const TensorView& tokens) {
  check_dtype(name(), "tokens", tokens, DType::i64);
  if (tokens.rank == 0 || tokens.rank >= kMaxRank)
    refuse(name(), "tokens must have 1 to ", kMaxRank - 1, " dimensions, but they have ", int{tokens.rank});
  if (tokens.data == nullptr && tokens.size() > 0)
    refuse(name(), "tokens have shape ", to_string(tokens.dims()), " but no data (null pointer)");
  Tensor numbers = Tensor::copy_of(tokens);
  for (const std::int64_t token : numbers.values<std::int64_t>())
    if (token < 0 || token >= num_embeddings())
      refuse(name(), "tokens must be in [0, ", num_embeddings(), "), but one is ", token);

  Shape shape = numbers.shape();
  shape.push_back(dim());
  Tensor y = Tensor::uninitialized(DType::f32, shape);
  const std::int64_t* const rows = numbers.values<std::int64_t>().data();
  const float* const table = weight_.value.view().as<float>();
  float* const to = y.mutable_view().as<float>();
  for_blocks(numbers.size(), dim(), [&](std::int64_t row, std::int64_t row_end) {
    for (; row < row_end; ++row) std::copy_n(table + rows[row] * dim(), dim(), to + row * dim());
  });
  if (training()) tokens_ = std::move(numbers);
  return y;
}

void Embedding::backward(const TensorView& dout) {
  require_forward(name(), tokens_.rank() != 0);
  Shape shape = tokens_.shape();
  shape.push_back(dim());
  check_dout(name(), dout, shape);
  const Tensor tokens = std::exchange(tokens_, Tensor());
  const Rows from(dout);
  float* const gradient = weight_.gradient_to_add_to().as<float>();
  const std::int64_t* const rows = tokens.values<std::int64_t>().data();
  const LayerKernels& kernels = layer_kernels();
  // Threads split the columns, so each sum adds its rows in order.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t panels = ceil_div(dim(), kColumns);
  parallel_for(threads_for_numbers(panels, dout.size()), panels, 0, [&](std::int64_t panel, std::byte*) {
    const std::int64_t column = panel * kColumns, columns = std::min(kColumns, dim() - column);
    for (std::int64_t row = 0; row < from.rows(); ++row)
      kernels.add_to(from.data() + row * dim() + column, gradient + rows[row] * dim() + column, columns);
  });
}

}  // namespace saccade
