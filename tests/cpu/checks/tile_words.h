// Numbers as words of AMX tiles, and the vector functions beside them: with the processor's instructions or in
// their twin.
#pragma once

#include "cpu/amx/parts.h"
#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using test::Findings;
using PlainFloat = test::Plain<float>;

template <class T>
T number_of_bits(std::uint32_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(bits);
  else
    return T::from_bits(static_cast<std::uint16_t>(bits));
}

// ---- Magnitudes ----------------------------------------------------------------------------------------------

/// What a MagnitudeScan finds, by comparisons of floats.
template <class T, BitsOf<T> kLeast, BitsOf<T> kSmallest>
class PlainScan {
 public:
  void add(float x) {
    const float magnitude = PlainFloat::abs(x);
    if (!(magnitude <= largest_)) largest_ = PlainFloat::is_nan(largest_) ? largest_ : magnitude;
    const bool is_finite = magnitude < kInfinity;
    const bool is_zero = magnitude < static_cast<float>(number_of_bits<T>(kSmallest));
    fits_ = fits_ && is_finite && (is_zero || magnitude >= static_cast<float>(number_of_bits<T>(kLeast)));
  }
  float largest() const { return largest_; }
  bool all_fit() const { return fits_; }

 private:
  float largest_ = 0;
  bool fits_ = true;
};

template <class T, int kTheParts, BitsOf<T> kLeast, BitsOf<T> kSmallest = 1>
struct ScanCase {
  using Number = T;
  static constexpr int kParts = kTheParts;
  using Found = MagnitudeScan<T, kLeast, kSmallest, kParts>;
  using Expected = PlainScan<T, kLeast, kSmallest>;

  /// Zero, the smallest and the largest denormal and normal numbers, those next to the limits, infinity and NaN,
  /// of either sign.
  static constexpr int kSpecials = 26;
  static T special(int kind) {
    constexpr std::uint32_t kEnd = kNotFinite<T>, kBits = 8 * sizeof(T);
    constexpr std::uint32_t kNormal = std::is_same_v<T, float> ? 0x00800000 : kEnd == 0x7c00 ? 0x0400 : 0x0080;
    constexpr std::uint32_t kMagnitudes[] = {0,
                                             1,
                                             kNormal - 1,
                                             kNormal,
                                             kLeast - 1,
                                             kLeast,
                                             kSmallest - 1,
                                             kSmallest,
                                             kEnd - 1,
                                             kEnd,
                                             kEnd + 1,
                                             kEnd | kEnd >> 1,
                                             (1U << (kBits - 1)) - 1};
    static_assert(std::size(kMagnitudes) * 2 == kSpecials);
    return number_of_bits<T>(kMagnitudes[kind / 2] | static_cast<std::uint32_t>(kind % 2) << (kBits - 1));
  }
};

/// Calls f(ScanCase) with the limits of every use.
template <class T, int kParts = kPartsOf<T>, class F>
void for_scan_cases_of(const F& f) {
  f(ScanCase<T, kParts, 1>{});
  f(ScanCase<T, kParts, kLeastOfScores<T>>{});
  f(ScanCase<T, kParts, kLeastOfValues<T>>{});
  f(ScanCase<T, kParts, kLeastOfProducts<T>>{});
  if constexpr (std::is_same_v<T, bfloat16>) f(ScanCase<T, kParts, kLeastOfValues<T>, 0x0080>{});
}
template <class F>
void for_scan_cases(const F& f) {
  for_scan_cases_of<bfloat16>(f);
  for_scan_cases_of<float16>(f);
  for_scan_cases_of<float16, 1>(f);
  for_scan_cases_of<float>(f);
}

template <class Found, class Expected>
void compare_scans(Findings& findings, const Found& found, const Expected& expected) {
  const float largest = found.largest(), expected_largest = expected.largest();
  findings.equal(&largest, &expected_largest, 1);
  findings.equal(found.all_fit(), expected.all_fit());
}

/// A new scan of n numbers, which are followed by memory that must not be read.
template <class Case>
void compare_add_row(Findings& findings, const typename Case::Number* row, int n, float factor) {
  typename Case::Found found;
  typename Case::Expected expected;
  found.add_row(row, n, factor);
  for (int i = 0; i < n; ++i) expected.add(PlainFloat::mul(factor, static_cast<float>(row[i])));
  compare_scans(findings, found, expected);
}

