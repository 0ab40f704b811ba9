// The modules with various shapes, heads and wrong arguments. The reference is naive_module, which
// attention_modules_torch_test compares with PyTorch.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "nn/attention_modules/module_checks.h"
#include "saccade/attention_modules.h"
#include "saccade/reference.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// ---- Shapes and heads ----------------------------------------------------------------------------------------

TEST(Modules, EveryClassAgreesWithTheSameByHand) {
  for (const std::int64_t seqlen : {1, 2, 7, 17, 65}) {
    SCOPED_TRACE(seqlen);
    const Tensor x = randn(static_cast<std::uint64_t>(seqlen), {2, seqlen, 5});
    for_each_class([&](AttentionModule& module) { expect_like_by_hand(module, {x, x, x}); });
  }
}

TEST(Modules, CrossAttentionTakesKeysAndValuesOfOtherWidthsAndLengths) {
  for (const auto& [seqlen_q, seqlen_k] : {std::pair{1, 9}, {7, 3}, {5, 1}, {33, 70}}) {
    for (const bool causal : {false, true}) {
      TorchGenerator generator(2);
      MultiHeadAttention module({.d_in = 6,
                                 .d_out = 12,
                                 .num_heads = 3,
                                 .key_width = 4,
                                 .value_width = 5,
                                 .causal = causal,
                                 .qkv_bias = true},
                                generator);
      expect_like_by_hand(module,
                          {randn(3, {2, seqlen_q, 6}), randn(4, {2, seqlen_k, 4}), randn(5, {2, seqlen_k, 5})});
    }
  }
}

TEST(Modules, SharedKeyHeadsGiveWhatTheReferenceGives) {
  for (const std::int64_t num_kv_heads : {1, 2, 3, 6}) {
    SCOPED_TRACE(num_kv_heads);
    TorchGenerator generator(6);
    MultiHeadAttention module(
        {.d_in = 10, .d_out = 24, .num_heads = 6, .num_kv_heads = num_kv_heads, .causal = true}, generator);
    const ModuleOutput result = module.forward(randn(7, {2, 19, 10}), {.steps = true});
    EXPECT_EQ(result.k.shape(), (Shape{2, 19, num_kv_heads * 4}));
    const auto heads = [](const Tensor& x) { return x.reshaped({2, 19, x.shape(2) / 4, 4}); };
    const AttentionOptions options{.causal = Causal::top_left, .layout = Layout::bshd};
    const auto in_double = reference::attention(heads(result.q), heads(result.k), heads(result.v), options);
    const auto in_float =
        reference::attention(heads(result.q), heads(result.k), heads(result.v), options, DType::f32);
    expect_close(heads(result.context), {.reference = in_double.o, .naive = in_float.o, .bound = in_double.bound});
  }
}

TEST(Modules, WithoutABatchAxisTheNumbersAreTheSame) {
  TorchGenerator generator(8);
  MultiHeadAttention module({.d_in = 4, .d_out = 6, .num_heads = 2, .add_zero_attn = true}, generator);
  const Tensor x = randn(9, {5, 4});
  const ForwardOptions options{.weights = HeadWeights::per_head, .steps = true};
  const ModuleOutput single = module.forward(x, options);
  const ModuleOutput batch = module.forward(x.reshaped({1, 5, 4}), options);
  EXPECT_EQ(single.output.shape(), (Shape{5, 6}));
  EXPECT_EQ(single.weights.shape(), (Shape{2, 5, 6}));
  EXPECT_EQ(single.q.shape(), (Shape{5, 6}));
  EXPECT_TRUE(same_bits(single.output.reshaped({1, 5, 6}), batch.output));
  EXPECT_TRUE(same_bits(single.weights.reshaped({1, 2, 5, 6}), batch.weights));
  EXPECT_TRUE(same_bits(single.context.reshaped({1, 5, 6}), batch.context));
}

TEST(Modules, MemoryOfTheCallerGetsTheSameBits) {
  const auto check = [](AttentionModule& module) {
    const std::int64_t d_out = module.config().d_out;
    for (const Shape& lead : {Shape{6}, Shape{2, 17}, Shape{0}, Shape{0, 3}, Shape{2, 0}}) {
      for (const bool training : {false, true}) {
        SCOPED_TRACE(to_string(lead) + (training ? " training" : " evaluation"));
        module.train(training);
        Shape shape = lead, output_shape = lead;
        shape.push_back(module.config().d_in);
        output_shape.push_back(d_out);
        const Tensor x = randn(10, shape);
        Tensor output = Tensor::uninitialized(DType::f32, output_shape);
        module.forward_into(x, output.mutable_view());
        EXPECT_TRUE(same_bits(output, module.forward(x).output));
      }
    }
  };
  for_each_class(check);
  TorchGenerator generator(11);
  MultiHeadAttention appended({.d_in = 4, .d_out = 6, .num_heads = 2, .add_bias_kv = true}, generator);
  check(appended);
  MultiHeadAttention sequence_first({.d_in = 4, .d_out = 6, .num_heads = 2, .batch_first = false}, generator);
  check(sequence_first);
}

