// The reference on packed batches, pages and block masks: each must equal calls without them.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "saccade/random.h"
#include "saccade/reference.h"
#include "support/numbers.h"

namespace saccade::test {
namespace {

using reference::AttentionResult;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ThrowsMessage;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor random(Shape shape, std::uint64_t seed) { return TorchGenerator(seed).randn(shape); }

// ---- Packed batches ------------------------------------------------------------------------------------------

/// Three documents, the second one empty.
struct Packed {
  Tensor q = random({7, 4, 5}, 1), k = random({9, 2, 5}, 2), v = random({9, 2, 3}, 3);
  Tensor begins_q = Tensor::of<std::int32_t>({0, 3, 3, 7}), begins_k = Tensor::of<std::int64_t>({0, 4, 4, 9});
};

TEST(PackedBatch, IsItsDocumentsOneByOne) {
  const Packed packed;
  const Tensor slopes = random({3, 4}, 4), mask = random({4, 4, 5}, 5);
  AttentionOptions options{.causal = Causal::bottom_right,
                           .window_left = 3,
                           .mask = mask,
                           .cu_seqlens_q = packed.begins_q,
                           .cu_seqlens_k = packed.begins_k,
                           .alibi_slopes = slopes};
  const AttentionResult all = reference::attention(packed.q, packed.k, packed.v, options);
  EXPECT_THAT(all.o.shape(), ElementsAre(7, 4, 3));
  EXPECT_THAT(all.lse.shape(), ElementsAre(4, 7));
  EXPECT_THAT(all.weights.shape(), ElementsAre(4, 7, 5));

  const std::int64_t rows[] = {0, 3, 3, 7}, keys[] = {0, 4, 4, 9};
  for (const std::size_t b : {0U, 2U}) {
    SCOPED_TRACE(b);
    const std::int64_t seqlen_q = rows[b + 1] - rows[b], seqlen_k = keys[b + 1] - keys[b];
    const AttentionOptions alone{.causal = Causal::bottom_right,
                                 .window_left = 3,
                                 .mask = mask.view().slice(1, 0, seqlen_q).slice(2, 0, seqlen_k),
                                 .alibi_slopes = slopes.view().select(0, static_cast<std::int64_t>(b)),
                                 .layout = Layout::bshd};
    const AttentionResult one = reference::attention(packed.q.view().slice(0, rows[b], rows[b + 1]),
                                                     packed.k.view().slice(0, keys[b], keys[b + 1]),
                                                     packed.v.view().slice(0, keys[b], keys[b + 1]), alone);
    expect_same(all.o.view().slice(0, rows[b], rows[b + 1]), one.o);
    expect_same(all.bound.view().slice(0, rows[b], rows[b + 1]), one.bound);
    expect_same(all.lse.view().slice(1, rows[b], rows[b + 1]), one.lse);
    for (const auto result : {&AttentionResult::weights, &AttentionResult::scores, &AttentionResult::logits}) {
      const TensorView square = (all.*result).view().slice(1, rows[b], rows[b + 1]);
      expect_same(square.slice(2, 0, seqlen_k), one.*result);
      const double beyond = result == &AttentionResult::weights ? 0.0 : -kInf;
      EXPECT_THAT(numbers_of(square.slice(2, seqlen_k, 5)), Each(beyond));
    }
  }
}

TEST(PackedBatch, LengthsAndOffsetsCountInTheDocument) {
  const Packed packed;
  const Tensor lengths = Tensor::of<std::int32_t>({2, 0, 5}), offsets = Tensor::of<std::int64_t>({1, 0, -1});
  const AttentionResult result = reference::attention(packed.q, packed.k, packed.v,
                                                      {.causal = Causal::top_left,
                                                       .query_offsets = offsets,
                                                       .kv_lengths = lengths,
                                                       .cu_seqlens_q = packed.begins_q,
                                                       .cu_seqlens_k = packed.begins_k});
  std::vector<int> seen;
  for (std::int64_t row = 0; row < 7; ++row) {
    int count = 0;
    for (std::int64_t j = 0; j < 5; ++j) count += result.logits.at<double>(0, row, j) > -kInf ? 1 : 0;
    seen.push_back(count);
  }
  EXPECT_THAT(seen, ElementsAre(2, 2, 2, 0, 1, 2, 3));
  EXPECT_TRUE(std::isfinite(result.scores.at<double>(0, 0, 3)));  // a key of the document, beyond its length
}

TEST(PackedBatch, DropsByDocumentAndItsRows) {
  const Packed packed;
  const AttentionResult packed_result = reference::attention(packed.q, packed.k, packed.v,
                                                             {.cu_seqlens_q = packed.begins_q,
                                                              .cu_seqlens_k = packed.begins_k,
                                                              .dropout_p = 0.5,
                                                              .weights_after_dropout = true});
  // The same documents as entries of a batch, with the rest hidden by lengths.
  Tensor q(DType::f32, {3, 4, 4, 5}), k(DType::f32, {3, 5, 2, 5}), v(DType::f32, {3, 5, 2, 3});
  copy(packed.q.view().slice(0, 3, 7), q.mutable_view().select(0, 2));
  copy(packed.k.view().slice(0, 4, 9), k.mutable_view().select(0, 2));
  copy(packed.v.view().slice(0, 4, 9), v.mutable_view().select(0, 2));
  const AttentionResult batch =
      reference::attention(q, k, v, {.dropout_p = 0.5, .weights_after_dropout = true, .layout = Layout::bshd});
  expect_same(packed_result.o.view().slice(0, 3, 7), batch.o.view().select(0, 2));
  expect_same(packed_result.weights.view().slice(1, 3, 7), batch.weights.view().select(0, 2));
}

TEST(PackedBatch, RefusesWhatDoesNotFit) {
  const Packed packed;
  const auto refused = [&](const std::string& message, AttentionOptions options) {
    if (!options.cu_seqlens_k) options.cu_seqlens_k = packed.begins_k;
    EXPECT_THAT([&] { reference::attention(packed.q, packed.k, packed.v, options); },
                ThrowsMessage<std::invalid_argument>("[reference::attention] " + message));
  };
  refused("of cu_seqlens_q and cu_seqlens_k only one is given", {});
  const Tensor falling = Tensor::of<std::int32_t>({0, 4, 3, 7}), late = Tensor::of<std::int32_t>({1, 3, 3, 7}),
               shorter = Tensor::of<std::int32_t>({0, 7});
  refused("cu_seqlens_q does not rise from 0 to the total, 7", {.cu_seqlens_q = falling});
  refused("cu_seqlens_q does not rise from 0 to the total, 7", {.cu_seqlens_q = late});
  refused("cu_seqlens_k has shape [4], not [batch + 1] = [2]", {.cu_seqlens_q = shorter});
  const Tensor lengths = Tensor::of<std::int32_t>({5, 0, 5});
  refused("kv_lengths contains 5 for a document of 4 keys",
          {.kv_lengths = lengths, .cu_seqlens_q = packed.begins_q});
  const Tensor table(DType::i32, {3, 1});
  refused("cu_seqlens_k and block_table are both given", {.cu_seqlens_q = packed.begins_q, .block_table = table});
  EXPECT_THAT(
      [&] {
        reference::attention(packed.q.view().select(1, 0), packed.k, packed.v,
                             {.cu_seqlens_q = packed.begins_q, .cu_seqlens_k = packed.begins_k});
      },
      ThrowsMessage<std::invalid_argument>("[reference::attention] q of a packed batch has rank 2, not 3"));
}

// ---- Pages ---------------------------------------------------------------------------------------------------

/// Keys [2, 2, 6, 5] in 5 pages of 2: the second sequence has 3 keys. Unused keys are NaN.
struct Paged {
  Paged() {
    for (Tensor* pool : {&k, &v}) std::ranges::fill(pool->values<float>(), kNan);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t j = 0; j < (b == 0 ? 6 : 3); ++j) {
        const std::int64_t page = table.at<std::int32_t>(b, j / 2);
        copy(keys.view().select(0, b).select(1, j), k.mutable_view().select(0, page).select(1, j % 2));
        copy(values.view().select(0, b).select(1, j), v.mutable_view().select(0, page).select(1, j % 2));
      }
    }
  }

