// Numbers in columns for a terminal, with row and column names in any script.
#pragma once

#include <saccade/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "terminal.h"

namespace saccade::cli {

/// Rows of cells under headings; every column is as wide as its widest cell. The leading columns hold left-aligned
/// names, the others right-aligned numbers.
class Table {
 public:
  enum class Tone { normal, faint };

  explicit Table(std::size_t name_columns) : name_columns_(name_columns) {}

  /// Adds a row; `mark` follows its last cell and is not a column.
  void add_row(std::vector<std::string> cells, Tone tone = Tone::normal, std::string mark = "");

  /// The width of the table in terminal columns, without its marks.
  int width() const;

  /// The lines, each indented by two spaces and ending with a newline.
  std::string to_string(const Terminal& terminal) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Tone tone;
    std::string mark;
  };

  std::vector<int> column_widths() const;

  std::size_t name_columns_;
  std::vector<Row> rows_;
};

/// A name made visible (see visible()), cut with an ellipsis to at most `width` columns of a terminal.
std::string shortened(std::string_view utf8, int width);

/// Text in lines of at most `width` columns. Lines break at spaces and between wide (Chinese, Japanese, Korean)
/// characters, but not before a closing or after an opening mark.
std::vector<std::string> wrapped(std::string_view utf8, int width);

/// The positions to show of `count`, ascending, at most `most` (at least 3); -1 marks omitted positions.
std::vector<std::int64_t> shown_positions(std::int64_t count, std::int64_t most);

/// A matrix [rows, columns] with names; column names may be empty. Of a matrix that is too high, or too wide for
/// the terminal, only the edges are shown.
std::string matrix_table(const TensorView& matrix, const std::vector<std::string>& row_names,
                         const std::vector<std::string>& column_names, int decimals, const Terminal& terminal);

}  // namespace saccade::cli
