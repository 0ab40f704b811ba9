// BERT (arXiv:1810.04805), RoBERTa (arXiv:1907.11692), DistilBERT (arXiv:1910.01108), ALBERT (arXiv:1909.11942):
// encoders with a norm after each sum.
#include <algorithm>
#include <cmath>

#include "model/families/common.h"

namespace saccade::model {
namespace {

/// The common table of BERT and RoBERTa: all but the numbers of positions, the prefix and the head.
ModelTable bert_table(const Config& config) {
  config.require_off("is_decoder");
  config.require_off("add_cross_attention");
  config.require("position_embedding_type", "absolute", "absolute");
  ModelTable table{.vocab_size = config.size("vocab_size"), .max_length = config.size("max_position_embeddings")};
  StackTable& stack = table.stack = usual_sizes(config);
  stack.norm_eps = config.number_or("layer_norm_eps", 1e-12);
  stack.activation = config.activation("hidden_act");
  stack.embedding = {.tokens = "embeddings.word_embeddings",
                     .positions = "embeddings.position_embeddings",
                     .num_positions = table.max_length,
                     .types = "embeddings.token_type_embeddings",
                     .num_types = config.size_or("type_vocab_size", 2),
                     .dim = stack.d_model,
                     .norm = "embeddings.LayerNorm"};
  stack.block = {.prefix = "encoder.layer.{}.",
                 .attention = {.query = {"attention.self.query", true},
                               .key = {"attention.self.key", true},
                               .value = {"attention.self.value", true},
                               .output = {"attention.output.dense", true}},
                 .attention_sum = "attention.output.LayerNorm",
                 .up = {"intermediate.dense", true},
                 .down = {"output.dense", true},
                 .mlp_sum = "output.LayerNorm"};
  return table;
}

}  // namespace

ModelTable bert(const Config& config) {
  ModelTable table = bert_table(config);
  table.prefixes = {"bert."};
  if (has_architecture(config, "ForMaskedLM") || has_architecture(config, "ForPreTraining"))
    table.head = {.transform = {"cls.predictions.transform.dense", true},
                  .activation = table.stack.activation,
                  .norm = "cls.predictions.transform.LayerNorm",
                  .decoder = "cls.predictions.decoder.weight",
                  .bias = "cls.predictions.bias",
                  .is_tied = config.flag_or("tie_word_embeddings", true)};
  return table;
}

ModelTable roberta(const Config& config) {
  ModelTable table = bert_table(config);
  table.prefixes = {"roberta."};
  const std::vector<std::int64_t> given = config.tokens("pad_token_id");
  const std::int64_t padding = given.empty() ? 1 : given.front();
  if (padding < 0 || padding >= table.max_length - 1)
    config.refuse("pad_token_id", "must be below max_position_embeddings - 1, ", table.max_length - 1,
                  ", but it is ", padding);
  table.stack.embedding.position_offset = padding + 1;
  table.max_length -= padding + 1;
  if (has_architecture(config, "ForMaskedLM"))
    table.head = {.transform = {"lm_head.dense", true},
                  .activation = Activation::gelu,
                  .norm = "lm_head.layer_norm",
                  .decoder = "lm_head.decoder.weight",
                  .bias = "lm_head.bias",
                  .is_tied = config.flag_or("tie_word_embeddings", true)};
  return table;
}

ModelTable distilbert(const Config& config) {
  ModelTable table{.vocab_size = config.size("vocab_size"),
                   .max_length = config.size("max_position_embeddings"),
                   .prefixes = {"distilbert."}};
  StackTable& stack = table.stack;
  stack.d_model = config.size("dim");
  stack.d_hidden = config.size("hidden_dim");
  stack.num_heads = stack.num_kv_heads = config.size("n_heads");
  if (stack.d_model % stack.num_heads != 0)
    config.refuse("dim", "must be a multiple of n_heads, ", stack.num_heads, ", but it is ", stack.d_model);
  stack.head_dim = stack.d_model / stack.num_heads;
  stack.layers.assign(static_cast<std::size_t>(config.size("n_layers")),
                      {.scale = 1.0 / std::sqrt(static_cast<double>(stack.head_dim))});
  stack.norm_eps = 1e-12;
  stack.activation = config.activation("activation");
  stack.embedding = {.tokens = "embeddings.word_embeddings",
                     .positions = "embeddings.position_embeddings",
                     .num_positions = table.max_length,
                     .dim = stack.d_model,
                     .norm = "embeddings.LayerNorm"};
  stack.block = {.prefix = "transformer.layer.{}.",
                 .attention = {.query = {"attention.q_lin", true},
                               .key = {"attention.k_lin", true},
                               .value = {"attention.v_lin", true},
                               .output = {"attention.out_lin", true}},
                 .attention_sum = "sa_layer_norm",
                 .up = {"ffn.lin1", true},
                 .down = {"ffn.lin2", true},
                 .mlp_sum = "output_layer_norm"};
  if (has_architecture(config, "ForMaskedLM"))
    table.head = {.transform = {"vocab_transform", true},
                  .activation = stack.activation,
                  .norm = "vocab_layer_norm",
                  .decoder = "vocab_projector.weight",
                  .bias = "vocab_projector.bias",
                  .is_tied = config.flag_or("tie_word_embeddings", true)};
  return table;
}

ModelTable albert(const Config& config) {
  ModelTable table = bert_table(config);
  StackTable& stack = table.stack;
  if (config.size_or("inner_group_num", 1) != 1)
    config.refuse("inner_group_num", "must be 1, but it is ", config.size("inner_group_num"));
  table.prefixes = {"albert."};
  stack.num_blocks = config.size_or("num_hidden_groups", 1);
  if (stack.num_blocks > std::ssize(stack.layers))
    config.refuse("num_hidden_groups", "must be at most num_hidden_layers, ", stack.layers.size(), ", but it is ",
                  stack.num_blocks);
  stack.embedding.dim = config.size("embedding_size");
  stack.embedding.projection = {"encoder.embedding_hidden_mapping_in", true};
  stack.block = {.prefix = "encoder.albert_layer_groups.{}.albert_layers.0.",
                 .attention = {.query = {"attention.query", true},
                               .key = {"attention.key", true},
                               .value = {"attention.value", true},
                               .output = {"attention.dense", true}},
                 .attention_sum = "attention.LayerNorm",
                 .up = {"ffn", true},
                 .down = {"ffn_output", true},
                 .mlp_sum = "full_layer_layer_norm"};
  if (has_architecture(config, "ForMaskedLM"))
    table.head = {.transform = {"predictions.dense", true},
                  .activation = stack.activation,
                  .norm = "predictions.LayerNorm",
                  .decoder = "predictions.decoder.weight",
                  .bias = "predictions.bias",
                  .is_tied = config.flag_or("tie_word_embeddings", true)};
  return table;
}

}  // namespace saccade::model