  Tensor q = random({2, 4, 3, 5}, 1), keys = random({2, 2, 6, 5}, 2), values = random({2, 2, 6, 3}, 3);
  Tensor k{DType::f32, {5, 2, 2, 5}}, v{DType::f32, {5, 2, 2, 3}};
  Tensor table = Tensor::of<std::int32_t>({{3, 0, 4}, {2, 1, -1}});
  Tensor lengths = Tensor::of<std::int32_t>({6, 3});
};

TEST(Pages, AreTheKeysThatTheTableNames) {
  const Paged paged;
  const AttentionOptions contiguous{
      .causal = Causal::bottom_right, .kv_lengths = paged.lengths, .dropout_p = 0.25};
  AttentionOptions options = contiguous;
  options.block_table = paged.table;
  const AttentionResult wanted = reference::attention(paged.q, paged.keys, paged.values, contiguous);
  const AttentionResult result = reference::attention(paged.q, paged.k, paged.v, options);
  expect_same(result.o, wanted.o);
  expect_same(result.bound, wanted.bound);
  expect_same(result.lse, wanted.lse);
  expect_same(result.weights, wanted.weights);
  expect_same(result.logits, wanted.logits);
  expect_same(result.scores.view().select(0, 0), wanted.scores.view().select(0, 0));
  const TensorView shorter = result.scores.view().select(0, 1);
  expect_same(shorter.slice(2, 0, 3), wanted.scores.view().select(0, 1).slice(2, 0, 3));
  EXPECT_THAT(numbers_of(shorter.slice(2, 3, 6)), Each(-kInf));

  const auto bshd = [](const Tensor& pool) { return Tensor::copy_of(pool.view().transposed(1, 2)); };
  options.layout = Layout::bshd;
  expect_same(reference::attention(bshd(paged.q), bshd(paged.k), bshd(paged.v), options).o, bshd(wanted.o));
}

