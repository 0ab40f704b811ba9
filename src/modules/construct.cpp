// The module classes: which parameters each one has, what they are called and how they are drawn.
#include <array>
#include <utility>

#include "check.h"
#include "modules/names.h"
#include "saccade/modules.h"

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

/// Rows [first, end) of a matrix, as a matrix of their own.
Tensor rows(const Tensor& matrix, std::int64_t first, std::int64_t end) {
  return Tensor::copy_of(matrix.view().slice(0, first, end));
}

}  // namespace

AttentionModule::AttentionModule(std::string name, const ModuleConfig& config)
    : name_(std::move(name)), config_(config) {
  require_positive(name_, "d_in", config.d_in);
  require_positive(name_, "d_out", config.d_out);
  require_positive(name_, "key_width", config.key_width);
  require_positive(name_, "value_width", config.value_width);
  if (config.context_length < 0) {
    refuse(name_, "context_length must not be negative, got ", config.context_length);
  }
  if (!(config.dropout >= 0.0 && config.dropout < 1.0)) {
    refuse(name_, "dropout must be at least 0 and below 1, got ", config.dropout);
  }
}

void AttentionModule::add(std::string parameter, Tensor Weights::*tensor, Shape shape) {
  slots_.push_back({std::move(parameter), tensor, 0, shape.front()});
  weights_.*tensor = Tensor(DType::f32, std::move(shape));
}

void AttentionModule::add_projections(bool bias) {
  const auto add_linear = [&](const std::string& layer, Tensor Weights::*weight, Tensor Weights::*bias_of_layer,
                              std::int64_t heads, std::int64_t width) {
    add(layer + ".weight", weight, {heads * config_.head_dim, width});
    if (bias) add(layer + ".bias", bias_of_layer, {heads * config_.head_dim});
  };
  add_linear("W_query", &Weights::query, &Weights::query_bias, config_.num_heads, config_.d_in);
  add_linear("W_key", &Weights::key, &Weights::key_bias, config_.num_kv_heads, config_.key_width);
  add_linear("W_value", &Weights::value, &Weights::value_bias, config_.num_kv_heads, config_.value_width);
}

void AttentionModule::draw_projections(TorchGenerator& generator) {
  const auto draw = [&](Tensor& weight, Tensor& bias) {
    auto linear = generator.linear(weight.shape(1), weight.shape(0), bias.rank() != 0);
    weight = std::move(linear.weight);
    bias = std::move(linear.bias);
  };
  draw(weights_.query, weights_.query_bias);
  draw(weights_.key, weights_.key_bias);
  draw(weights_.value, weights_.value_bias);
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
    for (Tensor* weight : {&weights_.query, &weights_.key, &weights_.value})
      *weight = generator.rand(weight->shape());
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
          {head_prefix(head) + slot.name, slot.tensor, head * options.d_out, (head + 1) * options.d_out});
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
  const auto draw_out_proj = [&] {
    auto linear = generator.linear(options.d_out, options.d_out, options.out_bias);
    weights_.out = std::move(linear.weight);
    weights_.out_bias = std::move(linear.bias);
  };
  if (options.init == Initialization::linear_layers) {
    draw_projections(generator);
    draw_out_proj();
  } else {
    draw_out_proj();
    if (options.out_bias) weights_.out_bias = Tensor(DType::f32, {options.d_out});
    draw_xavier_projections(generator);
  }
  if (options.add_bias_kv) {
    weights_.bias_k = generator.xavier_normal(weights_.bias_k.shape());
    weights_.bias_v = generator.xavier_normal(weights_.bias_v.shape());
  }
  seed_dropout_after(generator);
}

void MultiHeadAttention::draw_xavier_projections(TorchGenerator& generator) {
  const std::int64_t d_in = config().d_in;
  if (config().key_width != d_in || config().value_width != d_in) {
    for (Tensor* weight : {&weights_.query, &weights_.key, &weights_.value}) {
      *weight = generator.xavier_uniform(weight->shape());
    }
    return;
  }
  const std::int64_t q_end = weights_.query.shape(0);
  const std::int64_t k_end = q_end + weights_.key.shape(0), v_end = k_end + weights_.value.shape(0);
  const Tensor in_proj = generator.xavier_uniform({v_end, d_in});
  weights_.query = rows(in_proj, 0, q_end);
  weights_.key = rows(in_proj, q_end, k_end);
  weights_.value = rows(in_proj, k_end, v_end);
}

}  // namespace saccade
