// Conversions between floats and 16-bit numbers: of vectors, and of rows of any length.
#pragma once

#include "cpu/checks/vector.h"
#include "cpu/elementwise/convert.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Widens every 16-bit number, in vectors. F16C quiets a signaling NaN, so a NaN of f16 need only stay NaN.
template <class T>
void compare_widen(Findings& findings) {
  T from[kWidth];
  Lanes found, expected;
  for (int first = 0; first < 65536; first += kWidth) {
    for (int i = 0; i < kWidth; ++i) {
      from[i] = T::from_bits(static_cast<std::uint16_t>(first + i));
      expected.x[i] = from[i];
    }
    store(found.x, loadu(from));
    if (std::is_same_v<T, bfloat16>)
      findings.same_bits(found.x, expected.x, sizeof(float), kWidth);
    else
      findings.equal(found.x, expected.x, kWidth);
  }
}

inline void check_widen_bf16(Findings& findings) { compare_widen<bfloat16>(findings); }
inline void check_widen_f16(Findings& findings) { compare_widen<float16>(findings); }

template <class T>
void compare_load_first_of_16_bits(Findings& findings) {
  const test::GuardedMemory memory;
  Lanes found, expected;
  for (int n = 0; n <= kWidth; ++n) {
    findings.with("n", n);
    T* const from = static_cast<T*>(memory.last(static_cast<std::size_t>(n) * sizeof(T)));
    findings.draw(from, n);
    for (int i = 0; i < kWidth; ++i) expected.x[i] = i < n ? static_cast<float>(from[i]) : 0.0F;
    store(found.x, load_first(from, n));
    findings.equal(found.x, expected.x, kWidth);
  }
}

inline void check_load_first_bf16(Findings& findings) { compare_load_first_of_16_bits<bfloat16>(findings); }
inline void check_load_first_f16(Findings& findings) { compare_load_first_of_16_bits<float16>(findings); }

/// Every byte, and the first n bytes before memory that must not be read.
template <class T>
void check_load_bytes(Findings& findings) {
  const test::GuardedMemory memory;
  Lanes found, expected;
  for (int first = 0; first < 256; first += kWidth) {
    T* const from = static_cast<T*>(memory.last(kWidth));
    for (int i = 0; i < kWidth; ++i) {
      const auto byte = static_cast<std::uint8_t>(first + i);
      std::memcpy(from + i, &byte, 1);
      expected.x[i] = static_cast<float>(from[i]);
    }
    findings.with("from byte", first);
    store(found.x, loadu(from));
    findings.equal(found.x, expected.x, kWidth);
    for (int n = 0; n <= kWidth; ++n) {
      T* const last = static_cast<T*>(memory.last(static_cast<std::size_t>(n)));
      for (int i = 0; i < n; ++i) std::memcpy(last + i, "\x70", 1);
      for (int i = 0; i < kWidth; ++i) expected.x[i] = i < n ? static_cast<float>(last[i]) : 0.0F;
      store(found.x, load_first(last, n));
      findings.equal(found.x, expected.x, kWidth);
      for (int i = 0; i < kWidth; ++i) {
        const auto byte = static_cast<std::uint8_t>(first + i);
        std::memcpy(from + i, &byte, 1);
        expected.x[i] = static_cast<float>(from[i]);
      }
    }
  }
}

inline void check_load_nibbles(Findings& findings) {
  const test::GuardedMemory memory;
  Lanes found, expected;
  for (int multiplier = -128; multiplier < 128; ++multiplier) {
    for (const bool upper : {false, true}) {
      auto* const from = static_cast<std::uint8_t*>(memory.last(kWidth));
      for (int i = 0; i < kWidth; ++i) {
        from[i] = static_cast<std::uint8_t>(findings.word());
        const int number = multiplier * ((upper ? from[i] >> 4 : from[i] & 15) - 8);
        expected.x[i] = static_cast<float>(static_cast<std::int8_t>(number));
      }
      findings.with("multiplier, upper", multiplier, upper);
      store(found.x, load_nibbles(from, upper, static_cast<std::int8_t>(multiplier)));
      findings.equal(found.x, expected.x, kWidth);
    }
  }
}