TEST(Pages, BeforeTheWindowAreNotRead) {
  Paged paged;
  AttentionOptions options{
      .causal = Causal::bottom_right, .window_left = 0, .kv_lengths = paged.lengths, .block_table = paged.table};
  const AttentionResult wanted = reference::attention(paged.q, paged.k, paged.v, options);
  paged.table.at<std::int32_t>(0, 0) = -7;  // keys 0 and 1; the first row sees key 3 only
  expect_same(reference::attention(paged.q, paged.k, paged.v, options).o, wanted.o);

  // Unless scores are requested.
  Tensor scores(DType::f32, {2, 4, 3, 6});
  options.scores = scores;
  EXPECT_THAT([&] { reference::attention(paged.q, paged.k, paged.v, options); },
              ThrowsMessage<std::invalid_argument>("[reference::attention] block_table has page -7 for key 0 of "
                                                   "batch entry 0, but there are 5 pages"));
  paged.table.at<std::int32_t>(0, 0) = 3;
  const Tensor raw = reference::attention(paged.q, paged.k, paged.v, options).scores;
  EXPECT_TRUE(std::isfinite(raw.at<double>(0, 0, 0, 0)));
}

TEST(Pages, RefuseWhatDoesNotFit) {
  Paged paged;
  const auto refused = [&](const std::string& message, const AttentionOptions& options) {
    EXPECT_THAT([&] { reference::attention(paged.q, paged.k, paged.v, options); },
                ThrowsMessage<std::invalid_argument>("[reference::attention] " + message));
  };
  refused("block_table is given without kv_lengths", {.block_table = paged.table});
  const Tensor wide(DType::i64, {2, 3}), fewer(DType::i32, {1, 3});
  refused("block_table has element type i64, not i32", {.kv_lengths = paged.lengths, .block_table = wide});
  refused("block_table has shape [1, 3], not [batch, max_pages] with batch 2",
          {.kv_lengths = paged.lengths, .block_table = fewer});
  paged.table.at<std::int32_t>(1, 1) = 5;
  refused("block_table has page 5 for key 2 of batch entry 1, but there are 5 pages",
          {.kv_lengths = paged.lengths, .block_table = paged.table});
}

// ---- Block masks ---------------------------------------------------------------------------------------------

TEST(BlockMask, IsTheMaskOfItsBlocks) {
  const Tensor q = random({2, 3, 7, 5}, 1), k = random({2, 3, 8, 5}, 2);
  // 3 x 3 blocks of 3 x 3, the last ones cut short, for each head.
  Tensor blocks(DType::boolean, {3, 3, 3}), mask(DType::boolean, {3, 7, 8});
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t i = 0; i < 7; ++i) {
      for (std::int64_t j = 0; j < 8; ++j) {
        const bool attend = (i / 3 + 2 * (j / 3) + h) % 3 != 0;
        blocks.at<bool>(h, i / 3, j / 3) = mask.at<bool>(h, i, j) = attend;
      }
    }
  }
  const AttentionOptions options{
      .causal = Causal::top_left, .block_mask = blocks, .block_mask_q = 3, .block_mask_k = 3};
  const AttentionResult result = reference::attention(q, k, k, options);
  const AttentionResult wanted = reference::attention(q, k, k, {.causal = Causal::top_left, .mask = mask});
  expect_same(result.o, wanted.o);
  expect_same(result.logits, wanted.logits);
}

