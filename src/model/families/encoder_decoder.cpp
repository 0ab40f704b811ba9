// T5 (arXiv:1910.10683) and Whisper (arXiv:2212.04356): an encoder, and a decoder that attends to its states.
#include <cmath>

#include "model/families/common.h"

namespace saccade::model {
namespace {

/// The common table of T5's encoder and decoder.
StackTable t5_stack(const Config& config, std::int64_t layers, std::string_view bias) {
  StackTable stack;
  stack.d_model = config.size("d_model");
  stack.d_hidden = config.size("d_ff");
  stack.num_heads = stack.num_kv_heads = config.size("num_heads");
  stack.head_dim = config.size("d_kv");
  stack.norm = NormKind::rms;
  stack.norm_eps = config.number_or("layer_norm_epsilon", 1e-6);
  stack.layers.assign(static_cast<std::size_t>(layers), {.scale = 1.0});
  stack.distance_bias = {.name = bias,
                         .num_buckets = config.size_or("relative_attention_num_buckets", 32),
                         .max_distance = config.size_or("relative_attention_max_distance", 128)};
  if (stack.distance_bias.num_buckets < 4)
    config.refuse("relative_attention_num_buckets", "must be at least 4, but it is ",
                  stack.distance_bias.num_buckets);
  if (const std::int64_t least = stack.distance_bias.num_buckets / 2, most = 1 << 20;
      stack.distance_bias.max_distance <= least || stack.distance_bias.max_distance > most)
    config.refuse("relative_attention_max_distance", "must be above half of relative_attention_num_buckets, ",
                  least, ", and at most ", most, ", but it is ", stack.distance_bias.max_distance);
  stack.embedding = {.tokens = "shared", .dim = stack.d_model};
  return stack;
}

/// The feed-forward layer: "relu", or with a gate "gated-gelu", which is GELU's tanh form.
void set_t5_mlp(const Config& config, StackTable& stack, std::string_view wi, std::string_view wi_0,
                std::string_view wi_1, std::string_view wo) {
  const std::string kind = config.text_or("feed_forward_proj", "relu");
  const bool is_gated = kind == "gated-gelu" || kind == "gated-silu";
  if (!is_gated && kind != "relu" && kind != "gelu")
    config.refuse("feed_forward_proj", "is '", kind,
                  "', but only relu, gelu, gated-gelu and gated-silu are known");
  stack.activation = kind == "relu"         ? Activation::relu
                     : kind == "gelu"       ? Activation::gelu
                     : kind == "gated-gelu" ? Activation::gelu_tanh
                                            : Activation::silu;
  if (is_gated)
    stack.block.gate = {wi_0}, stack.block.up = {wi_1};
  else
    stack.block.up = {wi};
  stack.block.down = {wo};
}

/// One of Whisper's halves, encoder or decoder: the sizes and names of its layers.
StackTable whisper_stack(const Config& config, const std::string& half) {
  StackTable stack;
  stack.d_model = config.size("d_model");
  stack.d_hidden = config.size(half + "_ffn_dim");
  stack.num_heads = stack.num_kv_heads = config.size(half + "_attention_heads");
  if (stack.d_model % stack.num_heads != 0)
    config.refuse("d_model", "must be a multiple of ", half, "_attention_heads, ", stack.num_heads, ", but it is ",
                  stack.d_model);
  stack.head_dim = stack.d_model / stack.num_heads;
  stack.activation = config.activation("activation_function");
  stack.layers.assign(static_cast<std::size_t>(config.size(half + "_layers")),
                      {.scale = 1.0 / std::sqrt(static_cast<double>(stack.head_dim))});
  stack.block = {.attention = {.query = {"self_attn.q_proj", true},
                               .key = {"self_attn.k_proj"},
                               .value = {"self_attn.v_proj", true},
                               .output = {"self_attn.out_proj", true}},
                 .before_attention = "self_attn_layer_norm",
                 .up = {"fc1", true},
                 .down = {"fc2", true},
                 .before_mlp = "final_layer_norm"};
  return stack;
}

}  // namespace

ModelTable t5(const Config& config) {
  const std::int64_t layers = config.size("num_layers");
  ModelTable table{.vocab_size = config.size("vocab_size")};
  StackTable& encoder = table.encoder.emplace(
      t5_stack(config, layers, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"));
  encoder.block = {.prefix = "encoder.block.{}.layer.",
                   .attention = {.query = {"0.SelfAttention.q"},
                                 .key = {"0.SelfAttention.k"},
                                 .value = {"0.SelfAttention.v"},
                                 .output = {"0.SelfAttention.o"}},
                   .before_attention = "0.layer_norm",
                   .before_mlp = "1.layer_norm"};
  set_t5_mlp(config, encoder, "1.DenseReluDense.wi", "1.DenseReluDense.wi_0", "1.DenseReluDense.wi_1",
             "1.DenseReluDense.wo");
  encoder.final_norm = "encoder.final_layer_norm";

  StackTable& decoder = table.stack = t5_stack(config, config.size_or("num_decoder_layers", layers),
                                               "decoder.block.0.layer.0.SelfAttention.relative_attention_bias");
  decoder.is_causal = true;
  decoder.block = encoder.block;
  decoder.block.prefix = "decoder.block.{}.layer.";
  decoder.block.cross = {.query = {"1.EncDecAttention.q"},
                         .key = {"1.EncDecAttention.k"},
                         .value = {"1.EncDecAttention.v"},
                         .output = {"1.EncDecAttention.o"}};
  decoder.block.before_cross = "1.layer_norm";
  decoder.block.before_mlp = "2.layer_norm";
  set_t5_mlp(config, decoder, "2.DenseReluDense.wi", "2.DenseReluDense.wi_0", "2.DenseReluDense.wi_1",
             "2.DenseReluDense.wo");
  decoder.final_norm = "decoder.final_layer_norm";
  if (has_architecture(config, "ForConditionalGeneration")) {
    const bool is_tied = config.flag_or("tie_word_embeddings", true);
    table.head = {.decoder = "lm_head.weight", .is_tied = is_tied};
    if (config.flag_or("scale_decoder_outputs", is_tied))
      table.head.factor = 1.0 / std::sqrt(static_cast<double>(decoder.d_model));
  }
  return table;
}

ModelTable whisper(const Config& config) {
  ModelTable table{.vocab_size = config.size("vocab_size"),
                   .max_length = config.size("max_target_positions"),
                   .prefixes = {"model."}};
  config.require_off("scale_embedding");
  StackTable& encoder = table.encoder.emplace(whisper_stack(config, "encoder"));
  encoder.block.prefix = "encoder.layers.{}.";
  encoder.final_norm = "encoder.layer_norm";
  encoder.sound = {.first = "encoder.conv1",
                   .second = "encoder.conv2",
                   .positions = "encoder.embed_positions",
                   .num_bins = config.size("num_mel_bins"),
                   .num_positions = config.size("max_source_positions")};

  StackTable& decoder = table.stack = whisper_stack(config, "decoder");
  decoder.is_causal = true;
  decoder.block.prefix = "decoder.layers.{}.";
  decoder.block.cross = {.query = {"encoder_attn.q_proj", true},
                         .key = {"encoder_attn.k_proj"},
                         .value = {"encoder_attn.v_proj", true},
                         .output = {"encoder_attn.out_proj", true}};
  decoder.block.before_cross = "encoder_attn_layer_norm";
  decoder.final_norm = "decoder.layer_norm";
  decoder.embedding = {.tokens = "decoder.embed_tokens",
                       .positions = "decoder.embed_positions",
                       .num_positions = table.max_length,
                       .dim = decoder.d_model};
  if (has_architecture(config, "ForConditionalGeneration"))
    table.head = {.decoder = "proj_out.weight", .is_tied = config.flag_or("tie_word_embeddings", true)};
  return table;
}

}  // namespace saccade::model
