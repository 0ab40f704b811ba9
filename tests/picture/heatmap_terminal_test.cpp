// Heat maps in the terminal: alignment in any script, width, colours, and which colours to use.
#include <saccade/heatmap.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "picture/heatmap_fixtures.h"
#include "support/refusal.h"

namespace saccade {
namespace {

using namespace saccade::test;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr TerminalColor kAllColors[] = {TerminalColor::none, TerminalColor::ansi256, TerminalColor::truecolor};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string without_escapes(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// The column where a part of a line begins.
int column_of(const std::string& line, const std::string& part) {
  const std::size_t at = line.find(part);
  return at == std::string::npos ? -1 : display_width(line.substr(0, at));
}

Color color_of_256(int index) {
  if (index >= 232) return {8 + 10 * (index - 232), 8 + 10 * (index - 232), 8 + 10 * (index - 232)};
  const auto level = [](int step) { return step == 0 ? 0 : 55 + 40 * step; };
  return {level((index - 16) / 36), level((index - 16) / 6 % 6), level((index - 16) % 6)};
}

// The background colours of a line's cells, from left to right.
std::vector<Color> backgrounds(const std::string& line) {
  std::vector<Color> colors;
  for (std::size_t at = line.find("\x1b[48;"); at != std::string::npos; at = line.find("\x1b[48;", at + 1)) {
    const std::string rest = line.substr(at + 5);
    if (rest.starts_with("5;")) {
      colors.push_back(color_of_256(std::stoi(rest.substr(2))));
    } else {
      std::size_t green = rest.find(';', 2) + 1, blue = rest.find(';', green) + 1;
      colors.push_back({std::stoi(rest.substr(2)), std::stoi(rest.substr(green)), std::stoi(rest.substr(blue))});
    }
  }
  return colors;
}

TEST(HeatmapTerminal, PrintsNumbersAndBarsWithoutColors) {
  const Tensor weights = Tensor::of<float>({{1, 0, kNan}, {0.5F, 0.25F, 0.25F}});
  EXPECT_EQ(heatmap_terminal(weights, {.query_tokens = {"a", "bc"}, .title = "Title"}, TerminalColor::none, 80),
            "Title\n"
            "\n"
            "      0      1      2\n"
            " a  1.00█    ·     NaN\n"
            "bc  0.50▅  0.25▃  0.25▃\n"
            "\n"
            "0 ▁▂▃▄▅▆▇█ 1   weight   · masked or 0\n");
}

TEST(HeatmapTerminal, LinesUpChineseLabels) {
  const Tensor weights = causal_weights(1, 8);
  const auto lines =
      lines_of(heatmap_terminal(weights, {.query_tokens = kChineseTokens}, TerminalColor::none, 100));
  ASSERT_GE(lines.size(), 9U);
  const int first = column_of(lines[1], "1.00");
  ASSERT_GT(first, 0);
  for (std::size_t i = 1; i <= 8; ++i) {
    const std::string& label = kChineseTokens[i - 1];
    EXPECT_EQ(column_of(lines[i], label) + display_width(label) + 2, first) << lines[i];
    const std::size_t number = lines[i].find_first_of("01", label.size());
    EXPECT_EQ(display_width(lines[i].substr(0, number)), first) << lines[i];
  }
  // Column labels are above their columns: both are centred in the cell.
  const int last_number = display_width(lines[8].substr(0, lines[8].rfind("0.")));
  EXPECT_NEAR(column_of(lines[0], "词语"), last_number, 2);
}

TEST(HeatmapTerminal, WritesLabelsDownwardsOverNarrowCells) {
  const Tensor weights = causal_weights(1, 8);
  const HeatmapOptions options{.query_tokens = kChineseTokens, .show_values = false};
  EXPECT_EQ(heatmap_terminal(weights, options, TerminalColor::none, 30).substr(0, 200).find("       注\n"), 0U);
  const auto lines = lines_of(heatmap_terminal(weights, options, TerminalColor::none, 30));
  EXPECT_EQ(lines[1], "       意机  模看重  词");
  EXPECT_EQ(lines[2], "       力制让型见要的语");
  EXPECT_EQ(column_of(lines[3], "██"), 7);
}

TEST(HeatmapTerminal, HasNoEscapesWithoutColorsAndResetsThemOtherwise) {
  for (const std::int64_t seqlen : {6, 30, 200}) {
    const Tensor weights = causal_weights(2, seqlen);
    EXPECT_EQ(heatmap_terminal(weights, {}, TerminalColor::none, 80).find('\x1b'), std::string::npos);
    for (const std::string& line : lines_of(heatmap_terminal(weights, {}, TerminalColor::truecolor, 80))) {
      const std::size_t last = line.rfind('\x1b');
      const bool reset = last == std::string::npos || line.substr(last, 4) == "\x1b[0m";
      EXPECT_TRUE(reset) << "a colour leaks out of its line";
    }
  }
}

TEST(HeatmapTerminal, PaintsALargerValueDarker) {
  const Tensor weights = six_token_weights();
  for (const TerminalColor color : {TerminalColor::ansi256, TerminalColor::truecolor}) {
    const auto lines = lines_of(heatmap_terminal(weights, {.query_tokens = kSixTokens}, color, 100));
    std::vector<Painted> painted;
    for (std::int64_t i = 0; i < 6; ++i) {
      const auto colors = backgrounds(lines[static_cast<std::size_t>(i) + 1]);
      ASSERT_THAT(colors, SizeIs(6));
      for (std::int64_t j = 0; j < 6; ++j) {
        painted.push_back({weights.at<float>(i, j), colors[static_cast<std::size_t>(j)]});
      }
    }
    EXPECT_TRUE(darker_is_larger(painted));
  }
}

TEST(HeatmapTerminal, DarkensFromStepToStepOfTheScale) {
  for (const TerminalColor color : {TerminalColor::ansi256, TerminalColor::truecolor}) {
    const auto legend = lines_of(heatmap_terminal(six_token_weights(), {}, color, 100)).back();
    const auto colors = backgrounds(legend);
    ASSERT_GE(colors.size(), 20U);
    for (std::size_t i = 1; i < colors.size(); ++i) EXPECT_LE(lightness(colors[i]), lightness(colors[i - 1])) << i;
    EXPECT_GT(lightness(colors.front()), 0.9);
    EXPECT_LT(lightness(colors.back()), 0.35);
  }
}

TEST(HeatmapTerminal, PutsTwoRowsIntoALineOfADenseMap) {
  Tensor weights(DType::f32, {100, 100});
  weights.at<float>(0, 0) = 1;
  weights.at<float>(3, 1) = 1;
  const auto lines = lines_of(heatmap_terminal(weights, {}, TerminalColor::truecolor, 120));
  EXPECT_THAT(lines[0], HasSubstr("0    5    10"));
  EXPECT_THAT(lines[1], HasSubstr("▀")) << "row 0, the upper half";
  EXPECT_THAT(lines[2], HasSubstr("▄")) << "row 3, the lower half";
  EXPECT_THAT(lines, SizeIs(1 + 50 + 2));
}

TEST(HeatmapTerminal, PoolsWhatIsWiderThanTheTerminalAndSaysSo) {
  Tensor weights(DType::f32, {400, 400});
  weights.at<float>(399, 399) = 1;
  const std::string text = heatmap_terminal(weights, {}, TerminalColor::truecolor, 84);
  EXPECT_THAT(text, HasSubstr("Each cell is the largest of 5 × 5 weights."));
  const auto lines = lines_of(text);
  EXPECT_THAT(lines[lines.size() - 3], HasSubstr("\u2584")) << "the single weight is still there";
}

TEST(HeatmapTerminal, PutsPanelsSideBySideWhereTheyFit) {
  const Tensor weights = causal_weights(2, 4);
  const std::string wide = heatmap_terminal(weights, {}, TerminalColor::none, 80);
  EXPECT_THAT(lines_of(wide)[0], ::testing::MatchesRegex(".*head 0 .*head 1"));
  const std::string narrow = heatmap_terminal(weights, {}, TerminalColor::none, 40);
  EXPECT_THAT(lines_of(narrow)[0], Not(HasSubstr("head 1")));
  EXPECT_THAT(narrow, HasSubstr("head 1"));
  EXPECT_EQ(count_of(wide, "weight"), 1U) << "one legend";
  for (const TerminalColor color : kAllColors)
    for (const std::int64_t seqlen : {4, 150}) {
      const Tensor three = causal_weights(3, seqlen);
      EXPECT_EQ(heatmap_terminal(three, {}, color, std::numeric_limits<int>::max()),
                heatmap_terminal(three, {}, color, 10'000));
    }
}

TEST(HeatmapTerminal, FitsTheGivenWidth) {
  const std::vector<std::string> odd = {"注意力", "👩‍👩‍👧 family", "e\u0301te\u0301",
                                        "a\tb",   "a rather long token",       ""};
  for (const TerminalColor color : kAllColors) {
    for (const int width : {20, 27, 40, 80, 133}) {
      for (const std::int64_t heads : {1, 2, 5}) {
        for (const std::int64_t seqlen : {1, 6, 17, 64, 65, 150}) {
          HeatmapOptions options{.title = "A title that is a good deal longer than the narrowest of the terminals",
                                 .caption = "说明文字也要按宽度换行，不能超出终端。",
                                 .value_name = "a long name of what is shown here"};
          for (std::int64_t i = 0; i < seqlen; ++i) {
            options.query_tokens.push_back(odd[static_cast<std::size_t>(i) % odd.size()]);
          }
          for (const std::string& line :
               lines_of(heatmap_terminal(causal_weights(heads, seqlen), options, color, width))) {
            ASSERT_LE(display_width(without_escapes(line)), width) << without_escapes(line) << " of " << seqlen;
          }
        }
      }
    }
  }
}

TEST(HeatmapTerminal, RefusesWhatItCannotPrint) {
  const auto message = [](const Tensor& weights, const HeatmapOptions& options, int width) -> std::string {
    return test::refusal([&] { heatmap_terminal(weights, options, TerminalColor::none, width); });
  };
  EXPECT_EQ(message(six_token_weights(), {}, 19), "[heatmap_terminal] width must be at least 20 columns, got 19");
  EXPECT_EQ(message(six_token_weights(), {.query_tokens = {"a"}}, 80),
            "[heatmap_terminal] query_tokens has 1 entries but the matrix has 6 rows");
  EXPECT_EQ(message(Tensor(DType::f32, {2, 0}), {}, 80),
            "[heatmap_terminal] weights must not be empty, got shape [2, 0]");
}

TEST(TerminalColorChoice, FollowsTheEnvironment) {
  EXPECT_EQ(terminal_color(true, nullptr, "truecolor", "xterm-256color"), TerminalColor::truecolor);
  EXPECT_EQ(terminal_color(true, nullptr, "24bit", "xterm"), TerminalColor::truecolor);
  EXPECT_EQ(terminal_color(true, nullptr, nullptr, "xterm-kitty"), TerminalColor::truecolor);
  EXPECT_EQ(terminal_color(true, nullptr, nullptr, "xterm-direct"), TerminalColor::truecolor);
  EXPECT_EQ(terminal_color(true, nullptr, nullptr, "screen-256color"), TerminalColor::ansi256);
  EXPECT_EQ(terminal_color(true, "", "", "tmux-256color"), TerminalColor::ansi256)
      << "an empty NO_COLOR does not count";
  EXPECT_EQ(terminal_color(true, nullptr, nullptr, "vt100"), TerminalColor::none);
  EXPECT_EQ(terminal_color(true, nullptr, "truecolor", "dumb"), TerminalColor::none);
  EXPECT_EQ(terminal_color(true, nullptr, "truecolor", nullptr), TerminalColor::none);
  EXPECT_EQ(terminal_color(true, "1", "truecolor", "xterm-256color"), TerminalColor::none);
  EXPECT_EQ(terminal_color(false, nullptr, "truecolor", "xterm-256color"), TerminalColor::none);
}

}  // namespace
}  // namespace saccade
