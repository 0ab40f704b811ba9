// Vectors of bf16 pairs.
#pragma once

#include "cpu/checks/vector.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr int kHalves = 2 * kWidth;

struct alignas(64) Halves {
  bfloat16 x[kHalves];
};

inline Vec load_words(const bfloat16* from) { return loadu(reinterpret_cast<const float*>(from)); }
inline void store_words(bfloat16* to, Vec words) { storeu(reinterpret_cast<float*>(to), words); }
inline void same_halves(Findings& findings, Vec found, const Halves& expected) {
  Halves halves;
  store_words(halves.x, found);
  findings.same_bits(halves.x, expected.x, sizeof(bfloat16), kHalves);
}

/// product(a, b, acc) on whole numbers, whose sums are exact in any order; then with one denormal number, which
/// counts as 0, an infinity or a NaN.
template <class Product>
void compare_pair_product(Findings& findings, bool is_broadcast, const Product& product) {
  Halves a, b;
  Lanes acc, found, expected;
  const bfloat16 specials[] = {bfloat16::from_bits(0x0001), bfloat16::from_bits(0x807f),
                               bfloat16::from_bits(0x7f80), bfloat16::from_bits(0xff80),
                               bfloat16::from_bits(0x7fc0)};
  for (int round = 0; round < kRounds; ++round) {
    findings.draw_whole(a.x, kHalves);
    findings.draw_whole(b.x, kHalves);
    findings.draw_whole(acc.x, kWidth);
    if (round % 2 == 1) (round % 4 == 1 ? a : b).x[findings.below(kHalves)] = specials[findings.below(5)];
    const auto number = [](bfloat16 x) { return (x.bits & 0x7f80) == 0 ? 0.0F : static_cast<float>(x); };
    for (int i = 0; i < kWidth; ++i) {
      const int of_a = is_broadcast ? 0 : 2 * i;
      const float even = Lane::mul(number(a.x[of_a]), number(b.x[2 * i]));
      const float odd = Lane::mul(number(a.x[of_a + 1]), number(b.x[2 * i + 1]));
      expected.x[i] = Lane::add(acc.x[i], Lane::add(even, odd));
    }
    store(found.x, product(a.x, load_words(b.x), load(acc.x)));
    findings.equal(found.x, expected.x, kWidth, acc.x);
  }
}

inline void check_pair_fma(Findings& findings) {
  compare_pair_product(findings, false,
                       [&](const bfloat16* a, Vec b, Vec acc) { return pair_fma(load_words(a), b, acc); });
}
inline void check_pair_fma_from(Findings& findings) {
  compare_pair_product(findings, false, [&](const bfloat16* a, Vec b, Vec acc) {
    return pair_fma_from(reinterpret_cast<const float*>(a), b, acc);
  });
}
inline void check_pair_fma_broadcast(Findings& findings) {
  compare_pair_product(findings, true, [&](const bfloat16* a, Vec b, Vec acc) {
    return pair_fma_broadcast(reinterpret_cast<const float*>(a), b, acc);
  });
}

/// Normal numbers only: the instruction treats denormals as 0.
inline void check_round_to_pairs(Findings& findings) {
  alignas(64) float from[kHalves];
  Halves expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw_numbers(from, kHalves);
    for (int i = 0; i < kHalves; ++i) {
      if (Lane::abs(from[i]) < std::numeric_limits<float>::min()) from[i] = static_cast<float>(i);
      expected.x[i] = bfloat16(from[i]);
    }
    same_halves(findings, round_to_pairs(load(from), load(from + kWidth)), expected);
  }
}

inline void check_load_first_pairs(Findings& findings) {
  const test::GuardedMemory memory;
  Halves expected;
  for (int n = 0; n <= kHalves; ++n) {
    findings.with("n", n);
    auto* const from = static_cast<bfloat16*>(memory.last(static_cast<std::size_t>(n) * sizeof(bfloat16)));
    findings.draw(from, n);
    for (int i = 0; i < kHalves; ++i) expected.x[i] = i < n ? from[i] : bfloat16{};
    same_halves(findings, load_first_pairs(from, n), expected);
  }
}

