// AttentionState: keys in parts give what all keys at once give, to the last bit or up to rounding.
#include "saccade/attention_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "attention/hostile_numbers.h"
#include "attention/key_parts.h"
#include "cases/random.h"
#include "support/environment.h"
#include "support/refusal.h"
#include "support/sweep.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::AttentionCase;
using cases::Random;

/// Biases that depend on every number of a score; hides some keys.
struct Biases : cases::ScoreFunction {
  std::string name() const override { return "biases"; }
  void change(const ScoreTile& tile) const override {
    const auto add = [&](auto zero) {
      using T = decltype(zero);
      for (std::int64_t i = 0; i < tile.rows; ++i) {
        for (std::int64_t j = 0; j < tile.keys; ++j) {
          const std::int64_t row = tile.first_row + i, key = tile.first_key + j;
          T& score = tile.row<T>(i)[j];
          score += static_cast<T>(0.01) * static_cast<T>((row * 7 + key * 3 + tile.head * 5 + tile.batch) % 97);
          if ((key + row) % 11 == 0) score = -std::numeric_limits<T>::infinity();
        }
      }
    };
    tile.dtype == DType::f64 ? add(0.0) : add(0.0F);
  }
  BlockEffect effect(const ScoreBlock& block) const override {
    return block.first_key / 1000 == (block.first_key + block.keys - 1) / 1000 && block.first_key / 1000 % 3 == 1
               ? BlockEffect::skip
               : BlockEffect::partial;
  }
};

/// Draws a problem of 3 or 4 pieces of kOriginAlignment keys and few rows.
class LongProblem {
 public:
  explicit LongProblem(std::uint64_t seed) : random_(seed) {
    struct Kind {
      DType q, k, o;
    };
    const Kind kind = random_.pick<Kind>({{DType::f32, DType::f32, DType::f32},
                                          {DType::f32, DType::f32, DType::f32},
                                          {DType::f32, DType::bf16, DType::f32},
                                          {DType::bf16, DType::bf16, DType::bf16},
                                          {DType::bf16, DType::bf16, DType::f32},
                                          {DType::f16, DType::f16, DType::f16},
                                          {DType::f16, DType::f16, DType::f32},
                                          {DType::f64, DType::f64, DType::f64}});
    batch_ = random_.uniform(1, 2), kv_heads_ = random_.uniform(1, 2);
    heads_ = kv_heads_ * random_.uniform(1, 2);
    rows_ = random_.pick<std::int64_t>({1, 3, 12, 17, 33, 70});
    if (batch_ * heads_ > 2) rows_ = std::min<std::int64_t>(rows_, 17);
    keys_ = random_.uniform(2, 3) * kOriginAlignment + random_.uniform(1, 600);
    const std::int64_t dim = random_.pick<std::int64_t>({8, 32, 32, 40}),
                       dim_v = random_.pick<std::int64_t>({32, 32, 9});
    const auto make = [&](DType dtype, std::int64_t heads, std::int64_t length, std::int64_t columns) {
      cases::ScatteredTensor tensor(dtype, {batch_, heads, length, columns}, {0, 2, 1}, 3);
      cases::draw_numbers(tensor.view(), 1.0, random_);
      return tensor;
    };
    c.q = make(kind.q, heads_, rows_, dim);
    c.k = make(kind.k, kv_heads_, keys_, dim);
    c.v = make(kind.k, kv_heads_, keys_, dim_v);
    c.o = make(kind.o, heads_, rows_, dim_v);
    c.lse = Tensor(kind.q == DType::f64 ? DType::f64 : DType::f32, {batch_, heads_, rows_});
    c.options.lse = c.lse;
    c.options.num_threads = 2;
    draw_options();
    if (chance(0.5)) hide_poison();
  }

  AttentionCase c;

 private:
  bool chance(double p) { return random_.chance(p); }

