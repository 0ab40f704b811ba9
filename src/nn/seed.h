// Seeds for modules that are given none.
#pragma once

#include <cstdint>
#include <random>

namespace saccade {

/// 64 bits from the operating system's random numbers.
inline std::uint64_t seed_from_operating_system() {
  std::random_device device;
  const std::uint64_t high = device();
  return high << 32 | device();
}

}  // namespace saccade
