// Writing an SVG document, and the parts that all pictures share: title, notes, caption.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace saccade::picture {

inline constexpr double kMargin = 24;
inline constexpr double kSmall = 11;  // font size of axes and notes

/// A length or coordinate, rounded to a hundredth.
std::string px(double value);

/// Escapes text and attribute values for XML.
std::string escaped(std::string_view text);

/// "-0.5" with a minus sign instead of a hyphen.
std::string typographic(std::string number);

enum class Anchor : std::uint8_t { start, middle, end };

struct TextStyle {
  double size = kSmall;
  std::string fill{};
  Anchor anchor = Anchor::start;
  bool bold = false;
  double turn = 0;  // degrees, clockwise, around the anchor
};

/// The elements of a document in drawing order.
class Svg {
 public:
  void open_group(std::string_view attributes);
  void close_group();

  void rect(double x, double y, double width, double height, std::string_view fill, double radius = 0,
            std::string_view tooltip = {});
  void circle(double x, double y, double radius, std::string_view fill);
  void line(double x1, double y1, double x2, double y2, std::string_view stroke, double width = 1);
  void cross(double x, double y, double reach, std::string_view stroke);  // around (x, y)
  void path(std::string_view data, std::string_view attributes, std::string_view tooltip = {});
  /// y is the middle of the letters' height.
  void text(double x, double y, std::string_view text, const TextStyle& style);

  /// The document: a white background of this size under all elements.
  std::string document(double width, double height, std::string_view description) const;

 private:
  std::string body_;
};

/// The number of columns for a grid of panels, at most `most`, where each panel is `shape` times as high as wide:
/// gives a picture of about 4:3 with few empty cells.
std::int64_t columns_of_grid(std::int64_t panels, double shape, std::int64_t most);

/// The texts around a picture, as the caller gave them.
struct FrameText {
  std::string_view title{};
  std::string note{};  // a line under the title, already cleaned
  std::string_view caption{};
  std::string_view kind = "Attention weights";  // the name of a picture without a title
};

/// Title and note above a picture, caption below it.
class Frame {
 public:
  /// For content that begins at the left margin and has this width.
  Frame(FrameText text, double content_width);

  double top() const;  ///< the y where the content begins
  /// The document with title, note and caption added; the content ends at content_bottom.
  std::string finish(Svg& svg, double content_bottom) const;

 private:
  std::string description_, note_;
  std::vector<std::string> title_, caption_;  // lines
  double content_width_;
};

}  // namespace saccade::picture
