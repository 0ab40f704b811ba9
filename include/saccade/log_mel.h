// Audio features as Whisper's encoder reads them.
#pragma once

#include <cstdint>
#include <span>

#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The sample rate that log_mel() expects, in Hz.
inline constexpr std::int64_t kLogMelRate = 16000;
/// The number of samples from one frame to the next.
inline constexpr std::int64_t kLogMelHop = 160;

/// Options of log_mel(); fill it with designated initializers.
struct LogMelOptions {
  /// ModelSizes::num_mel_bins.
  std::int64_t num_bins = 80;
  /// The frames of the result: the audio is cut or padded with silence. 3000 are 30 seconds.
  std::int64_t num_frames = 3000;
  int num_threads = 0;  ///< 0: num_threads() of runtime.h
};

/// The log-mel spectrogram of a sound: f32 [num_bins, num_frames], as Whisper was trained on it (arXiv:2212.04356,
/// section 2.2). samples: one channel, from -1 to 1, at kLogMelRate. A frame is the power spectrum of 400 samples
/// under a Hann window, centered at every kLogMelHop-th one; the bands are triangles on Slaney's mel scale up to 8
/// kHz, each of unit area; powers below 1e-8 of the largest are raised to that; with x the decimal logarithm, the
/// result is (x + 4) / 4. Throws std::invalid_argument for fewer than 201 samples, samples that are not finite,
/// sizes below 1, and num_threads below 0.
Tensor log_mel(std::span<const float> samples, const LogMelOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
