// What the layers share: arguments as rows without gaps, and work divided by rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
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

/// Rows that one thread takes at a time, however many there are.
std::int64_t rows_of_block(std::int64_t columns);

/// Calls body(row, row_end) for blocks of rows_of_block(columns), on several threads where there is enough work.
/// `num_threads` 0: the default.
void for_blocks(std::int64_t rows, std::int64_t columns,
                const std::function<void(std::int64_t row, std::int64_t row_end)>& body, int num_threads = 0);

}  // namespace saccade