TEST(Modules, SequenceFirstIsTheSameWithAxesExchanged) {
  MultiHeadAttentionOptions options{.d_in = 4, .d_out = 6, .num_heads = 2};
  TorchGenerator generator(8);
  MultiHeadAttention module(options, generator);
  options.batch_first = false;
  MultiHeadAttention sequence_first(options);
  sequence_first.load_state_dict(module.state_dict());
  const Tensor x = randn(9, {3, 5, 4});
  const Tensor exchanged = Tensor::copy_of(x.view().transposed(0, 1));
  const ForwardOptions steps{.weights = HeadWeights::averaged, .steps = true};
  const ModuleOutput expected = module.forward(x, steps), result = sequence_first.forward(exchanged, steps);
  const auto swapped = [](const Tensor& tensor) { return Tensor::copy_of(tensor.view().transposed(0, 1)); };
  EXPECT_TRUE(same_bits(result.output, swapped(expected.output)));
  EXPECT_TRUE(same_bits(result.k, swapped(expected.k)));
  EXPECT_TRUE(same_bits(result.context, swapped(expected.context)));
  EXPECT_TRUE(same_bits(result.weights, expected.weights));
}

TEST(Modules, ABatchEntryDoesNotDependOnTheOthers) {
  TorchGenerator generator(8);
  MultiHeadAttentionWrapper module({.d_in = 4, .d_out = 3, .num_heads = 2}, generator);
  const Tensor x = randn(9, {3, 40, 4});
  const Tensor all = module.forward(x).output;
  for (std::int64_t b = 0; b < 3; ++b) {
    EXPECT_TRUE(same_bits(module.forward(x.view().select(0, b)).output, Tensor::copy_of(all.view().select(0, b))));
  }
}

TEST(Modules, AnyLengthUpToTheContextIsTaken) {
  TorchGenerator generator(8);
  CausalAttention module({.d_in = 4, .d_out = 3, .context_length = 6}, generator);
  for (std::int64_t seqlen = 1; seqlen <= 6; ++seqlen) {
    const Tensor x = randn(9, {2, seqlen, 4});
    expect_like_by_hand(module, {x, x, x});
  }
}

TEST(Modules, NothingToAttendToGivesZerosAndNothingToComputeIsNoError) {
  TorchGenerator generator(8);
  MultiHeadAttention module({.d_in = 4, .d_out = 6, .num_heads = 2, .out_bias = false}, generator);
  EXPECT_EQ(module.forward(Tensor(DType::f32, {0, 5, 4})).output.shape(), (Shape{0, 5, 6}));
  EXPECT_EQ(module.forward(Tensor(DType::f32, {2, 0, 4})).output.shape(), (Shape{2, 0, 6}));
  const Tensor none(DType::f32, {2, 0, 4});
  const Tensor output = module.forward(randn(9, {2, 3, 4}), none, none).output;
  EXPECT_EQ(output.shape(), (Shape{2, 3, 6}));
  EXPECT_THAT(output.values<float>(), ::testing::Each(0.0f));
}

