// Pictures as PNG: the file, its size, and the visible pixels.
#include <cairo.h>
#include <saccade/chart.h>
#include <saccade/heatmap.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>

#include "picture/heatmap_fixtures.h"
#include "support/refusal.h"

namespace saccade {
namespace {

using namespace saccade::test;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// A decoded PNG.
class Image {
 public:
  explicit Image(std::span<const std::byte> png) {
    const auto read = [](void* rest, unsigned char* out, unsigned int length) {
      auto& bytes = *static_cast<std::span<const std::byte>*>(rest);
      if (bytes.size() < length) return CAIRO_STATUS_READ_ERROR;
      std::memcpy(out, bytes.data(), length);
      bytes = bytes.subspan(length);
      return CAIRO_STATUS_SUCCESS;
    };
    surface_.reset(cairo_image_surface_create_from_png_stream(read, &png));
    EXPECT_EQ(cairo_surface_status(surface_.get()), CAIRO_STATUS_SUCCESS);
  }

  int width() const { return cairo_image_surface_get_width(surface_.get()); }
  int height() const { return cairo_image_surface_get_height(surface_.get()); }

  Color at(int x, int y) const {
    std::uint32_t pixel = 0;
    std::memcpy(
        &pixel,
        cairo_image_surface_get_data(surface_.get()) + y * cairo_image_surface_get_stride(surface_.get()) + x * 4,
        4);
    return {static_cast<int>(pixel >> 16 & 255), static_cast<int>(pixel >> 8 & 255),
            static_cast<int>(pixel & 255)};
  }

  // The number of pixels of a rectangle that are darker than middle gray.
  int dark_pixels(int left, int top, int right, int bottom) const {
    int count = 0;
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) count += lightness(at(x, y)) < 0.6;
    }
    return count;
  }

 private:
  struct Release {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
  };
  std::unique_ptr<cairo_surface_t, Release> surface_;
};

std::string root_of(const std::string& svg) { return svg.substr(0, svg.find('>') + 1); }

TEST(Png, IsAFileOfTheAskedSize) {
  const std::string svg = heatmap_svg(six_token_weights());
  for (const double zoom : {0.5, 1.0, 2.0, 3.25}) {
    const auto png = png_of_svg(svg, zoom);
    const std::array<unsigned char, 8> signature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    ASSERT_GT(png.size(), signature.size());
    EXPECT_EQ(std::memcmp(png.data(), signature.data(), signature.size()), 0);
    const Image image(png);
    EXPECT_EQ(image.width(), std::ceil(number(root_of(svg), "width") * zoom));
    EXPECT_EQ(image.height(), std::ceil(number(root_of(svg), "height") * zoom));
    EXPECT_EQ(image.at(0, 0), (Color{255, 255, 255})) << "white paper";
  }
}

TEST(Png, ShowsEachCellInItsColor) {
  const Tensor weights = six_token_weights();
  const std::string svg = heatmap_svg(weights, {.query_tokens = kSixTokens, .title = "Six tokens"});
  const Image image(png_of_svg(svg, 2));
  const auto cells = cells_of(svg);
  ASSERT_THAT(cells, SizeIs(36));
  std::vector<Painted> painted;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Color color =
        image.at(static_cast<int>(2 * number(cells[i], "x")) + 6, static_cast<int>(2 * number(cells[i], "y")) + 6);
    EXPECT_EQ(color, color_of_hex(attribute(cells[i], "fill"))) << cells[i];
    painted.push_back({weights.values<float>()[i], color});
  }
  EXPECT_TRUE(darker_is_larger(painted));
}

TEST(Png, ShowsADenseMapWithoutSeams) {
  Tensor weights(DType::f32, {200, 200});
  for (std::int64_t i = 0; i < 200; ++i) {
    for (std::int64_t j = 0; j < 200; ++j) weights.at<float>(i, j) = i >= 100 ? 1.0F : 0.1F;
  }
  const std::string svg = heatmap_svg(weights, {.scale = ColorScale::linear});
  const std::string panel = svg.substr(svg.find("class=\"panel\""));
  const std::string background = elements_of(panel, "rect")[0];
  const Image image(png_of_svg(svg, 1.7));  // cells have fractional pixels
  const int left = static_cast<int>(1.7 * number(background, "x")),
            top = static_cast<int>(1.7 * number(background, "y"));
  const int side = static_cast<int>(1.7 * number(background, "width"));
  const Color pale = image.at(left + 20, top + 20), dark = image.at(left + 20, top + side - 20);
  EXPECT_LT(lightness(dark), lightness(pale));
  for (int y = 20; y < side - 20; ++y) {
    if (std::abs(y - side / 2) < 3) continue;
    for (int x = 20; x < side - 20; x += 7)
      ASSERT_EQ(image.at(left + x, top + y), y < side / 2 ? pale : dark) << x << " " << y;
  }
}

