// Which of the library's functions computes a call.
#pragma once

#include <cstdint>

namespace saccade::python {

/// Whether decode() is faster than attention(). With few rows and many keys, reading k and v takes longer than
/// computing with them, and decode() reads them in place. For 1 or 2 rows and 1024 keys it takes 0.4 of
/// attention()'s time if 32 heads share 8 heads of keys, and 0.9 for 8 heads that share none. With fewer keys it
/// is slower, several times so with a few dozen (Zen 4, f32 and bf16, head_dim 64 and 128).
constexpr bool is_for_decode(std::int64_t seqlen_q, std::int64_t seqlen_k) {
  constexpr std::int64_t kMaxRows = 4, kKeysPerRow = 512;
  return seqlen_q <= kMaxRows && seqlen_k >= kKeysPerRow * seqlen_q;
}

}  // namespace saccade::python