TEST(Modules, ThreadsMayShareAModuleThatDropsNothing) {
  TorchGenerator generator(8);
  MultiHeadAttention module({.d_in = 4, .d_out = 6, .num_heads = 2, .dropout = 0.5, .add_bias_kv = true},
                            generator);
  module.eval();
  const Tensor x = randn(9, {2, 70, 4});
  const Tensor expected = module.forward(x).output;
  std::vector<Tensor> outputs(8);
  std::vector<std::thread> threads;
  for (Tensor& output : outputs) {
    threads.emplace_back([&] { output = module.forward(x, {.weights = HeadWeights::per_head}).output; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& output : outputs) EXPECT_TRUE(same_bits(output, expected));
}

TEST(Modules, WeightsAndStepsDoNotChangeTheOutput) {
  TorchGenerator generator(8);
  MultiHeadAttention module({.d_in = 4, .d_out = 6, .num_heads = 2, .add_bias_kv = true}, generator);
  const Tensor x = randn(9, {2, 70, 4});
  const ModuleOutput plain = module.forward(x);
  const ModuleOutput full = module.forward(x, {.weights = HeadWeights::averaged, .steps = true});
  EXPECT_TRUE(same_bits(plain.output, full.output));
  EXPECT_EQ(plain.weights.rank(), 0);
  EXPECT_EQ(plain.q.rank(), 0);
  EXPECT_EQ(plain.context.rank(), 0);
}

// ---- Appended keys -------------------------------------------------------------------------------------------

TEST(ModuleAppendedKeys, AreSeenByAllRowsWhateverIsMasked) {
  for (const bool causal : {false, true}) {
    for (const auto& [bias, zero] : {std::pair{true, false}, {false, true}, {true, true}}) {
      TorchGenerator generator(8);
      MultiHeadAttention module({.d_in = 4,
                                 .d_out = 8,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .causal = causal,
                                 .add_bias_kv = bias,
                                 .add_zero_attn = zero},
                                generator);
      const Inputs inputs{randn(1, {2, 9, 4}), randn(2, {2, 12, 4}), randn(3, {2, 12, 4})};
      expect_like_by_hand(module, inputs);
      expect_like_by_hand(module, inputs, random_mask(4, {9, 12}), random_mask(5, {2, 12}));
      expect_like_by_hand(module, inputs, randn(6, {4, 9, 12}));
      expect_like_by_hand(module, inputs, Tensor(DType::boolean, {12}));  // hides all others
    }
  }
}

// ---- The block -----------------------------------------------------------------------------------------------

TEST(ScaledDotProductAttention, ReturnsOutputAndWeightsInEveryRankAndLayout) {
  const std::vector<Shape> shapes{{5, 4}, {2, 5, 4}, {3, 2, 5, 4}};
  for (const Layout layout : {Layout::bhsd, Layout::bshd}) {
    for (Shape q_shape : shapes) {
      SCOPED_TRACE(to_string(q_shape));
      Shape k_shape = q_shape;
      k_shape[q_shape.size() - 2] = 7;
      if (layout == Layout::bshd && q_shape.size() > 2) {
        std::swap(q_shape[q_shape.size() - 2], q_shape[q_shape.size() - 3]);
        std::swap(k_shape[k_shape.size() - 2], k_shape[k_shape.size() - 3]);
      }
      const Tensor q = randn(1, q_shape), k = randn(2, k_shape), v = randn(3, k_shape);
      const Tensor mask = random_mask(4, {5, 7});
      const auto [output, weights] =
          scaled_dot_product_attention(q, k, v, mask, {.softcap = 2.0, .layout = layout});
      const AttentionOptions options{.softcap = 2.0, .mask = mask, .layout = layout};
      const auto in_double = reference::attention(q, k, v, options);
      const auto in_float = reference::attention(q, k, v, options, DType::f32);
      expect_close(output, {.reference = in_double.o, .naive = in_float.o, .bound = in_double.bound});
      expect_close(weights, {.reference = in_double.weights, .naive = in_float.weights});
    }
  }
}

// ---- Refusals ------------------------------------------------------------------------------------------------

struct Refusal {
  std::function<void()> call;
  const char* message;
};

TEST(Modules, WrongArgumentsAreRefusedWithTheirNumbers) {
  TorchGenerator generator(8);
  CausalAttention causal({.d_in = 3, .d_out = 2, .context_length = 6}, generator);
  MultiHeadAttention cross({.d_in = 3, .d_out = 4, .num_heads = 2, .key_width = 5, .value_width = 7}, generator);
  MultiHeadAttention sequence_first({.d_in = 3, .d_out = 4, .num_heads = 2, .batch_first = false}, generator);
  const auto zeros = [](const Shape& shape) { return Tensor(DType::f32, shape); };
  const Tensor q = zeros({2, 4, 3}), k = zeros({2, 6, 5}), v = zeros({2, 6, 7});
  const std::vector<Refusal> refusals{
      {[&] {
         causal.forward(zeros({2, 6, 4}));
       },
       "[CausalAttention] x must be [seqlen, 3] or [batch, seqlen, 3], got [2, 6, 4]"},
      {[&] { causal.forward(zeros({3})); }, "got [3]"},
      {[&] {
         causal.forward(zeros({1, 1, 6, 3}));
       },
       "got [1, 1, 6, 3]"},
      {[&] {
         causal.forward(zeros({2, 7, 3}));
       },
       "[CausalAttention] x has 7 tokens, more than context_length 6"},
      {[&] {
         causal.forward(zeros({6, 3}), zeros({9, 3}), zeros({9, 3}));
       },
       "key has 9 tokens"},
      {[&] {
         causal.forward(Tensor(DType::f64, {6, 3}));
       },
       "x must be f32, got f64"},
      {[&] { causal.forward(TensorView()); }, "x was not given"},
      {[&] {
         causal.forward(zeros({6, 3}), TensorView(), zeros({6, 3}));
       },
       "key was not given"},
      {[&] {
         causal.forward(zeros({3, 6}).view().transposed(0, 1));
       },
       "contiguous"},
      {[&] {
         sequence_first.forward(zeros({6, 2, 4}));
       },
       "x must be [seqlen, 3] or [seqlen, batch, 3], got [6, 2, 4]"},
      {[&] { cross.forward(q); }, "d_in is 3, key_width 5, value_width 7"},
      {[&] { cross.forward(q, q, v); }, "key must be [seqlen, 5] or [batch, seqlen, 5], got [2, 4, 3]"},
      {[&] { cross.forward(q, k, k); }, "value must be [seqlen, 7] or [batch, seqlen, 7], got [2, 6, 5]"},
      {[&] {
         cross.forward(q, k, zeros({2, 5, 7}));
       },
       "key and value must have the same batch and seqlen, got key [2, 6, 5], value [2, 5, 7]"},
      {[&] {
         cross.forward(q, zeros({1, 6, 5}), zeros({1, 6, 7}));
       },
       "the same batch, got query [2, 4, 3]"},
      {[&] {
         cross.forward(q, zeros({6, 5}), zeros({6, 7}));
       },
       "the same batch, got query [2, 4, 3], key [6, 5]"},
      {[&] {
         cross.forward(q, k, zeros({1, 6, 7}));
       },
       "got key [2, 6, 5], value [1, 6, 7]"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 3}); },
       "[MultiHeadAttention] d_out must be a multiple of num_heads, got d_out 8 and num_heads 3"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 4, .num_kv_heads = 3}); },
       "num_heads must be a multiple of num_kv_heads, got num_heads 4 and num_kv_heads 3"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 0}); }, "num_heads must be at least 1, got 0"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 2, .num_kv_heads = -2}); },
       "num_kv_heads must be at least 1, got -2"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 0, .num_heads = 2}); }, "d_out must be at least 1, got 0"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 2, .key_width = -1}); },
       "key_width must be at least 1, got -1"},
      {[] { MultiHeadAttention({.d_in = 3, .d_out = 8, .num_heads = 2, .dropout = 1.0}); },
       "dropout must be at least 0 and below 1, got 1"},
      {[] { CausalAttention({.d_in = 3, .d_out = 8, .dropout = std::nan("")}); }, "got nan"},
      {[] { CausalAttention({.d_in = 3, .d_out = 8, .context_length = -1}); },
       "context_length must not be negative, got -1"},
      {[] { CausalAttention({.d_in = 0, .d_out = 8}); }, "[CausalAttention] d_in must be at least 1, got 0"},
      {[] { MultiHeadAttentionWrapper({.d_in = 3, .d_out = 2, .num_heads = 0}); },
       "[MultiHeadAttentionWrapper] num_heads must be at least 1, got 0"},
      {[] { MultiHeadAttentionWrapper({.d_in = 3, .d_out = 1LL << 62, .num_heads = 4}); },
       "does not fit in memory"},
      {[] { SelfAttention({.d_in = 3, .d_out = 2, .weight_layout = WeightLayout::in_out, .qkv_bias = true}); },
       "[SelfAttention] qkv_bias needs linear layers"},
      {[] { CausalAttention({.d_in = 3, .d_out = 2}).published_state_dict(); },
       "without a context_length the size of the buffer mask is not known"},
      {[&] {
         SelfAttention module({.d_in = 3, .d_out = 2});
         module.forward_into(zeros({6, 3}), zeros({6, 3}).mutable_view());
       },
       "[SelfAttention] output must be f32 and contiguous with the shape of x and d_out 2 last, but x has shape "
       "[6, 3] "
       "and output is f32 [6, 3]"},
      {[&] {
         SelfAttention module({.d_in = 3, .d_out = 2});
         Tensor output(DType::f32, {2, 6});
         module.forward_into(zeros({6, 3}), output.mutable_view().transposed(0, 1));
       },
       "output must be f32 and contiguous"},
      {[&] {
         SelfAttention module({.d_in = 3, .d_out = 2});
         module.forward_into(zeros({6, 3}), {});
       },
       "output must be f32 and contiguous"},
      {[&] {
         scaled_dot_product_attention(q, q, q, random_mask(0, {4, 4}), {.mask = random_mask(0, {4, 4})});
       },
       "mask was given twice"},
      {[&] {
         Tensor weights = zeros({2, 4, 4});
         scaled_dot_product_attention(q, q, q, {}, {.weights = weights});
       },
       "options.weights must be left empty"},
      {[&] {
         scaled_dot_product_attention(q, zeros({4, 3}), q);
       },
       "q and k must have the same rank"},
      {[&] {
         scaled_dot_product_attention(q, q, zeros({2, 5, 3}));
       },
       "[attention]"},
  };
  for (const Refusal& refusal : refusals) {
    try {
      refusal.call();
      ADD_FAILURE() << "not refused: " << refusal.message;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(refusal.message));
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
  }
}

}  // namespace
}  // namespace saccade::test
