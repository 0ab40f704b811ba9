// Images as models read them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

#include "saccade/tensor.h"

namespace [[gnu::visibility("default")]] saccade {

/// How image_pixels() prepares an image; fill it with designated initialisers.
struct ImageOptions {
  std::int64_t size = 224;  ///< the sides of the result: ModelSizes::image_size
  /// The mean and the standard deviation of each channel, of values from 0 to 1.
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};

  /// What preprocessor_config.json of a model's folder says: size, image_mean, image_std; those above if there is
  /// no such file. Throws std::runtime_error for a file that says something else.
  static ImageOptions load(const std::filesystem::path& folder);
};

/// An image as ViT reads it: f32 [1, 3, size, size], (value / 255 - mean) / deviation. rgb: u8 [height, width, 3].
/// The image is stretched to a square; a pixel is a mean over those that it covers, weighted by a triangle
/// (bilinear with antialiasing, as Pillow has it, without its rounding to whole numbers). Throws
/// std::invalid_argument for another shape or type, an image without pixels, and a size below 1.
Tensor image_pixels(const TensorView& rgb, const ImageOptions& options = {});

}  // namespace saccade
