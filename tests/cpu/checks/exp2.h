// exp2 and its parts, and tanh. Included after the level's exp2.
#pragma once

#include "cpu/checks/vector.h"
#include "cpu/simd/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Every binade in range: 4000 numbers from n - 1/2 to n + 1/2, including n and both ends.
inline void check_exp2(Findings& findings) {
  constexpr int kLowest = static_cast<int>(kExp2Lowest) + 1, kBelow = -static_cast<int>(kExp2Lowest);
  constexpr int kPoints = 4000 / kWidth;
  Lanes x, found;
  for (int n = kLowest; n < kBelow; ++n) {
    findings.with("n", n);
    for (int point = 0; point <= kPoints; ++point) {
      for (int i = 0; i < kWidth; ++i) {
        const Scalar at = n + (static_cast<Scalar>(point) * kWidth + i) / (kPoints * kWidth) - Scalar(0.5);
        x.x[i] = at < kLowest ? kLowest : at >= kBelow ? n : at;
      }
      store(found.x, exp2(load(x.x)));
      findings.near_exp2(found.x, x.x, kWidth, kExp2Error);
    }
  }
  for (int round = 0; round < 50 * kRounds; ++round) {  // of all magnitudes
    findings.draw_numbers(x.x, kWidth);
    for (int i = 0; i < kWidth; ++i)
      if (!(Lane::abs(x.x[i]) < kBelow) || x.x[i] < kLowest)
        x.x[i] = Lane::ldexp(x.x[i], 0) > 0 ? Scalar(1e-3) : Scalar(-1e-3);
    store(found.x, exp2(load(x.x)));
    findings.near_exp2(found.x, x.x, kWidth, kExp2Error);
  }
}

/// Checks that exp2 of `from` is `expected` in each lane in turn, next to drawn numbers.
inline void expect_exp2(Findings& findings, Scalar from, Scalar expected) {
  Lanes x, found;
  for (int lane = 0; lane < kWidth; ++lane) {
    findings.draw_near_one(x.x, kWidth);
    x.x[lane] = from;
    store(found.x, exp2(load(x.x)));
    findings.equal(found.x + lane, &expected, 1, &from);
  }
}

/// 1 at 0, exactly 0 up to kExp2Lowest, NaN for NaN without a payload, and powers of two.
inline void check_exp2_of_special_numbers(Findings& findings) {
  using Limits = std::numeric_limits<Scalar>;
  expect_exp2(findings, Scalar{0}, Scalar{1});
  expect_exp2(findings, -Scalar{0}, Scalar{1});
  expect_exp2(findings, Limits::denorm_min(), Scalar{1});
  expect_exp2(findings, -Limits::denorm_min(), Scalar{1});
  for (const Scalar x : {kExp2Lowest, kExp2Lowest * 2, Limits::lowest(), -Limits::infinity()})
    expect_exp2(findings, x, Scalar{0});
  expect_exp2(findings, Limits::quiet_NaN(), Limits::quiet_NaN());
  expect_exp2(findings, -Limits::quiet_NaN(), Limits::quiet_NaN());
}

inline void check_canonical_nan(Findings& findings) {
  compare_lanes(
      findings, [&](Scalar* to) { findings.draw(to, kWidth); },
      [&](const Scalar* a, const Scalar*, const Scalar*, Scalar* to) { store(to, canonical_nan(load(a))); },
      [](Scalar a, Scalar, Scalar) { return a; });
  using Bits = std::conditional_t<sizeof(Scalar) == 4, std::uint32_t, std::uint64_t>;
  Lanes x, found;
  for (int lane = 0; lane < kWidth; ++lane) {
    findings.draw_numbers(x.x, kWidth);
    const Bits quiet = std::bit_cast<Bits>(std::numeric_limits<Scalar>::quiet_NaN());
    x.x[lane] = std::bit_cast<Scalar>(quiet | Bits{12345});
    store(found.x, canonical_nan(load(x.x)));
    findings.same_bits(found.x + lane, &quiet, sizeof quiet, 1);
  }
}