/// Rows of every length up to 70 with one special number in each place in turn; then several rows in one scan.
inline void check_magnitude_scan(Findings& findings) {
  constexpr int kMost = 70;
  const test::GuardedMemory memory;
  for_scan_cases([&](auto some) {
    using Case = decltype(some);
    using T = typename Case::Number;
    for (int n = 0; n <= kMost; ++n) {
      T* const row = static_cast<T*>(memory.last(static_cast<std::size_t>(n) * sizeof(T)));
      for (int i = 0; i < n; ++i) row[i] = T(1.0F);
      compare_add_row<Case>(findings, row, n, 1.0F);
      for (int place = 0; place < n; ++place) {
        const int first = n == kMost ? 0 : findings.below(Case::kSpecials);
        for (int kind = first; kind < (n == kMost ? Case::kSpecials : first + 1); ++kind) {
          findings.with("bytes of a number, n, place, kind", sizeof(T), n, place, kind);
          row[place] = Case::special(kind);
          compare_add_row<Case>(findings, row, n, 1.0F);
          compare_add_row<Case>(findings, row, n, -1.0F);
          if (std::is_same_v<T, float>) compare_add_row<Case>(findings, row, n, 0.75F);
        }
        row[place] = T(1.0F);
      }
    }
    typename Case::Found found;
    typename Case::Expected expected;
    T numbers[3];
    for (int kind = 0; kind < 20; ++kind) {  // finite ones first
      for (T& number : numbers) expected.add(static_cast<float>(number = Case::special(kind)));
      found.add_row(numbers, 3);
      compare_scans(findings, found, expected);
    }
  });
}

// ---- Words of 32 x 32 numbers --------------------------------------------------------------------------------

/// The numbers in the lower and the upper half of a word.
struct Halves {
  int rows[2], columns[2];
};
/// Columns of a row's word: neighbours in one part, 16 apart in several.
template <int kParts>
Halves halves_of_row(int row, int word) {
  return kParts == 1 ? Halves{{row, row}, {2 * word, 2 * word + 1}} : Halves{{row, row}, {word, 16 + word}};
}
/// [32 rows][16 words]
template <int kParts>
Halves halves_in_rows(int word) {
  return halves_of_row<kParts>(word / 16, word % 16);
}
/// [2 tiles][16 words][16 rows]
template <int kParts>
Halves halves_in_columns(int word) {
  return halves_of_row<kParts>(word / 256 * 16 + word % 16, word % 256 / 16);
}
/// [2 tiles][16 pairs of rows][16 columns]
inline Halves halves_in_pairs(int word) {
  const int pair = word % 256 / 16, column = word / 256 * 16 + word % 16;
  return {{2 * pair, 2 * pair + 1}, {column, column}};
}

/// The words of each part of numbers times `factor`; of single parts only its sign counts.
template <int kParts, class T, class HalvesOf>
void expect_words(const T* numbers, std::int64_t stride, float factor, const HalvesOf& halves_of,
                  std::uint32_t* to) {
  for (int word = 0; word < kPartWords; ++word) {
    const Halves halves = halves_of(word);
    std::uint32_t parts[kParts] = {};
    for (int half = 0; half < 2; ++half) {
      const T number = numbers[halves.rows[half] * stride + halves.columns[half]];
      if constexpr (kParts == 1) {
        parts[0] |= (number.bits ^ (factor < 0 ? 0x8000U : 0U)) << 16 * half;
      } else {
        float rest = PlainFloat::mul(factor, static_cast<float>(number));
        for (std::uint32_t& part : parts) part |= test::take_part(rest, false) << 16 * half;
      }
    }
    for (int t = 0; t < kParts; ++t) to[t * kPartWords + word] = parts[t];
  }
}

/// Numbers of any bits for single parts; finite ones, of which multiples are finite, where numbers are split.
template <int kParts, class T>
void draw_for_words(Findings& findings, T* numbers, std::int64_t count) {
  findings.draw(numbers, count);
  if constexpr (kParts > 1)
    for (std::int64_t i = 0; i < count; ++i)
      if (!(PlainFloat::abs(static_cast<float>(numbers[i])) < 1e38F)) findings.draw_near_one(numbers + i, 1);
}