TEST(BlockMask, RefusesWhatDoesNotFit) {
  const Tensor q = random({7, 5}, 1), blocks(DType::boolean, {1, 1}), numbers(DType::f32, {1, 1});
  const auto refused = [&](const std::string& message, const AttentionOptions& options) {
    EXPECT_THAT([&] { reference::attention(q, q, q, options); },
                ThrowsMessage<std::invalid_argument>("[reference::attention] " + message));
  };
  refused("block_mask has element type f32, not bool", {.block_mask = numbers});
  refused("block_mask_q is 0, not 1 or more", {.block_mask = blocks, .block_mask_q = 0});
  const Tensor more(DType::boolean, {3, 3});
  refused("block_mask has shape [3, 3], which does not broadcast to [1, 1, 2, 3]",
          {.block_mask = more, .block_mask_q = 4, .block_mask_k = 3});
}

// ---- Stages of the scores, and rows by themselves ------------------------------------------------------------

TEST(Stages, FollowEachOther) {
  const Tensor q = random({3, 4}, 1), k = random({5, 4}, 2);
  const Tensor lengths = Tensor::of<std::int32_t>({4});
  AttentionOptions options{.scale = 0.5,
                           .softcap = 2.0,
                           .causal = Causal::top_left,
                           .kv_lengths = lengths,
                           .dropout_p = 0.5,
                           .weights_after_dropout = true,
                           .score_stage = ScoreStage::raw};
  const Tensor raw = reference::scaled(reference::scores(q, k), 0.5);
  AttentionResult result = reference::attention(q, k, k, options);
  expect_same(result.scores, raw);  // of hidden keys too
  Tensor softcapped = raw;
  for (double& score : softcapped.values<double>()) score = 2 * std::tanh(score / 2);
  options.score_stage = ScoreStage::softcapped;
  expect_same(reference::attention(q, k, k, options).scores, softcapped);
  const Tensor biased = reference::masked(softcapped, reference::causal_mask(3, 5));
  options.score_stage = ScoreStage::biased;
  result = reference::attention(q, k, k, options);
  expect_same(result.scores, biased);
  expect_same(result.logits, biased);
  options.score_stage = ScoreStage::probabilities;
  result = reference::attention(q, k, k, options);
  expect_same(result.scores, reference::softmax(biased));
  EXPECT_NE(numbers_of(result.scores), numbers_of(result.weights));
}

TEST(RowsByThemselves, AreRowsOfTheWhole) {
  const Tensor q = random({2, 4, 6, 5}, 1), k = random({2, 2, 7, 5}, 2), v = random({2, 2, 7, 3}, 3);
  const AttentionOptions options{.causal = Causal::bottom_right, .dropout_p = 0.25};
  const AttentionResult all = reference::attention(q, k, v, options);
  const AttentionResult naive = reference::naive_attention(q, k, v, options, all);
  const std::vector<reference::RowIndex> rows{{1, 3, 5}, {0, 0, 2}, {1, 3, 0}};
  const AttentionResult some = reference::attention_of_rows(q, k, v, options, rows);
  const AttentionResult naive_some = reference::naive_attention(q, k, v, options, some, {.rows = rows});
  ASSERT_THAT(some.o.shape(), ElementsAre(3, 3));
  ASSERT_THAT(naive_some.lse.shape(), ElementsAre(3));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row_of = [&](const Tensor& result) {
      return result.view().select(0, rows[i].batch).select(0, rows[i].head).select(0, rows[i].row);
    };
    const auto row = static_cast<std::int64_t>(i);
    expect_same(some.o.view().select(0, row), row_of(all.o));
    expect_same(some.weights.view().select(0, row), row_of(all.weights));
    EXPECT_EQ(some.lse.at<double>(row), all.lse.at<double>(rows[i].batch, rows[i].head, rows[i].row));
  }
  EXPECT_THAT(
      [&] {
        reference::attention_of_rows(q, k, v, {}, std::vector<reference::RowIndex>{{0, 4, 0}});
      },
      ThrowsMessage<std::invalid_argument>(
          "[reference::attention] there is no row 0 of batch entry 0 and head 4"));
}

// ---- Precision -----------------------------------------------------------------------------------------------

TEST(Precision, OfF64InputsIsMoreThanF64WhereTheMachineHasMore) {
  if (std::numeric_limits<long double>::digits <= std::numeric_limits<double>::digits)
    GTEST_SKIP() << "long double is double here";
  const Tensor q = Tensor::of<double>({{1, 1, 1}}), k = Tensor::of<double>({{1e16, 1, -1e16}});
  EXPECT_EQ(reference::attention(q, k, k, {.scale = 1.0}).scores.at<double>(0, 0), 1);
  EXPECT_EQ(reference::attention(q, k, k, {.scale = 1.0}, DType::f64).scores.at<double>(0, 0), 0);
}

