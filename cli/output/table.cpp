#include "table.h"

#include <fmt/format.h>
#include <saccade/heatmap.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace saccade::cli {
namespace {

constexpr std::string_view kIndent = "  ";
constexpr int kGap = 2;  // columns between cells; 1 if the table does not fit otherwise
constexpr std::string_view kLeftOut = "…";
constexpr int kWidestName = 16;
constexpr int kWidestColumnName = 8;

std::string padding(const std::string& cell, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - display_width(cell))), ' ');
}

// The number of bytes of the first character.
std::size_t first_character(std::string_view utf8) {
  std::size_t end = std::min<std::size_t>(1, utf8.size());
  while (end < utf8.size() && (static_cast<unsigned char>(utf8[end]) & 0xc0) == 0x80) ++end;
  return end;
}

// Where the last character before `end` starts.
std::size_t last_character(const std::string& utf8, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(utf8[end]) & 0xc0) == 0x80);
  return end;
}

// The parts without a line break inside: a word with the space after it, or a wide character with its marks.
std::vector<std::string> unbreakable_parts(std::string_view utf8) {
  constexpr std::string_view kOpening = "“（《";
  constexpr std::string_view kClosing = "”）》，。、；：？！";
  const auto is_one_of = [](std::string_view marks, std::string_view character) {
    return !character.empty() && marks.find(character) != std::string_view::npos;
  };
  std::vector<std::string> parts{""};
  while (!utf8.empty()) {
    const std::string_view character = utf8.substr(0, first_character(utf8));
    utf8.remove_prefix(character.size());
    parts.back() += character;
    const bool is_wide = display_width(character) == 2 && !is_one_of(kOpening, character);
    if (character == " " || (is_wide && !is_one_of(kClosing, utf8.substr(0, first_character(utf8))))) {
      parts.emplace_back();
    }
  }
  return parts;
}

std::string number(const TensorView& matrix, std::int64_t row, std::int64_t column, int decimals) {
  if (row < 0 || column < 0) return std::string(kLeftOut);
  return fmt::format("{:.{}f}", value_at(matrix, std::array{row, column}), decimals);
}

int widest_number(const TensorView& matrix, const std::vector<std::int64_t>& rows, int decimals) {
  int widest = 1;
  for (const std::int64_t row : rows) {
    for (const std::int64_t column : shown_positions(matrix.shape[1], 40)) {
      widest = std::max(widest, display_width(number(matrix, row, column, decimals)));
    }
  }
  return widest;
}

}  // namespace

void Table::add_row(std::vector<std::string> cells, Tone tone, std::string mark) {
  rows_.push_back({std::move(cells), tone, std::move(mark)});
}

std::vector<int> Table::column_widths() const {
  std::vector<int> widths;
  for (const Row& row : rows_) {
    widths.resize(std::max(widths.size(), row.cells.size()));
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row.cells[i]));
    }
  }
  return widths;
}

int Table::width() const {
  const std::vector<int> widths = column_widths();  // each with its gap; the first gap is the indent
  return std::accumulate(widths.begin(), widths.end(), kGap * static_cast<int>(widths.size()));
}

std::string Table::to_string(const Terminal& terminal) const {
  constexpr int kRoomForMark = 2;
  const std::vector<int> widths = column_widths();
  const std::string gap(width() + kRoomForMark <= terminal.width ? kGap : 1, ' ');
  std::string text;
  for (const Row& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const std::string& cell = row.cells[i];
      if (i > 0) line += gap;
      line += i < name_columns_ ? cell + padding(cell, widths[i]) : padding(cell, widths[i]) + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    const std::string painted = row.tone == Tone::normal ? line : terminal.faint(line);
    text += fmt::format("{}{}{}{}\n", kIndent, painted, row.mark.empty() ? "" : " ", row.mark);
  }
  return text;
}

std::string shortened(std::string_view utf8, int width) {
  std::string text = visible(utf8);
  if (display_width(text) <= width) return text;
  std::size_t end = text.size();
  while (end > 0 && display_width(text.substr(0, end)) > width - 1) end = last_character(text, end);
  return text.substr(0, end) + std::string(kLeftOut);
}

std::vector<std::string> wrapped(std::string_view utf8, int width) {
  std::vector<std::string> lines{""};
  for (const std::string& part : unbreakable_parts(utf8)) {
    const int space = part.ends_with(' ') ? 1 : 0;
    if (display_width(lines.back()) + display_width(part) - space > width) lines.emplace_back();
    lines.back() += part;
  }
  for (std::string& line : lines) {
    if (line.ends_with(' ')) line.pop_back();
  }
  return lines;
}

std::vector<std::int64_t> shown_positions(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> positions;
  const std::int64_t tail = count <= most ? 0 : most / 2 - 1;
  const std::int64_t head = count <= most ? count : most - tail - 1;
  for (std::int64_t i = 0; i < head; ++i) positions.push_back(i);
  if (head < count) positions.push_back(-1);
  for (std::int64_t i = count - tail; i < count; ++i) positions.push_back(i);
  return positions;
}

std::string matrix_table(const TensorView& matrix, const std::vector<std::string>& row_names,
                         const std::vector<std::string>& column_names, int decimals, const Terminal& terminal) {
  constexpr std::int64_t kMaxRows = 16;
  const std::vector<std::int64_t> rows = shown_positions(matrix.shape[0], kMaxRows);
  int widest_name = 6;
  for (const std::string& column : column_names) widest_name = std::max(widest_name, display_width(column));
  const int cell =
      kGap + std::max(widest_number(matrix, rows, decimals), std::min(widest_name, kWidestColumnName));
  const std::int64_t most = std::max(3, (terminal.width - kWidestName - 2) / cell);
  const std::vector<std::int64_t> columns = shown_positions(matrix.shape[1], most);

  const auto name = [](const std::vector<std::string>& names, std::int64_t position, int width) {
    return position < 0 ? std::string(kLeftOut) : shortened(names[static_cast<std::size_t>(position)], width);
  };
  Table table(1);
  if (!column_names.empty()) {
    std::vector<std::string> heading{""};
    for (const std::int64_t column : columns) heading.push_back(name(column_names, column, cell - 2));
    table.add_row(std::move(heading), Table::Tone::faint);
  }
  for (const std::int64_t row : rows) {
    std::vector<std::string> cells{name(row_names, row, kWidestName)};
    for (const std::int64_t column : columns) cells.push_back(number(matrix, row, column, decimals));
    table.add_row(std::move(cells));
  }
  return table.to_string(terminal);
}

}  // namespace saccade::cli
