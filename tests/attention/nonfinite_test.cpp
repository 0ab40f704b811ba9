// Hostile numbers, for every element type and instruction set: hidden and visible NaN and infinities, rows that
// see no key, numbers near overflow, denormals.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attention/hostile_numbers.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "support/environment.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr Sizes kTwoBlocks{14, 300, 41, 33};   // of the kernels' keys, and tails of vectors
constexpr Sizes kTwoPieces{1, 4500, 64, 128};  // of decode()'s keys, and whole vectors

class Nonfinite : public ::testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(Types, Nonfinite,
                         ::testing::Values(Types{DType::f32, DType::f32}, Types{DType::f64, DType::f64},
                                           Types{DType::bf16, DType::bf16}, Types{DType::f16, DType::f16},
                                           Types{DType::f32, DType::bf16}, Types{DType::f32, DType::f16},
                                           Types{DType::bf16, DType::f32}),
                         [](const auto& types) {
                           return std::string(name_of(types.param.q)) + "_" + std::string(name_of(types.param.kv));
                         });

/// The results of each function for a problem.
struct Results {
  Tensor o, lse;                // of attention()
  Tensor decode_o, decode_lse;  // of decode()
  Inspection found;             // of inspect()

  explicit Results(const cases::AttentionCase& c)
      : o(attention(c.q.view(), c.k.view(), c.v.view(), c.options)),
        lse(c.lse),
        decode_o(decode(c.q.view(), c.k.view(), c.v.view(), c.options)),
        decode_lse(c.lse),
        found(inspect(c.q.view(), c.k.view(),
                      {.rows = {0},
                       .top_k = 3,
                       .entropy = true,
                       .max_weight = true,
                       .received = true,
                       .distance = true,
                       .pool_rows = 1,
                       .pool_keys = 5},
                      c.options)) {}

  std::vector<const Tensor*> all() const {
    return {&o,
            &lse,
            &decode_o,
            &decode_lse,
            &found.rows,
            &found.top_keys,
            &found.top_weights,
            &found.entropy,
            &found.max_weight,
            &found.received,
            &found.distance,
            &found.mean_distance,
            &found.pooled};
  }
};

void expect_same(const Results& a, const Results& b) {
  for (std::size_t i = 0; i < a.all().size(); ++i)
    EXPECT_TRUE(same_bits(*a.all()[i], *b.all()[i])) << "result " << i;
}

/// Compares attention() and decode() with the reference.
void expect_agreement(cases::CheckedCase& checked) {
  for (const auto& [result, comparison] : checked.run())
    EXPECT_TRUE(comparison.holds) << result << ": " << to_string(comparison);
}

// ---- Hidden --------------------------------------------------------------------------------------------------

TEST_P(Nonfinite, HiddenNumbersGoNowhere) {
  for (const Sizes& sizes : {kTwoBlocks, kTwoPieces}) {
    for (const Hiding& hiding : kHidings) {
      SCOPED_TRACE(std::string(hiding.name) + ", keys: " + std::to_string(sizes.keys));
      cases::AttentionCase c = problem_that_hides(hiding, GetParam(), sizes, false);
      HiddenKeys hidden(c);
      ASSERT_GT(hidden.count(), 2 * kPoisons.size());
      hidden.fill(false);
      std::vector<Results> clean;
      on_each_isa([&] { clean.emplace_back(c); });
      hidden.fill(true);
      auto expected = clean.begin();
      on_each_isa([&] { expect_same(Results(c), *expected++); });
    }
  }
}

TEST_P(Nonfinite, RowsThatSeeNothingAreZero) {
  for (const Hiding& hiding : kHidings) {
    SCOPED_TRACE(hiding.name);
    cases::AttentionCase c = problem_that_hides(hiding, GetParam(), kTwoBlocks, true);
    HiddenKeys(c).fill(true);
    Tensor none = c.lse;
    put(none, {}, kMinusInfinity);
    on_each_isa([&] {
      const Results results(c);
      EXPECT_TRUE(same_bits(results.o, Tensor(GetParam().q, results.o.shape())));
      EXPECT_TRUE(same_bits(results.lse, none));
      EXPECT_TRUE(same_bits(results.decode_o, results.o));
      EXPECT_TRUE(same_bits(results.decode_lse, none));
      EXPECT_TRUE(same_bits(results.found.entropy, Tensor(none.dtype(), none.shape())));
    });
  }
}

