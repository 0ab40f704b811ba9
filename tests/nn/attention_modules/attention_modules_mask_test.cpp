// The masks of a forward call: every rank and type, alone and together.
#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <optional>
#include <string>

#include "nn/attention_modules/module_checks.h"
#include "saccade/attention_modules.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class ModuleMasks : public ::testing::Test {
 protected:
  static constexpr std::int64_t kBatch = 3, kHeads = 2, kQueries = 5, kKeys = 7;

  ModuleMasks() {
    TorchGenerator generator(8);
    module_.emplace(MultiHeadAttentionOptions{.d_in = 4, .d_out = 6, .num_heads = kHeads}, generator);
  }

  Tensor output(const TensorView& mask, const TensorView& key_mask = {}) {
    return module_->forward(inputs_.query, inputs_.key, inputs_.value, {.mask = mask, .key_mask = key_mask})
        .output;
  }

  std::string refusal(const TensorView& mask, const TensorView& key_mask = {}) {
    return test::refusal([&] { output(mask, key_mask); });
  }

  std::optional<MultiHeadAttention> module_;
  Inputs inputs_{randn(10, {kBatch, kQueries, 4}), randn(11, {kBatch, kKeys, 4}), randn(12, {kBatch, kKeys, 4})};
};

TEST_F(ModuleMasks, AnyRankAndTypeAgreesWithTheSameByHand) {
  for (const Shape& shape : {Shape{kKeys}, Shape{kQueries, kKeys}, Shape{kHeads, kQueries, kKeys},
                             Shape{1, kQueries, kKeys}, Shape{kBatch, kHeads, kQueries, kKeys},
                             Shape{kBatch, 1, 1, kKeys}, Shape{kBatch, 1, kQueries, kKeys}, Shape{kQueries, 1}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor mask = random_mask(20, shape);
    expect_like_by_hand(*module_, inputs_, shape.back() == 1 ? randn(21, shape) : mask);
    expect_like_by_hand(*module_, inputs_, randn(21, shape));
    expect_like_by_hand(*module_, inputs_, Tensor::copy_of(randn(21, shape), DType::f64));
  }
}

TEST_F(ModuleMasks, ABroadcastMaskIsItsExpansion) {
  const Tensor keys = random_mask(22, {kKeys});
  Tensor expanded(DType::boolean, {kBatch, kHeads, kQueries, kKeys});
  for (std::int64_t i = 0; i < expanded.size(); ++i) {
    expanded.values<bool>()[static_cast<std::size_t>(i)] = keys.at<bool>(i % kKeys);
  }
  const std::array<std::int64_t, 4> shape{kBatch, kHeads, kQueries, kKeys}, strides{0, 0, 0, 1};
  EXPECT_TRUE(same_bits(output(keys), output(expanded)));
  EXPECT_TRUE(same_bits(output(keys), output(TensorView(keys.data(), DType::boolean, shape, strides))));
}

TEST_F(ModuleMasks, RankThreeMayBePyTorchsBatchTimesHeads) {
  const Tensor mask = random_mask(23, {kBatch, kHeads, kQueries, kKeys});
  EXPECT_TRUE(same_bits(output(mask.reshaped({kBatch * kHeads, kQueries, kKeys})), output(mask)));
  EXPECT_FALSE(same_bits(output(mask), output({})));
}

TEST_F(ModuleMasks, KeyMasksAloneAndBesideMasksAgreeWithTheSameByHand) {
  Tensor padding(DType::boolean, {kBatch, kKeys});
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t j = 0; j < kKeys - 2 * b; ++j) padding.at<bool>(b, j) = true;
  }
  Tensor added = randn(24, {kBatch, kKeys});
  added.at<float>(1, 3) = -std::numeric_limits<float>::infinity();
  for (const Tensor& key_mask : {padding, random_mask(25, {kBatch, kKeys}), added}) {
    expect_like_by_hand(*module_, inputs_, {}, key_mask);
    for (const Shape& shape :
         {Shape{kKeys}, Shape{kQueries, kKeys}, Shape{kHeads, 1, kKeys}, Shape{kBatch, kHeads, kQueries, kKeys}}) {
      SCOPED_TRACE(to_string(shape));
      expect_like_by_hand(*module_, inputs_, random_mask(26, shape), key_mask);
      expect_like_by_hand(*module_, inputs_, randn(27, shape), key_mask);
    }
  }
}

