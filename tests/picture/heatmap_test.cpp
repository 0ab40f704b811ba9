// Heat maps and pictures of lines as SVG: elements, positions, colours, and rejected input.
#include <saccade/heatmap.h>
#include <saccade/io.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <locale>
#include <sstream>
#include <stdexcept>

#include "picture/heatmap_fixtures.h"
#include "support/refusal.h"

namespace saccade {
namespace {

using namespace saccade::test;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> texts_of(const std::string& svg) {
  std::vector<std::string> texts;
  for (const std::string& text : elements_of(svg, "text")) texts.push_back(content(text));
  return texts;
}

TEST(DisplayWidth, FollowsTheUnicodeWidths) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("journey"), 7);
  EXPECT_EQ(display_width("注意力"), 6);
  EXPECT_EQ(display_width("ｆｕｌｌ"), 8) << "fullwidth letters";
  EXPECT_EQ(display_width("한국어"), 6);
  EXPECT_EQ(display_width("\u1112\u1161\u11AB"), 2) << "conjoining jamo: one syllable";
  EXPECT_EQ(display_width("ひらがな"), 8);
  EXPECT_EQ(display_width("e\u0301te\u0301"), 3) << "combining accents";
  EXPECT_EQ(display_width("नमस्ते"), 4) << "Devanagari: two of six characters are marks without width";
  EXPECT_EQ(display_width("\u05E9\u05DC\u05D5\u05DD"), 4);
  EXPECT_EQ(display_width("a\u200Bb"), 2) << "zero width space";
  EXPECT_EQ(display_width("…"), 1) << "ambiguous counts as narrow";
}

TEST(DisplayWidth, TakesAnEmojiAsOneCharacter) {
  EXPECT_EQ(display_width("😀"), 2);
  EXPECT_EQ(display_width("👍🏽"), 2) << "with a skin tone";
  EXPECT_EQ(display_width("👩‍👩‍👧"), 2) << "a family joined by zero width joiners";
  EXPECT_EQ(display_width("🇨🇳🇫🇷"), 4) << "two flags";
  EXPECT_EQ(display_width("❤️"), 2) << "a narrow character in emoji style";
}

TEST(DisplayWidth, CountsWhatIsReplaced) {
  EXPECT_EQ(display_width("a\nb\x1B"), 8) << "shown as a\\nb\\x1b";
  EXPECT_EQ(display_width("\xFF\xFE"), 2) << "invalid bytes";
  EXPECT_EQ(display_width("\xE6\xB3"), 2) << "a cut character";
  EXPECT_EQ(display_width("\xC0\xAF"), 2) << "an overlong form";
  EXPECT_EQ(display_width("\xED\xA0\x80"), 3) << "a surrogate";
  EXPECT_EQ(display_width("\u202Eabc"), 4) << "a bidirectional override";
}

TEST(HeatmapSvg, DrawsACellForEachWeight) {
  const std::string svg = heatmap_svg(six_token_weights(), {.query_tokens = kSixTokens});
  const auto cells = cells_of(svg);
  ASSERT_THAT(cells, SizeIs(36));
  EXPECT_THAT(cells[7], HasSubstr("<title>journey → journey: 0.2379</title>"));
  // Row by row, from left to right and from top to bottom.
  EXPECT_LT(number(cells[0], "x"), number(cells[1], "x"));
  EXPECT_EQ(number(cells[0], "y"), number(cells[1], "y"));
  EXPECT_LT(number(cells[0], "y"), number(cells[6], "y"));
  EXPECT_EQ(number(cells[0], "width"), number(cells[0], "height"));
}

TEST(HeatmapSvg, LabelsBothAxes) {
  const std::string svg = heatmap_svg(six_token_weights(), {.query_tokens = kSixTokens, .title = "Six"});
  const auto texts = texts_of(svg);
  for (const std::string& token : kSixTokens) EXPECT_EQ(std::count(texts.begin(), texts.end(), token), 2) << token;
  EXPECT_THAT(texts, Contains("query"));
  EXPECT_THAT(texts, Contains("key"));
  EXPECT_THAT(texts, Contains("weight"));
  EXPECT_THAT(texts, Contains("Six"));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"Six\""));
}

