#include "picture/color.h"

#include <algorithm>
#include <cmath>

namespace saccade::picture {
namespace {

double relative_luminance(Rgb color) {
  const auto linear = [](std::uint8_t channel) {
    const double c = channel / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(color.red) + 0.7152 * linear(color.green) + 0.0722 * linear(color.blue);
}

}  // namespace

Rgb ramp(double t) {
  const double place = std::clamp(t, 0.0, 1.0) * (kRamp.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(place), kRamp.size() - 2);
  const double part = place - static_cast<double>(below);
  const auto mix = [part](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + part * (to - from)));
  };
  const Rgb a = kRamp[below], b = kRamp[below + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

bool wants_white_text(Rgb background) {
  const double behind = relative_luminance(background) + 0.05;
  const double with_white = 1.05 / behind;
  const double with_dark = behind / (relative_luminance(kDarkText) + 0.05);
  return with_white > with_dark;
}

Rgb rgb_of_256(std::uint8_t index) {
  if (index >= 232) {
    const auto gray = static_cast<std::uint8_t>(8 + 10 * (index - 232));
    return {gray, gray, gray};
  }
  const auto channel = [](int level) { return static_cast<std::uint8_t>(level == 0 ? 0 : 55 + 40 * level); };
  const int cube = index - 16;
  return {channel(cube / 36), channel(cube / 6 % 6), channel(cube % 6)};
}

std::string hex(Rgb color) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "#";
  for (const std::uint8_t channel : {color.red, color.green, color.blue}) {
    text += kDigits[channel >> 4];
    text += kDigits[channel & 15];
  }
  return text;
}

}  // namespace saccade::picture
