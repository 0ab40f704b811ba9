// Line charts: points match the axes, names and ticks do not overlap, long series stay small, bad input is
// handled.
#include <saccade/chart.h>
#include <saccade/heatmap.h>
#include <saccade/random.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <locale>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "picture/chart_fixtures.h"
#include "support/refusal.h"

namespace saccade {
namespace {

using namespace saccade::test;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(Chart, PutsPointsWhereTheAxesSay) {
  const std::vector<std::vector<double>> lines = {
      {10.9, 8, 5.5, 4.1, 3.9, 4.0}, {-3, -1, 2, -0.5}, {-8, -7.5, -7.9}, {1e-7, 5e-7, 2e-7}, {2e9, 7e9, 6.5e9}};
  for (const auto& y : lines) {
    const ChartSeries series = steps("a", y);
    const std::string svg = chart({series});
    const Axes axes = axes_of(svg);
    ASSERT_GE(axes.x.size(), 2U);
    ASSERT_GE(axes.y.size(), 2U);
    const auto drawn = drawn_of(svg);
    ASSERT_THAT(drawn, SizeIs(1));
    ASSERT_THAT(drawn[0].runs, SizeIs(1));
    ASSERT_THAT(drawn[0].runs[0], SizeIs(y.size()));
    const double unit = std::abs(axes.y_at(1) - axes.y_at(0));
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(axes.x_at(drawn[0].runs[0][i].x), series.x[i], 0.03 * axes.x_unit());
      EXPECT_NEAR(axes.y_at(drawn[0].runs[0][i].y), y[i], 0.03 * unit);
    }
  }
}

TEST(Chart, PutsPointsWhereTheLogarithmicAxisSays) {
  const std::vector<std::vector<double>> lines = {
      {11, 3, 2.2, 2.1}, {1, 1e-3, 1e-6, 3e-9}, {0.5, 20, 300}, {2.1, 2.2, 2.9}, {1e-190, 1e190}};
  for (const auto& y : lines) {
    const std::string svg = chart({steps("a", y)}, {.log_y = true});
    const Axes axes = axes_of(svg, true);
    ASSERT_GE(axes.y.size(), 3U) << y[0];
    EXPECT_LE(axes.y.size(), 10U) << y[0];
    const auto drawn = drawn_of(svg);
    ASSERT_THAT(drawn[0].runs[0], SizeIs(y.size()));
    const double unit = std::abs(std::log(axes.y_at(1)) - std::log(axes.y_at(0)));
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(std::log(axes.y_at(drawn[0].runs[0][i].y)), std::log(y[i]), 0.03 * unit);
    }
    for (const Tick& tick : axes.y) {  // also those between the first and the last
      EXPECT_NEAR(std::log(axes.y_at(tick.place)), std::log(tick.value), 0.03 * unit) << tick.text;
    }
  }
  EXPECT_THAT(texts_of(chart({steps("", {1, 1e-3, 1e-6})}, {.log_y = true})), Contains("10⁻³"));
  EXPECT_THAT(texts_of(chart({steps("", {0.5, 20, 300})}, {.log_y = true})), Contains("100"));
}

TEST(Chart, KeepsLinesInsideTheirPlot) {
  for (const bool log_y : {false, true}) {
    const std::string svg = chart({noisy_fall("train", 3000), steps("b", {9, 1, 4})}, {.log_y = log_y});
    const Axes axes = axes_of(svg, log_y);
    for (const Drawn& drawn : drawn_of(svg)) {
      for (const Place& place : drawn.points()) {
        EXPECT_GE(place.x, axes.left - 0.01);
        EXPECT_LE(place.x, axes.right + 0.01);
        EXPECT_GE(place.y, axes.top - 0.01);
        EXPECT_LE(place.y, axes.bottom + 0.01);
      }
    }
  }
}

