// Loads and stores, arithmetic and comparisons of a vector type. Included after the vector type of a level, in its
// target region, as are the other headers of checks.
#pragma once

#include "cpu/checks/findings.h"
#include "cpu/checks/plain.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

using test::Findings;
using Lane = test::Plain<Scalar>;

inline constexpr int kRounds = 400;         // vectors of random numbers
inline constexpr bool kFuses = kWidth > 1;  // plain code also rounds the product of a multiply-add

struct alignas(64) Lanes {
  Scalar x[kWidth];
};

// ---- Loads and stores ----------------------------------------------------------------------------------------

inline void check_load(Findings& findings) {
  Lanes from, to;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(from.x, kWidth);
    store(to.x, load(from.x));
    findings.same_bits(to.x, from.x, sizeof(Scalar), kWidth);
  }
}

inline void check_loadu(Findings& findings) {
  Scalar from[2 * kWidth], to[2 * kWidth];
  for (int offset = 0; offset < kWidth; ++offset) {
    findings.with("offset", offset);
    findings.draw(from, 2 * kWidth);
    storeu(to + offset, loadu(from + offset));
    findings.same_bits(to + offset, from + offset, sizeof(Scalar), kWidth);
  }
}

inline void check_load_first(Findings& findings) {
  const test::GuardedMemory memory;
  Lanes found, expected;
  for (int n = 0; n <= kWidth + 1; ++n) {
    findings.with("n", n);
    const int there = n < kWidth ? n : kWidth;
    Scalar* const from = static_cast<Scalar*>(memory.last(static_cast<std::size_t>(there) * sizeof(Scalar)));
    findings.draw(from, there);
    for (int i = 0; i < kWidth; ++i) expected.x[i] = i < n ? from[i] : Scalar{0};
    store(found.x, load_first(from, n));
    findings.same_bits(found.x, expected.x, sizeof(Scalar), kWidth);
  }
}

inline void check_store_first(Findings& findings) {
  const test::GuardedMemory memory;
  Lanes from;
  Scalar found[kWidth + 2], expected[kWidth + 2];
  for (int n = 0; n <= kWidth + 1; ++n) {
    findings.with("n", n);
    findings.draw(from.x, kWidth);
    findings.draw(found, kWidth + 2);
    for (int i = 0; i < kWidth + 2; ++i) expected[i] = i < n && i < kWidth ? from.x[i] : found[i];
    store_first(found, n, load(from.x));
    findings.same_bits(found, expected, sizeof(Scalar), kWidth + 2);
    const int there = n < kWidth ? n : kWidth;
    Scalar* const end = static_cast<Scalar*>(memory.last(static_cast<std::size_t>(there) * sizeof(Scalar)));
    store_first(end, n, load(from.x));
    findings.same_bits(end, from.x, sizeof(Scalar), there);
  }
}

inline void check_broadcast(Findings& findings) {
  Lanes number, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(number.x, 1);
    for (int i = 0; i < kWidth; ++i) expected.x[i] = number.x[0];
    store(found.x, broadcast(number.x[0]));
    findings.same_bits(found.x, expected.x, sizeof(Scalar), kWidth);
    store(found.x, broadcast_from(number.x));
    findings.same_bits(found.x, expected.x, sizeof(Scalar), kWidth);
    store(found.x, in_register(load(expected.x)));
    findings.same_bits(found.x, expected.x, sizeof(Scalar), kWidth);
  }
}

inline void check_lane_index(Findings& findings) {
  Lanes found, expected;
  for (int i = 0; i < kWidth; ++i) expected.x[i] = static_cast<Scalar>(i);
  store(found.x, lane_index());
  findings.equal(found.x, expected.x, kWidth);
  for (int i = 0; i < kWidth; ++i) expected.x[i] = 0;
  store(found.x, zero());
  findings.equal(found.x, expected.x, kWidth);
}

// ---- Arithmetic ----------------------------------------------------------------------------------------------

/// vector(a, b, c) against plain(a, b, c) of each lane. `draw` draws their arguments.
template <class Draw, class Vector, class PlainLane>
void compare_lanes(Findings& findings, const Draw& draw, const Vector& vector, const PlainLane& plain) {
  Lanes a, b, c, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    draw(a.x), draw(b.x), draw(c.x);
    vector(a.x, b.x, c.x, found.x);
    for (int i = 0; i < kWidth; ++i) expected.x[i] = plain(a.x[i], b.x[i], c.x[i]);
    findings.equal(found.x, expected.x, kWidth, a.x, b.x, c.x);
  }
}

