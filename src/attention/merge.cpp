// merge_states(): merges partial results of the same rows over different keys.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/axes.h"
#include "core/check.h"
#include "saccade/decode.h"

namespace saccade {
namespace {

void check_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const TensorView& o, const TensorView& lse, Layout layout) {
  constexpr std::string_view kName = "merge_states";
  if (o.rank < 2 || o.rank > 4)
    refuse(kName, "o must have rank 2, 3 or 4, but it has shape ", to_string(o.dims()));
  Shape rows(o.dims().begin(), o.dims().end() - 1);
  if (layout == Layout::blhd && o.rank > 2) std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
  const auto check = [&](std::string_view name, const TensorView& view, std::span<const std::int64_t> shape) {
    if (!is_floating(view.dtype))
      refuse(kName, name, " must be a floating-point tensor, but it is ", name_of(view.dtype));
    if (!std::ranges::equal(view.dims(), shape))
      refuse(kName, name, " must have shape ", to_string(shape), ", but it has shape ", to_string(view.dims()));
    if (view.data == nullptr && view.size() > 0) refuse(kName, name, " has no data (null pointer)");
  };
  for (const auto& [name, view] : {std::pair{"o_a", &o_a}, {"o_b", &o_b}, {"o", &o}}) check(name, *view, o.dims());
  for (const auto& [name, view] : {std::pair{"lse_a", &lse_a}, {"lse_b", &lse_b}, {"lse", &lse}}) {
    check(name, *view, rows);
    if (view->dtype != DType::f32 && view->dtype != DType::f64)
      refuse(kName, name, " must be f32 or f64, but it is ", name_of(view->dtype));
  }
}

/// Converts a row of any type to doubles.
void read_row(const TensorView& view, std::vector<double>& row) {
  copy(view, MutableTensorView(row.data(), DType::f64, view.dims()));
}

}  // namespace

void merge_states(const TensorView& o_a, const TensorView& lse_a, const TensorView& o_b, const TensorView& lse_b,
                  const MutableTensorView& o, const MutableTensorView& lse, Layout layout) {
  check_states(o_a, lse_a, o_b, lse_b, o, lse, layout);
  const TensorView a = as_bhld(o_a, layout), b = as_bhld(o_b, layout);
  const TensorView lses_a = with_rank(lse_a, 3), lses_b = with_rank(lse_b, 3);
  const MutableTensorView out = as_bhld(o, layout), lses = with_rank(lse, 3);
  std::vector<double> row_a(static_cast<std::size_t>(out.shape[3])), row_b(row_a.size());
  for (std::int64_t batch = 0; batch < out.shape[0]; ++batch) {
    for (std::int64_t head = 0; head < out.shape[1]; ++head) {
      for (std::int64_t i = 0; i < out.shape[2]; ++i) {
        const auto at = [&](const auto& view) { return view.select(0, batch).select(0, head).select(0, i); };
        const double x = value_at(lses_a, std::array{batch, head, i}),
                     y = value_at(lses_b, std::array{batch, head, i});
        const double top = std::max(x, y);
        const bool empty = top == -std::numeric_limits<double>::infinity();
        double total = empty ? top : top + std::log(std::exp(x - top) + std::exp(y - top));
        read_row(at(a), row_a);
        read_row(at(b), row_b);
        const double weight_a = x == -INFINITY ? 0.0 : std::exp(x - total);
        const double weight_b = y == -INFINITY ? 0.0 : std::exp(y - total);
        for (std::size_t d = 0; d < row_a.size(); ++d) {
          const double from_a = weight_a == 0.0 && x == -INFINITY ? 0.0 : weight_a * row_a[d];
          const double from_b = weight_b == 0.0 && y == -INFINITY ? 0.0 : weight_b * row_b[d];
          row_a[d] = from_a + from_b;
        }
        copy(TensorView(row_a.data(), DType::f64, std::array{out.shape[3]}), at(out));
        copy(TensorView(&total, DType::f64, std::span<const std::int64_t>{}), at(lses));
      }
    }
  }
}

}  // namespace saccade
