// Pictures and sound from files.
#pragma once

#include <saccade/tensor.h>

#include <string>
#include <vector>

namespace saccade::cli {

/// A PNG file: its bytes, and its pixels as u8 [height, width, 3].
struct PngFile {
  std::string png;
  Tensor pixels;
};

/// Throws std::runtime_error for a file that cannot be read or is not a PNG.
PngFile read_png(const std::string& path);

/// The samples of a sound file, one channel (the mean of several), 16,000 a second. Throws std::runtime_error for
/// a file that cannot be read or has another rate.
std::vector<float> read_sound(const std::string& path);

}  // namespace saccade::cli