  void draw_options() {
    AttentionOptions& o = c.options;
    if (chance(0.5)) o.causal = chance(0.5) ? Causal::top_left : Causal::bottom_right;
    if (o.causal == Causal::top_left || chance(0.3)) o.query_offset = random_.uniform(-30, keys_ + 100);
    if (chance(0.4)) o.window_left = random_.uniform(0, chance(0.5) ? 300 : 9000);
    if (chance(0.3)) o.window_right = random_.uniform(0, 5000);
    if (chance(0.3)) draw_counts(c.kv_lengths, o.kv_lengths);
    if (chance(0.2)) draw_counts(c.kv_starts, o.kv_starts);
    if (chance(0.4)) draw_mask();
    if (chance(0.3)) {
      o.block_mask_q = 5, o.block_mask_k = 300;
      c.block_mask = Tensor(DType::boolean, {heads_, (rows_ + 4) / 5, (keys_ + 299) / 300});
      for (bool& open : c.block_mask.values<bool>()) open = chance(0.6);
      o.block_mask = c.block_mask;
    }
    if (chance(0.3)) o.alibi_slopes = c.head_numbers.emplace_back(alibi_slopes(heads_));
    if (chance(0.3)) o.sinks = c.head_numbers.emplace_back(random_tensor({heads_}, random_.bits()));
    if (chance(0.3)) o.softcap = 5.0;
    if (chance(0.2)) {
      c.score_function = std::make_unique<Biases>();
      c.score_function->add_to(o, chance(0.5));
    }
    if (chance(0.3)) o.dropout_p = 0.3, o.dropout_seed = random_.bits();
    if (chance(0.2)) o.scale = random_.pick({-0.3, 0.001, 3.0});
  }

  void draw_counts(Tensor& counts, TensorView& option) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t b = 0; b < batch_; ++b) numbers.push_back(random_.uniform(0, keys_));
    option = counts = tensor_of(numbers);
  }

  /// Runs of hidden keys, of any length. A number that hides in effect, as some models use, is not -inf.
  void draw_mask() {
    const double hidden = random_.pick({-std::numeric_limits<double>::infinity(), -1e9, -3.0});
    const bool is_bool = chance(0.3);
    c.mask = Tensor(is_bool ? DType::boolean : DType::f32, {chance(0.5) ? rows_ : 1, keys_});
    const auto lines = c.mask.size() / keys_;
    for (std::int64_t line = 0; line < lines; ++line) {
      for (std::int64_t key = 0; key < keys_;) {
        const std::int64_t end = std::min(keys_, key + random_.uniform(1, chance(0.2) ? 5000 : 100));
        const bool hides = chance(0.4);
        for (; key < end; ++key) {
          if (is_bool)
            c.mask.values<bool>()[static_cast<std::size_t>(line * keys_ + key)] = !hides;
          else
            c.mask.values<float>()[static_cast<std::size_t>(line * keys_ + key)] =
                hides ? static_cast<float>(hidden) : 0.5F;
        }
      }
    }
    c.options.mask = c.mask;
  }

  /// NaN in values and keys that no row sees, or only the last of them.
  void hide_poison() {
    AttentionOptions& o = c.options;
    if (o.kv_lengths) {
      const auto lengths = integers_of(o.kv_lengths);
      for (std::int64_t b = 0; b < batch_; ++b)
        for (std::int64_t key = lengths[static_cast<std::size_t>(b)]; key < keys_; ++key) poison(b, key);
    } else if (!o.mask) {
      c.mask = Tensor(DType::boolean, {keys_});
      for (bool& open : c.mask.values<bool>()) open = true;
      for (int i = 0; i < 40; ++i) {
        const std::int64_t key = random_.uniform(0, keys_ - 1);
        c.mask.values<bool>()[static_cast<std::size_t>(key)] = false;
        for (std::int64_t b = 0; b < batch_; ++b) poison(b, key);
      }
      o.mask = c.mask;
    }
  }
  void poison(std::int64_t b, std::int64_t key) {
    for (std::int64_t h = 0; h < kv_heads_; ++h) {
      const Bits& bits = kPoisons[static_cast<std::size_t>(random_.uniform(0, 4))];
      put(c.v.view(), {b, h, key}, bits);
      put(c.k.view(), {b, h, key}, bits);
    }
  }

  Random random_;
  std::int64_t batch_ = 1, heads_ = 1, kv_heads_ = 1, rows_ = 1, keys_ = 1;
};

