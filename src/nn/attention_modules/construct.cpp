// The constructors of the module classes: the parameters of each class, their names and how they are drawn.
#include <array>
#include <utility>

#include "core/check.h"
#include "nn/attention_modules/names.h"
#include "saccade/attention_modules.h"

namespace saccade {
namespace {

void require_positive(const std::string& module, const std::string& option, std::int64_t value) {
  if (value < 1) refuse(module, option, " must be at least 1, got ", value);
}

void require_divisible(const std::string& module, const std::string& option, std::int64_t value,
                       const std::string& divisor_option, std::int64_t divisor) {
  if (value % divisor == 0) return;
  refuse(module, option, " must be a multiple of ", divisor_option, ", got ", option, " ", value, " and ",
         divisor_option, " ", divisor);
}

ModuleConfig config_of(const SelfAttentionOptions& options) {
  if (options.qkv_bias && options.weight_layout == WeightLayout::in_out) {
    refuse("SelfAttention", "qkv_bias needs linear layers: plain parameters have no bias");
  }
  return {.d_in = options.d_in,
          .key_width = options.d_in,
          .value_width = options.d_in,
          .d_out = options.d_out,
          .head_dim = options.d_out,
          .weight_layout = options.weight_layout};
}

ModuleConfig config_of(const CausalAttentionOptions& options) {
  return {.d_in = options.d_in,
          .key_width = options.d_in,
          .value_width = options.d_in,
          .d_out = options.d_out,
          .head_dim = options.d_out,
          .context_length = options.context_length,
          .causal = true,
          .dropout = options.dropout};
}

ModuleConfig config_of(const MultiHeadAttentionWrapperOptions& options) {
  const std::string where = "MultiHeadAttentionWrapper";
  require_positive(where, "num_heads", options.num_heads);
  require_positive(where, "d_out", options.d_out);
  return {.d_in = options.d_in,
          .key_width = options.d_in,
          .value_width = options.d_in,
          .d_out = element_count(std::array{options.d_out, options.num_heads}),
          .num_heads = options.num_heads,
          .num_kv_heads = options.num_heads,
          .head_dim = options.d_out,
          .context_length = options.context_length,
          .causal = true,
          .dropout = options.dropout,
          .independent_heads = true};
}

ModuleConfig config_of(const MultiHeadAttentionOptions& options) {
  const std::string where = "MultiHeadAttention";
  const auto or_else = [](std::int64_t value, std::int64_t fallback) { return value != 0 ? value : fallback; };
  const std::int64_t num_kv_heads = or_else(options.num_kv_heads, options.num_heads);
  require_positive(where, "num_heads", options.num_heads);
  require_positive(where, "num_kv_heads", num_kv_heads);
  require_divisible(where, "d_out", options.d_out, "num_heads", options.num_heads);
  require_divisible(where, "num_heads", options.num_heads, "num_kv_heads", num_kv_heads);
  return {.d_in = options.d_in,
          .key_width = or_else(options.key_width, options.d_in),
          .value_width = or_else(options.value_width, options.d_in),
          .d_out = options.d_out,
          .num_heads = options.num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = options.d_out / options.num_heads,
          .context_length = options.context_length,
          .causal = options.causal,
          .dropout = options.dropout,
          .add_zero_attn = options.add_zero_attn,
          .batch_first = options.batch_first};
}

/// Draws a linear layer as nn.Linear does; the bias only if there is one.
void draw_linear(TorchGenerator& generator, Parameter& weight, Parameter& bias) {
  auto linear = generator.linear(weight.value.shape(1), weight.value.shape(0), bias.value.rank() != 0);
  weight.value = std::move(linear.weight);
  bias.value = std::move(linear.bias);
}

}  // namespace

AttentionModule::AttentionModule(std::string name, const ModuleConfig& config)
    : Module(std::move(name)), config_(config) {
  require_positive(this->name(), "d_in", config.d_in);
  require_positive(this->name(), "d_out", config.d_out);
  require_positive(this->name(), "key_width", config.key_width);
  require_positive(this->name(), "value_width", config.value_width);
  if (config.context_length < 0) {
    refuse(this->name(), "context_length must not be negative, got ", config.context_length);
  }
  if (!(config.dropout >= 0.0 && config.dropout < 1.0)) {
    refuse(this->name(), "dropout must be at least 0 and below 1, got ", config.dropout);
  }
}

void AttentionModule::add(std::string name, Parameter Weights::*parameter, Shape shape) {
  slots_.push_back({std::move(name), parameter, 0, shape.front()});
  (weights_.*parameter).value = Tensor(DType::f32, std::move(shape));
}

void AttentionModule::add_projections(bool bias) {
  const auto add_linear = [&](const std::string& layer, Parameter Weights::*weight,
                              Parameter Weights::*bias_of_layer, std::int64_t heads, std::int64_t width) {
    add(layer + ".weight", weight, {heads * config_.head_dim, width});
    if (bias) add(layer + ".bias", bias_of_layer, {heads * config_.head_dim});
  };
  add_linear("W_query", &Weights::query, &Weights::query_bias, config_.num_heads, config_.d_in);
  add_linear("W_key", &Weights::key, &Weights::key_bias, config_.num_kv_heads, config_.key_width);
  add_linear("W_value", &Weights::value, &Weights::value_bias, config_.num_kv_heads, config_.value_width);
}

void AttentionModule::draw_projections(TorchGenerator& generator) {
  draw_linear(generator, weights_.query, weights_.query_bias);
  draw_linear(generator, weights_.key, weights_.key_bias);
  draw_linear(generator, weights_.value, weights_.value_bias);
}

void AttentionModule::seed_dropout_after(TorchGenerator generator) { seed_dropout(generator.next64()); }

// ---- SelfAttention -------------------------------------------------------------------------------------------

SelfAttention::SelfAttention(const SelfAttentionOptions& options)
    : AttentionModule("SelfAttention", config_of(options)) {
  if (options.weight_layout == WeightLayout::out_in) {
    add_projections(options.qkv_bias);
    return;
  }
  add("W_query", &Weights::query, {options.d_in, options.d_out});
  add("W_key", &Weights::key, {options.d_in, options.d_out});
  add("W_value", &Weights::value, {options.d_in, options.d_out});
}

SelfAttention::SelfAttention(const SelfAttentionOptions& options, TorchGenerator& generator)
    : SelfAttention(options) {
  if (options.weight_layout == WeightLayout::out_in) {
    draw_projections(generator);
  } else {
    for (Parameter* weight : {&weights_.query, &weights_.key, &weights_.value})
      weight->value = generator.rand(weight->value.shape());
  }
  seed_dropout_after(generator);
}

// ---- CausalAttention -----------------------------------------------------------------------------------------

CausalAttention::CausalAttention(const CausalAttentionOptions& options)
    : AttentionModule("CausalAttention", config_of(options)) {
  add_projections(options.qkv_bias);
}

CausalAttention::CausalAttention(const CausalAttentionOptions& options, TorchGenerator& generator)
    : CausalAttention(options) {
  draw_projections(generator);
  seed_dropout_after(generator);
}

// ---- MultiHeadAttentionWrapper -------------------------------------------------------------------------------

MultiHeadAttentionWrapper::MultiHeadAttentionWrapper(const MultiHeadAttentionWrapperOptions& options)
    : AttentionModule("MultiHeadAttentionWrapper", config_of(options)) {
  add_projections(options.qkv_bias);
  const std::vector<Slot> all_heads = std::exchange(slots_, {});
  for (std::int64_t head = 0; head < options.num_heads; ++head) {
    for (const Slot& slot : all_heads) {
      slots_.push_back(
          {head_prefix(head) + slot.name, slot.parameter, head * options.d_out, (head + 1) * options.d_out});
    }
  }
}

MultiHeadAttentionWrapper::MultiHeadAttentionWrapper(const MultiHeadAttentionWrapperOptions& options,
                                                     TorchGenerator& generator)
    : MultiHeadAttentionWrapper(options) {
  const CausalAttentionOptions one_head{
      .d_in = options.d_in, .d_out = options.d_out, .qkv_bias = options.qkv_bias};
  StateDict state;
  for (std::int64_t head = 0; head < options.num_heads; ++head) {
    for (auto& [parameter, value] : CausalAttention(one_head, generator).state_dict()) {
      state[head_prefix(head) + parameter] = std::move(value);
    }
  }
  load_state_dict(state);
  seed_dropout_after(generator);
}

// ---- MultiHeadAttention --------------------------------------------------------------------------------------

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options)
    : AttentionModule("MultiHeadAttention", config_of(options)) {
  add_projections(options.qkv_bias);
  if (options.add_bias_kv) {
    const Shape shape{1, 1, config().num_kv_heads * config().head_dim};
    add("bias_k", &Weights::bias_k, shape);
    add("bias_v", &Weights::bias_v, shape);
  }
  add("out_proj.weight", &Weights::out, {options.d_out, options.d_out});
  if (options.out_bias) add("out_proj.bias", &Weights::out_bias, {options.d_out});
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options, TorchGenerator& generator)
    : MultiHeadAttention(options) {
  if (options.init == Initialization::linear_layers) {
    draw_projections(generator);
    draw_linear(generator, weights_.out, weights_.out_bias);
  } else {
    draw_linear(generator, weights_.out, weights_.out_bias);
    if (options.out_bias) weights_.out_bias.value = Tensor(DType::f32, {options.d_out});
    draw_xavier_projections(generator);
  }
  if (options.add_bias_kv) {
    for (Parameter* bias : {&weights_.bias_k, &weights_.bias_v})
      bias->value = generator.xavier_normal(bias->value.shape());
  }
  seed_dropout_after(generator);
}

void MultiHeadAttention::draw_xavier_projections(TorchGenerator& generator) {
  const std::array layers{&weights_.query, &weights_.key, &weights_.value};
  const std::int64_t d_in = config().d_in;
  if (config().key_width != d_in || config().value_width != d_in) {
    for (Parameter* layer : layers) layer->value = generator.xavier_uniform(layer->value.shape());
    return;
  }
  std::int64_t all_rows = 0;
  for (const Parameter* layer : layers) all_rows += layer->value.shape(0);
  const Tensor in_proj = generator.xavier_uniform({all_rows, d_in});
  std::int64_t row = 0;
  for (Parameter* layer : layers) {
    const std::int64_t end = row + layer->value.shape(0);
    layer->value = Tensor::copy_of(in_proj.view().slice(0, std::exchange(row, end), end));
  }
}

}  // namespace saccade
