// heatmap_terminal: panels as lines of text, side by side if the width allows, and a legend.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

#include "picture/color.h"
#include "picture/heatmap/matrix.h"
#include "picture/text.h"

namespace saccade {
namespace {

using namespace picture;

constexpr int kLeastColumns = 20, kWidestLabel = 16, kWidestCell = 12, kGapColumns = 3, kSmallPanel = 32;
constexpr std::string_view kFunction = "heatmap_terminal";
constexpr std::int64_t kMaxLines = 64;         // of a panel with one line per row
constexpr std::int64_t kMaxDenseRows = 96;     // of a pooled panel; if it has more columns, that many
constexpr std::int64_t kFewestDenseRows = 24;  // pooling stops here, so that short axes stay visible
constexpr std::size_t kTallestLabel = 8;       // characters of a label written downwards
constexpr int kLegendCells = 24;
constexpr double kNoRow = -std::numeric_limits<double>::infinity();  // below the last one: masked
constexpr std::string_view kReset = "\x1b[0m", kDim = "\x1b[2m", kRed = "\x1b[31m";
constexpr std::array<std::string_view, 8> kBars = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                   "\u2585", "\u2586", "\u2587", "\u2588"};
constexpr std::array<std::string_view, 4> kShades = {"\u2591", "\u2592", "\u2593", "\u2588"};

double columns_measure(std::string_view text) { return columns_of(text); }

std::string fit(std::string_view text, int columns) { return shortened(text, columns, columns_measure); }

std::string repeated(std::string_view text, std::int64_t times) {
  std::string out;
  for (std::int64_t i = 0; i < times; ++i) out += text;
  return out;
}

// Escape sequences for positions on the color scale.
class Painter {
 public:
  explicit Painter(TerminalColor color) : color_(color) {}

  bool colored() const { return color_ != TerminalColor::none; }
  std::string background(double t) const { return sequence(48, t); }
  std::string foreground(double t) const { return sequence(38, t); }

  /// The color of text on background(t).
  std::string text_on(double t) const {
    if (color_ == TerminalColor::truecolor)
      return wants_white_text(ramp(t)) ? direct(38, {255, 255, 255}) : direct(38, kDarkText);
    return wants_white_text(rgb_of_256(index_of(t))) ? "\x1b[38;5;231m" : "\x1b[38;5;234m";
  }

  /// Dimmed, so that it does not look like a value; plain text without colors.
  std::string dim(std::string_view text) const { return marked(kDim, text); }
  std::string alarm(std::string_view text) const { return marked(kRed, text); }

 private:
  static std::uint8_t index_of(double t) {
    return kRamp256[static_cast<std::size_t>(std::lround(t * (kRamp256.size() - 1)))];
  }
  static std::string direct(int layer, Rgb color) {
    return "\x1b[" + std::to_string(layer) + ";2;" + std::to_string(color.red) + ";" +
           std::to_string(color.green) + ";" + std::to_string(color.blue) + "m";
  }
  std::string sequence(int layer, double t) const {
    if (color_ == TerminalColor::truecolor) return direct(layer, ramp(t));
    return "\x1b[" + std::to_string(layer) + ";5;" + std::to_string(index_of(t)) + "m";
  }
  std::string marked(std::string_view mark, std::string_view text) const {
    if (!colored()) return std::string(text);
    return std::string(mark) + std::string(text) + std::string(kReset);
  }

