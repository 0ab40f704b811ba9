// Images as inputs of models.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How image_pixels() prepares an image; fill it with designated initializers.
struct ImageOptions {
  std::int64_t size = 224;  ///< the sides of the result: ModelSizes::image_size
  /// The mean and the standard deviation of each channel, of values from 0 to 1.
  std::array<double, 3> mean{0.5, 0.5, 0.5}, deviation{0.5, 0.5, 0.5};

  /// Reads size, image_mean and image_std from preprocessor_config.json in a model's folder; the defaults above if
  /// there is no such file. Throws std::runtime_error for a file that asks for anything else.
  static ImageOptions load(const std::filesystem::path& folder);
};

/// An image as ViT reads it: f32 [1, 3, size, size], (value / 255 - mean) / deviation. rgb: u8 [height, width, 3].
/// The image is resized to a square; each pixel is a mean over those that it covers, weighted by a triangle
/// (bilinear with antialiasing, as in Pillow but without rounding to integers). Throws std::invalid_argument for
/// another shape or type, an image without pixels, and a size below 1.
Tensor image_pixels(const TensorView& rgb, const ImageOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