TEST_P(Nonfinite, AKeyOfMinusInfinityIsHidden) {
  // Without lse the first one uses the path for small problems, if its type has one.
  for (const Sizes& sizes : {Sizes{5, 7, 3, 4}, Sizes{21, 16, 4, 4}, kTwoBlocks}) {
    for (const std::int64_t every : {1, 2}) {
      cases::AttentionCase c = plain_problem(GetParam(), sizes);
      cases::fill(c.q.view(), 1.5);
      for (std::int64_t key = 0; key < sizes.keys; key += every) {
        put(c.k.view(), {key, 0, key % sizes.head_dim}, kMinusInfinity);
        put(c.v.view(), {key}, kPoisons[static_cast<std::size_t>(key) % kPoisons.size()]);
      }
      for (const bool has_lse : {true, false}) {
        if (!has_lse) c.options.lse = {};
        cases::CheckedCase checked(c);
        on_each_isa([&] { expect_agreement(checked); });
      }
    }
  }
}

TEST(NonfiniteSmall, AHiddenKeyOfOneOfManyHeadsIsHidden) {
  Tensor q = random_tensor({300, 4, 6, 4}, 1), k = random_tensor({300, 4, 6, 4}, 2),
         v = random_tensor({300, 4, 6, 4}, 3);
  cases::fill(q, 1.0);
  on_each_isa([&] {
    Tensor poisoned_k = k, poisoned_v = v, expected = attention(q, k, v);
    put(poisoned_k, {299, 3}, kMinusInfinity);
    put(poisoned_v, {299, 3}, kPoisons[2]);
    put(expected, {299, 3}, kZero);
    for (const int threads : {1, 3})
      EXPECT_TRUE(same_bits(attention(q, poisoned_k, poisoned_v, {.num_threads = threads}), expected)) << threads;
  });
}

TEST_P(Nonfinite, WhatACacheForgotGoesNowhere) {
  const auto [q_type, type] = GetParam();
  const Tensor q = random_tensor({1, 2, 3, 40}, 1, q_type), k = random_tensor({1, 1, 50, 40}, 2, type),
               v = random_tensor({1, 1, 50, 33}, 3, type);
  Tensor poisoned_k = k, poisoned_v = v, rotated = k;
  for (std::int64_t i = 0; i < 50; ++i)
    for (Tensor* kv : {&poisoned_k, &poisoned_v})
      put(*kv, {0, 0, i}, kPoisons[static_cast<std::size_t>(i) % kPoisons.size()]);
  const Rope rope(40);
  rope.rotate(k, rotated);
  for (const std::int64_t page_size : {std::int64_t{0}, kPageSize}) {
    KvCache cache({.num_kv_heads = 1,
                   .head_dim = 40,
                   .head_dim_v = 33,
                   .dtype = type,
                   .page_size = page_size,
                   .rope = rope});
    cache.append(poisoned_k, poisoned_v);
    cache.clear(0);
    cache.append(k, v);
    cache.append(poisoned_k, poisoned_v);
    cache.truncate(0, 50);
    const AttentionOptions options{.causal = Causal::bottom_right};
    on_each_isa([&] {
      EXPECT_TRUE(same_bits(attention(q, cache), attention(q, rotated, v, options))) << page_size;
      EXPECT_TRUE(same_bits(decode(q, cache), decode(q, rotated, v, options))) << page_size;
    });
  }
}

// ---- Seen ----------------------------------------------------------------------------------------------------

void set_nothing(cases::AttentionCase&) {}
void set_softcap(cases::AttentionCase& c) {
  c.options.softcap = 5.0;
  c.options.alibi_slopes = c.head_numbers.emplace_back(alibi_slopes(kHeads));
}
void set_mask(cases::AttentionCase& c) {
  c.options.mask = c.mask = Tensor(DType::f32, {c.k.view().shape[0]});
  for (std::int64_t j = 0; j < c.mask.size(); ++j) c.mask.at<float>(j) = j % 4 == 0 ? -INFINITY : 0.25f;
}
void set_scale_0(cases::AttentionCase& c) { c.options.scale = 0.0; }

/// The place of one poisoned number: of row 5 of q, of head 1; or of key first + 5, where row i sees keys up to
/// first + i (or from there on).
struct Place {
  char where;  // 'q', 'k' or 'v'
  void (*set)(cases::AttentionCase&);
  Sizes sizes = kTwoBlocks;
  std::int64_t first = 270;
  bool from_there_on = false;

