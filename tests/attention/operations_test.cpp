// The operations of a call, beside the pairs that the reference sees, counted one by one.
#include <gmock/gmock.h>

#include "cases/random_case.h"
#include "saccade/attention_options.h"
#include "saccade/attention_state.h"
#include "saccade/operations.h"
#include "saccade/reference.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Tensor zeros(const TensorView& like) { return Tensor(DType::f32, Shape(like.dims().begin(), like.dims().end())); }

/// What says who sees whom by position and length, and nothing else.
AttentionOptions positions_of(const AttentionOptions& options) {
  AttentionOptions positions = options_of_role(OptionRole::visibility, options);
  positions.block_table = options.block_table;
  positions.layout = options.layout;
  return positions;
}

/// Pairs over batch and heads. Where all numbers are 0, each key that a row sees has a weight, and no other has.
double pairs_in_reference(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options) {
  const auto result = reference::attention(zeros(q), zeros(k), zeros(v), positions_of(options));
  double pairs = 0.0;
  for (const double weight : result.weights.values<double>()) pairs += weight > 0.0 ? 1.0 : 0.0;
  return pairs;
}

TEST(Operations, AreThoseOfThePairsThatTheReferenceSees) {
  int causal = 0, windows = 0, lengths = 0, starts = 0, offsets = 0, documents = 0, pages = 0, fewer = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const cases::AttentionCase drawn = cases::draw_case(seed);
    const AttentionOptions& options = drawn.options;
    const TensorView q = drawn.q.view(), k = drawn.k.view(), v = drawn.v.view();
    const double pairs = pairs_in_reference(q, k, v, options);
    EXPECT_EQ(attention_operations(q, k, v, options),
              2.0 * pairs * static_cast<double>(q.dims().back() + v.dims().back()))
        << "seed " << seed << ": " << cases::describe(drawn);
    causal += options.causal != Causal::none;
    windows += options.window_left >= 0 || options.window_right >= 0;
    lengths += bool(options.kv_lengths);
    starts += bool(options.kv_starts);
    offsets += options.query_offset || options.query_offsets;
    documents += bool(options.cu_seqlens_q);
    pages += bool(options.block_table);
    fewer += options.mask || options.block_mask || options.score_modifier;
  }
  for (const int cases : {causal, windows, lengths, starts, offsets, documents, pages, fewer})
    EXPECT_GE(cases, 20);
}

TEST(Operations, CountAPairOnce) {
  const auto pairs = [](const Shape& q_shape, const Shape& k_shape, const AttentionOptions& options) {
    const Tensor q(DType::f32, q_shape), k(DType::f32, k_shape);
    return attention_operations(q, k, k, options) / (4.0 * static_cast<double>(q_shape.back()));
  };
  EXPECT_EQ(pairs({2, 3, 100, 8}, {2, 3, 200, 8}, {}), 2 * 3 * 100 * 200);
  EXPECT_EQ(pairs({2, 6, 100, 8}, {2, 3, 200, 8}, {}), 2 * 6 * 100 * 200);
  EXPECT_EQ(pairs({100, 8}, {100, 8}, {.causal = Causal::top_left}), 100 * 101 / 2);
  EXPECT_EQ(pairs({1, 8}, {200, 8}, {.causal = Causal::bottom_right}), 200);
  EXPECT_EQ(pairs({1, 8}, {200, 8}, {.causal = Causal::top_left}), 1);
  EXPECT_EQ(pairs({4, 8}, {4, 8}, {.causal = Causal::top_left, .window_left = 1}), 1 + 2 + 2 + 2);
  EXPECT_EQ(pairs({4, 8}, {4, 8}, {.query_offset = 100, .window_left = 1}), 0);
  EXPECT_EQ(pairs({0, 8}, {4, 8}, {}), 0);
  EXPECT_EQ(pairs({4, 8}, {0, 8}, {}), 0);
  const Tensor q(DType::f32, {5, 8}), v(DType::f32, {7, 3});
  EXPECT_EQ(attention_operations(q, Tensor(DType::f32, {7, 8}), v), 2 * 5 * 7 * (8 + 3));
}

TEST(Operations, OfTheLongestSequences) {
  constexpr std::int64_t kLongest = std::int64_t{1} << 40;
  constexpr double kKeys = double{kLongest};
  const float number = 0;
  const TensorView q(&number, {1, 1024, 3, 1}, {0, 0, 0, 1}), k(&number, {1, 1, kLongest, 1}, {0, 0, 0, 1});
  EXPECT_EQ(attention_operations(q, k, k), 4 * 3 * 1024 * kKeys);
  EXPECT_EQ(attention_operations(q, k, k, {.causal = Causal::bottom_right}), 4 * 1024 * (3 * kKeys - 3));
  EXPECT_EQ(attention_operations(q, k, k, {.query_offset = kLongest / 2, .window_left = kLongest}),
            4 * 1024 * 3 * kKeys);
  EXPECT_EQ(attention_operations(q, k, k, {.query_offset = std::int64_t{1} << 60, .window_left = kLongest}), 0);
}

TEST(Operations, RefusesWhatAttentionRefuses) {
  const Tensor q(DType::f32, {5, 8}), k(DType::f32, {7, 8}), narrow(DType::f32, {7, 4});
  EXPECT_EQ(refusal([&] { attention_operations(q, narrow, k); }),
            "[attention_operations] k has head_dim 4 but q has 8");
  EXPECT_THAT(refusal([&] { attention_operations(q, k, k, {.window_left = -2}); }),
              StartsWith("[attention_operations] window_left must be -1 (open) or at least 0, got -2"));
  EXPECT_THAT(refusal([&] { attention_operations(TensorView(), k, k); }), HasSubstr("must have the same rank"));
  EXPECT_THAT(refusal([&] { attention_operations(q, k, TensorView()); }), HasSubstr("must have the same rank"));
}

TEST(AttentionOperations, QueriesOfOneNumberMayHaveAnyStrides) {
  const Tensor numbers(DType::f32, {3, 70, 24}), k(DType::f32, {1, 5, 1}), v(DType::f32, {1, 5, 8});
  TensorView q = numbers.view().slice(2, 0, 1);
  q.strides[2] = 24;
  EXPECT_EQ(attention_operations(q, k, v), 2.0 * 3 * 70 * 5 * 9);
  Tensor o(DType::f32, {3, 70, 8});
  AttentionState state;
  state.add(q, k, v);
  state.finish(o);
  EXPECT_TRUE(same_bits(o, attention(q, k, v)));
}

}  // namespace
}  // namespace saccade::test
