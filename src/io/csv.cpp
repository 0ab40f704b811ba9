#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "io/elements.h"
#include "io/file.h"
#include "io/system/c_locale.h"
#include "io/token_embeddings.h"

namespace saccade {
namespace io {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Splits CSV as RFC 4180 defines it: commas, "quoted ""cells""", lines that end in LF, CRLF or CR.
class CsvScanner {
 public:
  CsvScanner(const Origin& origin, std::string_view text) : origin_(origin), rest_(text) {}

  /// Reads the next line that is not blank into `cells`. Returns false after the last one.
  bool next(std::vector<std::string>& cells) {
    do {
      if (rest_.empty()) return false;
      line_ = next_line_;
      cells.clear();
      do {
        cells.push_back(scan_cell());
      } while (accept(','));
      end_line();
    } while (cells.size() == 1 && cells[0].find_first_not_of(" \t") == std::string::npos);
    return true;
  }

  /// The line of the cells, counting from 1.
  std::size_t line() const { return line_; }

 private:
  bool accept(char wanted) {
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string scan_cell() {
    if (accept('"')) return scan_quoted();
    const std::size_t length = std::min(rest_.find_first_of(",\r\n"), rest_.size());
    std::string cell(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return cell;
  }

  std::string scan_quoted() {
    const std::size_t begin = next_line_;
    std::string cell;
    do {
      const std::size_t length = rest_.find('"');
      if (length == std::string_view::npos) {
        origin_.refuse("line " + std::to_string(begin) + ": a quote is never closed");
      }
      for (const char c : rest_.substr(0, length)) next_line_ += c == '\n' ? 1 : 0;
      cell += rest_.substr(0, length);
      rest_.remove_prefix(length + 1);
      if (rest_.starts_with('"')) cell += '"';
    } while (accept('"'));
    if (!rest_.empty() && rest_.find_first_of(",\r\n") != 0) {
      origin_.refuse("line " + std::to_string(next_line_) + ": text follows the closing quote of " +
                     in_quotes(cell));
    }
    return cell;
  }

  void end_line() {
    const bool has_return = accept('\r');
    if (accept('\n') || has_return) ++next_line_;
  }

  const Origin& origin_;
  std::string_view rest_;
  std::size_t line_ = 0;
  std::size_t next_line_ = 1;
};

/// The number in a cell, which may have blanks around it; infinities and NaN are numbers here.
std::optional<double> number_in(std::string_view cell) {
  const std::size_t begin = cell.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  cell = cell.substr(begin, cell.find_last_not_of(" \t") + 1 - begin);
  // strtod() also takes 0x1p3, nan(1), and blanks of other kinds.
  if (cell.find_first_of("xX(\n\v\f\r") != std::string_view::npos) return std::nullopt;
  const std::string text(cell);
  char* end = nullptr;
  const double number = strtod_in_c_locale(text.c_str(), &end);
  return end == text.c_str() + text.size() ? std::optional(number) : std::nullopt;
}

bool names_tokens(std::string_view header_cell) {
  return header_cell.empty() || header_cell == "token" || header_cell == "tokens";
}

/// Whether the first line is a header: no cell after the first is a number, or they are numbered 0, 1, 2, ...
/// after the name of the token column, as in pandas.
bool is_header(const std::vector<std::string>& cells) {
  if (cells.size() == 1) return !number_in(cells[0]);
  bool is_text = true;
  bool is_count = names_tokens(cells[0]);
  for (std::size_t i = 1; i < cells.size(); ++i) {
    is_text = is_text && !number_in(cells[i]);
    is_count = is_count && cells[i] == std::to_string(i - 1);
  }
  return is_text || is_count;
}

/// Collects the lines: only after the last one is it known whether the first column holds tokens.
class EmbeddingTable {
 public:
  explicit EmbeddingTable(const Origin& origin) : origin_(origin) {}

  void add_header(const std::vector<std::string>& cells, std::size_t line) {
    has_named_tokens_ = names_tokens(cells[0]);
    columns_ = cells.size();
    first_line_ = line;
  }

  void add(std::vector<std::string>& cells, std::size_t line) {
    if (columns_ == 0) {
      columns_ = cells.size();
      first_line_ = line;
    }
    if (cells.size() != columns_) {
      origin_.refuse("line " + std::to_string(line) + " has " + std::to_string(cells.size()) + " cells but line " +
                     std::to_string(first_line_) + " has " + std::to_string(columns_));
    }
    const std::optional<double> first = number_in(cells[0]);
    std::size_t& first_of_kind = first ? number_line_ : text_line_;
    if (first_of_kind == 0) first_of_kind = line;
    numbers_.push_back(first && !has_named_tokens_ ? finite(*first, cells[0], line, 0) : 0.0F);
    for (std::size_t column = 1; column < columns_; ++column) {
      const std::optional<double> number = number_in(cells[column]);
      if (!number) refuse_cell(cells[column], line, column, "is not a number");
      numbers_.push_back(finite(*number, cells[column], line, column));
    }
    tokens_.push_back(std::move(cells[0]));
  }

  TokenEmbeddings result() && {
    if (tokens_.empty()) origin_.refuse("has no rows of numbers");
    if (!has_named_tokens_ && number_line_ != 0 && text_line_ != 0) {
      origin_.refuse("the first column is a number in line " + std::to_string(number_line_) +
                     " and text in line " + std::to_string(text_line_) +
                     "; if it holds the tokens, begin with a header line \"token,...\"");
    }
    const bool has_tokens = has_named_tokens_ || text_line_ != 0;
    if (has_tokens && columns_ == 1) origin_.refuse("has tokens but no numbers");
    if (!has_tokens) tokens_.clear();
    return {std::move(tokens_), tensor_without(has_tokens ? 1 : 0)};
  }

 private:
  [[noreturn]] void refuse_cell(const std::string& cell, std::size_t line, std::size_t column,
                                const std::string& fault) const {
    origin_.refuse("line " + std::to_string(line) + ", column " + std::to_string(column + 1) + ": " +
                   in_quotes(cell) + " " + fault);
  }

  float finite(double number, const std::string& cell, std::size_t line, std::size_t column) const {
    if (std::isnan(number)) refuse_cell(cell, line, column, "is not a finite number");
    if (!std::isfinite(static_cast<float>(number))) refuse_cell(cell, line, column, "is out of the range of f32");
    return static_cast<float>(number);
  }

  /// The numbers without the first `skipped` columns.
  Tensor tensor_without(std::size_t skipped) const {
    const std::size_t rows = numbers_.size() / columns_;
    const std::size_t width = columns_ - skipped;
    Tensor inputs(DType::f32, {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width)});
    float* out = inputs.values<float>().data();
    for (std::size_t row = 0; row < rows; ++row) {
      out = std::copy_n(numbers_.data() + row * columns_ + skipped, width, out);
    }
    return inputs;
  }

  const Origin& origin_;
  bool has_named_tokens_ = false;
  std::size_t columns_ = 0;
  std::size_t first_line_ = 0;                   ///< the line that set the number of columns
  std::size_t number_line_ = 0, text_line_ = 0;  ///< where the first column first has each; 0: never
  std::vector<std::string> tokens_;              ///< the first column as text
  std::vector<float> numbers_;                   ///< [rows, columns]; 0 for cells that are not numbers
};

}  // namespace

TokenEmbeddings parse_csv(const Origin& origin, std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    origin.refuse("is not CSV: a zero byte at byte " + std::to_string(at) + " (text must be UTF-8, not UTF-16)");
  }
  if (const auto at = find_invalid_utf8(text)) origin.refuse("is not UTF-8 at byte " + std::to_string(*at));
  CsvScanner scanner(origin, text);
  EmbeddingTable table(origin);
  std::vector<std::string> cells;
  if (!scanner.next(cells)) origin.refuse("is empty");
  if (is_header(cells)) {
    table.add_header(cells, scanner.line());
  } else {
    table.add(cells, scanner.line());
  }
  while (scanner.next(cells)) table.add(cells, scanner.line());
  return std::move(table).result();
}

}  // namespace io

TokenEmbeddings load_csv(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("load_csv", path);
  return io::parse_csv(origin, io::as_text(io::read_file(origin, path)));
}

TokenEmbeddings parse_csv(std::string_view text, std::string_view name) {
  return io::parse_csv({"parse_csv", std::string(name)}, text);
}

}  // namespace saccade