TEST(HeatmapSvg, TakesOtherTokensForTheKeys) {
  const Tensor weights = Tensor::of<float>({{0.5F, 0.25F, 0.25F}, {0.1F, 0.2F, 0.7F}});
  const auto texts =
      texts_of(heatmap_svg(weights, {.query_tokens = {"le", "chat"}, .key_tokens = {"the", "black", "cat"}}));
  for (const char* token : {"le", "chat", "the", "black", "cat"}) EXPECT_THAT(texts, Contains(token));
  EXPECT_THAT(texts_of(heatmap_svg(weights, {.query_tokens = {"le", "chat"}})), Contains("2"))
      << "keys of a matrix that is not square are positions";
}

TEST(HeatmapSvg, DrawsALargerValueDarker) {
  const Tensor weights = six_token_weights();
  const auto cells = cells_of(heatmap_svg(weights));
  std::vector<Painted> painted;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    painted.push_back({weights.values<float>()[i], color_of_hex(attribute(cells[i], "fill"))});
  }
  EXPECT_TRUE(darker_is_larger(painted));
}

TEST(HeatmapSvg, StepsEvenlyInPerceivedLightness) {
  const Tensor weights = Tensor::of<float>({{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
  const auto cells = cells_of(heatmap_svg(weights, {.low = 1}));
  ASSERT_THAT(cells, SizeIs(11));
  const auto light = [&](std::size_t i) { return lightness(color_of_hex(attribute(cells[i], "fill"))); };
  const double step = (light(0) - light(10)) / 10;
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(light(i) - light(i + 1), step, step / 20) << i;
}

TEST(HeatmapSvg, WritesTheValuesWhereTheyCanBeRead) {
  const std::string svg = heatmap_svg(six_token_weights());
  EXPECT_THAT(texts_of(svg), Contains("0.24"));
  EXPECT_THAT(texts_of(heatmap_svg(six_token_weights(), {.decimals = 4})), Contains("0.2379"));
  EXPECT_THAT(texts_of(heatmap_svg(six_token_weights(), {.show_values = false})), Not(Contains("0.24")));
  EXPECT_THAT(texts_of(heatmap_svg(Tensor::of<float>({{-1.5F, 2}}))), Contains("−1.50")) << "with a minus sign";

  const auto elements = elements_of(svg, "text");
  std::size_t numbers = 0;
  for (const std::string& cell : cells_of(svg)) {
    const double middle = number(cell, "x") + number(cell, "width") / 2;
    for (const std::string& text : elements) {
      const bool inside = attribute(text, "text-anchor") == "middle" &&
                          std::abs(number(text, "x") - middle) < 0.02 && number(text, "y") > number(cell, "y") &&
                          number(text, "y") < number(cell, "y") + number(cell, "height");
      if (!inside) continue;
      ++numbers;
      EXPECT_GE(contrast(color_of_hex(attribute(text, "fill")), color_of_hex(attribute(cell, "fill"))), 3.9)
          << text << " on " << cell;
    }
  }
  EXPECT_EQ(numbers, 36U);
}

TEST(HeatmapSvg, LeavesTheValuesOutWhereTheyDoNotFit) {
  const Tensor weights = causal_weights(1, 40);
  const auto texts = texts_of(heatmap_svg(weights));
  for (const std::string& text : texts) EXPECT_THAT(text, Not(HasSubstr("1.00")));
}

TEST(HeatmapSvg, MarksWhatIsMaskedAndWhatIsNotANumber) {
  const Tensor weights = Tensor::of<float>({{1, 0, -kInfinity}, {0.5F, 0.25F, 0.25F}, {kNan, 0.5F, 0.5F}});
  const std::string svg = heatmap_svg(weights);
  const auto cells = cells_of(svg);
  const std::string nothing = attribute(cells[1], "fill");
  EXPECT_EQ(attribute(cells[2], "fill"), nothing);
  EXPECT_EQ(attribute(cells[6], "fill"), nothing);
  EXPECT_NE(attribute(cells[4], "fill"), nothing);
  EXPECT_EQ(count_of(svg, "<circle"), 3U) << "two masked cells and the legend";
  EXPECT_EQ(count_of(svg, "stroke=\"#d1495b\""), 4U) << "the crosses of the NaN and of the legend";
  EXPECT_THAT(texts_of(svg), Contains("masked or 0"));
  EXPECT_THAT(texts_of(svg), Contains("NaN"));
}

TEST(HeatmapSvg, TakesZeroAsAValueAmongNegativeOnes) {
  const std::string svg = heatmap_svg(Tensor::of<float>({{-2, 0}, {1, -kInfinity}}));
  EXPECT_THAT(texts_of(svg), Contains("0.00"));
  EXPECT_THAT(texts_of(svg), Contains("masked"));
  EXPECT_EQ(count_of(svg, "<circle"), 2U) << "-inf alone is masked";
}

TEST(HeatmapSvg, DrawsMatricesWithoutANumberInThem) {
  EXPECT_THAT(texts_of(heatmap_svg(Tensor::of<float>({{kNan, kNan}}))), Contains("NaN"));
  EXPECT_THAT(texts_of(heatmap_svg(Tensor::of<float>({{0, 0}}))), Contains("masked or 0"));
  EXPECT_THAT(texts_of(heatmap_svg(Tensor::of<float>({{-kInfinity}}))), Contains("masked"));
  EXPECT_THAT(texts_of(heatmap_svg(Tensor::of<float>({{kInfinity, 1}}))), Contains("∞"));
  EXPECT_THAT(texts_of(heatmap_svg(Tensor::of<double>({{-1.7e308, 1.7e308}}))), Contains("1.7e+308"));
  EXPECT_THAT(cells_of(heatmap_svg(Tensor::of<double>({{5e-324, 5e-324}}))), SizeIs(2));
}

TEST(HeatmapSvg, DrawsTheExtremesOfDouble) {
  constexpr double kLargest = std::numeric_limits<double>::max(), kLeast = 5e-324;
  const double values[] = {-kLargest, -1, 0, kLeast, 1e-300, 1, kLargest};
  for (const double value : values) {
    for (const double other : values) {
      const Tensor weights = Tensor::of<double>({{value, other, kInfinity, -kInfinity, kNan}});
      for (const double bound : values) {
        for (const ColorScale scale : {ColorScale::linear, ColorScale::logarithmic}) {
          for (const HeatmapOptions& options :
               {HeatmapOptions{.scale = scale}, HeatmapOptions{.low = bound, .scale = scale},
                HeatmapOptions{.high = bound, .scale = scale}}) {
            std::string svg;
            if (refusal([&] { svg = heatmap_svg(weights, options); }).empty()) {
              EXPECT_EQ(count_of(svg, "=\"NaN") + count_of(svg, "=\"-∞") + count_of(svg, "=\"∞"), 0U)
                  << value << " " << other << " " << bound;
            }
          }
        }
      }
    }
  }
}

TEST(HeatmapSvg, EscapesAndCleansTheLabels) {
  const std::vector<std::string> tokens = {"<&\">", "a\nb", "\xFF!", "  ", " the ", "\u202Eevil"};
  const std::string svg = heatmap_svg(six_token_weights(), {.query_tokens = tokens, .title = "a < b & \"c\""});
  const auto texts = texts_of(svg);
  EXPECT_THAT(texts, Contains("&lt;&amp;&quot;&gt;"));
  EXPECT_THAT(texts, Contains("a\\nb"));
  EXPECT_THAT(texts, Contains("\uFFFD!"));
  EXPECT_THAT(texts, Contains("␣"));
  EXPECT_THAT(texts, Contains("the"));
  EXPECT_THAT(texts, Contains("\uFFFDevil"));
  EXPECT_THAT(texts, Contains("a &lt; b &amp; &quot;c&quot;"));
#ifdef SACCADE_HAS_PNG
  EXPECT_NO_THROW(png_of_svg(svg)) << "well-formed";
#endif
}

TEST(HeatmapSvg, ShortensLongLabelsAndTurnsThem) {
  std::vector<std::string> tokens = kSixTokens;
  tokens[2] = "internationalisation of a very long token that nobody could want to read";
  const std::string svg = heatmap_svg(six_token_weights(), {.query_tokens = tokens});
  EXPECT_THAT(texts_of(svg), Contains(::testing::AllOf(StartsWith("internation"), HasSubstr("…"))));
  EXPECT_EQ(count_of(svg, "rotate(-45)"), 6U);
  EXPECT_EQ(count_of(heatmap_svg(six_token_weights(), {.query_tokens = kSixTokens}), "rotate"), 0U);
}

TEST(HeatmapSvg, ThinsTheLabelsOfManyTokens) {
  std::vector<std::string> tokens(120, "t");
  const std::string dense = heatmap_svg(causal_weights(1, 120), {.query_tokens = tokens});
  const auto shown = count_of(dense, ">t</text>");
  EXPECT_GE(shown, 60U);
  EXPECT_LE(shown, 120U) << "every second one at most, on two axes";
  std::vector<std::string> many(300, "t");
  EXPECT_EQ(count_of(heatmap_svg(causal_weights(1, 300), {.query_tokens = many}), ">t</text>"), 0U)
      << "positions where a cell is less than a token";
}

TEST(HeatmapSvg, ShowsHeadsAsAGridWithOneScale) {
  const Tensor weights = causal_weights(3, 6);
  const std::string svg = heatmap_svg(weights, {.query_tokens = kSixTokens});
  EXPECT_EQ(count_of(svg, "class=\"panel\""), 3U);
  EXPECT_EQ(count_of(svg, "class=\"scale\""), 1U);
  EXPECT_THAT(texts_of(svg), Contains("head 2"));
  EXPECT_THAT(cells_of(svg), SizeIs(3 * 36));
  // One scale: all heads together keep the order of darkness.
  std::vector<Painted> painted;
  const auto cells = cells_of(svg);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const double value = weights.values<float>()[i];
    if (value != 0) painted.push_back({value, color_of_hex(attribute(cells[i], "fill"))});
  }
  EXPECT_TRUE(darker_is_larger(painted));
  EXPECT_THAT(texts_of(heatmap_svg(weights, {.panel_titles = {"a", "b", "c"}})), Contains("b"));
}

TEST(HeatmapSvg, PoolsWhatIsTooLargeToBeSeenAndSaysSo) {
  Tensor weights = causal_weights(1, 1000);
  weights.at<float>(0, 777, 333) = 5;  // one spike
  const std::string svg = heatmap_svg(weights, {.scale = ColorScale::linear});
  EXPECT_THAT(texts_of(svg), Contains("Each cell is the largest of 4 × 4 weights."));
  EXPECT_LT(svg.size(), 1'000'000U);
  // Only the spike has the darkest shade, at the place of its block.
  EXPECT_EQ(count_of(svg, "<path d=\"M83 194h1\" stroke=\"#15224f\"/>"), 1U);
  EXPECT_EQ(count_of(heatmap_svg(causal_weights(1, 200)), "Each cell"), 0U);
}

TEST(HeatmapSvg, CountsThePositionsOfTheMatrixThatAMapStandsFor) {
  const Tensor map = causal_weights(1, 500);
  const std::string svg = heatmap_svg(map, {.queries = 500'000, .keys = 1'000'000});
  EXPECT_THAT(texts_of(svg), Contains("450000"));
  EXPECT_THAT(texts_of(svg), Contains("900000"));
  EXPECT_EQ(count_of(svg, "Each cell"), 0U);  // a map has more cells than other pictures
  EXPECT_THAT(texts_of(heatmap_svg(causal_weights(1, 1000), {.queries = 2000, .keys = 2000})),
              Contains("Each cell is the largest of 2 × 2 cells of the map."));
  EXPECT_THAT(heatmap_terminal(map, {.queries = 500'000, .keys = 500'000}, TerminalColor::none, 80),
              HasSubstr("392000 "));
  EXPECT_THROW(heatmap_svg(map, {.queries = 499}), std::invalid_argument);
}

TEST(HeatmapSvg, StaysSmallWhateverTheSize) {
  EXPECT_LT(heatmap_svg(causal_weights(2, 1500)).size(), 3'000'000U);
  EXPECT_LT(heatmap_svg(causal_weights(256, 24)).size(), 3'000'000U);
  std::string marks = "x", family = "👩";
  for (int i = 0; i < 100'000; ++i) {
    marks += "\u0301";
    family += "\u200D👩";
  }
  for (const std::string& endless : {marks, family}) {
    const std::vector<std::string> tokens(6, endless);
    EXPECT_LT(
        heatmap_svg(six_token_weights(), {.query_tokens = tokens, .title = endless, .caption = endless}).size(),
        200'000U);
  }
}

TEST(HeatmapSvg, ChoosesALogarithmicScaleForLongSequences) {
  Tensor weights(DType::f32, {4, 100});
  for (float& value : weights.values<float>()) value = 0.001F;
  weights.at<float>(0, 0) = 1;
  EXPECT_THAT(texts_of(heatmap_svg(weights)), Contains("weight, log"));
  EXPECT_THAT(texts_of(heatmap_svg(weights, {.scale = ColorScale::linear})), Contains("weight"));
  EXPECT_THAT(texts_of(heatmap_svg(six_token_weights())), Contains("weight"));
  EXPECT_THAT(texts_of(heatmap_svg(six_token_weights(), {.scale = ColorScale::logarithmic})),
              Contains("weight, log"));
}

TEST(HeatmapSvg, KeepsTheGivenRange) {
  const auto fill = [](const HeatmapOptions& options) {
    return attribute(cells_of(heatmap_svg(Tensor::of<float>({{0.5F, 1}}), options))[0], "fill");
  };
  EXPECT_EQ(fill({.high = 0.5}), "#15224f") << "at and beyond the high end: the darkest";
  EXPECT_EQ(fill({.low = 0.5}), "#e9f4fc") << "at and below the low end: the palest";
}

TEST(HeatmapSvg, TakesAnyElementTypeAndStrides) {
  const Tensor weights = Tensor::of<float>({{0.5F, 0.25F, 0.125F}, {1, 0, 0.75F}});  // exact in every float type
  const std::string expected = heatmap_svg(weights);
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    EXPECT_EQ(heatmap_svg(Tensor::copy_of(weights, dtype)), expected) << name_of(dtype);
  }
  const Tensor turned = Tensor::of<float>({{0.5F, 1}, {0.25F, 0}, {0.125F, 0.75F}});
  EXPECT_EQ(heatmap_svg(turned.view().transposed(0, 1)), expected);
  const Tensor wide = Tensor::of<float>({{9, 0.5F, 0.25F, 0.125F, 9}, {9, 1, 0, 0.75F, 9}});
  EXPECT_EQ(heatmap_svg(wide.view().slice(1, 1, 4)), expected);
  EXPECT_EQ(heatmap_svg(weights.reshaped({1, 2, 3})), expected) << "one head is no grid";
}

TEST(HeatmapSvg, DoesNotDependOnTheLocale) {
  const std::string expected = heatmap_svg(six_token_weights());
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  const std::string with_comma = heatmap_svg(six_token_weights());
  std::locale::global(before);
  EXPECT_EQ(with_comma, expected);
}

TEST(HeatmapSvg, RefusesWhatItCannotDraw) {
  const Tensor weights = six_token_weights();
  const auto message = [&](const HeatmapOptions& options) {
    return refusal([&] { heatmap_svg(weights, options); });
  };
  EXPECT_EQ(refusal([] { heatmap_svg(Tensor(DType::f32, {6})); }),
            "[heatmap_svg] weights must have rank 2 [seqlen_q, seqlen_k] or 3 [heads, seqlen_q, seqlen_k], got "
            "shape [6]");
  EXPECT_EQ(refusal([] {
              heatmap_svg(Tensor(DType::f32, {0, 6}));
            }),
            "[heatmap_svg] weights must not be empty, got shape [0, 6]");
  EXPECT_EQ(refusal([] {
              heatmap_svg(Tensor(DType::f32, {257, 1, 1}));
            }),
            "[heatmap_svg] a picture has room for 256 heads, got 257");
  EXPECT_EQ(message({.query_tokens = {"a", "b"}}),
            "[heatmap_svg] query_tokens has 2 entries but the matrix has 6 rows");
  EXPECT_EQ(message({.key_tokens = {"a"}}), "[heatmap_svg] key_tokens has 1 entries but the matrix has 6 columns");
  EXPECT_EQ(message({.panel_titles = {"a", "b"}}),
            "[heatmap_svg] panel_titles has 2 entries but the matrix has 1 heads");
  EXPECT_EQ(message({.low = 2, .high = 1}), "[heatmap_svg] low 2 must be below high 1");
  EXPECT_EQ(message({.high = kNan}), "[heatmap_svg] low and high must be finite");
  EXPECT_EQ(message({.low = 0, .scale = ColorScale::logarithmic}),
            "[heatmap_svg] a logarithmic scale must stay above 0");
  EXPECT_EQ(message({.decimals = 13}), "[heatmap_svg] decimals must be 0 to 12, got 13");
  EXPECT_EQ(refusal([] {
              heatmap_svg(Tensor::of<float>({{-1, 1}}), {.scale = ColorScale::logarithmic});
            }),
            "[heatmap_svg] a logarithmic scale needs weights that are not negative");
}

// The curves of the picture, without the samples of its legend.
std::vector<std::string> lines_of(const std::string& svg) {
  std::vector<std::string> lines;
  for (std::string& path : elements_of(svg, "path")) {
    if (attribute(path, "d").find('C') != std::string::npos) lines.push_back(std::move(path));
  }
  return lines;
}

TEST(AttentionLines, JoinsTokensWithWidthsThatAreTheWeights) {
  const Tensor weights = Tensor::of<float>({{0.75F, 0.25F}, {0.5F, 0.5F}, {1, 0}});
  const std::string svg =
      attention_lines_svg(weights, {.query_tokens = {"x", "y", "z"}, .key_tokens = {"a", "b"}, .title = "Lines"});
  const auto lines = lines_of(svg);
  ASSERT_THAT(lines, SizeIs(5)) << "a weight of 0 has no line";
  // Thin ones first; width and opacity grow with the weight, the width in proportion.
  const auto width = [&](std::size_t i) { return number(lines[i], "stroke-width"); };
  EXPECT_THAT(lines[0], HasSubstr("x → b: 0.25"));
  EXPECT_THAT(lines[4], HasSubstr("z → a: 1"));
  EXPECT_NEAR(width(4), 4 * width(0), 0.03);
  EXPECT_EQ(width(1), width(2));
  EXPECT_LT(number(lines[3], "stroke-opacity"), number(lines[4], "stroke-opacity"));
  for (const char* text : {"x", "y", "z", "a", "b", "query", "key", "Lines"})
    EXPECT_THAT(texts_of(svg), Contains(text));
}

TEST(AttentionLines, StartAtTheQueryAndEndAtTheKey) {
  const Tensor weights = Tensor::of<float>({{0, 1}, {1, 0}});
  const auto lines = lines_of(attention_lines_svg(weights, {.query_tokens = {"up", "down"}}));
  ASSERT_THAT(lines, SizeIs(2));
  const auto ends = [](const std::string& line) {  // M x0 y0 C ... x1 y1
    std::vector<double> numbers;
    std::string path = attribute(line, "d");
    std::replace_if(
        path.begin(), path.end(), [](char c) { return c == 'M' || c == 'C'; }, ' ');
    std::size_t used = 0;
    for (std::string rest = path.substr(1); !rest.empty(); rest = rest.substr(std::min(used + 1, rest.size()))) {
      numbers.push_back(std::stod(rest, &used));
    }
    return std::array{numbers[1], numbers.back()};
  };
  const auto [from, to] = ends(lines[0]);
  const auto [other_from, other_to] = ends(lines[1]);
  EXPECT_LT(from, to) << "the upper query looks at the lower key";
  EXPECT_EQ(from, other_to);
  EXPECT_EQ(to, other_from);
}

TEST(AttentionLines, LeavesOutWhatCannotBeSeen) {
  const Tensor weights = Tensor::of<float>({{1, 0.001F}, {kNan, -kInfinity}});
  const std::string svg = attention_lines_svg(weights);
  EXPECT_THAT(lines_of(svg), SizeIs(1));
  EXPECT_THAT(texts_of(svg), Contains("Weights below 0.01 are not drawn."));
  EXPECT_THAT(texts_of(attention_lines_svg(Tensor::of<float>({{1, 0}}))), Each(Not(HasSubstr("not drawn"))));
  EXPECT_THAT(lines_of(attention_lines_svg(Tensor::of<float>({{kNan, 0}}))), IsEmpty());
}

TEST(AttentionLines, ShowsHeadsAsAGridAndEscapes) {
  const std::string svg =
      attention_lines_svg(causal_weights(4, 8), {.query_tokens = kChineseTokens, .title = "<4>"});
  EXPECT_EQ(count_of(svg, "class=\"lines\""), 4U);
  EXPECT_THAT(texts_of(svg), Contains("head 3"));
  EXPECT_THAT(texts_of(svg), Contains("&lt;4&gt;"));
  EXPECT_EQ(count_of(svg, ">注意力</text>"), 8U);
}

TEST(AttentionLines, RefusesWhatItCannotDraw) {
  EXPECT_EQ(refusal([] {
              attention_lines_svg(Tensor::of<float>({{-0.5F, 1}}));
            }),
            "[attention_lines_svg] weights must not be negative, got -0.5");
  EXPECT_EQ(refusal([] {
              attention_lines_svg(Tensor(DType::f32, {4, 129}));
            }),
            "[attention_lines_svg] lines show at most 128 key tokens, got 129; heatmap_svg shows any number");
  EXPECT_EQ(refusal([] {
              attention_lines_svg(Tensor(DType::f32, {5, 128, 128}));
            }),
            "[attention_lines_svg] lines show at most 65536 weights, got 81920; heatmap_svg shows any number");
  EXPECT_EQ(refusal([] { attention_lines_svg(six_token_weights(), {.high = -1}); }),
            "[attention_lines_svg] high must be above 0, got -1");
  EXPECT_THAT(refusal([] { attention_lines_svg(six_token_weights(), {.query_tokens = {"a"}}); }),
              StartsWith("[attention_lines_svg] query_tokens has 1 entries but the matrix has 6 rows"));
}

// The softmax of ALiBi's penalties, for slopes of 1/2, 1/4, ...: [heads, seqlen, seqlen].
Tensor alibi_weights(std::int64_t heads, std::int64_t seqlen) {
  Tensor weights(DType::f32, {heads, seqlen, seqlen});
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto denominator = static_cast<double>(2 << head);
    for (std::int64_t i = 0; i < seqlen; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j <= i; ++j) sum += std::exp(-static_cast<double>(i - j) / denominator);
      for (std::int64_t j = 0; j <= i; ++j) {
        weights.at<float>(head, i, j) =
            static_cast<float>(std::exp(-static_cast<double>(i - j) / denominator) / sum);
      }
    }
  }
  return weights;
}

std::string contents_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(std::string(SACCADE_SOURCE_DIR) + "/" + path).rdbuf();
  return text.str();
}

// docs/heatmaps.md describes how each picture was made; if one differs, the file is out of date.
TEST(DocumentedPictures, AreWhatTheLibraryDraws) {
  const Tensor six = load_npy(std::string(SACCADE_SOURCE_DIR) + "/examples/six_tokens_weights.npy");
  const HeatmapOptions options{.query_tokens = kSixTokens, .title = "Six tokens look at each other"};
  EXPECT_TRUE(heatmap_svg(six, options) == contents_of("docs/pictures/six_tokens.svg"));
  EXPECT_TRUE(attention_lines_svg(six, options) == contents_of("docs/pictures/six_tokens_lines.svg"));

  HeatmapOptions heads{.title = "How far ALiBi's heads look back", .low = 0.0, .high = 0.5};
  for (int head = 0; head < 8; ++head) heads.panel_titles.push_back("slope 1/" + std::to_string(2 << head));
  EXPECT_TRUE(heatmap_svg(alibi_weights(8, 48), heads) == contents_of("docs/pictures/alibi_heads.svg"));
}

}  // namespace
}  // namespace saccade