TEST(Chart, GoesALittleBeyondTheNumbersButNotAcrossZero) {
  const auto ends = [](const std::vector<double>& y) {
    const Axes axes = axes_of(chart({steps("a", y)}));
    return std::array{axes.y_at(axes.bottom), axes.y_at(axes.top)};
  };
  EXPECT_NEAR(ends({10, 20})[0], 9.6, 0.01);
  EXPECT_NEAR(ends({10, 20})[1], 20.4, 0.01);
  EXPECT_NEAR(ends({0.1, 10})[0], 0, 0.01);
  EXPECT_NEAR(ends({-0.1, -10})[1], 0, 0.01);
  EXPECT_NEAR(ends({-0.1, 10})[0], -0.504, 0.01);
}

// 1, 2 or 5 times a power of ten.
bool is_round(double step) {
  const double mantissa = step / std::pow(10.0, std::floor(std::log10(step) + 1e-9));
  return std::abs(mantissa - 1) < 1e-6 || std::abs(mantissa - 2) < 1e-6 || std::abs(mantissa - 5) < 1e-6;
}

void expect_apart(const std::vector<Tick>& ticks) {
  const auto half = [](const Tick& tick) { return extent_of(tick.text) * tick.size / 2; };
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    EXPECT_LT(ticks[i - 1].x + half(ticks[i - 1]) + 3, ticks[i].x - half(ticks[i])) << ticks[i].text;
  }
}

TEST(Chart, LabelsFewerPlacesWithLongNumbers) {
  const Axes axes = axes_of(chart({{"a", {1e12, 1e12 + 300}, {1, 2}}}, {.width = 360}));
  EXPECT_EQ(axes.x[1].text, "1000000000200");
  expect_apart(axes.x);
}

TEST(Chart, LabelsRoundNumbersThatDoNotCollide) {
  for (const int width : {360, 720, 1500}) {
    for (double end : {1.0, 3.0, 7.3, 99.0, 5000.0, 123456.0, 98765432.0, 1e13, 4e-5, 1e-160, 1e150}) {
      for (const double begin : {0.0, end * 0.7, -end}) {
        const std::vector<double> numbers = {begin, end};
        const Axes axes = axes_of(chart({{"loss", numbers, numbers}}, {.width = width}));
        for (const auto* ticks : {&axes.x, &axes.y}) {
          ASSERT_GE(ticks->size(), 2U) << begin << " " << end;
          const double apart = std::abs((*ticks)[1].place - (*ticks)[0].place);
          EXPECT_GE(apart, ticks == &axes.x ? 45 : 20);
          const double step = (*ticks)[1].value - (*ticks)[0].value;
          EXPECT_TRUE(is_round(step)) << step;
          std::set<std::string> texts;
          for (const Tick& tick : *ticks) {
            texts.insert(tick.text);
            const double steps_from_zero = tick.value / step;
            EXPECT_NEAR(steps_from_zero, std::round(steps_from_zero), 1e-6) << tick.text;
          }
          EXPECT_EQ(texts.size(), ticks->size());
        }
        expect_apart(axes.x);
        for (std::size_t i = 1; i < axes.y.size(); ++i) EXPECT_GE(axes.y[i - 1].place - axes.y[i].place, 12);
      }
    }
  }
}

TEST(Chart, CountsStepsInWholeNumbers) {
  for (const Tick& tick : axes_of(chart({steps("a", {1, 2, 3})})).x) EXPECT_EQ(tick.value, std::round(tick.value));
  const auto halves = axes_of(chart({{"a", {0, 0.5, 2}, {1, 2, 3}}})).x;
  EXPECT_TRUE(std::ranges::any_of(halves, [](const Tick& tick) { return tick.value != std::round(tick.value); }));
}

TEST(Chart, WritesEachNameWhereItsLineEnds) {
  const std::string svg = chart({steps("low", {5, 1}), steps("high", {5, 9}), steps("", {5, 2})});
  const Axes axes = axes_of(svg);
  const auto names = names_right_of(svg, axes.right);
  ASSERT_THAT(names, SizeIs(2));
  EXPECT_EQ(names[0].text, "high");
  EXPECT_EQ(names[1].text, "low");
  EXPECT_NEAR(axes.y_at(names[0].y - 4), 9, 0.2);  // the middle of the letters
  EXPECT_NEAR(axes.y_at(names[1].y - 4), 1, 0.2);
}