TEST(Png, DrawsChineseLabels) {
  const std::string svg = heatmap_svg(causal_weights(1, 8), {.query_tokens = kChineseTokens});
  const Image image(png_of_svg(svg, 2));
  for (const std::string& text : elements_of(svg, "text")) {
    if (content(text) != "注意力" || attribute(text, "text-anchor") != "end") continue;
    const int right = static_cast<int>(2 * number(text, "x")), bottom = static_cast<int>(2 * number(text, "y"));
    const int size = static_cast<int>(2 * number(text, "font-size"));
    // Three square characters, each with visible ink.
    const int first = image.dark_pixels(right - 3 * size, bottom - size, right - 2 * size, bottom + 4);
    const int second = image.dark_pixels(right - 2 * size, bottom - size, right - size, bottom + 4);
    const int third = image.dark_pixels(right - size, bottom - size, right, bottom + 4);
    EXPECT_GT(first, size);
    EXPECT_GT(second, size);
    EXPECT_GT(third, size);
    EXPECT_FALSE(first == second && second == third) << "the same box three times: no font has these characters";
    EXPECT_EQ(image.dark_pixels(right - 5 * size, bottom - size, right - 3 * size - 4, bottom + 4), 0)
        << "nothing beside";
    return;
  }
  FAIL() << "the label was not found";
}

TEST(Png, DrawsThickerLinesForLargerWeights) {
  const Tensor weights = Tensor::of<float>({{1, 0}, {0, 0.25F}});
  const std::string svg = attention_lines_svg(weights);
  const Image image(png_of_svg(svg, 4));
  const auto lines = elements_of(svg, "path");
  const auto ink_of = [&](const std::string& line) {  // pixels that are not white, across the line's middle
    const std::string data = attribute(line, "d");
    const double y = std::stod(data.substr(data.find(' ') + 1));
    int count = 0;
    for (int at = static_cast<int>(4 * y) - 20; at < static_cast<int>(4 * y) + 20; ++at) {
      count += image.at(image.width() / 2, at) != Color{255, 255, 255};
    }
    return count;
  };
  const int thin = ink_of(lines[0]), thick = ink_of(lines[1]);
  EXPECT_GT(thin, 0);
  EXPECT_GE(thick, 3 * thin);
}

TEST(Png, DrawsTheLinesOfAChart) {
  const std::vector<ChartSeries> series = {{"up", {0, 10}, {0, 10}}, {"level", {0, 10}, {2.5, 2.5}}};
  const std::string svg = chart_svg(series);
  const Image image(png_of_svg(svg, 2));
  const auto lines = elements_of(svg.substr(svg.find("class=\"series\"")), "path");
  const auto color_at = [&](double x, double y) {
    return image.at(static_cast<int>(2 * x), static_cast<int>(2 * y));
  };
  double left = 0, low = 0, right = 0, high = 0, level = 0;
  ASSERT_EQ(std::sscanf(attribute(lines[0], "d").c_str(), "M%lf %lfL%lf %lf", &left, &low, &right, &high), 4);
  ASSERT_EQ(std::sscanf(attribute(lines[1], "d").c_str(), "M%*f %lf", &level), 1);
  const Color first = color_at((left + right) / 2, (low + high) / 2);
  const Color second = color_at(left + (right - left) * 0.71, level);
  EXPECT_EQ(first, color_of_hex("#22468a")) << "half the way up";
  EXPECT_EQ(second, color_of_hex("#e0701a"));
  EXPECT_EQ(color_at(left + (right - left) * 0.71, (level + low) / 2), (Color{255, 255, 255})) << "paper between";
}

TEST(Png, RefusesWhatItCannotDraw) {
  const auto message = [](std::string_view svg, double zoom) -> std::string {
    return test::refusal([&] { png_of_svg(svg, zoom); });
  };
  const std::string small = R"(<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>)";
  EXPECT_EQ(message(small, 1), "");
  EXPECT_THAT(message("this is no SVG", 1), StartsWith("[png_of_svg] not an SVG document: "));
  EXPECT_THAT(message("", 1), StartsWith("[png_of_svg] not an SVG document: "));
  EXPECT_THAT(message(small.substr(0, 40), 1), StartsWith("[png_of_svg] not an SVG document: "));
  EXPECT_THAT(message("this is no SVG", 1), ::testing::Not(HasSubstr("\n")));
  EXPECT_EQ(message(small, 0), "[png_of_svg] zoom must be a positive number, got 0");
  EXPECT_EQ(message(small, kNan), "[png_of_svg] zoom must be a positive number, got NaN");
  EXPECT_EQ(message(small, 2000),
            "[png_of_svg] the picture would be 20000 x 20000 pixels, at most 16384 a side are drawn");
  EXPECT_EQ(message(R"(<svg xmlns="http://www.w3.org/2000/svg" width="0" height="0"/>)", 1),
            "[png_of_svg] the document has no size in pixels");
}

TEST(Png, ReadsPixels) {
  const std::vector<std::byte> png = png_of_svg(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="3" height="2"><rect width="1" height="2" fill="#0180ff"/></svg>)",
      1);
  const Tensor pixels = pixels_of_png(png);
  ASSERT_EQ(pixels.shape(), (Shape{2, 3, 3}));
  const auto at = [&](int y, int x, int c) { return static_cast<int>(pixels.at<std::uint8_t>(y, x, c)); };
  EXPECT_EQ((Color{at(1, 0, 0), at(1, 0, 1), at(1, 0, 2)}), (Color{0x01, 0x80, 0xff}));
  EXPECT_EQ((Color{at(0, 2, 0), at(0, 2, 1), at(0, 2, 2)}), (Color{255, 255, 255}));  // transparent
  for (std::size_t length = 0; length < png.size(); length += 5)
    EXPECT_THROW(pixels_of_png(std::span(png).first(length)), std::invalid_argument) << length;
}

}  // namespace
}  // namespace saccade
