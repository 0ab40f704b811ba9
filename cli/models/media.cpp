#include "media.h"

#include <fmt/format.h>
#include <saccade/heatmap.h>
#include <saccade/io.h>
#include <saccade/log_mel.h>

#ifdef SACCADE_HAS_SOUND
#include <sndfile.h>
#endif

#include <memory>

#include "cli/common/common.h"

namespace saccade::cli {

PngFile read_png(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  try {
    return {.png = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
            .pixels = pixels_of_png(bytes)};
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(fmt::format("{}: {}", path, message_line(error.what())));
  }
}

#ifdef SACCADE_HAS_SOUND
std::vector<float> read_sound(const std::string& path) {
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, decltype(&sf_close)> file(sf_open(path.c_str(), SFM_READ, &info), sf_close);
  if (!file) throw std::runtime_error(fmt::format("{}: {}", path, sf_strerror(nullptr)));
  if (info.samplerate != kLogMelRate)
    throw std::runtime_error(fmt::format(
        "{} has {} samples a second, but models of speech take {}; sox {} -r 16000 other.wav converts it", path,
        info.samplerate, kLogMelRate, path));
  const auto channels = static_cast<std::size_t>(info.channels);
  std::vector<float> block(channels * 4096), samples;
  while (const sf_count_t frames = sf_readf_float(file.get(), block.data(), 4096)) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(frames); ++i) {
      float sum = 0;
      for (std::size_t c = 0; c < channels; ++c) sum += block[i * channels + c];
      samples.push_back(sum / static_cast<float>(channels));
    }
  }
  return samples;
}
#else
std::vector<float> read_sound(const std::string&) {
  refuse("this saccade was built without libsndfile, which reads sound");
}
#endif

}  // namespace saccade::cli
