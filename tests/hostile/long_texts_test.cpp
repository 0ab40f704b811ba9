// Titles, tokens and names of a megabyte in pictures, charts and pages.
#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <vector>

#include "saccade/chart.h"
#include "saccade/heatmap.h"
#include "saccade/page.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string repeated(std::string_view part) {
  std::string text;
  while (text.size() < 1'000'000) text += part;
  return text;
}

/// Of letters, markup, line ends, control characters, marks without width, marks that turn the direction, wide
/// characters, joined emoji, and bytes that are no text.
std::vector<std::string> long_texts() {
  std::vector<std::string> texts;
  for (const char* part :
       {"a", "word ", "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "]]>", "\n", "\x1b[2J",
        "a\u0301\u0302\u0303", "\u202e\u2066", "\u5b57", "\U0001f468\u200d\U0001f469\u200d", "\xff\xc3", "&quot;"})
    texts.push_back(repeated(part));
  return texts;
}

constexpr std::size_t kFewMegabytes = 4'000'000;

/// Nothing is left that a terminal obeys.
void expect_harmless(const std::string& picture) {
  for (const char* obeyed : {"\x1b[2J", "\u202e", "\u2066", "\xff"}) EXPECT_THAT(picture, Not(HasSubstr(obeyed)));
}

/// Nor markup of the text's own.
void expect_harmless_svg(const std::string& picture) {
  EXPECT_LT(picture.size(), kFewMegabytes);
  expect_harmless(picture);
  EXPECT_THAT(picture, Not(HasSubstr("<img")));
  EXPECT_THAT(picture, Not(HasSubstr("<script")));
}

TEST(LongTexts, InHeatmaps) {
  const Tensor weights(DType::f32, {1, 2, 2});
  for (const std::string& text : long_texts()) {
    const std::string shorter = text.substr(0, 100'000);  // which may end within a character
    const std::vector<std::string> both{shorter, shorter};
    const HeatmapOptions options{
        .query_tokens = both, .key_tokens = both, .title = text, .caption = text, .panel_titles = {shorter}};
    for (const std::string& picture : {heatmap_svg(weights, options), attention_lines_svg(weights, options)})
      expect_harmless_svg(picture);
    std::istringstream lines(heatmap_terminal(weights, options, TerminalColor::none, 60));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      EXPECT_LE(display_width(line), 60) << line;
      expect_harmless(line);
    }
    EXPECT_LT(count, 100);
  }
}

TEST(LongTexts, InCharts) {
  for (const std::string& text : long_texts()) {
    const std::vector<ChartSeries> series{{.name = text, .x = {1, 2}, .y = {3, 4}}};
    expect_harmless_svg(chart_svg(series, {.title = text, .x_label = text, .y_label = text}));
  }
}

TEST(LongTexts, InPages) {
  Tensor weights(DType::f32, {1, 1});
  weights.at<float>(0, 0) = 1.0F;
  for (const std::string& text : long_texts()) {
    AttentionPage page({.title = text, .subtitle = text});
    page.add_part({.name = text, .queries = {.tokens = {text}, .gaps = {text}}, .num_layers = 1, .num_heads = 1});
    page.add(0, 0, 0, weights);
    page.add_map(0, text, weights);
    const std::string html = page.html();
    EXPECT_LT(html.size(), 40'000'000U);
    EXPECT_THAT(html, Not(HasSubstr("<img src=x")));
    EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  }
}

}  // namespace
}  // namespace saccade::test