inline void check_interleave_first(Findings& findings) {
  const test::GuardedMemory of_even, of_odd;
  Halves expected;
  for (int n = 0; n <= kWidth; ++n) {
    findings.with("n", n);
    auto* const even = static_cast<bfloat16*>(of_even.last(static_cast<std::size_t>(n) * sizeof(bfloat16)));
    auto* const odd = static_cast<bfloat16*>(of_odd.last(static_cast<std::size_t>(n) * sizeof(bfloat16)));
    findings.draw(even, n);
    findings.draw(odd, n);
    for (int i = 0; i < kHalves; ++i) expected.x[i] = i / 2 < n ? (i % 2 == 0 ? even : odd)[i / 2] : bfloat16{};
    same_halves(findings, interleave_first(even, odd, n), expected);
  }
}

/// The words of columns 0 to 3 and 4 to 7 of every eight, and of all columns in order.
inline void check_interleave(Findings& findings) {
  Halves even, odd, low, high, first, second;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(even.x, kHalves);
    findings.draw(odd.x, kHalves);
    for (int word = 0; word < kWidth; ++word) {
      const int column = word / 4 * 8 + word % 4;
      low.x[2 * word] = even.x[column], low.x[2 * word + 1] = odd.x[column];
      high.x[2 * word] = even.x[column + 4], high.x[2 * word + 1] = odd.x[column + 4];
      first.x[2 * word] = even.x[word], first.x[2 * word + 1] = odd.x[word];
      second.x[2 * word] = even.x[kWidth + word], second.x[2 * word + 1] = odd.x[kWidth + word];
    }
    Vec a = interleave_low(load_words(even.x), load_words(odd.x));
    Vec b = interleave_high(load_words(even.x), load_words(odd.x));
    same_halves(findings, a, low);
    same_halves(findings, b, high);
    order_columns(a, b);
    same_halves(findings, a, first);
    same_halves(findings, b, second);
  }
}

inline void check_pair_numbers(Findings& findings) {
  Lanes even, odd;
  Halves expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(expected.x, kHalves);
    for (int i = 0; i < kWidth; ++i) even.x[i] = expected.x[2 * i], odd.x[i] = expected.x[2 * i + 1];
    same_halves(findings, pair_numbers(load(even.x), load(odd.x)), expected);
  }
}

inline void check_keep_of_pairs(Findings& findings) {
  Halves from, expected;
  for (int round = 0; round < kRounds; ++round) {
    const bool even = round % 2 == 0, odd = round % 4 < 2;
    findings.draw(from.x, kHalves);
    for (int i = 0; i < kHalves; ++i) expected.x[i] = (i % 2 == 0 ? even : odd) ? from.x[i] : bfloat16{};
    same_halves(findings, keep_of_pairs(load_words(from.x), even, odd), expected);
  }
}

inline void check_negate_pairs(Findings& findings) {
  Halves from, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(from.x, kHalves);
    for (int i = 0; i < kHalves; ++i)
      expected.x[i] = bfloat16::from_bits(static_cast<std::uint16_t>(from.x[i].bits ^ 0x8000));
    same_halves(findings, negate_pairs(load_words(from.x)), expected);
  }
}

/// Every byte, and the first n of 64 bytes before memory that must not be read. Where bytes are looked up as pairs
/// (simd/avx512_bf16.h).
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

inline constexpr test::Check kPairChecks[] = {{"pair_fma", check_pair_fma},
                                              {"pair_fma_from", check_pair_fma_from},
                                              {"pair_fma_broadcast", check_pair_fma_broadcast},
                                              {"round_to_pairs", check_round_to_pairs},
                                              {"load_first_pairs", check_load_first_pairs},
                                              {"interleave_first", check_interleave_first},
                                              {"interleave", check_interleave},
                                              {"pair_numbers", check_pair_numbers},
                                              {"keep_of_pairs", check_keep_of_pairs},
                                              {"negate_pairs", check_negate_pairs}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