/// The o and lse of the last call.
std::pair<Tensor, Tensor> results(const AttentionCase& c) { return {Tensor::copy_of(c.o.view()), c.lse}; }

std::vector<std::size_t> in_order(std::size_t parts) {
  std::vector<std::size_t> order(parts);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

TEST(AttentionState, HasTheBitsOfOneCallIfCutAtTheAlignment) {
  const ProblemRange problems = problems_of_test(1, fewer_if_slow(40));
  const Isa before = active_isa();
  for (std::uint64_t i = problems.begin; i < problems.end; ++i) {
    LongProblem problem(i);
    AttentionCase& c = problem.c;
    const Tensor offsets = make_divisible(c);
    const std::int64_t keys = c.k.view().shape[2];
    std::vector<std::int64_t> cuts{0};
    for (std::int64_t key = kOriginAlignment; key < keys; key += kOriginAlignment)
      if (i % 4 != 0 || key != 2 * kOriginAlignment) cuts.push_back(key);
    if (i % 5 == 0) cuts.push_back(cuts.back());  // a block without keys
    cuts.push_back(keys);
    for (const Isa isa : isas_to_check()) {
      SCOPED_TRACE(std::string(name_of(isa)) + ", seed " + std::to_string(i) + ": " + cases::describe(c));
      set_active_isa(isa);
      c.options.num_threads = 2;
      attention(c.q.view(), c.k.view(), c.v.view(), c.o.view(), c.options);
      const auto [o, lse] = results(c);
      for (const int threads : {2, 1}) {
        c.options.num_threads = threads;
        attend_in_parts(c, cuts, in_order(cuts.size() - 1));
        const auto [o_of_parts, lse_of_parts] = results(c);
        EXPECT_TRUE(same_bits(o_of_parts, o)) << threads << " threads";
        EXPECT_TRUE(same_bits(lse_of_parts, lse)) << threads << " threads";
      }
    }
    set_active_isa(before);
  }
}

/// A problem, cut into parts that come in any order.
class PartedCase {
 public:
  PartedCase(AttentionCase& c, std::uint64_t seed)
      : c_(c), offsets_(make_divisible(c)), checked_(c), random_(seed) {}

  std::vector<cases::Finding> run() {
    const auto numbers = numbers_of_keys(c_);
    const std::int64_t keys = numbers.empty() ? 0 : *std::ranges::max_element(numbers);
    const std::int64_t unit = c_.options.dropout_p > 0.0 ? 64 : 1;
    std::vector<std::int64_t> cuts{0, keys};
    for (std::int64_t i = random_.uniform(0, 5); i > 0; --i)
      cuts.push_back(random_.uniform(0, keys) / unit * unit);
    std::ranges::sort(cuts);
    std::vector<std::size_t> order = in_order(cuts.size() - 1);
    random_.shuffle(order);
    c_.o.clear();
    attend_in_parts(c_, cuts, order);
    return checked_.compare_last("AttentionState");
  }

 private:
  AttentionCase& c_;
  Tensor offsets_;
  cases::CheckedCase checked_;
  Random random_;
};

TEST(AttentionState, AgreesWithTheReferenceIfCutAnywhereInAnyOrder) {
  sweep(
      77, 300, [](AttentionCase& problem, std::uint64_t seed) { return PartedCase(problem, seed); },
      [](const AttentionCase& problem) { return !problem.options.block_table; });
}

class AttentionStateOfEachIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(AttentionStateOfEachIsa);

TEST_P(AttentionStateOfEachIsa, LetsVisibleNansReachTheRowsThatSeeThem) {
  constexpr std::int64_t kRows = 40, kKeys = 700, kDim = 32, kPoisoned = 300;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor q = random_tensor({kRows, kDim}, 1, dtype), k = random_tensor({kKeys, kDim}, 2, dtype);
    Tensor v = random_tensor({kKeys, kDim}, 3, dtype), clean = v;
    put(v, {kPoisoned}, kPoisons[2]);
    // Row i sees the keys up to 280 + i.
    const AttentionOptions options{.causal = Causal::top_left, .query_offset = 280};
    const auto in_parts = [&](const Tensor& values) {
      AttentionState state;
      for (std::int64_t key = 0; key < kKeys; key += 256) {
        AttentionOptions of_part = options;
        of_part.origin.key = key;
        const std::int64_t end = std::min(kKeys, key + 256);
        state.add(q, k.view().slice(0, key, end), values.view().slice(0, key, end), of_part);
      }
      Tensor o(dtype, {kRows, kDim});
      state.finish(o);
      return o;
    };
    const Tensor o = in_parts(v), expected = in_parts(clean);
    for (std::int64_t i = 0; i < kRows; ++i) {
      if (280 + i < kPoisoned) {
        EXPECT_TRUE(same_bits(Tensor::copy_of(o.view().slice(0, i, i + 1)),
                              Tensor::copy_of(expected.view().slice(0, i, i + 1))))
            << name_of(dtype) << ", row " << i;
        continue;
      }
      for (std::int64_t d = 0; d < kDim; ++d)
        EXPECT_TRUE(std::isnan(value_at(o, std::array{i, d}))) << name_of(dtype) << ", row " << i;
    }
  }
}

