// merge_states(): merges results of the same rows over different keys.
#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "core/axes.h"
#include "core/check.h"
#include "core/parallel.h"
#include "saccade/decode.h"

namespace saccade {
namespace {

constexpr std::string_view kName = "merge_states";

/// A tensor of the call and its name in errors.
struct NamedView {
  std::string name;
  TensorView view;
};

void check_shape(const NamedView& tensor, std::span<const std::int64_t> shape) {
  const auto& [name, view] = tensor;
  if (!is_floating(view.dtype))
    refuse(kName, name, " must be a floating-point tensor, but it is ", name_of(view.dtype));
  if (!std::ranges::equal(view.dims(), shape))
    refuse(kName, name, " must have shape ", to_string(shape), ", but it has shape ", to_string(view.dims()));
  if (view.data == nullptr && view.size() > 0) refuse(kName, name, " has no data (null pointer)");
}

void check_lse(const NamedView& lse, std::span<const std::int64_t> shape) {
  check_shape(lse, shape);
  if (lse.view.dtype != DType::f32 && lse.view.dtype != DType::f64)
    refuse(kName, lse.name, " must be f32 or f64, but it is ", name_of(lse.view.dtype));
}

/// `os` and `lses` hold the tensors of the parts, then the result.
void check_states(std::span<const NamedView> os, std::span<const NamedView> lses, Layout layout) {
  const TensorView& o = os.back().view;
  if (o.rank < 2 || o.rank > 4)
    refuse(kName, "o must have rank 2, 3 or 4, but it has shape ", to_string(o.dims()));
  Shape rows(o.dims().begin(), o.dims().end() - 1);
  if (layout == Layout::bshd && o.rank > 2) std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
  for (const NamedView& tensor : os) check_shape(tensor, o.dims());
  for (const NamedView& tensor : lses) check_lse(tensor, rows);
}

/// The strides of a view whose axes are [batch, heads, rows, ...].
template <class Void, class Data>
StridedHeads<Void> matrix_of(const TensorView& view, Data* data) {
  return {data, view.dtype, view.strides[0], view.strides[1], view.strides[2]};
}

/// Merges parts into the last element of both lists.
void merge_checked(std::span<const NamedView> os, std::span<const NamedView> lses, const MutableTensorView& o,
                   const MutableTensorView& lse, Layout layout) {
  if (o.size() == 0 && lse.size() == 0) return;
  const bool is_double = std::ranges::any_of(os, [](const NamedView& x) { return x.view.dtype == DType::f64; });
  const auto is_ready = [&](const TensorView& x) {
    return (x.shape[3] <= 1 || x.strides[3] == 1) && (!is_double || x.dtype == DType::f64);
  };
  std::deque<Tensor> copies;  // of tensors that kernels do not accept
  std::vector<MergePart> parts;
  for (std::size_t i = 0; i + 1 < os.size(); ++i) {
    TensorView from = as_bhsd(os[i].view, layout);
    if (!is_ready(from)) from = copies.emplace_back(Tensor::copy_of(from, is_double ? DType::f64 : from.dtype));
    const TensorView of_rows = with_rank(lses[i].view, 3);
    parts.push_back({matrix_of<const void>(from, from.data), {matrix_of<const void>(of_rows, of_rows.data)}});
  }
  const MutableTensorView to = as_bhsd(o, layout), lse_to = with_rank(lse, 3);
  MutableTensorView out = to;
  if (!is_ready(to)) {
    Tensor& copy =
        copies.emplace_back(is_double ? DType::f64 : to.dtype, Shape(to.dims().begin(), to.dims().end()));
    out = copy;
  }
  active_backend().merge({.batch = out.shape[0],
                          .heads = out.shape[1],
                          .rows = out.shape[2],
                          .dim = out.shape[3],
                          .parts = parts.data(),
                          .count = static_cast<std::int64_t>(parts.size()),
                          .o = matrix_of<void>(out, out.mutable_data()),
                          .lse = matrix_of<void>(lse_to, lse_to.mutable_data())});
  if (!is_ready(to)) copy(out, to);
}

}  // namespace

void merge_states(std::span<const PartialResult> parts, const MutableTensorView& o, const MutableTensorView& lse,
                  Layout layout) {
  std::vector<NamedView> os, lses;
  for (const PartialResult& part : parts) {
    const std::string name = "parts[" + std::to_string(os.size()) + "].";
    os.push_back({name + "o", part.o});
    lses.push_back({name + "lse", part.lse});
  }
  os.push_back({"o", o});
  lses.push_back({"lse", lse});
  check_states(os, lses, layout);
  merge_checked(os, lses, o, lse, layout);
}

void merge_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const MutableTensorView& o, const MutableTensorView& lse, Layout layout) {
  const NamedView os[] = {{"o_a", o_a}, {"o_b", o_b}, {"o", o}};
  const NamedView lses[] = {{"lse_a", lse_a}, {"lse_b", lse_b}, {"lse", lse}};
  check_states(os, lses, layout);
  merge_checked(os, lses, o, lse, layout);
}

}  // namespace saccade
