#include "picture/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>

#include "picture/width_tables.h"
#include "saccade/heatmap.h"

namespace saccade::picture {
namespace {

constexpr std::string_view kEllipsis = "\u2026";
constexpr std::string_view kReplacement = "\uFFFD";
constexpr int kMaxMarks = 8;                  // in a row; marks have no width, so their number needs a limit
constexpr std::size_t kMaxClusterBytes = 64;  // joined emoji need a limit too
constexpr char32_t kZeroWidthJoiner = 0x200D;
constexpr char32_t kEmojiStyle = 0xFE0F;
constexpr char32_t kFirstEmojiModifier = 0x1F3FB;
constexpr char32_t kLastEmojiModifier = 0x1F3FF;

struct Decoded {
  char32_t code_point = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The code point at the start of a non-empty text; strict: no overlong forms, no surrogates.
Decoded decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t count = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < count) return {};
  char32_t value = lead & (0xFFu >> (count + 1));
  for (std::size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3Fu);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[count] || surrogate || value > 0x10FFFF) return {};
  return {value, count, true};
}

bool in(std::span<const CodePointRange> ranges, char32_t code_point) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](char32_t c, const CodePointRange& range) { return c < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

int columns_of_code_point(char32_t code_point) {
  if (code_point < 0x300) return 1;
  return in(kZero, code_point) ? 0 : in(kWide, code_point) ? 2 : 1;
}

bool is_disturbing(char32_t c) {
  const bool c1 = c >= 0x80 && c <= 0x9F;
  const bool line_or_direction = (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0x061C ||
                                 c == 0x200E || c == 0x200F || c == 0xFEFF;
  const bool noncharacter = (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF);
  return c1 || line_or_direction || noncharacter;
}

// A control character as a C escape.
std::string escape_of(char32_t control) {
  if (control == '\n') return "\\n";
  if (control == '\r') return "\\r";
  if (control == '\t') return "\\t";
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'\\', 'x', kDigits[control >> 4], kDigits[control & 15]};
}

bool is_regional_indicator(char32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }

// The first cluster of a cleaned, non-empty text.
Cluster next_cluster(std::string_view text) {
  const Decoded base = decode(text);
  int columns = columns_of_code_point(base.code_point);
  std::size_t size = base.bytes;
  bool joined = false;
  bool flag = is_regional_indicator(base.code_point);
  while (size < text.size() && size < kMaxClusterBytes) {
    const Decoded next = decode(text.substr(size));
    const char32_t c = next.code_point;
    const bool modifier = columns == 2 && c >= kFirstEmojiModifier && c <= kLastEmojiModifier;
    const bool second_indicator = flag && is_regional_indicator(c);
    if (columns_of_code_point(c) != 0 && !modifier && !second_indicator && !(joined && columns == 2)) break;
    if (c == kEmojiStyle || second_indicator) columns = 2;
    joined = c == kZeroWidthJoiner;
    flag = false;
    size += next.bytes;
  }
  return {text.substr(0, size), columns};
}

// The same, which it removes from the text.
Cluster take_cluster(std::string_view& text) {
  const Cluster cluster = next_cluster(text);
  text.remove_prefix(cluster.bytes.size());
  return cluster;
}

// Advance widths of the printable ASCII characters in Helvetica, in thousandths of the font size. Pictures are
// drawn with other fonts too; the common ones are up to a tenth wider.
constexpr double kWiderFaces = 1.1;
constexpr std::array<std::uint16_t, 95> kAdvance = {
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333,  278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667,  611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278,  556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,  500, 334, 260, 334, 584};

bool is_superscript(std::string_view cluster) {
  constexpr std::string_view kSuperscripts = "\u2070\u00B9\u00B2\u00B3\u2074\u2075\u2076\u2077\u2078\u2079\u207B";
  return kSuperscripts.find(cluster) != std::string_view::npos;
}

double advance_of(const Cluster& cluster) {
  if (cluster.columns != 1) return cluster.columns * 0.5;
  const auto first = static_cast<std::uint8_t>(cluster.bytes.front());
  if (first >= 0x80) return is_superscript(cluster.bytes) ? 0.42 : 0.6;
  return kAdvance[first - 0x20u] / 1000.0 * kWiderFaces;
}

// Punctuation that may not begin a line.
bool closes(std::string_view cluster) {
  constexpr std::string_view kClosing =
      "\u3001\u3002\uFF0C\uFF0E\uFF1A\uFF1B\uFF01\uFF1F\uFF09\u300B\u300D\u300F\u3011.,:;!?)";
  return kClosing.find(cluster) != std::string_view::npos;
}

std::string not_finite(double value) { return std::isnan(value) ? "NaN" : value < 0 ? "-\u221E" : "\u221E"; }

std::string text_of(const char* begin, std::to_chars_result result) {
  return std::string(begin, static_cast<const char*>(result.ptr));
}

}  // namespace