TEST_P(AttentionStateOfEachIsa, HoldsWhatTilesCannotIfItComesLate) {
  // Infinite, huge and tiny numbers in a late block, for rows that have seen usual ones.
  constexpr std::int64_t kRows = 37, kKeys = 900, kDim = 32;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const double number : {1e4, 3e-38, 1e-6}) {
      AttentionCase c;
      Random random(3);
      const auto make = [&](std::int64_t length) {
        cases::ScatteredTensor tensor(dtype, {length, kDim}, {0}, 5);
        cases::draw_numbers(tensor.view(), 1.0, random);
        return tensor;
      };
      c.q = make(kRows), c.k = make(kKeys), c.v = make(kKeys), c.o = make(kRows);
      c.lse = Tensor(DType::f32, {kRows});
      c.options.lse = c.lse;
      cases::fill(c.k.view().slice(0, 700, 701), number);
      cases::fill(c.v.view().slice(0, 800, 801), number);
      cases::CheckedCase checked(c);
      attend_in_parts(c, {0, 256, 512, kKeys}, {0, 1, 2});
      for (const auto& [result, comparison] : checked.compare_last("AttentionState"))
        EXPECT_TRUE(comparison.holds) << name_of(dtype) << ' ' << number << ", " << result << ": "
                                      << to_string(comparison);
    }
  }
}

TEST_P(AttentionStateOfEachIsa, GivesResultsSoFar) {
  const Tensor q = random_tensor({2, 30, 16}, 1), k = random_tensor({2, 600, 16}, 2),
               v = random_tensor({2, 600, 16}, 3);
  AttentionState state;
  Tensor o(DType::f32, {2, 30, 16}), lse(DType::f32, {2, 30}), lse_of_one_call(DType::f32, {2, 30});
  for (std::int64_t key = 0; key < 600; key += 256) {
    const std::int64_t end = std::min<std::int64_t>(600, key + 256);
    state.add(q, k.view().slice(1, key, end), v.view().slice(1, key, end), {.origin = {.key = key}});
    state.finish(o, {.lse = lse});
    const Tensor one_call =
        attention(q, k.view().slice(1, 0, end), v.view().slice(1, 0, end), {.lse = lse_of_one_call});
    EXPECT_TRUE(same_bits(o, one_call)) << end;
    EXPECT_TRUE(same_bits(lse, lse_of_one_call)) << end;
  }
}

TEST_P(AttentionStateOfEachIsa, OfNothingIsZero) {
  const Tensor q = random_tensor({2, 5, 16}, 1), none(DType::f32, {2, 0, 16});
  Tensor o = random_tensor({2, 5, 16}, 2), lse(DType::f32, {2, 5});
  AttentionState state;
  EXPECT_EQ(state.bytes(), 0U);
  state.add(q, none, none);
  state.finish(o, {.lse = lse});
  EXPECT_TRUE(same_bits(o, Tensor(DType::f32, {2, 5, 16})));
  for (const float x : lse.values<float>()) EXPECT_EQ(x, -std::numeric_limits<float>::infinity());
  const Tensor sinks = random_tensor({2}, 3);
  state.finish(o, {.sinks = sinks, .lse = lse});
  EXPECT_EQ(lse.at<float>(1, 4), sinks.at<float>(1));

  AttentionState without_rows;
  const Tensor no_rows(DType::f32, {2, 0, 16});
  without_rows.add(no_rows, q, q);
  Tensor empty(DType::f32, {2, 0, 16});
  without_rows.finish(empty);
}

