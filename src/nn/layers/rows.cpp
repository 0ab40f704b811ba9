#include "nn/layers/rows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/check.h"

namespace saccade {

Rows::Rows(const TensorView& view)
    : copy_(view.is_contiguous() ? Tensor() : Tensor::copy_of(view)),
      data_(copy_.rank() == 0 ? view.as<float>() : copy_.view().as<float>()),
      rows_(1),
      columns_(view.dims().back()) {
  for (const std::int64_t length : view.dims().first(view.rank - 1u)) rows_ *= length;
}

Shape shape_of(const TensorView& view) { return {view.dims().begin(), view.dims().end()}; }

void check_input(std::string_view name, const TensorView& x) {
  if (x.rank == 0) refuse(name, "x must have at least one dimension");
  check_dtype(name, "x", x, DType::f32);
  if (x.data == nullptr && x.size() > 0)
    refuse(name, "x has shape ", to_string(x.dims()), " but no data (null pointer)");
}

void check_input(std::string_view name, const TensorView& x, std::int64_t columns) {
  check_input(name, x);
  if (x.dims().back() != columns)
    refuse(name, "x must be [..., ", columns, "], but it has shape ", to_string(x.dims()));
}

void require_forward(std::string_view name, bool has_kept) {
  if (!has_kept)
    throw std::logic_error("[" + std::string(name) + "] backward needs a forward call in training mode before it");
}

void check_dout(std::string_view name, const TensorView& dout, std::span<const std::int64_t> shape) {
  check_dtype(name, "dout", dout, DType::f32);
  if (!std::ranges::equal(dout.dims(), shape))
    refuse(name, "dout must have the shape of the output, ", to_string(shape), ", but it has shape ",
           to_string(dout.dims()));
  if (dout.data == nullptr && dout.size() > 0)
    refuse(name, "dout has shape ", to_string(dout.dims()), " but no data (null pointer)");
}

}  // namespace saccade
