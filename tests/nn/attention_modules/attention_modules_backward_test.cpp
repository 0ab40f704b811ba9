// Gradients of the attention modules against the chain rule written out (naive_module_backward.h), which is itself
// checked against finite differences.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "nn/attention_modules/module_checks.h"
#include "nn/attention_modules/naive_module_backward.h"
#include "saccade/attention_modules.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/published.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

Tensor widened(const TensorView& x) { return Tensor::copy_of(x, DType::f64); }

// ---- The chain rule written out, against differences ----------------------------------------------------------

/// The loss sum(output * dout) of a call in f64.
double loss_of(const NaiveCall& call, const Tensor& dout) {
  const Tensor output = naive_module<double>(call).output;
  double sum = 0.0;
  for (std::size_t i = 0; i < dout.values<double>().size(); ++i)
    sum += output.values<double>()[i] * dout.values<double>()[i];
  return sum;
}

/// Finite differences of fourth order, with an error of about step^4; with half the step the error is a 16th of
/// that.
void expect_like_differences(const Tensor& gradient, Tensor& x, const std::function<double()>& loss) {
  const auto differences = [&](double step) {
    Tensor result(DType::f64, x.shape());
    for (std::size_t i = 0; i < result.values<double>().size(); ++i) {
      const auto loss_at = [&](double change) {
        const double before = std::exchange(x.values<double>()[i], x.values<double>()[i] + change);
        const double moved = loss();
        x.values<double>()[i] = before;
        return moved;
      };
      const double near = loss_at(step) - loss_at(-step), far = loss_at(2 * step) - loss_at(-2 * step);
      result.values<double>()[i] = (8 * near - far) / (12 * step);
    }
    return result;
  };
  const Tensor fine = differences(1.0 / 256), coarse = differences(1.0 / 128);
  expect_close(gradient, {.reference = fine, .naive = coarse}, kGradient);
}

TEST(NaiveModuleBackward, IsWhatDifferencesOfTheForwardPassAre) {
  TorchGenerator generator(3);
  MultiHeadAttention module({.d_in = 3,
                             .d_out = 4,
                             .num_heads = 2,
                             .num_kv_heads = 1,
                             .key_width = 2,
                             .causal = true,
                             .qkv_bias = true,
                             .add_bias_kv = true,
                             .add_zero_attn = true},
                            generator);
  StateDict state;
  for (const auto& [name, value] : module.state_dict()) state[name] = widened(value);
  Inputs inputs{widened(randn(1, {2, 3, 3})), widened(randn(2, {2, 4, 2})), widened(randn(4, {2, 4, 3}))};
  const Tensor dout = widened(randn(5, {2, 3, 4}));
  const NaiveCall call{
      .state = state,
      .config = module.config(),
      .query = inputs.query,
      .key = inputs.key,
      .value = inputs.value,
      .added = added_by({}, {}, true, 4),
      .dropout_factor = [](auto b, auto h, auto i, auto j) { return (b + h + i + j) % 3 == 0 ? 0.0 : 1.5; }};
  const auto loss = [&] { return loss_of(call, dout); };
  const NaiveGradients gradients = NaiveModuleBackward<double>(call, dout, false).run();
  for (auto& [name, value] : state) {
    SCOPED_TRACE(name);
    expect_like_differences(gradients.parameters.at(name), value, loss);
  }
  expect_like_differences(gradients.query, inputs.query, loss);
  expect_like_differences(gradients.key, inputs.key, loss);
  expect_like_differences(gradients.value, inputs.value, loss);
}

// ---- Modules against it --------------------------------------------------------------------------------------

/// The gradients of a module, named as in joint_state.
StateDict joint_gradients(AttentionModule& module) {
  StateDict gradients;
  for (const NamedParameter& parameter : module.parameters()) {
    EXPECT_TRUE(parameter.gradient) << parameter.name;
    gradients[parameter.name] = Tensor::copy_of(parameter.gradient);
  }
  return joint_parameters(module.config(), gradients);
}

struct Call {
  Inputs inputs;
  Tensor mask{}, key_mask{};
  PerWeight dropout_factor{};
  ForwardOptions options{};
};

