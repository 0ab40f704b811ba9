// What needs librsvg and cairo, in a build without them.
#include <stdexcept>

#include "saccade/heatmap.h"

namespace saccade {

std::vector<std::byte> png_of_svg(std::string_view, double) {
  throw std::runtime_error("[png_of_svg] this build makes no PNG pictures, which need librsvg; SVG pictures work");
}

Tensor pixels_of_png(std::span<const std::byte>) {
  throw std::runtime_error("[pixels_of_png] this build reads no PNG pictures, which need librsvg");
}

}  // namespace saccade
