// Vectors of 32-bit words, and dropout drawn with them.
#pragma once

#include "cpu/checks/vector.h"
#include "cpu/elementwise/dropout.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr int kNumbersOfWords = 2 * kWords;  // that keep_above takes

/// keep_above() of numbers that belong to the words of `even` and `odd` alternately, with `most` equal to a word
/// and just below it, which reveals every bit of the word.
template <class T>
void expect_words(Findings& findings, Words even, Words odd, const std::uint32_t (&expected)[kNumbersOfWords]) {
  alignas(64) T numbers[kNumbersOfWords];
  for (int word = 0; word < kNumbersOfWords; ++word) {
    for (const std::uint32_t below : {0u, 1u}) {
      if (expected[word] < below) continue;
      const std::uint32_t most = expected[word] - below;
      T kept[kNumbersOfWords];
      for (int i = 0; i < kNumbersOfWords; ++i) {
        numbers[i] = T(static_cast<float>(i + 1));
        kept[i] = expected[i] > most ? numbers[i] : T{};
      }
      keep_above(numbers, even, odd, most);
      findings.same_bits(numbers, kept, sizeof(T), kNumbersOfWords);
    }
  }
}

/// vector(even, odd) of words first, first + 1, ..., and plain(word) of each.
template <class Vector, class PlainWord>
void compare_words(Findings& findings, const Vector& vector, const PlainWord& plain) {
  for (int round = 0; round < 100; ++round) {
    const std::uint32_t first = findings.word() % 0xffffff00u;  // the last words have no carry
    findings.with("first", first);
    std::uint32_t expected[kNumbersOfWords];
    for (int i = 0; i < kNumbersOfWords; ++i) expected[i] = plain(first + static_cast<std::uint32_t>(i));
    expect_words<float>(findings, vector(every_second_word(first)), vector(every_second_word(first + 1)),
                        expected);
  }
}

inline void check_every_second_word(Findings& findings) {
  compare_words(
      findings, [&](Words x) { return x; }, [](std::uint32_t x) { return x; });
}

/// Not every level has keep_above() for every type.
template <class T>
concept HasKeepAbove = requires(T* numbers, Words words) {
  keep_above(numbers, words, words, std::uint32_t{});
};

template <class T>
void expect_words_of(Findings& findings, Words even, Words odd, const std::uint32_t (&expected)[kNumbersOfWords]) {
  if constexpr (HasKeepAbove<T>) expect_words<T>(findings, even, odd, expected);
}

inline void check_keep_above(Findings& findings) {
  for (int round = 0; round < 100; ++round) {
    const std::uint32_t first = findings.word() % 0xffffff00u;
    findings.with("first", first);
    std::uint32_t expected[kNumbersOfWords];
    for (int i = 0; i < kNumbersOfWords; ++i) expected[i] = first + static_cast<std::uint32_t>(i);
    const Words even = every_second_word(first), odd = every_second_word(first + 1);
    expect_words<float>(findings, even, odd, expected);
    expect_words<double>(findings, even, odd, expected);
    expect_words_of<bfloat16>(findings, even, odd, expected);
  }
}

inline void check_broadcast_word(Findings& findings) {
  for (int round = 0; round < 100; ++round) {
    const std::uint32_t even = findings.word(), odd = findings.word();
    std::uint32_t expected[kNumbersOfWords];
    for (int i = 0; i < kNumbersOfWords; ++i) expected[i] = i % 2 == 0 ? even : odd;
    expect_words<float>(findings, broadcast_word(even), broadcast_word(odd), expected);
  }
}

inline void check_multiply_words(Findings& findings) {
  const std::uint32_t factor = findings.word() | 0x80000001u;
  compare_words(
      findings, [&](Words x) { return multiply_words(x, broadcast_word(factor)); },
      [&](std::uint32_t x) { return x * factor; });
}

inline void check_upper_halves(Findings& findings) {
  const std::uint32_t factor = findings.word() | 0x80000001u;
  compare_words(
      findings, [&](Words x) { return upper_halves(multiply_words(x, broadcast_word(factor))); },
      [&](std::uint32_t x) { return static_cast<std::uint32_t>(std::uint64_t{x} * factor >> 32); });
}

inline void check_exclusive_or(Findings& findings) {
  const std::uint32_t a = findings.word(), b = findings.word();
  compare_words(
      findings, [&](Words x) { return exclusive_or(x, broadcast_word(a)); },
      [&](std::uint32_t x) { return x ^ a; });
  compare_words(
      findings, [&](Words x) { return exclusive_or(x, broadcast_word(a), broadcast_word(b)); },
      [&](std::uint32_t x) { return x ^ a ^ b; });
}

/// Which weights of a call are dropped, against the public function that decides it.
inline void check_dropout(Findings& findings) {
  constexpr int kColumns = 256;
  alignas(64) Scalar found[kColumns], expected[kColumns];
  for (int round = 0; round < 100; ++round) {
    const double p = (1 + findings.below(99)) / 100.0;
    const std::uint64_t seed = std::uint64_t{findings.word()} << 32 | findings.word();
    const std::uint32_t offset = findings.word(), batch_head = findings.word(), row = findings.word();
    const std::int64_t first_key = 64 * findings.below(1000);
    findings.draw(found, kColumns);
    for (int i = 0; i < kColumns; ++i)
      expected[i] = test::keeps_weight(seed, offset, batch_head, row, first_key + i, p) ? found[i] : Scalar{0};
    Dropout(p, seed, offset).apply(found, 0, kColumns, batch_head, row, first_key);
    findings.same_bits(found, expected, sizeof(Scalar), kColumns);
  }
}

inline constexpr test::Check kWordChecks[] = {{"every_second_word", check_every_second_word},
                                              {"keep_above", check_keep_above},
                                              {"broadcast_word", check_broadcast_word},
                                              {"multiply_words", check_multiply_words},
                                              {"upper_halves", check_upper_halves},
                                              {"exclusive_or", check_exclusive_or},
                                              {"dropout", check_dropout}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
