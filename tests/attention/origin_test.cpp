// AttentionOptions::origin: a part of a problem has the bits of the whole.
#include <gtest/gtest.h>
#include <saccade/backward.h>
#include <saccade/decode.h>

#include "support/each_isa.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kRows = 150, kKeys = kOriginAlignment + 700, kDim = 8;

/// Changes a score by every number that a tile has.
void add_numbers(void*, const ScoreTile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      const std::int64_t row = tile.first_row + i, key = tile.first_key + j;
      const double change = 0.01 * static_cast<double>((row * 7 + key * 3 + tile.head * 5 + tile.batch) % 97) -
                            0.0001 * static_cast<double>(row + tile.offset - key);
      if (tile.dtype == DType::f64)
        tile.row<double>(i)[j] += change;
      else
        tile.row<float>(i)[j] += static_cast<float>(change);
    }
  }
}

/// A part of the problem: batch entry 1, the second kv head, some rows, and the keys from the second multiple of
/// the alignment on.
constexpr std::int64_t kFirstRow = 37, kLastRow = 120;

struct Whole {
  explicit Whole(DType dtype, const AttentionOptions& given) : options(given) {
    q = random_tensor({kBatch, kHeads, kRows, kDim}, 1, dtype);
    k = random_tensor({kBatch, kKvHeads, kKeys, kDim}, 2, dtype);
    v = random_tensor({kBatch, kKvHeads, kKeys, kDim}, 3, dtype);
    o = Tensor(dtype, q.shape());
    lse = Tensor(dtype == DType::f64 ? DType::f64 : DType::f32, {kBatch, kHeads, kRows});
    options.lse = lse;
  }
  Tensor q, k, v, o, lse;
  AttentionOptions options;
};

/// The options of a problem, and the tensors that they refer to.
struct Case {
  const char* name;
  AttentionOptions options;
};

class OriginOfEachIsa : public EachIsa {
 protected:
  OriginOfEachIsa() {
    slopes_ = alibi_slopes(kHeads);
    sinks_ = random_tensor({kHeads}, 4);
    lengths_ = Tensor(DType::i64, {kBatch});
    lengths_.at<std::int64_t>(0) = kKeys;
    lengths_.at<std::int64_t>(1) = kKeys - 77;
    starts_ = Tensor(DType::i64, {kBatch});
    starts_.at<std::int64_t>(1) = kOriginAlignment + 9;
    block_mask_ = Tensor(DType::boolean, {kHeads, 10, 48});  // blocks of 16 x 100
    for (std::int64_t i = 0; auto& open : block_mask_.values<bool>()) open = i++ % 7 != 0;
    mask_ = random_tensor({kRows, kKeys}, 5);
  }

  /// Every case hides the keys before the alignment from the rows of the part.
  std::vector<Case> cases() const {
    const std::int64_t offset = kOriginAlignment + 300;
    return {
        {"causal and dropout",
         {.causal = Causal::bottom_right, .window_left = 200, .dropout_p = 0.4, .dropout_seed = 7}},
        {"block mask",
         {.query_offset = offset,
          .window_left = 150,
          .window_right = 90,
          .block_mask = block_mask_,
          .block_mask_q = 16,
          .block_mask_k = 100}},
        {"score modifier", {.query_offset = offset, .window_left = 222, .score_modifier = add_numbers}},
        {"lengths",
         {.softcap = 3.0,
          .causal = Causal::top_left,
          .query_offset = offset,
          .window_left = 250,
          .kv_lengths = lengths_,
          .alibi_slopes = slopes_,
          .sinks = sinks_}},
        {"starts and mask", {.mask = mask_, .kv_starts = starts_, .dropout_p = 0.2}},
    };
  }

  /// The same for the part: what belongs to batch entries and heads is cut, and so is the mask.
  AttentionOptions of_part(AttentionOptions options) const {
    const bool is_bottom_right = options.causal == Causal::bottom_right && !options.query_offset;
    if (is_bottom_right) options.query_offset = kKeys - kRows;
    options.origin = {.batch = 1, .head = 2, .num_heads = kHeads, .row = kFirstRow, .key = kOriginAlignment};
    if (options.kv_lengths) options.kv_lengths = options.kv_lengths.slice(0, 1, 2);
    if (options.kv_starts) options.kv_starts = options.kv_starts.slice(0, 1, 2);
    if (options.alibi_slopes) options.alibi_slopes = options.alibi_slopes.slice(0, 2, 4);
    if (options.sinks) options.sinks = options.sinks.slice(0, 2, 4);
    if (options.mask) options.mask = options.mask.slice(0, kFirstRow, kLastRow).slice(1, kOriginAlignment, kKeys);
    if (options.block_mask)
      options.block_mask = options.block_mask.slice(0, 2, 4).slice(1, 0, (kLastRow + 15) / 16);
    return options;
  }

  Tensor slopes_, sinks_, lengths_, starts_, block_mask_, mask_;
};

Tensor rows_of_part(const Tensor& tensor) {
  return Tensor::copy_of(tensor.view().slice(0, 1, 2).slice(1, 2, 4).slice(2, kFirstRow, kLastRow),
                         tensor.dtype());
}
Tensor keys_of_part(const Tensor& tensor) {
  return Tensor::copy_of(tensor.view().slice(0, 1, 2).slice(1, 1, 2).slice(2, kOriginAlignment, kKeys),
                         tensor.dtype());
}