std::string cleaned(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  int marks = 0;
  while (!raw.empty()) {
    const Decoded next = decode(raw);
    const char32_t c = next.code_point;
    if (!next.valid || is_disturbing(c)) {
      text += kReplacement;
    } else if (c < 0x20 || c == 0x7F) {
      text += escape_of(c);
    } else {
      marks = columns_of_code_point(c) == 0 ? marks + 1 : 0;
      if (marks <= kMaxMarks) text += raw.substr(0, next.bytes);
    }
    raw.remove_prefix(next.bytes);
  }
  return text;
}

std::string label_of(std::string_view token) {
  const std::size_t first = std::min(token.find_first_not_of(' '), token.size());
  std::string label = cleaned(token.substr(first, token.find_last_not_of(' ') + 1 - first));
  return columns_of(label) > 0 ? label : "\u2423";
}

std::vector<Cluster> clusters_of(std::string_view text) {
  std::vector<Cluster> clusters;
  while (!text.empty()) clusters.push_back(take_cluster(text));
  return clusters;
}

int columns_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) columns += take_cluster(text).columns;
  return columns;
}

double pixels_of(std::string_view text, double font_size) {
  double advance = 0;
  while (!text.empty()) advance += advance_of(take_cluster(text));
  return advance * font_size;
}

Measure measure_at(double font_size) {
  return [font_size](std::string_view text) { return pixels_of(text, font_size); };
}

std::string shortened(std::string_view text, double limit, const Measure& measure) {
  const double room = limit - measure(kEllipsis);
  double width = 0;
  std::size_t kept = 0, seen = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const Cluster cluster = take_cluster(rest);
    width += measure(cluster.bytes);
    seen += cluster.bytes.size();
    if (width <= room) kept = seen;
    if (width > limit) {
      const std::size_t end = text.substr(0, kept).find_last_not_of(' ') + 1;
      return std::string(text.substr(0, end)) + std::string(kEllipsis);
    }
  }
  return std::string(text);
}

std::vector<std::string> wrapped(std::string_view text, double limit, int max_lines, const Measure& measure) {
  std::vector<std::string> lines;
  const auto trim = [&] { text.remove_prefix(std::min(text.find_first_not_of(' '), text.size())); };
  trim();
  while (!text.empty()) {
    if (static_cast<int>(lines.size()) + 1 == max_lines) {
      lines.push_back(shortened(text, limit, measure));
      return lines;
    }
    double width = 0;
    std::size_t end = 0, position = 0;  // `end`: the last possible line break
    bool after_wide = false;
    for (std::string_view rest = text; !rest.empty();) {
      const Cluster cluster = take_cluster(rest);
      const bool between_words = cluster.bytes == " " || cluster.columns == 2 || after_wide;
      if (between_words && !closes(cluster.bytes)) end = position;
      width += measure(cluster.bytes);
      if (width > limit) break;
      position += cluster.bytes.size();
      after_wide = cluster.columns == 2;
    }
    if (position == text.size()) end = position;
    if (end == 0) end = std::max(position, next_cluster(text).bytes.size());
    const std::string_view line = text.substr(0, end);
    lines.emplace_back(line.substr(0, line.find_last_not_of(' ') + 1));
    text.remove_prefix(end);
    trim();
  }
  return lines;
}

std::string padded_right(std::string_view text, int columns) {
  return std::string(text) + std::string(static_cast<std::size_t>(std::max(0, columns - columns_of(text))), ' ');
}

std::string padded_left(std::string_view text, int columns) {
  return std::string(static_cast<std::size_t>(std::max(0, columns - columns_of(text))), ' ') + std::string(text);
}

std::string centered(std::string_view text, int columns) {
  const int before = std::max(0, columns - columns_of(text)) / 2;
  return padded_right(std::string(static_cast<std::size_t>(before), ' ') + std::string(text), columns);
}

std::string fixed(double value, int decimals) {
  if (!std::isfinite(value)) return not_finite(value);
  std::array<char, 64> buffer;
  const bool huge = std::abs(value) >= 1e15;
  const auto format = huge ? std::chars_format::scientific : std::chars_format::fixed;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, huge ? 2 : decimals);
  std::string text = text_of(buffer.data(), result);
  if (text.front() == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

std::string concise(double value, int digits) {
  if (!std::isfinite(value)) return not_finite(value);
  std::array<char, 64> buffer;
  return text_of(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                              std::chars_format::general, digits));
}

}  // namespace saccade::picture

namespace saccade {

int display_width(std::string_view utf8) { return picture::columns_of(picture::cleaned(utf8)); }

}  // namespace saccade
