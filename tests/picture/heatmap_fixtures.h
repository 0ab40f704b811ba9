// Shared helpers of the picture tests: matrices with known numbers, and simple reading of SVG.
#pragma once

#include <saccade/heatmap.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/published.h"

namespace saccade::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline const std::vector<std::string> kSixTokens = {"Your", "journey", "starts", "with", "one", "step"};
inline const std::vector<std::string> kChineseTokens = {"注意力", "机制", "让", "模型",
                                                        "看见",   "重要", "的", "词语"};

/// The unscaled self-attention of the six published tokens: f32 [6, 6].
inline Tensor six_token_weights() {
  return Tensor::copy_of(tensor_of(published().at("six_tokens").at("simple").at("weights")), DType::f32);
}

/// Rows that sum to 1, causal, different in every head; no randomness.
inline Tensor causal_weights(std::int64_t heads, std::int64_t seqlen) {
  Tensor weights(DType::f32, {heads, seqlen, seqlen});
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t i = 0; i < seqlen; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        const double logit =
            3 * std::sin(static_cast<double>((head + 2) * (j + 1))) - 0.1 * static_cast<double>(i - j);
        weights.at<float>(head, i, j) = static_cast<float>(std::exp(logit));
        sum += std::exp(logit);
      }
      for (std::int64_t j = 0; j <= i; ++j) weights.at<float>(head, i, j) /= static_cast<float>(sum);
    }
  }
  return weights;
}

inline std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

/// The elements of one name ("rect"), each as its tag and, if it has any, its content.
inline std::vector<std::string> elements_of(std::string_view svg, const std::string& name) {
  std::vector<std::string> elements;
  const std::string open = "<" + name + " ", close = "</" + name + ">";
  for (std::size_t at = svg.find(open); at != std::string_view::npos; at = svg.find(open, at + 1)) {
    const std::size_t tag_end = svg.find('>', at);
    const std::size_t end = svg[tag_end - 1] == '/' ? tag_end + 1 : svg.find(close, at) + close.size();
    elements.emplace_back(svg.substr(at, end - at));
  }
  return elements;
}

/// The value of an attribute; empty if the element does not have it.
inline std::string attribute(const std::string& element, const std::string& name) {
  const std::string begin = " " + name + "=\"";
  const std::size_t at = element.find(begin);
  if (at == std::string::npos || at > element.find('>')) return {};
  return element.substr(at + begin.size(), element.find('"', at + begin.size()) - at - begin.size());
}

inline double number(const std::string& element, const std::string& name) {
  return std::stod(attribute(element, name));
}

/// The content of a <text> element.
inline std::string content(const std::string& element) {
  const std::size_t begin = element.find('>') + 1;
  return element.substr(begin, element.rfind("</") - begin);
}

/// The cells of a small picture: rectangles with a tooltip.
inline std::vector<std::string> cells_of(std::string_view svg) {
  std::vector<std::string> cells;
  for (std::string& rect : elements_of(svg, "rect")) {
    if (rect.find("<title>") != std::string::npos) cells.push_back(std::move(rect));
  }
  return cells;
}

struct Color {
  int red = 0, green = 0, blue = 0;
  bool operator==(const Color&) const = default;
};

inline Color color_of_hex(const std::string& hex) {
  const auto channel = [&](std::size_t at) { return std::stoi(hex.substr(at, 2), nullptr, 16); };
  return {channel(1), channel(3), channel(5)};
}

inline double linear_channel(int channel) {
  const double c = channel / 255.0;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

/// Perceived lightness, 0 black to 1 white (the L of OKLab).
inline double lightness(Color color) {
  const double r = linear_channel(color.red), g = linear_channel(color.green), b = linear_channel(color.blue);
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const double m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const double s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return 0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s;
}

/// The contrast of two colours as WCAG 2 defines it, 1 to 21.
inline double contrast(Color a, Color b) {
  const auto luminance = [](Color c) {
    return 0.2126 * linear_channel(c.red) + 0.7152 * linear_channel(c.green) + 0.0722 * linear_channel(c.blue);
  };
  const double one = luminance(a), other = luminance(b);
  return (std::max(one, other) + 0.05) / (std::min(one, other) + 0.05);
}

/// A value and its colour.
struct Painted {
  double value;
  Color color;
};

/// Whether a larger value never has a lighter colour, and the largest is darker than the smallest.
inline bool darker_is_larger(std::vector<Painted> cells) {
  std::stable_sort(cells.begin(), cells.end(),
                   [](const Painted& a, const Painted& b) { return a.value < b.value; });
  for (std::size_t i = 1; i < cells.size(); ++i) {
    if (lightness(cells[i].color) > lightness(cells[i - 1].color) + 1e-9) return false;
  }
  return lightness(cells.back().color) < lightness(cells.front().color);
}

}  // namespace saccade::test
