// Wrong calls of projections, layers, attention modules and optimizers.
#include <memory>

#include "hostile/attention_arguments.h"
#include "hostile/checkpoint_arguments.h"
#include "hostile/wrong_calls.h"
#include "saccade/attention_modules.h"
#include "saccade/functional.h"
#include "saccade/layers.h"
#include "saccade/linear.h"
#include "saccade/optim.h"
#include "saccade/packed_linear.h"

namespace saccade::test {
namespace {

Activation activation_of(Arguments& a) {
  return a.choice("activation", {Activation::none, Activation::gelu, Activation::silu});
}
WeightLayout weight_layout_of(Arguments& a) { return a.choice("weight_layout", {WeightLayout::out_in}); }

// ---- Functions -----------------------------------------------------------------------------------------------

void call_activations(Arguments& a) {
  const Shape shape{3, 8};
  const Activation f = activation_of(a);
  activate(f, a.tensor("x", shape), a.result("y", shape));
  activate_backward(f, a.tensor("x", shape), a.tensor("dout", shape), a.result("dx", shape));
  activate_gated(f, a.tensor("gate", shape), a.tensor("x", shape), a.result("y", shape));
}

void call_norms(Arguments& a) {
  const TensorView x = a.tensor("x", {3, 8}), scale = a.tensor("scale", {8});
  layer_norm(x, scale, a.tensor("shift", {8}), a.result("y", {3, 8}), a.real("eps", 1e-5));
  rms_norm(x, scale, a.result("y", {3, 8}), a.real("eps", 1e-5));
}

void call_linear(Arguments& a) {
  LinearOptions options{.weight_layout = weight_layout_of(a)};
  if (a.below(2) == 0) options.bias = a.tensor("bias", {5});
  if (a.below(2) == 0) options.num_threads = a.small_number("num_threads", 2);
  const TensorView x = a.tensor("x", {3, 8}), weight = a.tensor("weight", {5, 8});
  linear(x, weight, a.result("y", {3, 5}), options);
  linear(x, weight, options);
  LinearGradients gradients{.dx = a.result("dx", {3, 8}), .dweight = a.result("dweight", {5, 8})};
  if (a.below(2) == 0) gradients.dbias = a.result("dbias", {5});
  gradients.accumulate = a.below(2) == 0;
  linear_backward(x, weight, a.tensor("dout", {3, 5}), gradients, options);
}

void call_packed_linear(Arguments& a) {
  PackedLinearOptions options{.weight_layout = weight_layout_of(a), .activation = activation_of(a)};
  if (a.below(2) == 0) options.bias = a.tensor("bias", {5});
  PackedLinear packed(a.tensor("weight", {5, 8}), options);
  PackedLinear moved = std::move(packed);
  packed = PackedLinear(random_tensor({5, 8}, 1));
  const TensorView x = a.tensor("x", {3, 8});
  moved.forward(x, a.result("y", {3, 5}), a.small_number("num_threads", 2));
  moved.forward(x, a.small_number("num_threads", 0));
  packed.add_to(x, a.result("y", {3, 5}), a.small_number("num_threads", 0));
  moved.backward(x, a.tensor("dout", {3, 5}), a.small_number("num_threads", 0));
}

void call_nothing_packed(Arguments& a) {
  if (!a.is_wrong("PackedLinear")) return;
  a.name("weight");
  PackedLinear().forward(a.tensor("x", {3, 8}));
}

void call_cross_entropy(Arguments& a) {
  CrossEntropyOptions options;
  if (a.below(2) == 0) options.ignore_index = a.number("ignore_index", 2);
  if (a.below(2) == 0) options.losses = a.result("losses", {3});
  if (a.below(2) == 0) options.dlogits = a.result("dlogits", {3, 7});
  if (a.below(2) == 0) options.num_threads = a.small_number("num_threads", 2);
  cross_entropy(a.tensor("logits", {3, 7}), a.view_of("targets", Tensor::of<std::int64_t>({0, 6, 2})), options);
}

// ---- Layers --------------------------------------------------------------------------------------------------

/// A forward and a backward pass, of a copy and of an argument that is given away.
template <class Layer>
void call_layer(Arguments& a, Layer layer, const Shape& in, const Shape& out) {
  layer.forward(a.tensor("x", in));
  layer.backward(a.tensor("dout", out));
  layer.forward(a.owned("x", in));
  layer.train(a.below(2) == 0);
  if (layer.training()) layer.zero_grad();
  layer.forward(a.tensor("x", in));
  if (layer.training() || a.is_wrong("training")) layer.backward(a.tensor("dout", out));
}

void call_layers(Arguments& a) {
  a.name("d_in");
  TorchGenerator generator(1);
  switch (a.below(7)) {
    case 0:
      return call_layer(a, Linear(a.number("d_in", 8), a.number("d_out", 5), a.below(2) == 0), {3, 8}, {3, 5});
    case 1:
      return call_layer(a, Linear(a.number("d_in", 8), a.number("d_out", 5), generator), {3, 8}, {3, 5});
    case 2:
      return call_layer(a, LayerNorm(a.number("dim", 8), a.real("eps", 1e-5)), {3, 8}, {3, 8});
    case 3:
      return call_layer(a, Gelu(), {3, 8}, {3, 8});
    case 4:
      return call_layer(a, Dropout(a.real("p", 0.5)), {3, 8}, {3, 8});
    case 5:
      return call_layer(a, FeedForward(a.number("dim", 8), a.number("hidden", 16)), {3, 8}, {3, 8});
    default:
      return call_layer(a, FeedForward(a.number("dim", 8), a.number("hidden", 16), generator), {3, 8}, {3, 8});
  }
}

void call_embedding(Arguments& a) {
  TorchGenerator generator(1);
  const std::int64_t rows = a.number("num_embeddings", 9), dim = a.number("dim", 8);
  Embedding table = a.below(2) == 0 ? Embedding(rows, dim) : Embedding(rows, dim, generator);
  table.forward(a.view_of("tokens", Tensor::of<std::int64_t>({0, 8, 8})));
  table.backward(a.tensor("dout", {3, 8}));
}

void call_checkpoints(Arguments& a) {
  FeedForward layer(4, 8);
  layer.load_state_dict(changed(a, layer.state_dict()));
  layer.seed_dropout(a.below(9));
  EvalMode mode(layer);
}

// ---- Attention modules -----------------------------------------------------------------------------------------

ForwardOptions forward_options(Arguments& a) {
  const auto is_given = [&] { return a.below(4) == 0; };
  ForwardOptions options;
  if (is_given()) options.mask = a.tensor("mask", a.one_of<Shape>({{6}, {6, 6}}));
  if (is_given())
    options.key_mask = a.view_of("key_mask", Tensor::of<bool>({true, true, true, true, true, false}));
  options.causal = is_given();
  if (is_given())
    options.alignment = a.choice("alignment", {Causal::none, Causal::top_left, Causal::bottom_right});
  if (is_given()) options.weights = a.choice("weights", {HeadWeights::per_head, HeadWeights::averaged});
  options.steps = is_given();
  if (is_given()) options.num_threads = a.small_number("num_threads", 2);
  return options;
}

void run_module(Arguments& a, AttentionModule&& module, std::int64_t d_out) {
  const ForwardOptions options = forward_options(a);
  module.forward(a.tensor("x", {2, 6, 8}), options);
  module.backward(a.tensor("dout", {2, 6, d_out}));
  module.forward(a.tensor("query", {2, 6, 8}), a.tensor("key", {2, 6, 8}), a.tensor("value", {2, 6, 8}), options);
  module.eval();
  module.forward_into(a.tensor("x", {2, 6, 8}), a.result("output", {2, 6, d_out}),
                      a.small_number("num_threads", 1));
}

template <class Module, class Options>
void make_module(Arguments& a, const Options& options, std::int64_t d_out) {
  TorchGenerator generator(1);
  a.below(2) == 0 ? run_module(a, Module(options), d_out) : run_module(a, Module(options, generator), d_out);
}

void call_modules(Arguments& a) {
  const std::int64_t d_in = a.number("d_in", 8), d_out = a.number("d_out", 4);
  const std::int64_t context_length = a.below(2) == 0 ? a.number("context_length", 6) : 0;
  const double dropout = a.below(2) == 0 ? a.real("dropout", 0.1) : 0.0;
  switch (a.below(4)) {
    case 0:
      return make_module<SelfAttention>(
          a, SelfAttentionOptions{.d_in = d_in, .d_out = d_out, .weight_layout = weight_layout_of(a)}, 4);
    case 1:
      return make_module<CausalAttention>(
          a,
          CausalAttentionOptions{
              .d_in = d_in, .d_out = d_out, .context_length = context_length, .dropout = dropout},
          4);
    case 2:
      return make_module<MultiHeadAttentionWrapper>(
          a,
          MultiHeadAttentionWrapperOptions{.d_in = d_in,
                                           .d_out = d_out,
                                           .num_heads = a.number("num_heads", 2),
                                           .context_length = context_length,
                                           .dropout = dropout},
          8);
    default:
      MultiHeadAttentionOptions options{.d_in = d_in, .d_out = d_out, .num_heads = a.number("num_heads", 2)};
      if (a.below(2) == 0) options.num_kv_heads = a.number("num_kv_heads", 1);
      if (a.below(2) == 0) options.key_width = a.number("key_width", 8);
      if (a.below(2) == 0) options.value_width = a.number("value_width", 8);
      options.context_length = context_length, options.dropout = dropout;
      options.add_bias_kv = a.below(4) == 0, options.add_zero_attn = a.below(4) == 0;
      options.init = a.choice("init", {Initialization::linear_layers, Initialization::torch_multihead});
      return make_module<MultiHeadAttention>(a, options, 4);
  }
}

void call_module_of_checkpoint(Arguments& a) {
  MultiHeadAttention module({.d_in = 8, .d_out = 4, .num_heads = 2, .context_length = 5, .causal = true});
  const StateDict state = a.below(2) == 0 ? module.state_dict() : module.published_state_dict();
  CheckpointOptions options{.num_heads = a.number("num_heads", 2)};
  if (a.below(2) == 0) options.causal = a.below(2) == 0;
  if (a.below(4) == 0) options.context_length = a.number("context_length", 5);
  if (a.below(2) == 0) options.dropout = a.real("dropout", 0.1);
  if (options.causal == false && state.contains("mask")) options.causal = true;
  module_from_state_dict(changed(a, state), options);
}

void call_functions_of_modules(Arguments& a) {
  mask_from_torch(a.tensor("mask", {6, 9}));
  AttentionOptions options;
  draw_options(a, options);
  options.mask = {};
  scaled_dot_product_attention(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), a.tensor("mask", {6, 9}),
                               options);
}

// ---- Optimizers ----------------------------------------------------------------------------------------------

void call_optimizers(Arguments& a) {
  FeedForward layer(4, 8);
  layer.forward(random_tensor({3, 4}, 1));
  layer.backward(random_tensor({3, 4}, 2));
  AdamW adam(layer, {.lr = a.real("lr", 1e-3),
                     .beta1 = a.real("beta1", 0.9),
                     .beta2 = a.real("beta2", 0.99),
                     .eps = a.real("eps", 1e-8),
                     .weight_decay = a.real("weight_decay", 0.1)});
  Sgd sgd(layer, {.lr = a.real("lr", 1e-3),
                  .momentum = a.real("momentum", 0.9),
                  .dampening = a.real("dampening", 0.0),
                  .weight_decay = a.real("weight_decay", 0.1),
                  .nesterov = a.is_wrong("nesterov")});
  for (Optimizer* optimizer : std::initializer_list<Optimizer*>{&adam, &sgd}) {
    optimizer->step();
    optimizer->set_lr(a.real("lr", 1e-4));
    optimizer->load_state_dict(changed(a, optimizer->state_dict()));
    optimizer->step();
  }
  clip_grad_norm(layer, a.real("max_norm", 1.0));
}

void call_schedule(Arguments& a) {
  const WarmupCosine schedule{.lr = a.real("lr", 1e-3),
                              .min_lr = a.real("min_lr", 0.0),
                              .warmup_steps = a.number("warmup_steps", 3),
                              .total_steps = a.number("total_steps", 9)};
  (void)schedule.at(a.number("step", 5));
}

std::vector<Caller> layer_callers() {
  return {
      {{"activate(activation, x, y)", "activate_backward(activation, x, dout, dx)",
        "activate_gated(activation, gate, x, y)"},
       call_activations},
      {{"layer_norm(x, scale, shift, y, eps)", "rms_norm(x, scale, y, eps)"}, call_norms},
      {{"linear(x, weight, y)", "linear(x, weight)", "linear_backward(x, weight, dout, gradients)"}, call_linear},
      {{"PackedLinear::PackedLinear(weight)", "PackedLinear::forward(x, y, num_threads)",
        "PackedLinear::forward(x, num_threads)", "PackedLinear::add_to(x, y, num_threads)",
        "PackedLinear::backward(x, dout, num_threads)"},
       call_packed_linear,
       Throws::invalid_argument,
       {"linear"}},
      {{"PackedLinear::forward(x, num_threads)"}, call_nothing_packed},
      {{"cross_entropy(logits, targets)"}, call_cross_entropy},
      {{"Linear::Linear(d_in, d_out, bias)", "Linear::Linear(d_in, d_out, generator, bias)", "Linear::forward(x)",
        "Linear::backward(dout)", "LayerNorm::LayerNorm(dim, eps)", "LayerNorm::forward(x)",
        "LayerNorm::backward(dout)", "Gelu::forward(x)", "Gelu::backward(dout)", "Dropout::Dropout(p)",
        "Dropout::forward(x)", "Dropout::backward(dout)", "FeedForward::FeedForward(dim, hidden)",
        "FeedForward::FeedForward(dim, hidden, generator)", "FeedForward::forward(x)",
        "FeedForward::backward(dout)", "Module::train(training)"},
       call_layers,
       Throws::logic_error,
       {"Linear", "linear_backward"}},
      {{"Embedding::Embedding(num_embeddings, dim)", "Embedding::Embedding(num_embeddings, dim, generator)",
        "Embedding::forward(tokens)", "Embedding::backward(dout)"},
       call_embedding},
      {{"Module::load_state_dict(state)", "Module::seed_dropout(seed)", "FeedForward::FeedForward(dim, hidden)",
        "EvalMode::EvalMode(module)"},
       call_checkpoints},
      {{"AttentionModule::forward(x)", "AttentionModule::backward(dout)",
        "AttentionModule::forward(query, key, value)", "AttentionModule::forward_into(x, output, num_threads)",
        "SelfAttention::SelfAttention()", "SelfAttention::SelfAttention(generator)",
        "CausalAttention::CausalAttention()", "CausalAttention::CausalAttention(generator)",
        "MultiHeadAttentionWrapper::MultiHeadAttentionWrapper()",
        "MultiHeadAttentionWrapper::MultiHeadAttentionWrapper(generator)",
        "MultiHeadAttention::MultiHeadAttention()", "MultiHeadAttention::MultiHeadAttention(generator)"},
       call_modules,
       Throws::invalid_argument,
       {"attention", "linear", "linear_backward"}},
      {{"module_from_state_dict(state)", "MultiHeadAttention::MultiHeadAttention()"}, call_module_of_checkpoint},
      {{"mask_from_torch(mask)", "scaled_dot_product_attention(q, k, v, mask)"},
       call_functions_of_modules,
       Throws::invalid_argument,
       {"attention"}},
      {{"AdamW::AdamW(module)", "Sgd::Sgd(module)", "Optimizer::set_lr(lr)", "Optimizer::load_state_dict(state)",
        "clip_grad_norm(module, max_norm)"},
       call_optimizers,
       Throws::invalid_argument,
       {"AdamW", "Sgd"}},
      {{"WarmupCosine::at(step)"}, call_schedule},
  };
}

TEST(WrongCallsOfLayers, AreRefusedInTheHousesForm) { make_wrong_calls(layer_callers(), 4000); }

TEST(WrongCallsOfLayers, CoverEveryFunction) {
  expect_all_called(
      {"attention_modules.h", "functional.h", "layers.h", "linear.h", "module.h", "optim.h", "packed_linear.h"},
      layer_callers(), {});
}

}  // namespace
}  // namespace saccade::test