TEST(Chart, KeepsNamesApartAndInOrder) {
  std::vector<ChartSeries> series;
  for (int i = 0; i < 12; ++i) series.push_back(steps("run " + std::to_string(i), {5, 2 + 0.001 * i}));
  for (const int height : {300, 420}) {
    const std::string svg =
        chart(series, {.title = "Twelve", .x_label = "step", .y_label = "loss", .height = height});
    const Axes axes = axes_of(svg);
    const auto names = names_right_of(svg, axes.right);
    ASSERT_THAT(names, SizeIs(12));
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(names[i].text, "run " + std::to_string(11 - i)) << "from the highest line to the lowest";
      EXPECT_GT(names[i].y, axes.top);
      EXPECT_LT(names[i].y, axes.bottom + 3);
      if (i > 0) {
        EXPECT_GE(names[i].y - names[i - 1].y, 12);
      }
    }
  }
}

TEST(Chart, MovesNamesOnlyAsFarAsNeeded) {
  const std::string svg = chart({steps("a", {5, 2.0}), steps("b", {5, 2.01}), steps("c", {5, 4})});
  const Axes axes = axes_of(svg);
  const auto names = names_right_of(svg, axes.right);
  ASSERT_THAT(names, SizeIs(3));
  const auto place = [&](std::size_t i) { return drawn_of(svg)[i].runs[0].back().y; };
  EXPECT_NEAR(names[0].y - 4, place(2), 0.5) << "nobody else is near";
  EXPECT_LT(names[1].y - 4, place(1));
  EXPECT_GT(names[2].y - 4, place(0));
  EXPECT_LT(names[2].y - names[1].y, 16);
}

TEST(Chart, ShortensWhatIsTooLong) {
  const std::string word = "a very long name that no picture has room for, whatever it is, ";
  const std::string endless = word + word + word + word;
  const std::string svg =
      chart({steps(endless, {1, 2})}, {.title = endless, .x_label = endless, .y_label = endless});
  EXPECT_EQ(number(svg.substr(0, svg.find('>') + 1), "width"), 720);
  const Axes axes = axes_of(svg);
  EXPECT_GT(axes.right - axes.left, 400) << "the plot keeps its room";
  int shortened_texts = 0;
  for (const std::string& text : texts_of(svg)) {
    shortened_texts += text.find("…") != std::string::npos;
    EXPECT_LT(display_width(text) * 5, 720) << text;
  }
  EXPECT_EQ(shortened_texts, 4) << "name, both axes, and the third line of the title";
}