/// Defines check_NAME, which compares NAME(a, b) with Plain's function of that name.
#define SACCADE_CHECK_OF_TWO(name)                                                                               \
  inline void check_##name(Findings& findings) {                                                                 \
    compare_lanes(                                                                                               \
        findings, [&](Scalar* to) { findings.draw(to, kWidth); },                                                \
        [&](const Scalar* a, const Scalar* b, const Scalar*, Scalar* to) { store(to, name(load(a), load(b))); }, \
        [](Scalar a, Scalar b, Scalar) { return Lane::name(a, b); });                                            \
  }
#define SACCADE_CHECK_OF_ONE(name)                                                                    \
  inline void check_##name(Findings& findings) {                                                      \
    compare_lanes(                                                                                    \
        findings, [&](Scalar* to) { findings.draw(to, kWidth); },                                     \
        [&](const Scalar* a, const Scalar*, const Scalar*, Scalar* to) { store(to, name(load(a))); }, \
        [](Scalar a, Scalar, Scalar) { return Lane::name(a); });                                      \
  }

SACCADE_CHECK_OF_TWO(add)
SACCADE_CHECK_OF_TWO(sub)
SACCADE_CHECK_OF_TWO(mul)
SACCADE_CHECK_OF_TWO(div)
SACCADE_CHECK_OF_TWO(max)
SACCADE_CHECK_OF_TWO(min)
SACCADE_CHECK_OF_ONE(sqrt)
SACCADE_CHECK_OF_ONE(abs)

#undef SACCADE_CHECK_OF_TWO
#undef SACCADE_CHECK_OF_ONE

/// Where either is NaN, the result has the bits of the second operand.
inline void check_max_of_nan(Findings& findings) {
  Lanes a, b, found;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(a.x, kWidth);
    findings.draw(b.x, kWidth);
    for (int i = 0; i < kWidth; ++i)
      if (!Lane::is_nan(a.x[i])) b.x[i] = std::numeric_limits<Scalar>::quiet_NaN();
    store(found.x, max(load(a.x), load(b.x)));
    findings.same_bits(found.x, b.x, sizeof(Scalar), kWidth);
    store(found.x, min(load(a.x), load(b.x)));
    findings.same_bits(found.x, b.x, sizeof(Scalar), kWidth);
  }
}

inline void check_copysign(Findings& findings) {
  compare_lanes(
      findings, [&](Scalar* to) { findings.draw(to, kWidth); },
      [&](const Scalar* a, const Scalar* b, const Scalar*, Scalar* to) {
        store(to, copysign(abs(load(a)), load(b)));
      },
      [](Scalar a, Scalar b, Scalar) { return Lane::copysign(Lane::abs(a), b); });
}

/// vector(a, b, c) against a b + c, with numbers of any bits and with numbers whose results are rounded.
template <class Vector>
void compare_multiply_add(Findings& findings, const Vector& vector) {
  const auto plain = [](Scalar a, Scalar b, Scalar c) { return Lane::fma(a, b, c, kFuses); };
  compare_lanes(
      findings, [&](Scalar* to) { findings.draw(to, kWidth); }, vector, plain);
  compare_lanes(
      findings, [&](Scalar* to) { findings.draw_near_one(to, kWidth); }, vector, plain);
}

inline void check_fma(Findings& findings) {
  compare_multiply_add(findings, [&](const Scalar* a, const Scalar* b, const Scalar* c, Scalar* to) {
    store(to, fma(load(a), load(b), load(c)));
  });
}

inline void check_fma_from(Findings& findings) {
  compare_multiply_add(findings, [&](const Scalar* a, const Scalar* b, const Scalar* c, Scalar* to) {
    store(to, fma_from(a, load(b), load(c)));
  });
}

