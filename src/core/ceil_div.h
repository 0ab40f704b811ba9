#pragma once

#include <cstdint>

namespace saccade {

/// n / d, rounded up: the number of blocks of size d that cover n. n >= 0, d > 0, and n + d does not overflow.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

}  // namespace saccade
