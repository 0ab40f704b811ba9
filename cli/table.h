// Numbers in columns for a terminal, with names in any script beside and above them.
#pragma once

#include <saccade/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "terminal.h"

namespace saccade::cli {

/// Rows of cells under headings; every column as wide as its widest cell. The leading columns hold names and are
/// aligned to the left, the others hold numbers and are aligned to the right.
class Table {
 public:
  enum class Tone { normal, faint };

  explicit Table(std::size_t name_columns) : name_columns_(name_columns) {}

  /// Adds a row; `mark` stands behind its last cell and is no column.
  void add_row(std::vector<std::string> cells, Tone tone = Tone::normal, std::string mark = "");

  /// Columns of a terminal that the table takes without its marks.
  int width() const;

  /// The lines, each after two spaces and with a newline at its end.
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

/// A name as it can be shown (see visible), cut with an ellipsis to at most `width` columns of a terminal.
std::string shortened(std::string_view utf8, int width);

/// Text in lines of at most `width` columns: broken at spaces, and between wide (Chinese, Japanese, Korean)
/// characters, but not before a closing or after an opening mark.
std::vector<std::string> wrapped(std::string_view utf8, int width);

/// The positions shown of `count`, ascending, at most `most` of them (at least 3); -1 stands where some are left
/// out.
std::vector<std::int64_t> shown_positions(std::int64_t count, std::int64_t most);

/// A matrix [rows, columns] with names; without column names none are printed. A matrix that is too high, or too
/// wide for the terminal, is shown by its edges.
std::string matrix_table(const TensorView& matrix, const std::vector<std::string>& row_names,
                         const std::vector<std::string>& column_names, int decimals, const Terminal& terminal);

}  // namespace saccade::cli