inline void check_fma_broadcast(Findings& findings) {
  Lanes a, b, c, found, expected;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(a.x, kWidth);
    findings.draw(b.x, kWidth);
    findings.draw(c.x, kWidth);
    for (int lane = 0; lane < kWidth; ++lane) {
      for (int i = 0; i < kWidth; ++i) expected.x[i] = Lane::fma(a.x[lane], b.x[i], c.x[i], kFuses);
      store(found.x, fma_broadcast(a.x + lane, load(b.x), load(c.x)));
      findings.equal(found.x, expected.x, kWidth, nullptr, b.x, c.x);
      store(found.x, fma(factor_from(a.x + lane), load(b.x), load(c.x)));
      findings.equal(found.x, expected.x, kWidth, nullptr, b.x, c.x);
    }
  }
}

// ---- Comparisons ---------------------------------------------------------------------------------------------

template <class Vector, class PlainLane>
void compare_masks(Findings& findings, const Vector& vector, const PlainLane& plain) {
  Lanes a, b;
  for (int round = 0; round < kRounds; ++round) {
    findings.draw(a.x, kWidth);
    findings.draw(b.x, kWidth);
    for (int i = 0; i < kWidth; i += 3) b.x[i] = a.x[i];
    unsigned expected = 0;
    for (int i = 0; i < kWidth; ++i) expected |= (plain(a.x[i], b.x[i]) ? 1u : 0u) << i;
    const Mask found = vector(load(a.x), load(b.x));
    findings.equal(static_cast<std::int64_t>(bits(found)), static_cast<std::int64_t>(expected));
    findings.equal(any(found) ? 1 : 0, expected != 0 ? 1 : 0);
  }
}

inline void check_less(Findings& findings) {
  compare_masks(
      findings, [&](Vec a, Vec b) { return less(a, b); }, [](Scalar a, Scalar b) { return Lane::less(a, b); });
}
inline void check_equal(Findings& findings) {
  compare_masks(
      findings, [&](Vec a, Vec b) { return equal(a, b); }, [](Scalar a, Scalar b) { return Lane::equal(a, b); });
}
inline void check_is_nan(Findings& findings) {
  compare_masks(
      findings, [&](Vec a, Vec) { return is_nan(a); }, [](Scalar a, Scalar) { return Lane::is_nan(a); });
}
inline void check_both(Findings& findings) {
  compare_masks(
      findings, [&](Vec a, Vec b) { return both(less(a, b), less(zero(), b)); },
      [](Scalar a, Scalar b) { return Lane::less(a, b) && Lane::less(Scalar{0}, b); });
}

inline void check_select(Findings& findings) {
  compare_lanes(
      findings, [&](Scalar* to) { findings.draw(to, kWidth); },
      [&](const Scalar* a, const Scalar* b, const Scalar* c, Scalar* to) {
        store(to, select(less(load(a), zero()), load(b), load(c)));
      },
      [](Scalar a, Scalar b, Scalar c) { return Lane::less(a, Scalar{0}) ? b : c; });
}

inline void check_columns_within(Findings& findings) {
  for (int column = -2; column < 2 * kWidth + 2; ++column) {
    for (int begin = -3; begin < 3 * kWidth + 3; ++begin) {
      for (int end = begin - 1; end < 3 * kWidth + 4; ++end) {
        findings.with("column, begin, end", column, begin, end);
        unsigned expected = 0;
        for (int i = 0; i < kWidth; ++i) expected |= (begin <= column + i && column + i < end ? 1u : 0u) << i;
        findings.equal(static_cast<std::int64_t>(bits(columns_within(column, begin, end))),
                       static_cast<std::int64_t>(expected));
      }
    }
  }
}

inline constexpr test::Check kVectorChecks[] = {{"load", check_load},
                                                {"loadu", check_loadu},
                                                {"load_first", check_load_first},
                                                {"store_first", check_store_first},
                                                {"broadcast", check_broadcast},
                                                {"lane_index", check_lane_index},
                                                {"add", check_add},
                                                {"sub", check_sub},
                                                {"mul", check_mul},
                                                {"div", check_div},
                                                {"sqrt", check_sqrt},
                                                {"max", check_max},
                                                {"min", check_min},
                                                {"max_of_nan", check_max_of_nan},
                                                {"abs", check_abs},
                                                {"copysign", check_copysign},
                                                {"fma", check_fma},
                                                {"fma_from", check_fma_from},
                                                {"fma_broadcast", check_fma_broadcast},
                                                {"less", check_less},
                                                {"equal", check_equal},
                                                {"is_nan", check_is_nan},
                                                {"both", check_both},
                                                {"select", check_select},
                                                {"columns_within", check_columns_within}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