// ---- Errors --------------------------------------------------------------------------------------------------

class AttentionStateErrors : public ::testing::Test {
 protected:
  std::string message(const AttentionOptions& options) {
    return refusal([&] { state_.add(q_, k_, k_, options); });
  }
  std::string message(const Tensor& q, const Tensor& k, const Tensor& v) {
    return refusal([&] { state_.add(q, k, v); });
  }

  const Tensor q_ = random_tensor({2, 4, 8, 16}, 1), k_ = random_tensor({2, 2, 9, 16}, 2);
  Tensor o_{DType::f32, {2, 4, 8, 16}}, other_{DType::f32, {2, 4, 8, 9}};
  AttentionState state_;
};

TEST_F(AttentionStateErrors, OfOptions) {
  EXPECT_EQ(message({.weights = other_}), "[AttentionState::add] weights was given: keys arrive in parts");
  EXPECT_EQ(message({.scores = other_}), "[AttentionState::add] scores was given: keys arrive in parts");
  EXPECT_EQ(message({.block_table = other_}), "[AttentionState::add] block_table was given: keys arrive in parts");
  EXPECT_EQ(
      message({.causal = Causal::bottom_right}),
      "[AttentionState::add] causal bottom_right needs query_offset: a state does not know where the keys end");
  EXPECT_EQ(message({.softcap = -1.0}),
            "[AttentionState::add] softcap must be 0 (off) or a positive number, got -1");
  EXPECT_EQ(refusal([] { AttentionState{DType::i32}; }),
            "[AttentionState] output must be f32, bf16, f16 or f64, but it is i32");
}

TEST_F(AttentionStateErrors, OfChanges) {
  state_.add(q_, k_, k_, {.causal = Causal::top_left, .dropout_p = 0.5});
  const auto with = [](auto change) {
    AttentionOptions options{.causal = Causal::top_left, .dropout_p = 0.5};
    change(options);
    return options;
  };
  const std::string changed = " in the first call";
  EXPECT_EQ(message(with([](auto& o) { o.scale = 0.5; })),
            "[AttentionState::add] scale is 0.5, but it was 0.25" + changed);
  EXPECT_EQ(message(with([](auto& o) { o.softcap = 2.0; })),
            "[AttentionState::add] softcap is 2, but it was 0" + changed);
  EXPECT_EQ(message(with([](auto& o) { o.window_left = 2; })),
            "[AttentionState::add] window_left is 2, but it was -1" + changed);
  EXPECT_EQ(message(with([](auto& o) { o.dropout_seed = 2; })),
            "[AttentionState::add] dropout_seed is 2, but it was 0" + changed);
  EXPECT_EQ(message(with([](auto& o) { o.origin.row = 3; })),
            "[AttentionState::add] origin.row is 3, but it was 0" + changed);
  const Tensor mask(DType::boolean, {9});
  EXPECT_EQ(message(with([&](auto& o) { o.mask = mask; })),
            "[AttentionState::add] mask was given, but not in the first call");
  EXPECT_EQ(message({.dropout_p = 0.5}),
            "[AttentionState::add] causal was not given, but in the first call it was");
  EXPECT_EQ(message(random_tensor({2, 4, 7, 16}, 1), k_, k_),
            "[AttentionState::add] q has seqlen_q 7, but it had 8" + changed);
  EXPECT_EQ(message(q_, random_tensor({2, 1, 9, 16}, 1), random_tensor({2, 1, 9, 16}, 1)),
            "[AttentionState::add] k has num_kv_heads 1, but it had 2" + changed);
  EXPECT_EQ(message(q_, k_, random_tensor({2, 2, 9, 8}, 1)),
            "[AttentionState::add] v has head_dim_v 8, but it had 16" + changed);
  EXPECT_EQ(message(q_, k_, random_tensor({2, 2, 9, 16}, 1, DType::bf16)),
            "[AttentionState::add] v is bf16, but it was f32" + changed);
  EXPECT_EQ(message(q_, random_tensor({2, 2, 9, 15}, 1), k_),
            "[AttentionState::add] k has head_dim 15 but q has 16");
  // None of this has changed the state.
  state_.finish(o_);
  EXPECT_TRUE(same_bits(o_, attention(q_, k_, k_, {.causal = Causal::top_left, .dropout_p = 0.5})));
}

