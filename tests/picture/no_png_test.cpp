// PNG pictures in a build without librsvg.
#include <gmock/gmock.h>

#include "saccade/heatmap.h"

namespace saccade {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(NoPng, IsSaid) {
  EXPECT_THAT([] { png_of_svg("<svg/>"); }, ThrowsMessage<std::runtime_error>(HasSubstr("need librsvg")));
  EXPECT_THAT([] { pixels_of_png({}); }, ThrowsMessage<std::runtime_error>(HasSubstr("need librsvg")));
}

}  // namespace
}  // namespace saccade
