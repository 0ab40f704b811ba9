// saccade._png: pictures as PNG, a separate module because it needs more libraries.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "saccade/heatmap.h"

namespace {

namespace nb = nanobind;

nb::bytes png(const std::string& svg, double zoom) {
  std::vector<std::byte> picture;
  {
    const nb::gil_scoped_release unlocked;
    picture = saccade::png_of_svg(svg, zoom);
  }
  return nb::bytes(picture.data(), picture.size());
}

}  // namespace

NB_MODULE(_png, module) { module.def("png_of_svg", &png, nb::arg("svg"), nb::arg("zoom")); }
