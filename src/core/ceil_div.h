#pragma once

#include <cstdint>

namespace saccade {

/// n / d, rounded up: how many blocks of d cover n. n >= 0, d > 0, and their sum fits.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

}  // namespace saccade