TEST(Precision, OfTransformsIsF64AndOfNaiveCodeF32) {
  const float tiny = 0x1p-30F;
  const Tensor q = Tensor::of<float>({{1, 0, 0, 0}}), k = Tensor::of<float>({{1, tiny, 0, 0}});
  const AttentionOptions options{.scale = 1.0, .k_rotated = true, .v_rotated = true};
  const AttentionResult exact = reference::attention(q, k, k, options);
  EXPECT_EQ(exact.scores.at<double>(0, 0), (1.0 + tiny) / 2);
  EXPECT_THAT(exact.o.values<double>(),
              ElementsAre((1.0 + tiny) / 2, (1.0 - tiny) / 2, (1.0 + tiny) / 2, (1.0 - tiny) / 2));
  const AttentionResult naive = reference::naive_attention(q, k, k, options, exact);
  EXPECT_EQ(naive.scores.at<double>(0, 0), 0.5);
  EXPECT_THAT(naive.o.values<double>(), Each(0.5));
}

// The products of the transformed query cancel, those of the key that is transformed back do not.
TEST(Precision, NaiveCodeTransformsKeysOrQueries) {
  const Tensor q = Tensor::of<float>({{1, 0x1p-30F}}), k = Tensor::of<float>({{1, -1}});
  const AttentionOptions options{.scale = 1.0, .k_rotated = true};
  const AttentionResult exact = reference::attention(q, k, k, options);
  EXPECT_NEAR(exact.scores.at<double>(0, 0), std::sqrt(2.0) * 0x1p-30, 1e-24);
  EXPECT_EQ(reference::naive_attention(q, k, k, options, exact).scores.at<double>(0, 0), 0);
}

TEST(Precision, NaiveCodeIsNeverCloserWithMoreOrdersOfSummation) {
  const Tensor q = random({40, 32}, 1), k = random({30, 32}, 2), v = random({30, 4}, 3);
  const AttentionResult exact = reference::attention(q, k, v);
  const Tensor usual = reference::naive_attention(q, k, v, {}, exact).o,
               more = reference::naive_attention(q, k, v, {}, exact, {.min_orders = 64}).o;
  int farther = 0;
  for (std::size_t i = 0; i < exact.o.values<double>().size(); ++i) {
    const auto error = [&](const Tensor& o) {
      return std::abs(o.values<double>()[i] - exact.o.values<double>()[i]);
    };
    EXPECT_GE(error(more), error(usual)) << i;
    if (error(more) > error(usual)) ++farther;
  }
  EXPECT_GE(farther, 20);
}

TEST(Precision, NaiveCodeRoundsWhereItIsTold) {
  const Tensor q = random({5, 8}, 1), k = random({6, 8}, 2), v = random({6, 4}, 3);
  const AttentionResult exact = reference::attention(q, k, v);
  const auto naive = [&](const reference::NaiveRounding& rounding) {
    return reference::naive_attention(q, k, v, {}, exact, rounding);
  };
  const auto error = [&](const AttentionResult& result) {
    double largest = 0;
    for (std::size_t i = 0; i < exact.o.values<double>().size(); ++i)
      largest = std::max(largest, std::abs(result.o.values<double>()[i] - exact.o.values<double>()[i]));
    return largest;
  };
  const Tensor in_bf16 = naive({.o = DType::bf16}).o;
  expect_same(Tensor::copy_of(in_bf16, DType::bf16), in_bf16);
  EXPECT_LT(error(naive({})), error(naive({.o = DType::f16})));
  EXPECT_LT(error(naive({.o = DType::f16})), error(naive({.o = DType::bf16})));
  EXPECT_LT(error(naive({})), error(naive({.exponentials = DType::bf16})));
  EXPECT_LT(error(naive({})), error(naive({.query_bits = 8})));
  EXPECT_LT(error(naive({})), error(naive({.weight_bits = 8})));
  EXPECT_EQ((reference::NaiveRounding{.o = DType::f16, .exponentials = DType::bf16}).coarsest(), DType::bf16);
  EXPECT_EQ((reference::NaiveRounding{.o = DType::f64}).coarsest(), DType::f64);
  EXPECT_EQ(reference::NaiveRounding{}.coarsest(), DType::f32);
}

}  // namespace
}  // namespace saccade::test