  cases::AttentionCase problem(Types types) const {
    cases::AttentionCase c = plain_problem(types, sizes);
    c.options.query_offset = first;
    if (from_there_on)
      c.options.window_left = 0;
    else
      c.options.causal = Causal::top_left;
    set(c);
    return c;
  }
  void poison(cases::AttentionCase& c, const Bits& bits) const {
    if (where == 'q') return put(c.q.view(), {5, 1, 7}, bits);
    put(where == 'k' ? c.k.view() : c.v.view(), {first + 5, 0, 7}, bits);
  }
  bool reaches(std::int64_t row, std::int64_t head) const {
    if (where == 'q') return row == 5 && head == 1;
    return from_there_on ? row <= 5 : row >= 5;
  }
};
constexpr Sizes kTwoPiecesOfFewNumbers{8, 4400, 9, 8};
constexpr std::array kPlaces{Place{'q', set_nothing},
                             Place{'q', set_softcap},
                             Place{'q', set_scale_0},
                             Place{'k', set_nothing},
                             Place{'k', set_nothing, kTwoBlocks, 100, true},
                             Place{'k', set_nothing, kTwoPiecesOfFewNumbers, 100, true},
                             Place{'k', set_softcap, kTwoBlocks, 100, true},
                             Place{'k', set_mask},
                             Place{'v', set_nothing},
                             Place{'v', set_nothing, kTwoPiecesOfFewNumbers, 100, true},
                             Place{'v', set_mask, kTwoBlocks, 100, true}};

TEST_P(Nonfinite, SeenOnesReachTheRowsThatSeeThem) {
  std::size_t turn = 0;
  for (const Place& place : kPlaces) {
    cases::AttentionCase c = place.problem(GetParam());
    std::vector<Results> clean;
    on_each_isa([&] { clean.emplace_back(c); });
    for (const Bits& bits : one_if_slow(kPoisons, ++turn)) {
      place.poison(c, bits);
      SCOPED_TRACE(std::string(bits.name) + " in " + place.where + ": " + cases::describe(c));
      cases::CheckedCase checked(c);
      const std::vector<bool> receives_nan = keys_that_nan_rows_see(c);
      auto before = clean.begin();
      on_each_isa([&] {
        expect_agreement(checked);
        const Results after(c);
        const Tensor received = Tensor::copy_of(after.found.received, DType::f64);
        for (std::size_t i = 0; i < receives_nan.size(); ++i)
          EXPECT_EQ(std::isnan(received.values<double>()[i]), receives_nan[i]) << "key " << i;
        for (std::int64_t row = 0; row < place.sizes.rows; ++row) {
          for (std::int64_t head = 0; head < kHeads; ++head) {
            const auto is_nan = [&](const Tensor& x) { return std::isnan(value_at(x, std::array{head, row})); };
            EXPECT_EQ(is_nan(after.found.entropy), is_nan(after.lse)) << row << ' ' << head;
            if (place.reaches(row, head)) continue;
            const auto part = [&](const Tensor& x) {
              return Tensor::copy_of(x.view().select(0, row).select(0, head));
            };
            EXPECT_TRUE(same_bits(part(after.o), part(before->o))) << row << ' ' << head;
            EXPECT_TRUE(same_bits(part(after.decode_o), part(before->decode_o))) << row << ' ' << head;
          }
        }
        ++before;
      });
    }
  }
}

TEST_P(Nonfinite, OptionsMayHoldThem) {
  for (const Bits& bits : kPoisons) {
    for (const std::string what : {"mask", "sink", "slope"}) {
      SCOPED_TRACE(what + " of " + bits.name);
      cases::AttentionCase c = plain_problem(GetParam(), kTwoBlocks);
      c.options.weights = c.weights = Tensor(c.lse.dtype(), {kHeads, kTwoBlocks.rows, kTwoBlocks.keys});
      if (what == "mask") {  // of the only key that row 5 may see
        c.options.mask = c.mask = Tensor(DType::f32, {kTwoBlocks.rows, kTwoBlocks.keys});
        put(c.mask, {5}, kMinusInfinity);
        put(c.mask, {5, 40}, bits);
      } else if (what == "sink") {
        Tensor& sinks = c.head_numbers.emplace_back(Tensor::of<float>({0.5f, 0.5f}));
        put(sinks.mutable_view().slice(0, 1, 2), {}, bits);
        c.options.sinks = sinks;
      } else {
        Tensor& slopes = c.head_numbers.emplace_back(alibi_slopes(kHeads));
        put(slopes.mutable_view().slice(0, 1, 2), {}, bits);
        c.options.alibi_slopes = slopes;
      }
      cases::CheckedCase checked(c);
      on_each_isa([&] { expect_agreement(checked); });
    }
  }
}

