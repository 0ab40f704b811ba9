// Arguments of the layers: rows without gaps, and argument checks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "saccade/tensor.h"

namespace saccade {

/// A view as contiguous rows of its innermost dimension; copied if it has gaps.
class Rows {
 public:
  explicit Rows(const TensorView& view);
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  const float* data() const { return data_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

 private:
  Tensor copy_;
  const float* data_;
  std::int64_t rows_, columns_;
};

Shape shape_of(const TensorView& view);

/// Throws unless x is f32 of rank 1 or more, and `columns` wide.
void check_input(std::string_view name, const TensorView& x, std::int64_t columns);
/// The same for layers that accept any width.
void check_input(std::string_view name, const TensorView& x);

/// Throws std::logic_error unless forward() has kept something.
void require_forward(std::string_view name, bool has_kept);
/// Throws unless dout is f32 and has the shape of forward()'s result.
void check_dout(std::string_view name, const TensorView& dout, std::span<const std::int64_t> shape);

}  // namespace saccade