/// Compares a training call and its backward pass with naive code.
void expect_gradients_like_by_hand(AttentionModule& module, Call call) {
  const StateDict state = joint_state(module);
  call.options.mask = call.mask;
  call.options.key_mask = call.key_mask;
  const Inputs& inputs = call.inputs;
  const NaiveCall naive_call{.state = state,
                             .config = module.config(),
                             .query = inputs.query,
                             .key = inputs.key,
                             .value = inputs.value,
                             .added = added_by(call.mask, call.key_mask,
                                               module.config().causal || call.options.causal, inputs.key.shape(1)),
                             .dropout_factor = call.dropout_factor};
  module.zero_grad();
  const Tensor output = module.forward(inputs.query, inputs.key, inputs.value, call.options).output;
  const Tensor dout = randn(77, output.shape());
  const InputGradients found = module.backward(dout);

  const auto exact = NaiveModuleBackward<double>(naive_call, dout, false).run();
  const auto naive = NaiveModuleBackward<float>(naive_call, dout, false).run();
  const auto bound = NaiveModuleBackward<double>(naive_call, dout, true).run();
  const auto expect = [&](const Tensor& gradient, const Tensor& reference, const Tensor& in_float,
                          const Tensor& sums) {
    expect_close(gradient, {.reference = reference, .naive = in_float, .bound = sums}, kGradient);
  };
  for (const auto& [name, gradient] : joint_gradients(module)) {
    SCOPED_TRACE(name);
    expect(gradient, exact.parameters.at(name), naive.parameters.at(name), bound.parameters.at(name));
  }
  expect(found.query, exact.query, naive.query, bound.query);
  expect(found.key, exact.key, naive.key, bound.key);
  expect(found.value, exact.value, naive.value, bound.value);
}

class ModulesBackward : public EachIsa {};

TEST_P(ModulesBackward, EveryClassAgreesWithTheSameByHand) {
  for (const std::int64_t seqlen : {1, 2, 7, 17, 65}) {
    SCOPED_TRACE(seqlen);
    const Tensor x = randn(static_cast<std::uint64_t>(seqlen), {2, seqlen, 5});
    for_each_class([&](AttentionModule& module) { expect_gradients_like_by_hand(module, {.inputs = {x, x, x}}); });
  }
}

TEST_P(ModulesBackward, CrossAttentionMasksAndSharedKeyHeads) {
  for (const auto& [seqlen_q, seqlen_k] : {std::pair{1, 9}, {7, 3}, {33, 70}}) {
    TorchGenerator generator(2);
    MultiHeadAttention module({.d_in = 6,
                               .d_out = 12,
                               .num_heads = 6,
                               .num_kv_heads = 2,
                               .key_width = 4,
                               .value_width = 5,
                               .qkv_bias = true},
                              generator);
    const Inputs inputs{randn(3, {2, seqlen_q, 6}), randn(4, {2, seqlen_k, 4}), randn(5, {2, seqlen_k, 5})};
    expect_gradients_like_by_hand(module, {.inputs = inputs});
    expect_gradients_like_by_hand(
        module, {.inputs = inputs, .mask = random_mask(6, {6, seqlen_q, seqlen_k}), .options = {.causal = true}});
    expect_gradients_like_by_hand(module, {.inputs = inputs, .mask = randn(7, {2, 1, seqlen_q, seqlen_k})});
    expect_gradients_like_by_hand(module, {.inputs = inputs, .key_mask = random_mask(8, {2, seqlen_k})});
  }
}

TEST_P(ModulesBackward, AppendedKeysGetTheirShare) {
  for (const bool zero : {false, true}) {
    TorchGenerator generator(4);
    MultiHeadAttention module(
        {.d_in = 6, .d_out = 8, .num_heads = 4, .num_kv_heads = 2, .add_bias_kv = true, .add_zero_attn = zero},
        generator);
    const Tensor x = randn(9, {2, 19, 6});
    expect_gradients_like_by_hand(module, {.inputs = {x, x, x}});
    expect_gradients_like_by_hand(module, {.inputs = {x, x, x}, .options = {.causal = true}});
    expect_gradients_like_by_hand(module, {.inputs = {x, x, x}, .mask = random_mask(6, {19, 19})});
  }
}