/// Narrows every 16-bit number, the number halfway to the next, and the floats next to both; then floats of any
/// bits.
template <class T>
void compare_narrow(Findings& findings) {
  constexpr int kBeside = 3;
  Lanes from;
  T found[kWidth], expected[kWidth];
  const auto compare = [&] {
    for (int i = 0; i < kWidth; ++i) expected[i] = T(from.x[i]);
    storeu(found, load(from.x));
    findings.same_bits(found, expected, sizeof(T), kWidth);
  };
  const auto bits_of = [](int word) {
    const auto bits = static_cast<std::uint16_t>(word);
    return std::bit_cast<std::uint32_t>(static_cast<float>(T::from_bits(bits)));
  };
  for (int offset = -kBeside; offset <= kBeside; ++offset) {
    for (int first = 0; first < 65536; first += kWidth) {
      findings.with("first, offset", first, offset);
      for (int i = 0; i < kWidth; ++i)
        from.x[i] = std::bit_cast<float>(bits_of(first + i) + static_cast<std::uint32_t>(offset));
      compare();
      for (int i = 0; i < kWidth; ++i) {
        const std::uint32_t middle = bits_of(first + i) + (bits_of(first + i + 1) - bits_of(first + i)) / 2;
        from.x[i] = std::bit_cast<float>(middle + static_cast<std::uint32_t>(offset));
      }
      compare();
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(from.x, kWidth);
    compare();
  }
}

inline void check_narrow_bf16(Findings& findings) { compare_narrow<bfloat16>(findings); }
inline void check_narrow_f16(Findings& findings) { compare_narrow<float16>(findings); }

template <class T>
void compare_store_first_of_16_bits(Findings& findings) {
  const test::GuardedMemory memory;
  Lanes from;
  T found[kWidth + 2], expected[kWidth + 2];
  for (int n = 0; n <= kWidth; ++n) {
    findings.with("n", n);
    findings.draw(from.x, kWidth);
    findings.draw(found, kWidth + 2);
    for (int i = 0; i < kWidth + 2; ++i) expected[i] = i < n ? T(from.x[i]) : found[i];
    store_first(found, n, load(from.x));
    findings.same_bits(found, expected, sizeof(T), kWidth + 2);
    T* const end = static_cast<T*>(memory.last(static_cast<std::size_t>(n) * sizeof(T)));
    store_first(end, n, load(from.x));
    findings.same_bits(end, expected, sizeof(T), n);
  }
}

inline void check_store_first_bf16(Findings& findings) { compare_store_first_of_16_bits<bfloat16>(findings); }
inline void check_store_first_f16(Findings& findings) { compare_store_first_of_16_bits<float16>(findings); }

/// Rows of every length up to several vectors: the bits of dtype.h, including signaling NaN, and no access beyond
/// the end.
template <class T>
void compare_rows_of_16_bits(Findings& findings) {
  constexpr int kMost = 3 * kWidth + 2;
  const test::GuardedMemory memory, other;
  for (int count = 0; count < kMost; ++count) {
    findings.with("count", count);
    const auto n = static_cast<std::size_t>(count);
    T* const narrow = static_cast<T*>(memory.last(n * sizeof(T)));
    float* const wide = static_cast<float*>(other.last(n * sizeof(float)));
    float expected[kMost];
    for (int round = 0; round < 20; ++round) {
      findings.draw(narrow, count);
      for (int i = 0; i < count; ++i) expected[i] = narrow[i];
      widen_all(narrow, wide, count);
      findings.same_bits(wide, expected, sizeof(float), count);
      T rounded[kMost];
      findings.draw(wide, count);
      for (int i = 0; i < count; ++i) rounded[i] = T(wide[i]);
      narrow_all(wide, narrow, count);
      findings.same_bits(narrow, rounded, sizeof(T), count);
    }
  }
}

inline void check_rows_of_bf16(Findings& findings) { compare_rows_of_16_bits<bfloat16>(findings); }
inline void check_rows_of_f16(Findings& findings) { compare_rows_of_16_bits<float16>(findings); }

inline constexpr test::Check kConversionChecks[] = {{"widen_bf16", check_widen_bf16},
                                                    {"widen_f16", check_widen_f16},
                                                    {"load_first_bf16", check_load_first_bf16},
                                                    {"load_first_f16", check_load_first_f16},
                                                    {"load_i8", check_load_bytes<std::int8_t>},
                                                    {"load_f8e4m3", check_load_bytes<float8_e4m3>},
                                                    {"load_nibbles", check_load_nibbles},
                                                    {"narrow_bf16", check_narrow_bf16},
                                                    {"narrow_f16", check_narrow_f16},
                                                    {"store_first_bf16", check_store_first_bf16},
                                                    {"store_first_f16", check_store_first_f16},
                                                    {"widen_all_and_narrow_all_bf16", check_rows_of_bf16},
                                                    {"widen_all_and_narrow_all_f16", check_rows_of_f16}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