TEST(AttentionState, NamesTheDocumentsThatChange) {
  const Tensor q = random_tensor({8, 4, 16}, 1), k = random_tensor({8, 2, 16}, 2);
  const auto add = [&](AttentionState& state, std::initializer_list<std::int64_t> begins) {
    const Tensor documents = Tensor::of<std::int64_t>(begins);
    state.add(q, k, k, {.cu_seqlens_q = documents, .cu_seqlens_k = documents});
  };
  AttentionState state;
  add(state, {0, 3, 8});
  EXPECT_EQ(refusal([&] {
              add(state, {0, 3, 5, 8});
            }),
            "[AttentionState::add] cu_seqlens_q has batch 3, but it had 2 in the first call");
  EXPECT_EQ(refusal([&] {
              add(state, {0, 2, 8});
            }),
            "[AttentionState::add] cu_seqlens_q has seqlen_q 6, but it had 5 in the first call");
  EXPECT_EQ(refusal([&] {
              add(state, {0, 5, 8});
            }),
            "[AttentionState::add] cu_seqlens_q[1] is 5, which is another one than in the first call");
}

TEST_F(AttentionStateErrors, OfTheInstructionSet) {
  const Isa before = active_isa();
  const std::vector<Isa> isas = isas_of_tests();
  if (isas.size() < 2) GTEST_SKIP() << "this machine has a single instruction set";
  set_active_isa(isas[0]);
  state_.add(q_, k_, k_);
  set_active_isa(isas[1]);
  EXPECT_EQ(message({}), "[AttentionState::add] the instruction set is " + std::string(name_of(isas[1])) +
                             ", but it was " + std::string(name_of(isas[0])) + " in the first call");
  state_.finish(o_);  // with the one of add()
  set_active_isa(isas[0]);
  EXPECT_TRUE(same_bits(o_, attention(q_, k_, k_)));
  set_active_isa(before);
}

TEST_F(AttentionStateErrors, OfFinish) {
  EXPECT_EQ(refusal([&] { state_.finish(o_); }),
            "[AttentionState::finish] no keys have been added: call add() first");
  state_.add(q_, k_, k_);
  Tensor wrong(DType::bf16, {2, 4, 8, 16});
  EXPECT_EQ(refusal([&] { state_.finish(wrong); }),
            "[AttentionState::finish] o must be f32, the type that the state was made for, but it is bf16");
  EXPECT_EQ(refusal([&] { state_.finish(other_); }), "[AttentionState::finish] o has head_dim_v 9 but v has 16");
  EXPECT_EQ(refusal([&] { state_.finish(o_, {.lse = other_}); }),
            "[AttentionState::finish] lse must have shape [2, 4, 8], but it has shape [2, 4, 8, 9]");
  AttentionState taken = std::move(state_);
  taken.finish(o_);
  EXPECT_EQ(message({}), "[AttentionState::add] this state was moved from");  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(refusal([&] { state_.finish(o_); }), "[AttentionState::finish] this state was moved from");
}

TEST_F(AttentionStateErrors, OfAScoreModifierLeaveNoState) {
  const AttentionOptions options{
      .score_modifier = [](void*, const ScoreTile&) { throw std::runtime_error("no"); }};
  EXPECT_THROW(state_.add(q_, k_, k_, options), std::runtime_error);
  EXPECT_EQ(refusal([&] { state_.finish(o_); }),
            "[AttentionState::finish] the state is incomplete, for an earlier call of add() failed");
}

}  // namespace
}  // namespace saccade::test