TEST_P(ModulesBackward, DropoutDropsTheSameOnTheWayBack) {
  for (const bool appended : {false, true}) {
    TorchGenerator generator(4);
    MultiHeadAttention module({.d_in = 6,
                               .d_out = 8,
                               .num_heads = 2,
                               .dropout = 0.4,
                               .add_bias_kv = appended,
                               .add_zero_attn = appended},
                              generator);
    module.seed_dropout(99);
    const Tensor x = randn(9, {2, 21, 6});
    const auto factor = [](std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t column) {
      const auto word = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
      return dropout_keeps(99, 0, word(batch * 2 + head), word(row), word(column), 0.4) ? 1.0 / (1.0 - 0.4) : 0.0;
    };
    expect_gradients_like_by_hand(module, {.inputs = {x, x, x}, .dropout_factor = factor});
  }
}

TEST_P(ModulesBackward, DropoutDrawnAsPyTorchDoes) {
  for (const bool appended : {false, true}) {
    TorchGenerator parameters(4), drawn(5), again(5);
    MultiHeadAttention module({.d_in = 6,
                               .d_out = 8,
                               .num_heads = 4,
                               .num_kv_heads = 2,
                               .dropout = 0.4,
                               .add_bias_kv = appended,
                               .add_zero_attn = appended},
                              parameters);
    const Tensor x = randn(9, {2, 11, 6});
    const Tensor keep = again.dropout_mask({2, 4, 11, appended ? 13 : 11}, 0.4);
    expect_gradients_like_by_hand(
        module, {.inputs = {x, x, x},
                 .dropout_factor = [&](auto b, auto h, auto i,
                                       auto j) { return keep.at<bool>(b, h, i, j) ? 1.0 / (1.0 - 0.4) : 0.0; },
                 .options = {.dropout_generator = &drawn}});
  }
}

SACCADE_FOR_EACH_ISA(ModulesBackward);

// ---- What a training loop relies on --------------------------------------------------------------------------

TEST(ModulesBackwardCalls, OneInputGetsTheSumOfItsThreeParts) {
  TorchGenerator generator(1);
  MultiHeadAttention module({.d_in = 5, .d_out = 8, .num_heads = 2, .causal = true}, generator);
  const Tensor x = randn(1, {2, 9, 5}), dout = randn(2, {2, 9, 8});
  module.forward(x, x, x);
  const InputGradients apart = module.backward(dout);
  module.forward(x);
  const InputGradients together = module.backward(dout);
  EXPECT_EQ(together.query.rank(), 0);
  for (std::size_t i = 0; i < x.values<float>().size(); ++i) {
    const float query = apart.query.values<float>()[i], key = apart.key.values<float>()[i];
    EXPECT_EQ(together.x.values<float>()[i], query + key + apart.value.values<float>()[i]);
  }
}

TEST(ModulesBackwardCalls, AddUpUntilTheyAreZeroed) {
  TorchGenerator generator(1);
  CausalAttention module({.d_in = 3, .d_out = 4, .qkv_bias = true}, generator);
  const Tensor x = randn(1, {5, 3}), dout = randn(2, {5, 4});
  for (const NamedParameter& parameter : module.parameters()) EXPECT_FALSE(parameter.gradient) << parameter.name;
  const auto gradient = [&] { return Tensor::copy_of(module.parameters().at(0).gradient); };
  module.forward(x);
  module.backward(dout);
  const Tensor once = gradient();
  module.forward(x);
  module.backward(dout);
  const Tensor twice = gradient();
  for (std::size_t i = 0; i < once.values<float>().size(); ++i)
    EXPECT_NEAR(twice.values<float>()[i], 2 * once.values<float>()[i], 1e-6 * std::abs(once.values<float>()[i]));
  module.zero_grad();
  EXPECT_THAT(gradient().values<float>(), testing::Each(0.0f));
}

