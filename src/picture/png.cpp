#include <cairo.h>
#include <librsvg/rsvg.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "picture/text.h"
#include "saccade/heatmap.h"

namespace saccade {
namespace {

constexpr double kMaxPixels = 16384;  // along one side

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};
using Document = std::unique_ptr<RsvgHandle, Release<g_object_unref>>;
using Surface = std::unique_ptr<cairo_surface_t, Release<cairo_surface_destroy>>;
using Context = std::unique_ptr<cairo_t, Release<cairo_destroy>>;

[[noreturn]] void refuse_png(const std::string& what) { throw std::invalid_argument("[png_of_svg] " + what); }

[[noreturn]] void refuse_png(const std::string& what, GError* error) {
  std::string reason = error != nullptr ? picture::cleaned(error->message) : "no reason given";
  if (error != nullptr) g_error_free(error);
  refuse_png(what + ": " + reason);
}

void check(cairo_status_t status) {
  if (status == CAIRO_STATUS_NO_MEMORY) throw std::bad_alloc();
  if (status != CAIRO_STATUS_SUCCESS) {
    throw std::runtime_error(std::string("[png_of_svg] drawing failed: ") + cairo_status_to_string(status));
  }
}

Document parsed(std::string_view svg) {
  GError* error = nullptr;
  Document document(rsvg_handle_new_from_data(reinterpret_cast<const guint8*>(svg.data()), svg.size(), &error));
  if (!document) refuse_png("not an SVG document", error);
  rsvg_handle_set_dpi(document.get(), 96);
  return document;
}

// Exceptions must not pass through cairo.
cairo_status_t append(void* bytes, const unsigned char* data, unsigned int length) {
  try {
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    static_cast<std::vector<std::byte>*>(bytes)->insert(static_cast<std::vector<std::byte>*>(bytes)->end(), begin,
                                                        begin + length);
    return CAIRO_STATUS_SUCCESS;
  } catch (const std::bad_alloc&) {
    return CAIRO_STATUS_NO_MEMORY;
  }
}

cairo_status_t read(void* rest, unsigned char* data, unsigned int length) {
  auto& bytes = *static_cast<std::span<const std::byte>*>(rest);
  if (bytes.size() < length) return CAIRO_STATUS_READ_ERROR;
  std::memcpy(data, bytes.data(), length);
  bytes = bytes.subspan(length);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

std::vector<std::byte> png_of_svg(std::string_view svg, double zoom) {
  if (!(zoom > 0) || !std::isfinite(zoom))
    refuse_png("zoom must be a positive number, got " + picture::concise(zoom, 6));
  const Document document = parsed(svg);
  double width = 0, height = 0;
  if (!rsvg_handle_get_intrinsic_size_in_pixels(document.get(), &width, &height) || !(width > 0) ||
      !(height > 0)) {
    refuse_png("the document has no size in pixels");
  }
  const double columns = std::ceil(width * zoom), rows = std::ceil(height * zoom);
  if (!(columns <= kMaxPixels) || !(rows <= kMaxPixels)) {
    refuse_png("the picture would be " + picture::concise(columns, 8) + " x " + picture::concise(rows, 8) +
               " pixels, at most 16384 a side are drawn");
  }
  const Surface surface(
      cairo_image_surface_create(CAIRO_FORMAT_ARGB32, static_cast<int>(columns), static_cast<int>(rows)));
  check(cairo_surface_status(surface.get()));
  const Context context(cairo_create(surface.get()));
  const RsvgRectangle viewport = {0, 0, width * zoom, height * zoom};
  GError* error = nullptr;
  if (!rsvg_handle_render_document(document.get(), context.get(), &viewport, &error)) {
    refuse_png("the document cannot be drawn", error);
  }
  check(cairo_status(context.get()));
  std::vector<std::byte> png;
  check(cairo_surface_write_to_png_stream(surface.get(), append, &png));
  return png;
}

Tensor pixels_of_png(std::span<const std::byte> png) {
  std::span<const std::byte> rest = png;
  const Surface source(cairo_image_surface_create_from_png_stream(read, &rest));
  // cairo reports damaged files as out of memory, too.
  if (cairo_surface_status(source.get()) != CAIRO_STATUS_SUCCESS)
    throw std::invalid_argument("[pixels_of_png] not a PNG that can be read");
  const int width = cairo_image_surface_get_width(source.get()),
            height = cairo_image_surface_get_height(source.get());
  if (width > kMaxPixels || height > kMaxPixels)
    throw std::invalid_argument("[pixels_of_png] the picture has over 16384 pixels a side");
  const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  check(cairo_surface_status(surface.get()));
  const Context context(cairo_create(surface.get()));
  cairo_set_source_rgb(context.get(), 1, 1, 1);
  cairo_paint(context.get());
  cairo_set_source_surface(context.get(), source.get(), 0, 0);
  cairo_paint(context.get());
  check(cairo_status(context.get()));
  cairo_surface_flush(surface.get());
  Tensor pixels = Tensor::uninitialized(DType::u8, {height, width, 3});
  auto to = pixels.values<std::uint8_t>().begin();
  for (int y = 0; y < height; ++y) {
    const unsigned char* const row =
        cairo_image_surface_get_data(surface.get()) +
        static_cast<std::ptrdiff_t>(y) * cairo_image_surface_get_stride(surface.get());
    for (int x = 0; x < width; ++x) {
      std::uint32_t pixel = 0;  // 0x00RRGGBB in the machine's order
      std::memcpy(&pixel, row + 4 * x, sizeof(pixel));
      for (const int shift : {16, 8, 0}) *to++ = static_cast<std::uint8_t>(pixel >> shift);
    }
  }
  return pixels;
}

}  // namespace saccade
