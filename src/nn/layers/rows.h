// Arguments of the layers: rows without gaps, and what is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "saccade/tensor.h"

namespace saccade {

/// A view as rows of its innermost dimension, one after the other; copied where it has gaps.
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

/// Refuses x unless it is f32 of rank 1 or more, and `columns` wide.
void check_input(std::string_view name, const TensorView& x, std::int64_t columns);
/// The same for layers that take any width.
void check_input(std::string_view name, const TensorView& x);

/// Throws std::logic_error unless forward() has kept something.
void require_forward(std::string_view name, bool has_kept);
/// Refuses dout unless it is f32 and has the shape of what forward() returned.
void check_dout(std::string_view name, const TensorView& dout, std::span<const std::int64_t> shape);

}  // namespace saccade