TEST_F(ModuleMasks, OneKeyMaskServesAllBatchEntries) {
  const Tensor one = random_mask(28, {kKeys});
  Tensor each(DType::boolean, {kBatch, kKeys});
  for (std::int64_t b = 0; b < kBatch; ++b) copy(one, each.mutable_view().select(0, b));
  for (const Tensor& mask : {Tensor(), random_mask(29, {kQueries, kKeys})}) {
    EXPECT_TRUE(same_bits(output(mask, one), output(mask, each)));
    EXPECT_TRUE(same_bits(output(mask, one.reshaped({1, kKeys})), output(mask, each)));
  }
}

TEST_F(ModuleMasks, HiddenKeysHaveNoInfluenceEvenWhenTheyAreNaN) {
  Tensor key_mask(DType::boolean, {kBatch, kKeys});
  std::ranges::fill(key_mask.values<bool>(), true);
  for (std::int64_t b = 0; b < kBatch; ++b) key_mask.at<bool>(b, 2) = false;
  const Tensor expected = output({}, key_mask);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    inputs_.key.at<float>(b, 2, 1) = std::numeric_limits<float>::quiet_NaN();
    inputs_.value.at<float>(b, 2, 0) = std::numeric_limits<float>::infinity();
  }
  EXPECT_TRUE(same_bits(output({}, key_mask), expected));
  EXPECT_TRUE(same_bits(output(random_mask(0, {1, 1}), key_mask), expected));
}

TEST_F(ModuleMasks, ARowThatSeesNothingGivesTheBiasOfTheOutputAlone) {
  const Tensor hidden(DType::boolean, {kKeys});
  const Tensor bias = module_->state_dict().at("out_proj.bias");
  const Tensor result = output(hidden);
  for (std::int64_t row = 0; row < kBatch * kQueries; ++row) {
    EXPECT_THAT(result.values<float>().subspan(static_cast<std::size_t>(row) * 6, 6),
                ElementsAreArray(bias.values<float>()));
  }
}

TEST_F(ModuleMasks, MasksThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal(random_mask(0, {kQueries, kKeys + 1})),
              HasSubstr("[MultiHeadAttention] mask [5, 8] does not broadcast to [batch, num_heads, seqlen_q, "
                        "seqlen_k] = [3, 2, 5, 7]"));
  EXPECT_THAT(refusal(random_mask(0, {kBatch, kQueries, kKeys})), HasSubstr("mask [3, 5, 7] does not broadcast"));
  EXPECT_THAT(refusal(Tensor(DType::f32, {1, 1, 1, 1, kKeys})), HasSubstr("mask must have rank 1 to 4"));
  EXPECT_THAT(refusal(Tensor(DType::i32, {kKeys})), HasSubstr("mask must be bool, f32 or f64, got i32"));
  EXPECT_THAT(refusal({}, random_mask(0, {kBatch, kKeys + 1})),
              HasSubstr("key_mask must be [batch, seqlen_k] = [3, 7], got [3, 8]"));
  EXPECT_THAT(refusal({}, random_mask(0, {2, kKeys})), HasSubstr("got [2, 7]"));
  EXPECT_THAT(refusal({}, random_mask(0, {kBatch, 1, kKeys})), HasSubstr("got [3, 1, 7]"));
  EXPECT_THAT(refusal({}, Tensor(DType::u8, {kBatch, kKeys})),
              HasSubstr("key_mask must be bool, f32 or f64, got u8"));
  const std::array<std::int64_t, 2> shape{kBatch, kKeys};
  EXPECT_THAT(refusal({}, TensorView(nullptr, DType::boolean, shape)),
              HasSubstr("key_mask has shape [3, 7] but no data"));
}

TEST(MaskFromTorch, InvertsBooleanMasks) {
  const Tensor ignore = Tensor::of<bool>({{true, false}, {false, false}});
  EXPECT_THAT(mask_from_torch(ignore).values<bool>(), ::testing::ElementsAre(false, true, true, true));
  const Tensor added = Tensor::of<float>({0.5f, -1.0f});
  EXPECT_TRUE(same_bits(mask_from_torch(added), added));
  EXPECT_THROW(mask_from_torch(Tensor(DType::i64, {2})), std::invalid_argument);
}

}  // namespace
}  // namespace saccade::test
