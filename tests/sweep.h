// What the sweeps over random problems take from the environment.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "saccade/cpu.h"

namespace saccade::test {

/// A whole number from the environment.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Every instruction set, or the one that SACCADE_ISA forces.
inline std::vector<Isa> isas_to_check() {
  return std::getenv("SACCADE_ISA") != nullptr ? std::vector{active_isa()} : available_isas();
}

}  // namespace saccade::test
