// Bytes looked up as pairs of bf16.
#pragma once

#include "cpu/checks/pairs.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Every byte, and the first n of 64 bytes before memory that must not be read.
template <class T>
void check_look_up(Findings& findings) {
  const test::GuardedMemory of_even, of_odd;
  for (int round = 0; round < 68; ++round) {
    const int n = round < 4 ? 64 : round - 4;
    findings.with("n", n);
    T* const even = static_cast<T*>(of_even.last(static_cast<std::size_t>(n)));
    T* const odd = static_cast<T*>(of_odd.last(static_cast<std::size_t>(n)));
    for (int i = 0; i < n; ++i) {
      const auto byte = static_cast<std::uint8_t>(round * 64 + i), other = static_cast<std::uint8_t>(255 - byte);
      std::memcpy(even + i, &byte, 1), std::memcpy(odd + i, &other, 1);
    }
    const auto number = [n](const T* row, int i) { return bfloat16(i < n ? static_cast<float>(row[i]) : 0.0F); };
    Vec pairs[2], columns[4];
    look_up_pairs(even, n, pairs);
    look_up_columns(even, n, odd, n, columns);
    for (int t = 0; t < 4; ++t) {
      Halves expected;
      for (int i = 0; i < kHalves; ++i) {
        const int column = i / 8 * 16 + t * 4 + i % 8 / 2;
        expected.x[i] = number(i % 2 == 0 ? even : odd, column);
      }
      same_halves(findings, columns[t], expected);
      if (t >= 2) continue;
      for (int i = 0; i < kHalves; ++i) expected.x[i] = number(even, i / 8 * 16 + t * 8 + i % 8);
      same_halves(findings, pairs[t], expected);
    }
  }
}

inline constexpr test::Check kLookUpChecks[] = {{"look_up_i8", check_look_up<std::int8_t>},
                                                {"look_up_f8e4m3", check_look_up<float8_e4m3>}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
