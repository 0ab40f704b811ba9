#include "picture/svg.h"

#include <algorithm>
#include <cmath>

#include "picture/color.h"
#include "picture/text.h"

namespace saccade::picture {
namespace {

constexpr double kTitleSize = 16, kTitleLine = 22, kNoteSize = 12, kNoteLine = 17;
constexpr double kBoldStretch = 1.06;  // width of a bold line relative to a regular one
constexpr double kNarrowest = 300;     // text may widen a picture to this
constexpr int kMaxTitleLines = 3, kMaxCaptionLines = 12;
// Fonts made for small sizes first, then those that cover Chinese, Japanese and Korean.
constexpr const char* kFonts =
    "Inter, 'Helvetica Neue', Arial, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', "
    "sans-serif";

}  // namespace

std::string px(double value) {
  std::string text = fixed(std::round(value * 100) / 100, 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string typographic(std::string number) {
  if (number.starts_with('-')) number.replace(0, 1, "\u2212");
  return number;
}

void Svg::open_group(std::string_view attributes) { body_ += "<g " + std::string(attributes) + ">\n"; }

void Svg::close_group() { body_ += "</g>\n"; }

void Svg::rect(double x, double y, double width, double height, std::string_view fill, double radius,
               std::string_view tooltip) {
  body_ +=
      "<rect x=\"" + px(x) + "\" y=\"" + px(y) + "\" width=\"" + px(width) + "\" height=\"" + px(height) + "\"";
  if (radius > 0) body_ += " rx=\"" + px(radius) + "\"";
  body_ += " fill=\"" + std::string(fill) + "\"";
  body_ += tooltip.empty() ? "/>\n" : "><title>" + escaped(tooltip) + "</title></rect>\n";
}

void Svg::circle(double x, double y, double radius, std::string_view fill) {
  body_ += "<circle cx=\"" + px(x) + "\" cy=\"" + px(y) + "\" r=\"" + px(radius) + "\" fill=\"" +
           std::string(fill) + "\"/>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view stroke, double width) {
  body_ += "<line x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) + "\" y2=\"" + px(y2) +
           "\" stroke=\"" + std::string(stroke) + "\" stroke-width=\"" + px(width) + "\"/>\n";
}

void Svg::cross(double x, double y, double reach, std::string_view stroke) {
  line(x - reach, y - reach, x + reach, y + reach, stroke, 1.5);
  line(x - reach, y + reach, x + reach, y - reach, stroke, 1.5);
}

void Svg::path(std::string_view data, std::string_view attributes, std::string_view tooltip) {
  body_ += "<path d=\"" + std::string(data) + "\" " + std::string(attributes);
  body_ += tooltip.empty() ? "/>\n" : "><title>" + escaped(tooltip) + "</title></path>\n";
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  if (text.empty()) return;
  // The baseline is half a capital's height (0.36 of the size) below the middle; rotated text is translated first.
  const double drop = style.size * 0.36;
  if (style.turn != 0) {
    body_ += "<text transform=\"translate(" + px(x) + " " + px(y) + ") rotate(" + px(style.turn) + ")\" y=\"" +
             px(drop) + "\"";
  } else {
    body_ += "<text x=\"" + px(x) + "\" y=\"" + px(y + drop) + "\"";
  }
  body_ += " font-size=\"" + px(style.size) + "\" fill=\"" + style.fill + "\"";
  if (style.anchor == Anchor::middle) body_ += " text-anchor=\"middle\"";
  if (style.anchor == Anchor::end) body_ += " text-anchor=\"end\"";
  if (style.bold) body_ += " font-weight=\"600\"";
  body_ += ">" + escaped(text) + "</text>\n";
}

std::string Svg::document(double width, double height, std::string_view description) const {
  const std::string w = px(std::ceil(width)), h = px(std::ceil(height));
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " + w +
         " " + h + "\" role=\"img\" aria-label=\"" + escaped(description) + "\" font-family=\"" + kFonts +
         "\">\n" + "<rect width=\"" + w + "\" height=\"" + h + "\" fill=\"#ffffff\"/>\n" + body_ + "</svg>\n";
}

std::int64_t columns_of_grid(std::int64_t panels, double shape, std::int64_t most) {
  const double ideal = std::sqrt(static_cast<double>(panels) * 4 / 3 * shape);
  const auto first = std::clamp<std::int64_t>(static_cast<std::int64_t>(ideal), 1, most);
  std::int64_t best = first;
  double least = INFINITY;
  for (std::int64_t columns = first; columns <= std::min(first + 3, most); ++columns) {
    const std::int64_t empty = (panels + columns - 1) / columns * columns - panels;
    const double cost = static_cast<double>(empty) + 0.6 * std::abs(static_cast<double>(columns) - ideal);
    if (cost < least) {
      least = cost;
      best = columns;
    }
  }
  return best;
}

Frame::Frame(FrameText text, double content_width) : note_(std::move(text.note)), content_width_(content_width) {
  const std::string title = cleaned(text.title);
  const double text_width = std::max(content_width, kNarrowest);
  title_ = wrapped(title, text_width, kMaxTitleLines, measure_at(kTitleSize * kBoldStretch));
  caption_ = wrapped(cleaned(text.caption), text_width, kMaxCaptionLines, measure_at(kNoteSize));
  description_ = title.empty() ? std::string(text.kind) : shortened(title, 300, measure_at(1));
}

double Frame::top() const {
  if (title_.empty() && note_.empty()) return kMargin;
  return kMargin + kTitleLine * static_cast<double>(title_.size()) + (note_.empty() ? 0 : kNoteLine) + 14;
}

std::string Frame::finish(Svg& svg, double content_bottom) const {
  double width = content_width_;
  const auto put = [&](const std::string& line, double y, const TextStyle& style) {
    svg.text(kMargin, y, line, style);
    width = std::max(width, pixels_of(line, style.size * (style.bold ? kBoldStretch : 1)));
  };
  double y = kMargin;
  for (const std::string& line : title_) {
    put(line, y + kTitleLine / 2, {.size = kTitleSize, .fill = kInk, .bold = true});
    y += kTitleLine;
  }
  if (!note_.empty()) put(note_, y + kNoteLine / 2, {.size = kNoteSize, .fill = kQuiet});
  y = content_bottom + (caption_.empty() ? 0 : 16);
  for (const std::string& line : caption_) {
    put(line, y + kNoteLine / 2, {.size = kNoteSize, .fill = kQuiet});
    y += kNoteLine;
  }
  return svg.document(width + 2 * kMargin, y + kMargin, description_);
}

}  // namespace saccade::picture