TEST(Chart, KeepsLowestAndHighestOfALongSeries) {
  ChartSeries series = noisy_fall("train", 100'001);
  series.y[70'000] = 9.5;  // a single spike
  series.y[30'000] = 0.125;
  const std::string svg = chart({series});
  EXPECT_LT(svg.size(), 40'000U);
  const Axes axes = axes_of(svg);
  const auto drawn = drawn_of(svg);
  ASSERT_THAT(drawn[0].runs, SizeIs(1));
  const auto& points = drawn[0].runs[0];
  EXPECT_LE(static_cast<double>(points.size()), 2 * (axes.right - axes.left + 1) + 2);

  std::map<double, std::pair<double, double>> seen;  // lowest and highest y of each unit of width
  for (const Place& place : points) {
    auto& [least, largest] = seen.try_emplace(std::floor(place.x), 1e9, -1e9).first->second;
    least = std::min(least, axes.y_at(place.y));
    largest = std::max(largest, axes.y_at(place.y));
  }
  const double unit = std::abs(axes.y_at(1) - axes.y_at(0));
  const auto column = [&](double x) { return std::floor(axes.left + (axes.right - axes.left) * x / 100'000); };
  EXPECT_NEAR(seen.at(column(70'000)).second, 9.5, 0.03 * unit);
  EXPECT_NEAR(seen.at(column(30'000)).first, 0.125, 0.03 * unit);
  for (std::size_t i = 1; i < points.size(); ++i) ASSERT_GE(points[i].x, points[i - 1].x) << "in order";
}

TEST(Chart, KeepsTheEndsOfALongSeries) {
  ChartSeries series = noisy_fall("train", 100'001);
  series.y.front() = 10;  // between their neighbours
  series.y.back() = 2;
  const std::string svg = chart({series, {"longer", {-50'000, 150'000}, {1, 1}}});
  const Axes axes = axes_of(svg);
  const auto drawn = drawn_of(svg);
  const auto& points = drawn[0].runs[0];
  ASSERT_GT(points.size(), 500U);
  const double unit = std::abs(axes.y_at(1) - axes.y_at(0));
  EXPECT_NEAR(axes.x_at(points.front().x), 0, 0.03 * axes.x_unit());
  EXPECT_NEAR(axes.y_at(points.front().y), 10, 0.03 * unit);
  EXPECT_NEAR(axes.x_at(points.back().x), 100'000, 0.03 * axes.x_unit());
  EXPECT_NEAR(axes.y_at(points.back().y), 2, 0.03 * unit);
}

TEST(Chart, LeavesShortSeriesWhole) {
  const auto drawn = drawn_of(chart({noisy_fall("train", 300)}));
  EXPECT_THAT(drawn[0].runs[0], SizeIs(300));
}

TEST(Chart, LeavesGapsAndDots) {
  const double inf = kInfinity;
  const std::string svg = chart({steps("a", {5, 4, kNan, 3, inf, 2, 1, -inf, kNan}), steps("b", {1, 2})});
  const auto drawn = drawn_of(svg);
  ASSERT_THAT(drawn, SizeIs(2));
  ASSERT_THAT(drawn[0].runs, SizeIs(2));
  EXPECT_THAT(drawn[0].runs[0], SizeIs(2));
  EXPECT_THAT(drawn[0].runs[1], SizeIs(2));
  ASSERT_THAT(drawn[0].dots, SizeIs(1));
  const Axes axes = axes_of(svg);
  EXPECT_NEAR(axes.x_at(drawn[0].dots[0].x), 3, 0.03 * axes.x_unit());
  EXPECT_NEAR(axes.y_at(drawn[0].dots[0].y), 3, 0.05);
  EXPECT_NEAR(axes.x_at(axes.right), 6, 0.03 * axes.x_unit()) << "no room for what is not drawn";
}

TEST(Chart, ClosesGapsThatCannotBeSeen) {
  ChartSeries series = noisy_fall("train", 100'000);
  for (std::size_t i = 0; i < series.y.size(); i += 2) series.y[i] = kNan;
  const std::string svg = chart({series});
  EXPECT_LT(svg.size(), 80'000U);
  std::size_t points = 0;
  const auto drawn = drawn_of(svg);
  for (const auto& run : drawn[0].runs) points += run.size();
  EXPECT_GT(points, 1000U);
  EXPECT_THAT(drawn[0].dots, IsEmpty());
}

TEST(Chart, LeavesOutOfALogarithmicAxisWhatIsNotAboveZero) {
  const std::string note = "Numbers that are not above 0 are not drawn.";
  const std::vector<ChartSeries> series = {steps("a", {5, 4, 0, 3, 2, -1, 1, 1.5})};
  const std::string svg = chart(series, {.log_y = true});
  EXPECT_THAT(drawn_of(svg)[0].runs, SizeIs(3));
  EXPECT_THAT(texts_of(svg), Contains(note));
  EXPECT_THAT(texts_of(chart(series)), Not(Contains(note)));
  EXPECT_THAT(drawn_of(chart(series))[0].runs, SizeIs(1));
  EXPECT_THAT(texts_of(chart({steps("a", {5, kNan, 4})}, {.log_y = true})), Not(Contains(note)));
}

TEST(Chart, DrawsWhatHasNothingOrOneNumberInIt) {
  for (const bool log_y : {false, true}) {
    for (const std::vector<ChartSeries>& series :
         {std::vector<ChartSeries>{}, {ChartSeries{.name = "empty"}}, {steps("nan", {kNan, kInfinity})}}) {
      const std::string svg = chart(series, {.log_y = log_y});
      EXPECT_THAT(texts_of(svg), Contains("nothing to draw"));
      EXPECT_GE(axes_of(svg, log_y).y.size(), 2U);
    }
    for (const double y : {2.5, 1e-7, 123456.0, 0.0, -3.0}) {
      if (log_y && y <= 0) continue;
      const std::string one = chart({{"a", {7}, {y}}}, {.log_y = log_y});
      const Axes axes = axes_of(one, log_y);
      ASSERT_THAT(drawn_of(one)[0].dots, SizeIs(1)) << y;
      EXPECT_NEAR(drawn_of(one)[0].dots[0].y, (axes.top + axes.bottom) / 2, 0.02) << y;
      EXPECT_NEAR(axes.x_at(drawn_of(one)[0].dots[0].x), 7, 0.03 * axes.x_unit());
      EXPECT_NEAR(axes.y_at(drawn_of(one)[0].dots[0].y), y, std::abs(y) * 0.01);

      const std::string constant = chart({steps("a", {y, y, y})}, {.log_y = log_y});
      for (const Place& place : drawn_of(constant)[0].points()) {
        EXPECT_NEAR(place.y, (axes.top + axes.bottom) / 2, 0.02) << y;
      }
    }
  }
  EXPECT_THAT(texts_of(chart({steps("a", {1, 2}), {.name = "not yet"}})), Not(Contains("nothing to draw")));
  EXPECT_THAT(texts_of(chart({steps("a", {1, 2}), {.name = "not yet"}})), Contains("not yet"));
}

TEST(Chart, DrawsTheExtremesOfDouble) {
  constexpr double kLargest = std::numeric_limits<double>::max(), kLeast = 5e-324;
  const double values[] = {-kLargest, -1e200, -1, -kLeast, 0, kLeast, 1e-200, 1, 1 + 1e-15, 1e200, kLargest};
  for (const double value : values) {
    for (const double other : values) {
      for (const bool log_y : {false, true}) {
        const double x = std::clamp(std::min(value, other), -1e200, 1e200);
        const double later = std::clamp(std::max(value, other), -1e200, 1e200);
        const std::string svg = chart({{"a", {x, later, later}, {value, other, kInfinity}}}, {.log_y = log_y});
        EXPECT_EQ(count_of(svg, "NaN") + count_of(svg, "∞") + count_of(svg, "e+"), 0U) << value << " " << other;
        EXPECT_LT(svg.size(), 8000U);
        for (const Place& place : drawn_of(svg)[0].points()) {
          EXPECT_TRUE(place.x >= 0 && place.x <= 720 && place.y >= 0 && place.y <= 420) << value << " " << other;
        }
      }
    }
  }
}

TEST(Chart, TakesTinyNumbersAsZeroAndHugeOnesAsInfinite) {
  EXPECT_EQ(chart({steps("a", {0, 1e-201, -1e-300})}), chart({steps("a", {0, 0, 0})}));
  EXPECT_EQ(chart({steps("a", {1, 2e200, 3, -1e300})}), chart({steps("a", {1, kInfinity, 3, -kInfinity})}));
}

TEST(Chart, StaysInsideTheDocumentWhateverIsAsked) {
  for (const auto& [width, height] : {std::pair{360, 300}, {720, 420}, {8192, 8192}}) {
    const std::string svg =
        chart({noisy_fall("train", 500), steps("validation", {9, 4})},
              {.title = "Losses", .x_label = "step", .y_label = "loss", .width = width, .height = height});
    const std::string root = svg.substr(0, svg.find('>') + 1);
    EXPECT_EQ(number(root, "width"), width);
    EXPECT_EQ(number(root, "height"), height);
    for (const std::string& text : elements_of(svg, "text")) {
      const double extent = extent_of(content(text)) * number(text, "font-size");
      const std::string anchor = attribute(text, "text-anchor");
      const double left = number(text, "x") - (anchor == "end" ? extent : anchor == "middle" ? extent / 2 : 0);
      EXPECT_GE(left, 0) << text;
      EXPECT_LE(left + extent, width) << text;
      EXPECT_LE(number(text, "y"), height) << text;
    }
  }
}

// The OKLab of a colour for a viewer whose eyes mix the channels like this.
using Mixing = std::array<std::array<double, 3>, 3>;
std::array<double, 3> seen(Color color, const Mixing& mixing) {
  const std::array<double, 3> light = {linear_channel(color.red), linear_channel(color.green),
                                       linear_channel(color.blue)};
  std::array<double, 3> c{};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) c[i] += mixing[i][j] * light[j];
    c[i] = std::clamp(c[i], 0.0, 1.0);
  }
  const double l = std::cbrt(0.4122214708 * c[0] + 0.5363325363 * c[1] + 0.0514459929 * c[2]);
  const double m = std::cbrt(0.2119034982 * c[0] + 0.6806995451 * c[1] + 0.1073969566 * c[2]);
  const double s = std::cbrt(0.0883024619 * c[0] + 0.2817188376 * c[1] + 0.6299787005 * c[2]);
  return {0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
          1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
          0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s};
}

TEST(Chart, TellsItsLinesApartForEveryEye) {
  // Machado, Oliveira and Fernandes (2009), severity 1.
  const Mixing kinds[] = {
      {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
      {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
      {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
      {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}}};
  std::vector<ChartSeries> series;
  for (int i = 0; i < 12; ++i) series.push_back(steps("run " + std::to_string(i), {1.0 * i, 2.0 * i}));
  const auto drawn = drawn_of(chart(series));
  ASSERT_THAT(drawn, SizeIs(12));
  std::set<std::string> strokes;
  for (const Drawn& one : drawn) strokes.insert(one.tag);
  EXPECT_THAT(strokes, SizeIs(12)) << "no two look the same";

  std::vector<Color> colors;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(attribute(drawn[i].tag, "stroke-dasharray"), "");
    EXPECT_NE(attribute(drawn[i + 6].tag, "stroke-dasharray"), "");
    colors.push_back(color_of_hex(attribute(drawn[i].tag, "stroke")));
  }
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_GE(contrast(colors[i], {255, 255, 255}), 3);
    for (std::size_t j = 0; j < i; ++j) {
      for (const Mixing& kind : kinds) {
        const auto a = seen(colors[i], kind), b = seen(colors[j], kind);
        EXPECT_GE(std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]), 0.16) << i << " and " << j;
      }
      if (i < 3) {
        EXPECT_GE(std::abs(lightness(colors[i]) - lightness(colors[j])), 0.14) << i << " and " << j;
      }
    }
  }
}

TEST(Chart, LaysNoisyLinesUnderTheOthers) {
  const auto drawn = drawn_of(chart({steps("validation", {9, 4, 3}), noisy_fall("train", 5000)}));
  ASSERT_THAT(drawn, SizeIs(2));
  EXPECT_GT(drawn[0].runs[0].size(), 1000U) << "the second series comes first";
  EXPECT_NE(attribute(drawn[0].tag, "stroke-opacity"), "");
  EXPECT_EQ(attribute(drawn[1].tag, "stroke-opacity"), "");
  EXPECT_EQ(attribute(drawn[1].tag, "stroke"), attribute(drawn_of(chart({steps("a", {1, 2})}))[0].tag, "stroke"))
      << "but keeps its colour";
}

TEST(Chart, EscapesAndCleansItsTexts) {
  const std::string svg = chart({steps("<&\">", {1, 2}), steps("注意力\n", {2, 3})},
                                {.title = "a < b", .x_label = "\xFF!", .y_label = "x & y"});
  const auto texts = texts_of(svg);
  for (const char* text : {"&lt;&amp;&quot;&gt;", "注意力\\n", "a &lt; b", "\uFFFD!", "x &amp; y"}) {
    EXPECT_THAT(texts, Contains(text));
  }
  EXPECT_THAT(svg, HasSubstr("aria-label=\"a &lt; b\""));
  EXPECT_THAT(chart({}), HasSubstr("aria-label=\"Line chart\""));
#ifdef SACCADE_HAS_PNG
  EXPECT_NO_THROW(png_of_svg(svg)) << "well-formed";
#endif
}

TEST(Chart, DoesNotDependOnTheLocale) {
  const std::vector<ChartSeries> series = {noisy_fall("train", 2000)};
  const std::string expected = chart(series);
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
  const std::string with_comma = chart(series);
  std::locale::global(before);
  EXPECT_EQ(with_comma, expected);
}

TEST(Chart, RefusesWhatItCannotDraw) {
  const auto message = [](const std::vector<ChartSeries>& series,
                          const ChartOptions& options = {}) -> std::string {
    return test::refusal([&] { chart_svg(series, options); });
  };
  EXPECT_EQ(message({{"a", {1, 2}, {1}}}), "[chart_svg] series 0 (a) has 2 numbers in x but 1 in y");
  EXPECT_EQ(message({{}, {"", {1, kNan}, {1, 2}}}), "[chart_svg] series 1 must have finite x, got x[1] = NaN");
  EXPECT_EQ(message({{"a", {-kInfinity}, {1}}}), "[chart_svg] series 0 (a) must have finite x, got x[0] = -∞");
  EXPECT_EQ(message({{"a", {1e201}, {1}}}), "[chart_svg] series 0 (a) must have finite x, got x[0] = 1e+201");
  EXPECT_EQ(message({{"a", {1, 3, 2}, {1, 1, 1}}}),
            "[chart_svg] series 0 (a) must have x that does not decrease, got x[2] = 2 after 3");
  EXPECT_EQ(message({{"a", {1, 1, 1}, {1, 3, 2}}}), "");
  EXPECT_EQ(message(std::vector<ChartSeries>(13)), "[chart_svg] a chart shows at most 12 series, got 13");
  EXPECT_EQ(message({}, {.width = 359}), "[chart_svg] width must be 360 to 8192, got 359");
  EXPECT_EQ(message({}, {.width = 8193}), "[chart_svg] width must be 360 to 8192, got 8193");
  EXPECT_EQ(message({}, {.height = 299}), "[chart_svg] height must be 300 to 8192, got 299");
  EXPECT_EQ(message({}, {.height = -1}), "[chart_svg] height must be 300 to 8192, got -1");
  EXPECT_THAT(message({{std::string(1000, 'x') + "\n", {1}, {}}}), Not(HasSubstr(std::string(41, 'x'))));
}

// A linear model in eight dimensions, fitted by stochastic gradient descent as in docs/heatmaps.md.
struct Fit {
  NumpyRandomState random{1};
  std::vector<double> truth = {3, -2, 1, 0.5, -1, 2, -0.5, 1};
  std::vector<double> weight = std::vector<double>(truth.size());

  double loss(int samples, double rate) {
    std::vector<double> gradient(truth.size());
    double sum = 0;
    for (int i = 0; i < samples; ++i) {
      const Tensor sample = random.standard_normal({std::ssize(truth)});
      const auto x = sample.values<double>();
      double error = 0.1 * random.standard_normal({1}).at<double>(0);
      for (std::size_t j = 0; j < x.size(); ++j) error += (weight[j] - truth[j]) * x[j];
      for (std::size_t j = 0; j < x.size(); ++j) gradient[j] += 2 * error * x[j] / samples;
      sum += error * error / samples;
    }
    for (std::size_t j = 0; j < truth.size(); ++j) weight[j] -= rate * gradient[j];
    return sum;
  }
};

std::vector<ChartSeries> fitted_line() {
  Fit fit;
  std::vector<ChartSeries> series = {{.name = "batches of 8"}, {.name = "held out"}};
  for (int step = 0; step <= 3000; ++step) {
    if (step % 100 == 0) {
      series[1].x.push_back(step);
      series[1].y.push_back(fit.loss(512, 0));
    }
    series[0].x.push_back(step);
    series[0].y.push_back(fit.loss(8, 0.002));
  }
  return series;
}

// docs/heatmaps.md describes how the picture was made; if it differs, the file is out of date.
TEST(DocumentedChart, IsWhatTheLibraryDraws) {
  std::stringstream picture;
  picture << std::ifstream(std::string(SACCADE_SOURCE_DIR) + "/docs/pictures/training.svg").rdbuf();
  EXPECT_TRUE(
      chart(fitted_line(),
            {.title = "A line is fitted", .x_label = "step", .y_label = "mean squared error", .log_y = true}) ==
      picture.str());
}

}  // namespace
}  // namespace saccade
