#include "distributed/call/key_rows.h"

#include <array>

#include "core/quantized/rows.h"

namespace saccade::distributed {
namespace {

/// A tensor that broadcasts from the right to four axes of these lengths.
TensorView broadcast(const TensorView& tensor, const std::array<std::int64_t, 4>& lengths) {
  std::array<std::int64_t, 4> strides{};
  for (std::size_t i = 0; i < tensor.rank; ++i)
    if (tensor.shape[i] != 1) strides[4 - tensor.rank + i] = tensor.strides[i];
  return TensorView(tensor.data, tensor.dtype, lengths, strides);
}

}  // namespace

KeyRows::KeyRows(const TensorView& tensor, const TensorView& scale, const TensorView& multipliers)
    : dtype(tensor.dtype), dim(tensor.shape[3]), tensors{tensor} {
  const std::int64_t batch = tensor.shape[0], heads = tensor.shape[1], keys = tensor.shape[2];
  if (dtype == DType::i4) {
    TensorView& bytes = tensors[0];
    bytes.dtype = DType::u8;
    for (std::size_t i = 0; i < 3; ++i) bytes.strides[i] /= 2;
    bytes.shape[3] = stored_dim(DType::i4, dim) / 2;
  }
  if (scale && is_of_channels(scale))
    channels = broadcast(scale, {batch, heads, 1, dim});
  else if (scale)
    tensors.push_back(broadcast(scale, {batch, heads, keys, 1}));
  if (multipliers) tensors.push_back(broadcast(multipliers, {batch, heads, keys, quantized_groups(dim)}));
}

TensorView KeyRows::numbers_of(TensorView rows) const {
  if (dtype != DType::i4) return rows;
  rows.dtype = DType::i4;
  for (std::size_t i = 0; i + 1 < rows.rank; ++i) rows.strides[i] *= 2;
  rows.shape[rows.rank - 1U] = dim;
  return rows;
}

void KeyRows::describe(const std::vector<TensorView>& rows, const TensorView& of_channels, TensorView& scale,
                       TensorView& multipliers) const {
  scale = of_channels;
  multipliers = dtype == DType::i4 ? rows.back() : TensorView();
  if (!of_channels && rows.size() > (dtype == DType::i4 ? 2U : 1U)) scale = rows[1];
}

}  // namespace saccade::distributed
