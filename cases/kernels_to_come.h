// What is declared and not there yet.
#pragma once

namespace saccade::cases {

/// decode() of decode.h can be called.
inline constexpr bool kDecodeExists = false;

}  // namespace saccade::cases
