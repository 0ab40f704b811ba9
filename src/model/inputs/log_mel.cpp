#include "saccade/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "saccade/packed_linear.h"

namespace saccade {
namespace {

constexpr std::string_view kLogMel = "log_mel";
constexpr std::int64_t kWindow = 400, kFrequencies = kWindow / 2 + 1;

/// The Fourier transform of a window, as a product: [2 kFrequencies, kWindow], cosines before sines, times
/// Hann's window.
PackedLinear fourier_transform() {
  Tensor weights = Tensor::uninitialized(DType::f32, {2 * kFrequencies, kWindow});
  const double turn = 2 * std::numbers::pi / static_cast<double>(kWindow);
  for (std::int64_t i = 0; i < kWindow; ++i) {
    const double hann = 0.5 - 0.5 * std::cos(turn * static_cast<double>(i));
    for (std::int64_t frequency = 0; frequency < kFrequencies; ++frequency) {
      const double angle = turn * static_cast<double>(i * frequency % kWindow);
      weights.at<float>(frequency, i) = static_cast<float>(hann * std::cos(angle));
      weights.at<float>(kFrequencies + frequency, i) = static_cast<float>(hann * std::sin(angle));
    }
  }
  return PackedLinear(weights);
}

/// Slaney's mel scale: linear up to 1 kHz, logarithmic above.
constexpr double kHertzOfMel = 200.0 / 3, kBreak = 1000.0, kBreakMel = kBreak / kHertzOfMel;
const double kLogStep = std::log(6.4) / 27;
double mel_of(double hertz) {
  return hertz < kBreak ? hertz / kHertzOfMel : kBreakMel + std::log(hertz / kBreak) / kLogStep;
}
double hertz_of(double mel) {
  return mel < kBreakMel ? mel * kHertzOfMel : kBreak * std::exp(kLogStep * (mel - kBreakMel));
}

/// The triangular filters between neighboring mels: [bins, kFrequencies].
PackedLinear mel_bands(std::int64_t bins) {
  const double most = static_cast<double>(kLogMelRate) / 2;
  const auto edge = [&](std::int64_t i) {
    return hertz_of(mel_of(most) * static_cast<double>(i) / static_cast<double>(bins + 1));
  };
  Tensor weights(DType::f32, {bins, kFrequencies});
  for (std::int64_t bin = 0; bin < bins; ++bin) {
    const double left = edge(bin), middle = edge(bin + 1), right = edge(bin + 2);
    for (std::int64_t frequency = 0; frequency < kFrequencies; ++frequency) {
      const double hertz = most * static_cast<double>(frequency) / static_cast<double>(kFrequencies - 1);
      const double height = std::min((hertz - left) / (middle - left), (right - hertz) / (right - middle));
      weights.at<float>(bin, frequency) = static_cast<float>(std::max(0.0, height) * 2 / (right - left));
    }
  }
  return PackedLinear(weights);
}

/// The samples of all windows: padded with silence up to the last one, and with the mirrored sound at each end,
/// so that the first window is centered on the first sample.
Tensor padded(std::span<const float> samples, std::int64_t frames) {
  const std::int64_t length = frames * kLogMelHop, half = kWindow / 2;
  Tensor result(DType::f32, {length + kWindow});
  const std::span<float> all = result.values<float>();
  const auto count = std::min(samples.size(), static_cast<std::size_t>(length));
  std::ranges::copy(samples.first(count), all.begin() + half);
  for (std::int64_t i = 1; i <= half; ++i) {
    const auto at = [&](std::int64_t j) -> float& { return all[static_cast<std::size_t>(half + j)]; };
    at(-i) = at(i);
    at(length - 1 + i) = at(std::max<std::int64_t>(length - 1 - i, -half));
  }
  return result;
}

}  // namespace

Tensor log_mel(std::span<const float> samples, const LogMelOptions& options) {
  const std::int64_t bins = options.num_bins, frames = options.num_frames;
  if (bins < 1 || bins > 1024) refuse(kLogMel, "num_bins must be from 1 to 1024, got ", bins);
  if (frames < 1 || frames > 1'000'000) refuse(kLogMel, "num_frames must be from 1 to 1000000, got ", frames);
  if (options.num_threads < 0) refuse(kLogMel, "num_threads must be 0 or more, got ", options.num_threads);
  if (std::ssize(samples) <= kWindow / 2)
    refuse(kLogMel, "at least ", kWindow / 2 + 1, " samples are needed, but there are ", samples.size());
  if (!std::ranges::all_of(samples, [](float sample) { return std::isfinite(sample); }))
    refuse(kLogMel, "samples must be finite");
  const Tensor sound = padded(samples, frames);
  // Windows overlap in memory.
  const TensorView windows(sound.data(), DType::f32, Shape{frames, kWindow}, Shape{kLogMelHop, 1});
  const Tensor waves = fourier_transform().forward(windows, options.num_threads);
  Tensor power = Tensor::uninitialized(DType::f32, {frames, kFrequencies});
  for (std::int64_t frame = 0; frame < frames; ++frame)
    for (std::int64_t frequency = 0; frequency < kFrequencies; ++frequency) {
      const float x = waves.at<float>(frame, frequency), y = waves.at<float>(frame, kFrequencies + frequency);
      power.at<float>(frame, frequency) = x * x + y * y;
    }
  const Tensor bands = mel_bands(bins).forward(power, options.num_threads);
  Tensor result = Tensor::copy_of(bands.view().transposed(0, 1));
  float loudest = -10.0f;
  for (float& value : result.values<float>()) {
    value = std::log10(std::max(value, 1e-10f));
    loudest = std::max(loudest, value);
  }
  for (float& value : result.values<float>()) value = (std::max(value, loudest - 8.0f) + 4.0f) / 4.0f;
  return result;
}

}  // namespace saccade
