// GPT-2 (Radford et al. 2019) and GPT-NeoX, Pythia (arXiv:2204.06745): decoders with layer norms before each half.
#include <cmath>

#include "model/families/common.h"

namespace saccade::model {

ModelTable gpt2(const Config& config) {
  config.require_off("add_cross_attention");
  config.require_off("scale_attn_by_inverse_layer_idx");
  ModelTable table{.vocab_size = config.size("vocab_size"),
                   .max_length = config.size("n_positions"),
                   .prefixes = {"transformer."}};
  StackTable& stack = table.stack;
  stack.d_model = config.size("n_embd");
  stack.d_hidden = config.size_or("n_inner", 4 * stack.d_model);
  stack.num_heads = stack.num_kv_heads = config.size("n_head");
  if (stack.d_model % stack.num_heads != 0)
    config.refuse("n_embd", "must be a multiple of n_head, ", stack.num_heads, ", but it is ", stack.d_model);
  stack.head_dim = stack.d_model / stack.num_heads;
  const bool scales = config.flag_or("scale_attn_weights", true);
  stack.layers.assign(static_cast<std::size_t>(config.size("n_layer")),
                      {.scale = scales ? 1.0 / std::sqrt(static_cast<double>(stack.head_dim)) : 1.0});
  stack.is_causal = true;
  stack.norm_eps = config.number_or("layer_norm_epsilon", 1e-5);
  stack.activation = config.activation("activation_function");
  stack.weight_layout = WeightLayout::in_out;
  stack.embedding = {.tokens = "wte", .positions = "wpe", .num_positions = table.max_length, .dim = stack.d_model};
  stack.block = {.prefix = "h.{}.",
                 .attention = {.fused = {"attn.c_attn", true}, .output = {"attn.c_proj", true}},
                 .before_attention = "ln_1",
                 .up = {"mlp.c_fc", true},
                 .down = {"mlp.c_proj", true},
                 .before_mlp = "ln_2"};
  stack.final_norm = "ln_f";
  table.head = {.decoder = "lm_head.weight", .is_tied = config.flag_or("tie_word_embeddings", true)};
  return table;
}

ModelTable gpt_neox(const Config& config) {
  ModelTable table{.vocab_size = config.size("vocab_size"), .prefixes = {"gpt_neox."}};
  StackTable& stack = table.stack = usual_sizes(config);
  const bool has_bias = config.flag_or("attention_bias", true);
  stack.is_causal = true;
  stack.norm_eps = config.number_or("layer_norm_eps", 1e-5);
  stack.activation = config.activation("hidden_act");
  stack.embedding = {.tokens = "embed_in", .dim = stack.d_model};
  add_rope(config, stack, "rotary_emb_base", config.number_or("rotary_pct", 0.25));
  stack.block = {.prefix = "layers.{}.",
                 .attention = {.fused = {"attention.query_key_value", has_bias},
                               .fused_order = FusedOrder::heads,
                               .output = {"attention.dense", has_bias}},
                 .before_attention = "input_layernorm",
                 .up = {"mlp.dense_h_to_4h", true},
                 .down = {"mlp.dense_4h_to_h", true},
                 .before_mlp = "post_attention_layernorm",
                 .is_parallel = config.flag_or("use_parallel_residual", true)};
  stack.final_norm = "final_layer_norm";
  if (has_architecture(config, "ForCausalLM"))
    table.head = {.decoder = "embed_out.weight", .is_tied = config.flag_or("tie_word_embeddings", false)};
  return table;
}

}  // namespace saccade::model
