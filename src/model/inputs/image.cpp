#include "saccade/image.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "model/checkpoint/checkpoint.h"

namespace saccade {
namespace {

constexpr std::string_view kImagePixels = "image_pixels";

/// The source pixels that a result pixel covers, and their weights.
struct Cover {
  std::int64_t begin = 0;
  std::vector<double> shares{};
};

std::vector<Cover> covers(std::int64_t from, std::int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to), radius = std::max(step, 1.0);
  std::vector<Cover> result;
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const double first = centre - radius + 0.5, last = centre + radius + 0.5;  // cut to whole numbers, as PIL does
    Cover cover{.begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(first))};
    const std::int64_t end = std::min(from, static_cast<std::int64_t>(last));
    double sum = 0.0;
    for (std::int64_t j = cover.begin; j < end; ++j) {
      const double distance = std::abs(static_cast<double>(j) + 0.5 - centre) / radius;
      cover.shares.push_back(std::max(0.0, 1.0 - distance));
      sum += cover.shares.back();
    }
    for (double& share : cover.shares) share /= sum;
    result.push_back(std::move(cover));
  }
  return result;
}

/// The sizes that preprocessor_config.json may have: {"height": 224, "width": 224}, {"shortest_edge": 224} or
/// 224.
std::int64_t size_in(const model::Config& config) {
  if (!config.is_object("size")) return config.size("size");
  const model::Config size = config.part("size");
  if (size.has("shortest_edge")) return size.size("shortest_edge");
  if (size.size("height") != size.size("width"))
    size.refuse("height", "must be width, ", size.size("width"), ", but it is ", size.size("height"));
  return size.size("height");
}

}  // namespace

ImageOptions ImageOptions::load(const std::filesystem::path& folder) {
  ImageOptions options;
  const std::filesystem::path file = folder / "preprocessor_config.json";
  if (!model::is_there(file)) return options;
  const model::Config config(model::json_of(file), file.string());
  if (config.has("size")) options.size = size_in(config);
  if (config.has("image_mean")) options.mean = config.triple("image_mean");
  if (config.has("image_std")) options.deviation = config.triple("image_std");
  if (std::ranges::count(options.deviation, 0.0) > 0) config.refuse("image_std", "must not be 0");
  return options;
}

Tensor image_pixels(const TensorView& rgb, const ImageOptions& options) {
  check_dtype(kImagePixels, "rgb", rgb, DType::u8);
  if (rgb.rank != 3 || rgb.shape[2] != 3 || rgb.shape[0] < 1 || rgb.shape[1] < 1)
    refuse(kImagePixels, "rgb must have shape [height, width, 3], but it has shape ", to_string(rgb.dims()));
  check_memory(kImagePixels, "rgb", rgb);
  if (options.size < 1 || options.size > 16384)
    refuse(kImagePixels, "size must be from 1 to 16384, got ", options.size);
  const std::int64_t height = rgb.shape[0], width = rgb.shape[1], size = options.size;
  const Tensor image = Tensor::copy_of(rgb);
  const std::vector<Cover> columns = covers(width, size), rows = covers(height, size);
  Tensor narrow(DType::f64, {height, size, 3});
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < size; ++x) {
      const Cover& cover = columns[static_cast<std::size_t>(x)];
      for (std::size_t j = 0; j < cover.shares.size(); ++j)
        for (std::int64_t c = 0; c < 3; ++c)
          narrow.at<double>(y, x, c) +=
              cover.shares[j] * image.at<std::uint8_t>(y, cover.begin + static_cast<std::int64_t>(j), c);
    }
  Tensor result = Tensor::uninitialized(DType::f32, {1, 3, size, size});
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t y = 0; y < size; ++y)
      for (std::int64_t x = 0; x < size; ++x) {
        const Cover& cover = rows[static_cast<std::size_t>(y)];
        double value = 0.0;
        for (std::size_t j = 0; j < cover.shares.size(); ++j)
          value += cover.shares[j] * narrow.at<double>(cover.begin + static_cast<std::int64_t>(j), x, c);
        const auto channel = static_cast<std::size_t>(c);
        result.at<float>(0, c, y, x) =
            static_cast<float>((value / 255 - options.mean[channel]) / options.deviation[channel]);
      }
  return result;
}

}  // namespace saccade
