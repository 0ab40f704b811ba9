// Some of the keys or values of a problem, quantized ones too, in memory of their own.
#pragma once

#include <saccade/attention.h>
#include <saccade/quantize.h>

#include <cstdint>
#include <span>
#include <utility>

namespace saccade::cases {

/// Rows [first, second) of an axis, several of them one after the other.
using RowRuns = std::span<const std::pair<std::int64_t, std::int64_t>>;

inline Tensor rows_along(const TensorView& whole, int dim, RowRuns runs) {
  Shape shape(whole.dims().begin(), whole.dims().end());
  std::int64_t& rows = shape[static_cast<std::size_t>(dim)] = 0;
  for (const auto& [begin, end] : runs) rows += end - begin;
  Tensor result(whole.dtype, shape);
  std::int64_t at = 0;
  for (const auto& [begin, end] : runs) {
    copy(whole.slice(dim, begin, end), result.mutable_view().slice(dim, at, at + end - begin));
    at += end - begin;
  }
  return result;
}

/// Rows of keys or values of any type.
class KeyRows {
 public:
  KeyRows() = default;
  KeyRows(const TensorView& whole, int dim, RowRuns runs)
      : dtype_(whole.dtype), dim_(whole.shape[whole.rank - 1U]) {
    TensorView rows = whole;
    if (dtype_ == DType::i4) {  // as bytes
      rows.dtype = DType::u8;
      for (std::size_t i = 0; i + 1 < rows.rank; ++i) rows.strides[i] /= 2;
      rows.shape[rows.rank - 1U] = (dim_ + 31) / 32 * 16;
    }
    memory_ = rows_along(rows, dim, runs);
  }

  TensorView view() const {
    TensorView view = memory_.view();
    if (dtype_ != DType::i4) return view;
    view.dtype = DType::i4;
    for (std::size_t i = 0; i + 1 < view.rank; ++i) view.strides[i] *= 2;
    view.shape[view.rank - 1U] = dim_;
    return view;
  }

 private:
  DType dtype_ = DType::f32;
  std::int64_t dim_ = 0;
  Tensor memory_;
};

/// The scales and multipliers of these rows of k and v. Their axis of rows is the last but one, whatever the
/// layout.
class ScalesOfRows {
 public:
  ScalesOfRows() = default;
  ScalesOfRows(AttentionOptions& options, RowRuns runs) {
    Tensor* own = own_;
    for (TensorView* view : {&options.k_scale, &options.v_scale, &options.k_multipliers, &options.v_multipliers}) {
      const bool is_multipliers = view == &options.k_multipliers || view == &options.v_multipliers;
      const bool has_rows = view->rank > 1 && (is_multipliers || view->shape[view->rank - 2U] > 1);
      if (*view && has_rows) *view = *own = rows_along(*view, view->rank - 2, runs);
      ++own;
    }
  }

 private:
  Tensor own_[4];
};

}  // namespace saccade::cases
