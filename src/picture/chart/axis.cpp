#include "picture/chart/axis.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "picture/svg.h"
#include "picture/text.h"
#include "picture/ticks.h"

namespace saccade::picture {
namespace {

constexpr double kBeyond = 0.04;       // of a range, at either end
constexpr double kOneNumber = 1e-12;   // a smaller range, relative to its numbers, has no room for ticks
constexpr std::size_t kLongFixed = 6;  // digits of a tick; longer ones may be shorter with a power of ten
constexpr int kLastFixed = 14;         // the largest power of ten that fixed() writes out
constexpr std::size_t kEnoughDecades = 3, kEnoughInDecades = 4;  // ticks

int exponent_of(double value) { return static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9)); }

double power_of_ten(int exponent) { return std::pow(10.0, exponent); }

std::string superscript(int exponent) {
  static constexpr const char* kDigits[] = {"\u2070", "\u00B9", "\u00B2", "\u00B3", "\u2074",
                                            "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string text;
  for (const char c : std::to_string(exponent)) text += c == '-' ? "\u207B" : kDigits[c - '0'];
  return text;
}

std::string scientific(double value, int exponent, int decimals) {
  return typographic(fixed(value / power_of_ten(exponent), decimals)) + "\u00D710" + superscript(exponent);
}

// Ticks at multiples of a step, in one notation, whichever is shorter: all with the decimals of the step, or all
// with the power of ten of the largest.
std::vector<ChartTick> even_ticks(double low, double high, double step) {
  const int last_digit = exponent_of(step);
  const int first_digit = std::max(exponent_of(std::max(std::abs(low), std::abs(high))), last_digit);
  const auto decimals = static_cast<std::size_t>(std::max(0, -last_digit));
  const auto digits = static_cast<std::size_t>(std::max(0, first_digit) + 1);
  const std::size_t fixed_length = digits + decimals + (decimals > 0);
  const std::size_t scientific_length = static_cast<std::size_t>(first_digit - last_digit) + 6;
  const bool is_fixed =
      first_digit <= kLastFixed && (fixed_length <= kLongFixed || fixed_length <= scientific_length);
  std::vector<ChartTick> ticks;
  const double end = std::floor(high / step + 1e-9);
  for (double i = std::ceil(low / step - 1e-9); i <= end; ++i) {
    const double value = i * step;
    ticks.push_back({value, i == 0     ? "0"
                            : is_fixed ? typographic(fixed(value, static_cast<int>(decimals)))
                                       : scientific(value, first_digit, first_digit - last_digit)});
  }
  return ticks;
}

// Each power of ten (or each second, third, ... one) times each factor.
std::vector<ChartTick> decade_ticks(double low, double high, int every, std::initializer_list<int> factors) {
  const int first = exponent_of(low), last = exponent_of(high);
  const bool is_fixed = first >= -4 && last <= 5;
  std::vector<ChartTick> ticks;
  for (int exponent = first; exponent <= last; ++exponent) {
    if (exponent % every != 0) continue;
    for (const int factor : factors) {
      const double value = factor * power_of_ten(exponent);
      if (value < low * (1 - 1e-9) || value > high * (1 + 1e-9)) continue;
      ticks.push_back({value, is_fixed      ? concise(value, 6)
                              : factor == 1 ? "10" + superscript(exponent)
                                            : scientific(value, exponent, 0)});
    }
  }
  return ticks;
}

std::vector<ChartTick> logarithmic_ticks(double low, double high, int count) {
  const int every = (exponent_of(high) - exponent_of(low)) / count + 1;
  std::vector<ChartTick> ticks = decade_ticks(low, high, every, {1});
  if (every > 1 || ticks.size() >= kEnoughDecades) return ticks;
  ticks = decade_ticks(low, high, 1, {1, 2, 5});
  if (ticks.size() >= kEnoughInDecades) return ticks;
  return even_ticks(low, high, tick_step(high - low, count));
}

// A single number, or none, gets room around it.
void widen(double& low, double& high, double room) {
  low -= room;
  high += room;
}

bool is_one_number(const Range& range) {
  return range.high - range.low <= kOneNumber * std::max(std::abs(range.low), std::abs(range.high));
}

ChartAxis linear_axis(const Range& range) {
  if (range.empty()) return {};
  ChartAxis axis{.low = range.low, .high = range.high, .whole = range.whole};
  if (is_one_number(range)) {
    const double size = std::abs(range.high);
    widen(axis.low, axis.high, size == 0 || (range.whole && size < 1e9) ? 1 : size / 10);
  }
  return axis;
}

}  // namespace

void Range::include(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
  whole = whole && value == std::floor(value);
}

double ChartAxis::place(double value) const {
  const double share = logarithmic ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                                   : (value - low) / (high - low);
  return first + (last - first) * share;
}

std::vector<ChartTick> ChartAxis::ticks(int count) const {
  if (logarithmic) return logarithmic_ticks(low, high, count);
  const double step = tick_step(high - low, count);
  return even_ticks(low, high, whole ? std::max(step, 1.0) : step);
}

ChartAxis tight_axis(const Range& range) { return linear_axis(range); }

ChartAxis loose_axis(const Range& range, bool logarithmic) {
  if (logarithmic && range.empty()) return {.low = 1, .high = 10, .logarithmic = true};
  if (logarithmic) {
    const double beyond = is_one_number(range) ? 2 : std::pow(range.high, kBeyond) / std::pow(range.low, kBeyond);
    return {.low = range.low / beyond, .high = range.high * beyond, .logarithmic = true};
  }
  ChartAxis axis = linear_axis(range);
  axis.whole = false;
  if (range.empty() || is_one_number(range)) return axis;
  const double room = (axis.high - axis.low) * kBeyond;
  const bool positive = axis.low >= 0, negative = axis.high <= 0;
  widen(axis.low, axis.high, room);
  if (positive) axis.low = std::max(axis.low, 0.0);
  if (negative) axis.high = std::min(axis.high, 0.0);
  return axis;
}

}  // namespace saccade::picture