TEST_P(OriginOfEachIsa, GivesAPartTheBitsOfTheWhole) {
  for (const Case& one : cases()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      using Function = void (*)(const TensorView&, const TensorView&, const TensorView&, const MutableTensorView&,
                                const AttentionOptions&);
      for (const Function function : {Function(attention), Function(decode)}) {
        SCOPED_TRACE(std::string(one.name) + " " + std::string(name_of(dtype)));
        Whole whole(dtype, one.options);
        function(whole.q, whole.k, whole.v, whole.o, whole.options);
        const Tensor q = rows_of_part(whole.q), k = keys_of_part(whole.k), v = keys_of_part(whole.v);
        Tensor o(dtype, q.shape()), lse(whole.lse.dtype(), {1, 2, kLastRow - kFirstRow});
        AttentionOptions options = of_part(one.options);
        options.lse = lse;
        function(q, k, v, o, options);
        EXPECT_TRUE(same_bits(o, rows_of_part(whole.o)));
        EXPECT_TRUE(same_bits(
            lse, Tensor::copy_of(whole.lse.view().slice(0, 1, 2).slice(1, 2, 4).slice(2, kFirstRow, kLastRow),
                                 lse.dtype())));
      }
    }
  }
}

/// A key far down the row whose score is 100 binades larger: what earlier keys have added becomes tiny. Where its
/// own value is 0, that is all there is. Rows before those of the part see keys before the alignment.
TEST_P(OriginOfEachIsa, GivesRowsThatOutgrowTheirRangeTheBitsOfTheWhole) {
  constexpr std::int64_t kAll = kOriginAlignment + 700, kLarge = kOriginAlignment + 200, kFirst = 40, kCount = 80;
  const AttentionOptions options{
      .scale = 1.0, .query_offset = kOriginAlignment + 300 - kFirst, .window_left = 300, .window_right = 300};
  AttentionOptions of_part = options;
  of_part.origin = {.row = kFirst, .key = kOriginAlignment};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor wide_q(DType::f32, {kCount, 64}), wide_k(DType::f32, {kAll, 64}), wide_v(DType::f32, {kAll, 64});
    for (std::int64_t i = 0; i < kCount; ++i) wide_q.at<float>(i, 0) = 1;
    std::ranges::fill(wide_v.values<float>(), 0x1p15F);
    wide_k.at<float>(kLarge, 0) = 69.5F;
    for (std::int64_t d = 0; d < 64; ++d) wide_v.at<float>(kLarge, d) = 0;
    const Tensor q = Tensor::copy_of(wide_q, dtype), k = Tensor::copy_of(wide_k, dtype),
                 v = Tensor::copy_of(wide_v, dtype);
    const Tensor whole = attention(q, k, v, options);
    const Tensor part = attention(q.view().slice(0, kFirst, kCount), k.view().slice(0, kOriginAlignment, kAll),
                                  v.view().slice(0, kOriginAlignment, kAll), of_part);
    EXPECT_TRUE(same_bits(part, Tensor::copy_of(whole.view().slice(0, kFirst, kCount)))) << name_of(dtype);
  }
}

TEST_P(OriginOfEachIsa, GivesGradientsOfRowsTheBitsOfTheWhole) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    Whole whole(DType::f32, one.options);
    attention(whole.q, whole.k, whole.v, whole.o, whole.options);
    const Tensor dout = random_tensor(whole.q.shape(), 6);
    Tensor dq(DType::f32, whole.q.shape()), dk(DType::f32, whole.k.shape()), dv(DType::f32, whole.k.shape());
    attention_backward(whole.q, whole.k, whole.v, {whole.o, whole.lse, dout}, {dq, dk, dv}, whole.options);
    const Tensor q = rows_of_part(whole.q), k = keys_of_part(whole.k), v = keys_of_part(whole.v);
    const Tensor o = rows_of_part(whole.o), dout_of_part = rows_of_part(dout);
    const Tensor lse =
        Tensor::copy_of(whole.lse.view().slice(0, 1, 2).slice(1, 2, 4).slice(2, kFirstRow, kLastRow), DType::f32);
    Tensor dq_of_part(DType::f32, q.shape()), dk_of_part(DType::f32, k.shape()), dv_of_part(DType::f32, k.shape());
    attention_backward(q, k, v, {o, lse, dout_of_part}, {dq_of_part, dk_of_part, dv_of_part},
                       of_part(one.options));
    EXPECT_TRUE(same_bits(dq_of_part, rows_of_part(dq)));
  }
}

SACCADE_FOR_EACH_ISA(OriginOfEachIsa);

TEST(Origin, RefusesWhatDoesNotFit) {
  const Tensor q = random_tensor({2, 4, 8, 4}, 1), k = random_tensor({2, 4, 8, 4}, 2);
  const auto message = [&](const AttentionOptions& options) {
    return refusal([&] { attention(q, k, k, options); });
  };
  EXPECT_EQ(message({.causal = Causal::top_left, .origin = {.row = -1}}),
            "[attention] origin.row must be from 0 to 2^40, got -1");
  EXPECT_EQ(message({.softcap = 1.0, .origin = {.head = 2, .num_heads = 5}}),
            "[attention] origin.num_heads is 5 but the call has heads up to 6");
  EXPECT_EQ(message({.dropout_p = 0.5, .origin = {.key = 32}}),
            "[attention] origin.key must be a multiple of 64 with dropout, got 32");
  EXPECT_EQ(
      message({.causal = Causal::bottom_right, .origin = {.row = 8}}),
      "[attention] an origin at row 8 and key 0 needs query_offset: bottom_right does not know where the whole "
      "ends");
  Tensor lengths(DType::i64, {2});
  lengths.at<std::int64_t>(0) = 73;
  EXPECT_EQ(message({.kv_lengths = lengths, .origin = {.key = 64}}),
            "[attention] kv_lengths must lie between 0 and origin.key + seqlen_k = 72, but one is 73");
}

}  // namespace
}  // namespace saccade::test
