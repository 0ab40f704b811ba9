// A forward call that returns no weights must not need memory proportional to seqlen_q * seqlen_k: this program
// watches every allocation of the library.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "saccade/attention_modules.h"
#include "support/allocations.h"

namespace saccade::test {
namespace {

constexpr std::int64_t kSeqlen = 4096;

/// The size of one boolean per weight.
constexpr std::size_t kQuadratic = static_cast<std::size_t>(kSeqlen * kSeqlen);

std::size_t largest_allocation_of_forward(AttentionModule& module, const TensorView& x,
                                          const ForwardOptions& options) {
  largest_allocation = 0;
  module.forward(x, options);
  return largest_allocation;
}

TEST(ModulesMemory, IsLinearInTheSequenceUnlessWeightsAreAskedFor) {
  TorchGenerator generator(1);
  MultiHeadAttention module(
      {.d_in = 8, .d_out = 8, .num_heads = 2, .dropout = 0.1, .add_bias_kv = true, .add_zero_attn = true},
      generator);
  const Tensor x = generator.randn({1, kSeqlen, 8});
  Tensor key_mask(DType::boolean, {1, kSeqlen}), padding(DType::boolean, {1, kSeqlen});
  for (std::int64_t j = 0; j < kSeqlen; ++j) {
    key_mask.at<bool>(0, j) = j % 3 != 0;
    padding.at<bool>(0, j) = j < kSeqlen - 100;
  }
  const Tensor row_mask = Tensor::copy_of(key_mask.view().select(0, 0));
  const std::array<std::int64_t, 2> square{kSeqlen, kSeqlen}, strides{0, 1};
  const TensorView square_mask(row_mask.data(), DType::boolean, square, strides);

  EXPECT_LT(largest_allocation_of_forward(module, x, {.causal = true}), kQuadratic);
  EXPECT_LT(largest_allocation_of_forward(module, x, {.key_mask = key_mask, .causal = true}), kQuadratic);
  EXPECT_LT(largest_allocation_of_forward(module, x, {.mask = row_mask, .key_mask = key_mask}), kQuadratic);
  EXPECT_LT(largest_allocation_of_forward(module, x, {.mask = square_mask, .key_mask = padding}), kQuadratic);
  EXPECT_GE(largest_allocation_of_forward(module, x, {.weights = HeadWeights::averaged}), kQuadratic);
}

}  // namespace
}  // namespace saccade::test