TEST(ModulesBackwardCalls, SequenceFirstAndNoBatchAreOtherViewsOfTheSame) {
  TorchGenerator generator(1), again(1);
  const MultiHeadAttentionOptions options{.d_in = 5, .d_out = 8, .num_heads = 2};
  MultiHeadAttentionOptions sequence_first_options = options;
  sequence_first_options.batch_first = false;
  MultiHeadAttention batch_first(options, generator), sequence_first(sequence_first_options, again);
  const Tensor x = randn(1, {1, 9, 5}), dout = randn(2, {1, 9, 8});
  batch_first.forward(x);
  const Tensor expected = batch_first.backward(dout).x;
  sequence_first.forward(x.reshaped({9, 1, 5}));
  const Tensor with_batch = sequence_first.backward(dout.reshaped({9, 1, 8})).x;
  EXPECT_EQ(with_batch.shape(), (Shape{9, 1, 5}));
  EXPECT_THAT(with_batch.values<float>(), ElementsAreArray(expected.values<float>()));
  batch_first.forward(x.reshaped({9, 5}));
  const Tensor without_batch = batch_first.backward(dout.reshaped({9, 8})).x;
  EXPECT_EQ(without_batch.shape(), (Shape{9, 5}));
  EXPECT_THAT(without_batch.values<float>(), ElementsAreArray(expected.values<float>()));
}

TEST(ModulesBackwardCalls, AreTheSameForAnyNumberOfThreads) {
  TorchGenerator generator(1);
  MultiHeadAttention module({.d_in = 24, .d_out = 32, .num_heads = 2, .causal = true, .dropout = 0.1}, generator);
  const Tensor x = randn(1, {3, 300, 24}), dout = randn(2, {3, 300, 32});
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    module.seed_dropout(5);
    module.zero_grad();
    module.forward(x, {.num_threads = threads});
    std::vector<Tensor> gradients;
    gradients.push_back(module.backward(dout).x);
    for (const NamedParameter& parameter : module.parameters()) {
      gradients.push_back(Tensor::copy_of(parameter.gradient));
    }
    if (first.empty()) first = gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_TRUE(std::ranges::equal(gradients[i].values<float>(), first[i].values<float>())) << threads;
  }
}

TEST(ModulesBackwardCalls, NeedNoMaskOrInputThatIsGone) {
  TorchGenerator generator(1);
  MultiHeadAttention module({.d_in = 5, .d_out = 8, .num_heads = 2}, generator);
  const Tensor x = randn(1, {2, 9, 5}), dout = randn(2, {2, 9, 8}), mask = random_mask(3, {9, 9});
  module.forward(x, {.mask = mask});
  const Tensor expected = module.backward(dout).x;
  {
    Tensor passing = x, passing_mask = mask;
    module.forward(passing, {.mask = passing_mask});
    std::ranges::fill(passing.values<float>(), NAN);
    std::ranges::fill(passing_mask.values<bool>(), false);
  }
  EXPECT_THAT(module.backward(dout).x.values<float>(), ElementsAreArray(expected.values<float>()));
}

TEST(ModulesBackwardCalls, NeedAForwardCallInTraining) {
  TorchGenerator generator(1);
  CausalAttention module({.d_in = 3, .d_out = 4}, generator);
  const Tensor x = randn(1, {5, 3}), dout = randn(2, {5, 4});
  EXPECT_THROW(module.backward(dout), std::logic_error);
  module.eval();
  module.forward(x);
  EXPECT_THROW(module.backward(dout), std::logic_error);
  module.train();
  module.forward(x);
  module.backward(dout);
  EXPECT_THROW(module.backward(dout), std::logic_error);
}

TEST(ModulesBackwardCalls, RefuseAnotherShapeOfDout) {
  TorchGenerator generator(1);
  CausalAttention module({.d_in = 3, .d_out = 4}, generator);
  module.forward(randn(1, {2, 5, 3}));
  for (const Shape& shape : {Shape{2, 5, 3}, {5, 4}, {2, 4, 4}, {2, 5, 4, 1}, {4}}) {
    try {
      module.backward(randn(2, shape));
      ADD_FAILURE() << to_string(shape) << " was taken";
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("[CausalAttention] dout must be f32 and shaped as the output of the last "
                            "forward call, batch first [2, 5, 4], got f32 " +
                            to_string(shape)));
    }
  }
  module.backward(randn(2, {2, 5, 4}));
}

}  // namespace
}  // namespace saccade::test
