// Llama (arXiv:2302.13971, arXiv:2407.21783), Mistral (arXiv:2310.06825), Qwen2 (arXiv:2407.10671), Qwen3
// (arXiv:2505.09388), Gemma 1 to 3 (arXiv:2403.08295, arXiv:2408.00118, arXiv:2503.19786): decoders with RMS
// norms, rotary positions, grouped heads and gated feed-forward layers.
#include <cmath>

#include "model/families/common.h"

namespace saccade::model {
namespace {

/// Llama's table; the others change it.
ModelTable llama_table(const Config& config, bool is_tied) {
  ModelTable table{.vocab_size = config.size("vocab_size"), .prefixes = {"model."}};
  StackTable& stack = table.stack = usual_sizes(config);
  const bool has_bias = config.flag_or("attention_bias", false), mlp_has_bias = config.flag_or("mlp_bias", false);
  stack.is_causal = true;
  stack.norm = NormKind::rms;
  stack.norm_eps = config.number_or("rms_norm_eps", 1e-6);
  stack.activation = config.activation(config.has("hidden_act") ? "hidden_act" : "hidden_activation");
  stack.embedding = {.tokens = "embed_tokens", .dim = stack.d_model};
  stack.block = {.prefix = "layers.{}.",
                 .attention = {.query = {"self_attn.q_proj", has_bias},
                               .key = {"self_attn.k_proj", has_bias},
                               .value = {"self_attn.v_proj", has_bias},
                               .output = {"self_attn.o_proj", has_bias}},
                 .before_attention = "input_layernorm",
                 .up = {"mlp.up_proj", mlp_has_bias},
                 .gate = {"mlp.gate_proj", mlp_has_bias},
                 .down = {"mlp.down_proj", mlp_has_bias},
                 .before_mlp = "post_attention_layernorm"};
  stack.final_norm = "norm";
  is_tied = config.flag_or("tie_word_embeddings", is_tied);
  if (is_tied || has_architecture(config, "ForCausalLM"))
    table.head = {.decoder = "lm_head.weight", .is_tied = is_tied};
  return table;
}

/// Which layers have a sliding window: by layer_types if given, else by `is_sliding`.
template <class IsSliding>
std::vector<bool> sliding_layers(const Config& config, std::size_t layers, const IsSliding& is_sliding) {
  std::vector<bool> result(layers);
  const std::vector<std::string> types = config.texts("layer_types");
  if (!types.empty() && types.size() != layers)
    config.refuse("layer_types", "must have ", layers, " entries, but it has ", types.size());
  for (std::size_t i = 0; i < layers; ++i) {
    if (!types.empty() && types[i] != "sliding_attention" && types[i] != "full_attention")
      config.refuse("layer_types", "has '", types[i],
                    "', but only sliding_attention and full_attention are known");
    result[i] = types.empty() ? is_sliding(i) : types[i] == "sliding_attention";
  }
  return result;
}

void set_windows(const Config& config, StackTable& stack, const std::vector<bool>& is_sliding) {
  for (std::size_t i = 0; i < stack.layers.size(); ++i)
    if (is_sliding[i]) stack.layers[i].window_left = config.size("sliding_window") - 1;
}

/// Norms add 1 to their scale; embeddings are scaled by a factor that grows with their width.
void make_gemma(const Config& config, StackTable& stack) {
  stack.norm_offset = 1.0;
  stack.embedding.factor = static_cast<float>(std::sqrt(static_cast<double>(stack.d_model)));
  stack.activation = config.activation(config.has("hidden_activation") ? "hidden_activation" : "hidden_act");
}

/// Norms before and after both halves, and a scale that is independent of head_dim.
void make_gemma2(const Config& config, ModelTable& table) {
  StackTable& stack = table.stack;
  make_gemma(config, stack);
  stack.block.after_attention = "post_attention_layernorm";
  stack.block.before_mlp = "pre_feedforward_layernorm";
  stack.block.after_mlp = "post_feedforward_layernorm";
  for (LayerTable& layer : stack.layers) layer.scale = 1.0 / std::sqrt(config.number("query_pre_attn_scalar"));
  stack.softcap = config.number_or("attn_logit_softcapping", 0.0);
  table.head.softcap = config.number_or("final_logit_softcapping", 0.0);
}

}  // namespace

ModelTable llama(const Config& config) {
  ModelTable table = llama_table(config, false);
  add_rope(config, table.stack, "rope_theta", config.number_or("partial_rotary_factor", 1.0));
  return table;
}

ModelTable mistral(const Config& config) {
  ModelTable table = llama(config);
  if (config.has("sliding_window"))
    set_windows(config, table.stack, std::vector<bool>(table.stack.layers.size(), true));
  return table;
}

ModelTable qwen2(const Config& config) {
  ModelTable table = llama(config);
  AttentionTable& attention = table.stack.block.attention;
  attention.query.has_bias = attention.key.has_bias = attention.value.has_bias = true;
  if (config.flag_or("use_sliding_window", false)) {
    const auto first = static_cast<std::size_t>(config.number_or("max_window_layers", 0));
    set_windows(config, table.stack,
                sliding_layers(config, table.stack.layers.size(), [&](std::size_t i) { return i >= first; }));
  }
  return table;
}

ModelTable qwen3(const Config& config) {
  ModelTable table = qwen2(config);
  AttentionTable& attention = table.stack.block.attention;
  attention.query.has_bias = attention.key.has_bias = attention.value.has_bias =
      config.flag_or("attention_bias", false);
  attention.query_norm = "self_attn.q_norm", attention.key_norm = "self_attn.k_norm";
  return table;
}

ModelTable gemma(const Config& config) {
  ModelTable table = llama_table(config, true);
  add_rope(config, table.stack, "rope_theta", 1.0);
  make_gemma(config, table.stack);
  return table;
}

ModelTable gemma2(const Config& config) {
  ModelTable table = llama_table(config, true);
  add_rope(config, table.stack, "rope_theta", 1.0);
  make_gemma2(config, table);
  set_windows(config, table.stack,
              sliding_layers(config, table.stack.layers.size(), [](std::size_t i) { return i % 2 == 0; }));
  return table;
}

ModelTable gemma3(const Config& config) {
  ModelTable table = llama_table(config, true);
  StackTable& stack = table.stack;
  config.require_off("use_bidirectional_attention");
  make_gemma2(config, table);
  stack.block.attention.query_norm = "self_attn.q_norm", stack.block.attention.key_norm = "self_attn.k_norm";
  const auto pattern = static_cast<std::size_t>(config.size_or("sliding_window_pattern", 6));
  const std::vector<bool> is_sliding =
      sliding_layers(config, stack.layers.size(), [&](std::size_t i) { return (i + 1) % pattern != 0; });
  set_windows(config, stack, is_sliding);
  add_ropes_by_kind(config, stack, is_sliding);
  return table;
}

}  // namespace saccade::model