TEST_P(Nonfinite, RopeKeepsThemInTheirPair) {
  const Tensor x = random_tensor({3, 20, 40}, 1, GetParam().kv);
  for (const RopePairs pairs : {RopePairs::half, RopePairs::interleaved}) {
    const Rope rope(40, {.rotary_dim = 32, .pairs = pairs});
    for (const Bits& bits : kPoisons) {
      Tensor poisoned = x, expected = x, y = x;
      put(poisoned, {1, 7, 4}, bits);
      put(poisoned, {2, 9, 35}, bits);  // not rotated
      rope.rotate(x, expected);
      rope.rotate(poisoned, y);
      for (const std::array<std::int64_t, 3>& place :
           {std::array<std::int64_t, 3>{1, 7, 4}, {1, 7, pairs == RopePairs::half ? 20 : 5}, {2, 9, 35}}) {
        EXPECT_FALSE(std::isfinite(value_at(y, place))) << bits.name;
        put(y, {place[0], place[1], place[2]}, kZero);
        put(expected, {place[0], place[1], place[2]}, kZero);
      }
      EXPECT_TRUE(same_bits(y, expected)) << bits.name;
    }
  }
}

// ---- Extreme -------------------------------------------------------------------------------------------------

/// Magnitudes at the limits of an element type: numbers whose products with ordinary ones can be summed over
/// head_dim, numbers that can be summed over 300 keys, and denormals.
struct Magnitudes {
  double huge, huge_v, tiny;
};
Magnitudes magnitudes_of(DType dtype) {
  if (dtype == DType::f64) return {1e306, 1e305, 1e-310};
  if (dtype == DType::f16) return {1.8e4, 1.8e4, 1e-7};
  return {1e36, 2.5e35, 1e-40};
}

void draw(cases::AttentionCase& c, double q, double k, double v) {
  cases::Random random(2);
  cases::draw_numbers(c.q.view(), q, random);
  cases::draw_numbers(c.k.view(), k, random);
  cases::draw_numbers(c.v.view(), v, random);
}

TEST_P(Nonfinite, ExtremeNumbersAgree) {
  const double huge_q = magnitudes_of(GetParam().q).huge;
  const auto [huge, huge_v, tiny] = magnitudes_of(GetParam().kv);
  const float largest = std::numeric_limits<float>::max();
  struct Extreme {
    double q = 1, k = 1, v = 1;
    std::optional<double> scale{};
    double softcap = 0;
    float mask = 0, sink = 0;  // 0: none
  };
  for (const Extreme& x : {Extreme{.scale = 1e4},
                           {.scale = -1e4},
                           {.scale = 1e-30},
                           {.scale = 0.0},
                           {.q = huge_q},
                           {.k = huge},
                           {.k = huge, .softcap = 3.0},
                           {.v = huge_v},
                           {.mask = -largest},
                           {.mask = largest},
                           {.sink = -1e30f},
                           {.sink = 1e30f}}) {
    cases::AttentionCase c = plain_problem(GetParam(), kTwoBlocks);
    draw(c, x.q, x.k, x.v);
    c.options.scale = x.scale;
    c.options.softcap = x.softcap;
    if (x.mask != 0) {  // of all keys for every other row, of some for the rest
      c.options.mask = c.mask = Tensor(DType::f32, {14, 300});
      for (std::int64_t i = 0; i < 14; ++i)
        for (std::int64_t j = i % 2; j < 300; j += 1 + 2 * (i % 2)) c.mask.at<float>(i, j) = x.mask;
    }
    if (x.sink != 0) c.options.sinks = c.head_numbers.emplace_back(Tensor::of<float>({x.sink, 1.0f}));
    cases::CheckedCase checked(c);
    SCOPED_TRACE(cases::describe(c));
    on_each_isa([&] { expect_agreement(checked); });
  }
}

TEST_P(Nonfinite, DenormalsAgreeOrCountAsZero) {
  const Magnitudes of_q = magnitudes_of(GetParam().q), of_kv = magnitudes_of(GetParam().kv);
  for (const auto& scales : {std::array{of_q.tiny, of_kv.tiny, of_kv.tiny},
                             {of_q.tiny, of_kv.huge, 1.0},
                             {of_q.huge, of_kv.tiny, 1.0},
                             {1.0, 1.0, of_kv.tiny}}) {
    const double q = scales[0], k = scales[1], v = scales[2];
    cases::AttentionCase c = plain_problem(GetParam(), kTwoBlocks),
                         flushed = plain_problem(GetParam(), kTwoBlocks);
    const auto flush = [](double scale) { return scale < 1e-6 ? 0.0 : scale; };
    draw(c, q, k, v);
    draw(flushed, flush(q), flush(k), flush(v));
    cases::CheckedCase checked(c);
    on_each_isa([&] {
      SCOPED_TRACE(::testing::Message() << "q " << q << ", k " << k << ", v " << v);
      const bool multiplies_pairs =
          cases::naive_rounding(c.q.view(), c.k.view(), c.v.view(), c.o.view()).exponentials.has_value();
      multiplies_pairs ? expect_same(Results(c), Results(flushed)) : expect_agreement(checked);
    });
  }
}

}  // namespace
}  // namespace saccade::test