/// Words and magnitudes that put(rows, factor, to, scan) makes of rows of any stride, whose last number is
/// followed by memory that must not be read.
template <class T, int kParts, class Put, class HalvesOf>
void compare_put(Findings& findings, float factor, const Put& put, const HalvesOf& halves_of) {
  constexpr std::int64_t kAllWords = kParts * kPartWords;
  const test::GuardedMemory memory;
  alignas(64) static std::uint32_t found[kAllWords], expected[kAllWords];
  for (const std::int64_t stride : {32, 33, 47}) {
    findings.with("bytes of a number, parts, stride", sizeof(T), kParts, stride);
    const std::int64_t count = 31 * stride + 32;
    T* const numbers = static_cast<T*>(memory.last(static_cast<std::size_t>(count) * sizeof(T)));
    for (int round = 0; round < 5; ++round) {
      draw_for_words<kParts>(findings, numbers, count);
      MagnitudeScan<T, 1, 1, kParts> scan;
      PlainScan<T, 1, 1> expected_scan;
      for (int row = 0; row < 32; ++row)
        for (int column = 0; column < 32; ++column)
          expected_scan.add(PlainFloat::mul(factor, static_cast<float>(numbers[row * stride + column])));
      put(StridedRows<T>{numbers, stride}, factor, found, scan);
      expect_words<kParts>(numbers, stride, factor, halves_of, expected);
      findings.same_bits(found, expected, 4, kAllWords);
      compare_scans(findings, scan, expected_scan);
    }
  }
}

/// One special number in each place in turn.
template <class Case, class Put>
void compare_scan_of_put(Findings& findings, const Put& put) {
  using T = typename Case::Number;
  alignas(64) static std::uint32_t words[Case::kParts * kPartWords];
  T numbers[1024];
  for (T& number : numbers) number = T(1.0F);
  for (int place = 0; place < 1024; ++place) {
    const int kind = findings.below(Case::kSpecials);
    findings.with("bytes of a number, parts, place, kind", sizeof(T), Case::kParts, place, kind);
    numbers[place] = Case::special(kind);
    typename Case::Found found;
    typename Case::Expected expected;
    expected.add(1.0F), expected.add(static_cast<float>(numbers[place]));
    put(StridedRows<T>{numbers, 32}, 1.0F, words, found);
    compare_scans(findings, found, expected);
    numbers[place] = T(1.0F);
  }
}

template <int kParts>
inline constexpr auto kPutRows =
    [](auto rows, float factor, std::uint32_t* to, auto& scan) { put_rows<kParts>(rows, factor, to, scan); };
template <int kParts>
inline constexpr auto kPutColumns =
    [](auto rows, float, std::uint32_t* to, auto& scan) { put_columns<kParts>(rows, to, scan); };
template <int kParts>
inline constexpr auto kPutPairs = [](auto rows, float, std::uint32_t* to, auto& scan) {
  for (int pair = 0; pair < 16; ++pair) put_pair<kParts>(rows[2 * pair], rows[2 * pair + 1], to + 16 * pair, scan);
};

/// Calls f(T, parts), with the parts as an integral constant, for all numbers on tiles.
template <class F>
void for_tile_types(const F& f) {
  f(bfloat16{}, std::integral_constant<int, 1>{});
  f(float16{}, std::integral_constant<int, 2>{});
  f(float16{}, std::integral_constant<int, 1>{});
  f(float{}, std::integral_constant<int, 3>{});
}

inline void check_put_rows(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    using T = decltype(number);
    for (const float factor : {1.0F, -1.0F, 0.3F, -1.7F})
      if (sizeof(T) == 4 || PlainFloat::abs(factor) == 1.0F)
        compare_put<T, parts>(findings, factor, kPutRows<parts>, halves_in_rows<parts>);
  });
  for_scan_cases(
      [&](auto some) { compare_scan_of_put<decltype(some)>(findings, kPutRows<decltype(some)::kParts>); });
}

inline void check_put_columns(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    compare_put<decltype(number), parts>(findings, 1.0F, kPutColumns<parts>, halves_in_columns<parts>);
  });
  for_scan_cases(
      [&](auto some) { compare_scan_of_put<decltype(some)>(findings, kPutColumns<decltype(some)::kParts>); });
}

inline void check_put_pair(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    compare_put<decltype(number), parts>(findings, 1.0F, kPutPairs<parts>, halves_in_pairs);
  });
  for_scan_cases(
      [&](auto some) { compare_scan_of_put<decltype(some)>(findings, kPutPairs<decltype(some)::kParts>); });
}

inline constexpr test::Check kTileWordChecks[] = {{"magnitude_scan", check_magnitude_scan},
                                                  {"put_rows", check_put_rows},
                                                  {"put_columns", check_put_columns},
                                                  {"put_pair", check_put_pair}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
