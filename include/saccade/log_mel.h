// Sound as Whisper's encoder reads it.
#pragma once

#include <cstdint>
#include <span>

#include "saccade/tensor.h"

namespace [[gnu::visibility("default")]] saccade {

/// The rate of the samples that log_mel() takes, per second.
inline constexpr std::int64_t kLogMelRate = 16000;
/// The samples from one frame to the next.
inline constexpr std::int64_t kLogMelHop = 160;

/// Options of log_mel(); fill it with designated initialisers.
struct LogMelOptions {
  /// ModelSizes::num_mel_bins.
  std::int64_t num_bins = 80;
  /// The frames of the result: the sound is cut, or silence is added. 3000 are 30 seconds.
  std::int64_t num_frames = 3000;
  int num_threads = 0;  ///< 0: num_threads() of runtime.h
};

/// The logarithms of a sound's power in mel bands: f32 [num_bins, num_frames], as Whisper was trained on them
/// (arXiv:2212.04356, section 2.2). samples: one channel, from -1 to 1, kLogMelRate a second. A frame is the power
/// of 400 samples under a Hann window around each kLogMelHop-th one; the bands are triangles on Slaney's mel scale
/// up to 8 kHz, each of unit area; values below a hundred-millionth of the loudest are raised to it, and then (x +
/// 4) / 4 of the decimal logarithm x. Throws std::invalid_argument for fewer than 201 samples, samples that are
/// not finite, and sizes below 1.
Tensor log_mel(std::span<const float> samples, const LogMelOptions& options = {});

}  // namespace saccade