/// x * 2^n, where `rounded` is n plus a constant that puts n into the low bits of the sum.
template <class S>
void compare_scale_by_exponent(Findings& findings) {
  constexpr bool kIsFloat = sizeof(S) == 4;
  constexpr S kMagic = kIsFloat ? S(0x1.8p23) : S(0x1.8p52);
  constexpr int kMost = kIsFloat ? 126 : 1022;
  Lanes x, rounded, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw_near_one(x.x, kWidth);
    for (int i = 0; i < kWidth; ++i) {
      const int n = findings.below(2 * kMost + 1) - kMost;
      x.x[i] =
          Lane::copysign(Lane::add(Lane::ldexp(Lane::abs(x.x[i]), -2), S{1}), x.x[i]);  // of magnitude 1 to 1.5
      rounded.x[i] = Lane::add(kMagic, static_cast<S>(n));
      expected.x[i] = Lane::ldexp(x.x[i], n);
    }
    store(found.x, scale_by_exponent(load(x.x), load(rounded.x)));
    findings.equal(found.x, expected.x, kWidth, x.x, rounded.x);
  }
}

inline void check_scale_by_exponent(Findings& findings) { compare_scale_by_exponent<Scalar>(findings); }

/// Odd; 0 at 0, 1 at infinity, NaN for NaN.
inline void check_tanh_of_special_numbers(Findings& findings) {
  Lanes x, found, expected;
  const auto compare = [&] {
    store(found.x, add(tanh(load(x.x)), zero()));  // -0 + 0 is 0: zeros may have either sign
    findings.equal(found.x, expected.x, kWidth, x.x);
  };
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(x.x, kWidth);
    store(expected.x, add(tanh(load(x.x)), zero()));
    for (int i = 0; i < kWidth; ++i) {
      if (!(Lane::abs(x.x[i]) < 20)) expected.x[i] = Lane::is_nan(x.x[i]) ? x.x[i] : Lane::copysign(1, x.x[i]);
      if (x.x[i] == 0) expected.x[i] = 0;
    }
    compare();
    for (int i = 0; i < kWidth; ++i) x.x[i] = -x.x[i], expected.x[i] = Lane::add(-expected.x[i], 0);
    compare();
  }
}

inline constexpr test::Check kExp2Checks[] = {{"exp2", check_exp2},
                                              {"exp2_of_special_numbers", check_exp2_of_special_numbers},
                                              {"canonical_nan", check_canonical_nan},
                                              {"scale_by_exponent", check_scale_by_exponent},
                                              {"tanh_of_special_numbers", check_tanh_of_special_numbers}};

#ifdef SACCADE_CHECKS_EXP2_TABLE
/// The same by 32nds: x * 2^floor(n), and the table's entry for n - floor(n).
inline void check_scale_by_exponent_of_32nds(Findings& findings) {
  Lanes x, rounded, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw_near_one(x.x, kWidth);
    for (int i = 0; i < kWidth; ++i) {
      const int n = findings.below(252 * 32) - 126 * 32;
      x.x[i] = Lane::add(Lane::ldexp(Lane::abs(x.x[i]), -2), Scalar{1});
      rounded.x[i] = Lane::add(kRoundTo32nds, static_cast<Scalar>(n) / 32);
      expected.x[i] = Lane::ldexp(x.x[i], (n + 126 * 32) / 32 - 126);
    }
    store(found.x, scale_by_exponent_of_32nds(load(x.x), load(rounded.x)));
    findings.equal(found.x, expected.x, kWidth, x.x, rounded.x);
  }
}

inline void check_lookup_32nds(Findings& findings) {
  alignas(64) Scalar table[32];
  Lanes rounded, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(table, 32);
    for (int i = 0; i < kWidth; ++i) {
      const int n = findings.below(252 * 32) - 126 * 32;
      rounded.x[i] = Lane::add(kRoundTo32nds, static_cast<Scalar>(n) / 32);
      expected.x[i] = table[(n + 126 * 32) % 32];
    }
    store(found.x, lookup_32nds(table, load(rounded.x)));
    findings.same_bits(found.x, expected.x, sizeof(Scalar), kWidth);
  }
}

inline constexpr test::Check kExp2TableChecks[] = {
    {"scale_by_exponent_of_32nds", check_scale_by_exponent_of_32nds}, {"lookup_32nds", check_lookup_32nds}};
#endif

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