  TerminalColor color_;
};

// The forms of cells: a number each, two columns each, or one column each (with colors two rows per line).
enum class Mode : std::uint8_t { numbers, blocks, dense };

struct Plan {
  Cells cells;
  Scale scale;
  Mode mode = Mode::numbers;
  int number_columns = 0;  // of the longest number
  int cell_columns = 0;
  int gutter = 0;  // columns of the row labels
  int panel_columns = 0;
};

// Without colors: a bar beside a number, or a shade that fills a cell.
std::span<const std::string_view> signs_of(Mode mode) {
  if (mode == Mode::numbers) return kBars;
  return kShades;
}

std::string sign_of(const Plan& plan, double value) {
  const auto signs = signs_of(plan.mode);
  const auto place = static_cast<std::size_t>(plan.scale.position(value) * static_cast<double>(signs.size()));
  return std::string(signs[std::min(place, signs.size() - 1)]);
}

int widest(const std::vector<std::string>& labels, std::int64_t count, int most) {
  int columns = static_cast<int>(std::to_string(count - 1).size());
  for (const std::string& label : labels) columns = std::max(columns, std::min(columns_of(label), most));
  return columns;
}

int longest_number(const Cells& cells, const Scale& scale) {
  int longest = 1;
  for (const double value : cells.values) {
    if (scale.kind(value) == Kind::value) longest = std::max(longest, columns_of(fixed(value, scale.decimals)));
  }
  return longest;
}

// One line per row, for matrices that need no pooling.
void plan_lines(Plan& plan, const Input& input, const HeatmapOptions& options, const Painter& painter, int room) {
  plan.cells = pooled(input, 1, 1);
  plan.scale = scale_of(plan.cells, options, kFunction);
  plan.number_columns = longest_number(plan.cells, plan.scale);
  const int least = plan.number_columns + (painter.colored() ? 2 : 3);
  const auto share = static_cast<int>(room / input.seqlen_k);
  plan.mode = options.show_values && share >= least ? Mode::numbers : Mode::blocks;
  const int labels = widest(input.key_labels, input.keys, kWidestCell) + 1;
  plan.cell_columns = plan.mode == Mode::numbers ? std::min(std::max(least, labels), share) : 2;
}

// One column per cell; several panels shrink until they fit side by side.
void plan_dense(Plan& plan, const Input& input, const HeatmapOptions& options, const Painter& painter, int width) {
  plan.gutter = static_cast<int>(std::to_string(input.queries - 1).size());
  int room = width - plan.gutter - 1;
  if (input.heads > 2)
    room = std::min(room, std::max(kSmallPanel, (width - 2 * kGapColumns) / 3 - plan.gutter - 1));
  const std::int64_t block_k = (input.seqlen_k + room - 1) / room;
  const std::int64_t shape = painter.colored() ? 1 : 2;  // a character is twice as high as wide
  const std::int64_t most_rows = std::max<std::int64_t>(kMaxDenseRows, room) / shape;
  const std::int64_t kept_visible = std::max<std::int64_t>(1, input.seqlen_q / kFewestDenseRows);
  const std::int64_t block_q =
      std::max(std::min(block_k * shape, kept_visible), (input.seqlen_q + most_rows - 1) / most_rows);
  plan.mode = Mode::dense;
  plan.cell_columns = 1;
  plan.cells = pooled(input, block_q, block_k);
  plan.scale = scale_of(plan.cells, options, kFunction);
}

Plan plan_of(const Input& input, const HeatmapOptions& options, const Painter& painter, int width) {
  Plan plan;
  plan.gutter = std::min(widest(input.query_labels, input.queries, kWidestLabel), width / 4);
  const int room = width - plan.gutter - 1;
  const bool few = input.seqlen_q <= kMaxLines && input.seqlen_k * 2 <= room;
  if (few) plan_lines(plan, input, options, painter, room);
  if (!few || (plan.mode == Mode::blocks && input.heads > 2)) plan_dense(plan, input, options, painter, width);
  plan.panel_columns = plan.gutter + 1 + static_cast<int>(plan.cells.columns) * plan.cell_columns;
  return plan;
}

std::string number_cell(const Plan& plan, const Painter& painter, double value) {
  const int columns = plan.cell_columns;
  switch (plan.scale.kind(value)) {
    case Kind::masked:
      return painter.dim(centered("\u00B7", columns));
    case Kind::nan:
      return painter.alarm(centered("NaN", columns));
    case Kind::value:
      break;
  }
  const std::string number = padded_left(fixed(value, plan.scale.decimals), plan.number_columns);
  if (!painter.colored()) return centered(number + sign_of(plan, value), columns);
  const double t = plan.scale.position(value);
  return painter.background(t) + painter.text_on(t) + centered(number, columns) + std::string(kReset);
}

std::string block_cell(const Plan& plan, const Painter& painter, double value) {
  const Kind kind = plan.scale.kind(value);
  const std::int64_t columns = plan.cell_columns;
  if (kind == Kind::masked) return painter.dim(padded_right("\u00B7", static_cast<int>(columns)));
  if (kind == Kind::nan) return painter.alarm(repeated("\u00D7", columns));
  if (!painter.colored()) return repeated(sign_of(plan, value), columns);
  return painter.background(plan.scale.position(value)) + repeated(" ", columns) + std::string(kReset);
}

// Two cells in one character: the upper one and, if there is one, the lower one.
std::string half_blocks(const Plan& plan, const Painter& painter, double upper, double lower) {
  const auto color = [&](double value) {
    return plan.scale.kind(value) == Kind::nan ? std::string(kRed)
                                               : painter.foreground(plan.scale.position(value));
  };
  const bool no_upper = plan.scale.kind(upper) == Kind::masked, no_lower = plan.scale.kind(lower) == Kind::masked;
  if (no_upper && no_lower) return " ";
  if (no_lower) return color(upper) + "\u2580" + std::string(kReset);
  if (no_upper) return color(lower) + "\u2584" + std::string(kReset);
  const std::string behind = plan.scale.kind(lower) == Kind::nan ? std::string("\x1b[41m")
                                                                 : painter.background(plan.scale.position(lower));
  return color(upper) + behind + "\u2580" + std::string(kReset);
}

// The characters of a label, one below the other; a long label ends in an ellipsis.
std::vector<Cluster> stack_of(const std::string& label) {
  constexpr Cluster kEllipsis{"\u2026", 1};
  std::vector<Cluster> clusters = clusters_of(label);
  if (clusters.size() > kTallestLabel) {
    clusters.resize(kTallestLabel);
    clusters.back() = kEllipsis;
  }
  return clusters;
}

// Labels above narrow columns, written downwards; their last characters touch the matrix.
std::vector<std::string> upright_header(const Plan& plan, const std::vector<std::string>& labels) {
  std::vector<std::vector<Cluster>> stacks;
  std::size_t height = 0;
  for (const std::string& label : labels) {
    stacks.push_back(stack_of(label));
    height = std::max(height, stacks.back().size());
  }
  std::vector<std::string> lines;
  for (std::size_t level = height; level > 0; --level) {
    std::string line(static_cast<std::size_t>(plan.gutter + 1), ' ');
    for (const auto& stack : stacks) {
      const std::string_view cluster = level <= stack.size() ? stack[stack.size() - level].bytes : " ";
      line += padded_right(cluster, plan.cell_columns);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// Positions above narrow columns, as many as fit.
std::string position_header(const Plan& plan) {
  const auto longest = static_cast<std::int64_t>(std::to_string(plan.cells.key_of(plan.cells.columns)).size());
  const std::int64_t every = round_step(static_cast<double>(longest + 2) / plan.cell_columns);
  std::string line(static_cast<std::size_t>(plan.gutter + 1), ' ');
  for (std::int64_t j = 0; j < plan.cells.columns; j += every) {
    const auto room = static_cast<int>(std::min(every, plan.cells.columns - j)) * plan.cell_columns;
    const std::string position = std::to_string(plan.cells.key_of(j));
    line += padded_right(static_cast<int>(position.size()) <= room ? position : "", room);
  }
  return line;
}

std::vector<std::string> header_of(const Plan& plan, const Input& input) {
  if (plan.mode == Mode::blocks && !input.key_labels.empty()) return upright_header(plan, input.key_labels);
  if (plan.mode != Mode::numbers) return {position_header(plan)};
  std::string line(static_cast<std::size_t>(plan.gutter + 1), ' ');
  for (std::int64_t j = 0; j < plan.cells.columns; ++j) {
    const std::string label = input.key_labels.empty() ? std::to_string(plan.cells.key_of(j))
                                                       : input.key_labels[static_cast<std::size_t>(j)];
    line += centered(fit(label, plan.cell_columns - 1), plan.cell_columns);
  }
  return {std::move(line)};
}

std::string row_label(const Plan& plan, const Input& input, std::int64_t row, std::int64_t line) {
  std::string label;
  if (plan.mode != Mode::dense) {
    label = input.query_labels.empty() ? std::to_string(plan.cells.query_of(row))
                                       : input.query_labels[static_cast<std::size_t>(row)];
  } else if (line % 4 == 0) {
    label = std::to_string(plan.cells.query_of(row));
  }
  return padded_left(fit(label, plan.gutter), plan.gutter) + " ";
}

// The lines of a panel, each panel_columns wide.
std::vector<std::string> panel_of(const Plan& plan, const Input& input, const Painter& painter,
                                  std::int64_t head) {
  std::vector<std::string> lines;
  if (!input.panel_titles.empty()) {
    const std::string indent(static_cast<std::size_t>(plan.gutter + 1), ' ');
    const std::string title =
        fit(input.panel_titles[static_cast<std::size_t>(head)], plan.panel_columns - plan.gutter - 1);
    lines.push_back(padded_right(indent + title, plan.panel_columns));
  }
  for (std::string& line : header_of(plan, input)) lines.push_back(std::move(line));
  const bool halves = plan.mode == Mode::dense && painter.colored();
  for (std::int64_t i = 0, line_index = 0; i < plan.cells.rows; i += halves ? 2 : 1, ++line_index) {
    std::string line = row_label(plan, input, i, line_index);
    for (std::int64_t j = 0; j < plan.cells.columns; ++j) {
      const double value = plan.cells.at(head, i, j);
      if (halves) {
        const bool last = i + 1 == plan.cells.rows;
        line += half_blocks(plan, painter, value, last ? kNoRow : plan.cells.at(head, i + 1, j));
      } else {
        line += plan.mode == Mode::numbers ? number_cell(plan, painter, value) : block_cell(plan, painter, value);
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string panels_of(const Plan& plan, const Input& input, const Painter& painter, int width) {
  const std::int64_t across = 1 + std::max(0, width - plan.panel_columns) / (plan.panel_columns + kGapColumns);
  std::string out;
  for (std::int64_t first = 0; first < input.heads; first += across) {
    std::vector<std::string> lines;
    for (std::int64_t head = first; head < std::min(first + across, input.heads); ++head) {
      const std::vector<std::string> panel = panel_of(plan, input, painter, head);
      lines.resize(panel.size());
      for (std::size_t i = 0; i < panel.size(); ++i) {
        if (head > first) lines[i] += std::string(kGapColumns, ' ');
        lines[i] += panel[i];
      }
    }
    for (std::string& line : lines) out += without_trailing_spaces(std::move(line));
    out += "\n";
  }
  return out;
}

// A part of the legend and its width in columns.
struct Part {
  std::string text;
  int columns = 0;
};

Part scale_strip(const Plan& plan, const Painter& painter) {
  std::string strip;
  if (!painter.colored()) {
    for (const std::string_view sign : signs_of(plan.mode)) strip += sign;
    return {strip, columns_of(strip)};
  }
  for (int i = 0; i < kLegendCells; ++i) strip += painter.background((i + 0.5) / kLegendCells) + " ";
  return {strip + std::string(kReset), kLegendCells};
}

// The scale with its ends and name, and the meaning of cells without a value; on as many lines as needed.
std::string legend_of(const Plan& plan, const HeatmapOptions& options, const Painter& painter, int width) {
  std::vector<Part> parts;
  const auto add = [&](const std::string& text, int columns) { parts.push_back({text, columns}); };
  const std::string low = concise(plan.scale.low, 3), high = concise(plan.scale.high, 3);
  const Part strip = scale_strip(plan, painter);
  const int with_ends = strip.columns + static_cast<int>(low.size() + high.size()) + 2;
  if (with_ends <= width) add(low + " " + strip.text + " " + high, with_ends);
  std::string name = cleaned(options.value_name);
  if (plan.scale.logarithmic) name += name.empty() ? "logarithmic" : ", logarithmic";
  if (!name.empty()) add(fit(name, width), columns_of(fit(name, width)));
  if (const std::string note = masked_note(plan.cells, plan.scale); !note.empty()) {
    const std::string sign = plan.mode == Mode::dense && painter.colored() ? "blank" : "\u00B7";
    add(painter.dim(sign) + " " + note, columns_of(sign) + 1 + columns_of(note));
  }
  if (plan.cells.has_nan) {
    const std::string sign = plan.mode == Mode::dense && painter.colored() ? "\u2580" : "\u00D7";
    if (plan.mode != Mode::numbers) add(painter.alarm(sign) + " NaN", 5);
  }
  std::string out;
  int used = 0;
  for (const Part& part : parts) {
    const bool fits = used == 0 || used + 3 + part.columns <= width;
    if (used > 0) out += fits ? "   " : "\n";
    out += part.text;
    used = (fits && used > 0 ? used + 3 : 0) + part.columns;
  }
  return out + "\n";
}

std::string paragraph(std::string_view text, int width) {
  std::string out;
  for (const std::string& line : wrapped(text, width, 12, columns_measure)) out += line + "\n";
  return out;
}

}  // namespace

TerminalColor terminal_color(bool is_terminal, const char* no_color, const char* colorterm, const char* term) {
  const auto text = [](const char* variable) { return std::string_view(variable != nullptr ? variable : ""); };
  const std::string_view colors = text(colorterm), name = text(term);
  if (!is_terminal || !text(no_color).empty() || name.empty() || name == "dumb") return TerminalColor::none;
  if (colors == "truecolor" || colors == "24bit") return TerminalColor::truecolor;
  const auto contains = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  for (const std::string_view known : {"direct", "alacritty", "foot", "ghostty", "kitty", "wezterm"}) {
    if (contains(known)) return TerminalColor::truecolor;
  }
  return contains("256color") ? TerminalColor::ansi256 : TerminalColor::none;
}

std::string heatmap_terminal(const TensorView& weights, const HeatmapOptions& options, TerminalColor color,
                             int width) {
  const Input input = checked(weights, options, "heatmap_terminal");
  if (width < kLeastColumns) {
    throw std::invalid_argument("[heatmap_terminal] width must be at least 20 columns, got " +
                                std::to_string(width));
  }
  const Painter painter(color);
  const Plan plan = plan_of(input, options, painter, width);
  std::string head = paragraph(cleaned(options.title), width) + paragraph(pooling_note(plan.cells), width);
  if (!head.empty()) head += "\n";
  return head + panels_of(plan, input, painter, width) + legend_of(plan, options, painter, width) +
         paragraph(cleaned(options.caption), width);
}

}  // namespace saccade
