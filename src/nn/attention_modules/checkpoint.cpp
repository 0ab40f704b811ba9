// Finds the module that a checkpoint was saved from. Every size comes from a tensor of the checkpoint, so building
// the module cannot need more memory than the checkpoint did.
#include <array>
#include <utility>

#include "core/check.h"
#include "nn/attention_modules/names.h"
#include "saccade/attention_modules.h"

namespace saccade {
namespace {

constexpr const char* kWhere = "module_from_state_dict";

struct Matrix {
  std::int64_t rows, columns;
};

Matrix matrix(const StateDict& state, const std::string& name) {
  const auto entry = state.find(name);
  if (entry == state.end()) refuse(kWhere, name, " is missing");
  if (entry->second.rank() != 2 || entry->second.size() == 0) {
    refuse(kWhere, name, " must be a matrix that is not empty, got ", to_string(entry->second.shape()));
  }
  return {entry->second.shape(0), entry->second.shape(1)};
}

Matrix matrix_with_rows(const StateDict& state, const std::string& name, std::int64_t rows) {
  const Matrix found = matrix(state, name);
  if (found.rows == rows) return found;
  refuse(kWhere, name, " has ", found.rows, " rows, expected ", rows);
}

/// W_query, W_key and W_value of one head, with `prefix` before and `suffix` after the name: all of equal shape.
Matrix projections(const StateDict& state, const std::string& prefix, const std::string& suffix) {
  const Matrix query = matrix(state, prefix + "W_query" + suffix);
  for (const char* layer : {"W_key", "W_value"}) {
    const std::string name = std::string(prefix).append(layer).append(suffix);
    const Matrix other = matrix_with_rows(state, name, query.rows);
    if (other.columns == query.columns) continue;
    refuse(kWhere, name, " has ", other.columns, " columns, expected ", query.columns);
  }
  return query;
}

/// Throws for options that a module without split heads does not have.
void require_single_head_options(const std::string& module, const CheckpointOptions& options,
                                 std::int64_t num_heads) {
  if (options.num_heads != 0 && options.num_heads != num_heads) {
    refuse(kWhere, "num_heads ", options.num_heads, " was requested, but this ", module, " has ", num_heads);
  }
  if (options.add_zero_attn || !options.batch_first) {
    refuse(kWhere, "add_zero_attn and batch_first are MultiHeadAttention's, but the checkpoint is a ", module,
           "'s");
  }
}

/// options.context_length, else the size of the published buffer.
std::int64_t context_length(const StateDict& state, const CheckpointOptions& options, const std::string& buffer) {
  if (options.context_length != 0 || !state.contains(buffer)) return options.context_length;
  return matrix(state, buffer).rows;
}

std::unique_ptr<AttentionModule> self_attention(const StateDict& state, const CheckpointOptions& options,
                                                WeightLayout layout) {
  require_single_head_options("SelfAttention", options, 1);
  if (options.causal.value_or(false) || options.dropout != 0.0 || options.context_length != 0) {
    refuse(kWhere, "causal, dropout and context_length are not SelfAttention's, whose checkpoint this is");
  }
  const bool plain = layout == WeightLayout::in_out;
  const Matrix shape = projections(state, "", plain ? "" : ".weight");
  return std::make_unique<SelfAttention>(SelfAttentionOptions{.d_in = plain ? shape.rows : shape.columns,
                                                              .d_out = plain ? shape.columns : shape.rows,
                                                              .weight_layout = layout,
                                                              .qkv_bias = state.contains("W_query.bias")});
}

std::unique_ptr<AttentionModule> causal_attention(const StateDict& state, const CheckpointOptions& options) {
  require_single_head_options("CausalAttention", options, 1);
  const Matrix shape = projections(state, "", ".weight");
  return std::make_unique<CausalAttention>(
      CausalAttentionOptions{.d_in = shape.columns,
                             .d_out = shape.rows,
                             .context_length = context_length(state, options, "mask"),
                             .dropout = options.dropout,
                             .qkv_bias = state.contains("W_query.bias")});
}

std::unique_ptr<AttentionModule> wrapper(const StateDict& state, const CheckpointOptions& options) {
  if (!options.causal.value_or(true)) {
    refuse(kWhere, "the heads of a MultiHeadAttentionWrapper are causal, but causal is false");
  }
  const Matrix shape = projections(state, head_prefix(0), ".weight");
  std::int64_t num_heads = 1;
  for (; state.contains(head_prefix(num_heads) + "W_query.weight"); ++num_heads) {
    const std::string prefix = head_prefix(num_heads);
    const Matrix other = projections(state, prefix, ".weight");
    if (other.rows == shape.rows && other.columns == shape.columns) continue;
    refuse(kWhere, prefix, "W_query.weight is ", to_string(std::array{other.rows, other.columns}),
           ", but heads.0's is ", to_string(std::array{shape.rows, shape.columns}));
  }
  require_single_head_options("MultiHeadAttentionWrapper", options, num_heads);
  return std::make_unique<MultiHeadAttentionWrapper>(
      MultiHeadAttentionWrapperOptions{.d_in = shape.columns,
                                       .d_out = shape.rows,
                                       .num_heads = num_heads,
                                       .context_length = context_length(state, options, "heads.0.mask"),
                                       .dropout = options.dropout,
                                       .qkv_bias = state.contains("heads.0.W_query.bias")});
}

/// Widths of the inputs, and the weight and the rows of the key projection.
struct InputWidths {
  const char* key_name;
  std::int64_t query, key, value, kv_rows;
};

InputWidths input_widths(const StateDict& state, std::int64_t d_out) {
  if (state.contains("in_proj_weight")) {
    const Matrix stacked = matrix(state, "in_proj_weight");
    return {"in_proj_weight", stacked.columns, stacked.columns, stacked.columns, (stacked.rows - d_out) / 2};
  }
  const bool torch = state.contains("q_proj_weight");
  const Matrix query = matrix_with_rows(state, torch ? "q_proj_weight" : "W_query.weight", d_out);
  const char* const key_name = torch ? "k_proj_weight" : "W_key.weight";
  const Matrix key = matrix(state, key_name);
  const Matrix value = matrix_with_rows(state, torch ? "v_proj_weight" : "W_value.weight", key.rows);
  return {key_name, query.columns, key.columns, value.columns, key.rows};
}

std::unique_ptr<AttentionModule> multi_head_attention(const StateDict& state, const CheckpointOptions& options) {
  if (options.num_heads < 1) {
    refuse(kWhere, "a checkpoint with out_proj does not say into how many heads it splits: give num_heads");
  }
  const std::int64_t d_out = matrix(state, "out_proj.weight").columns;
  matrix_with_rows(state, "out_proj.weight", d_out);
  if (d_out < 1 || d_out % options.num_heads != 0) {
    refuse(kWhere, "d_out must be a multiple of num_heads, got d_out ", d_out, " and num_heads ",
           options.num_heads);
  }
  const std::int64_t head_dim = d_out / options.num_heads;
  const InputWidths widths = input_widths(state, d_out);
  if (widths.kv_rows < 1 || widths.kv_rows % head_dim != 0) {
    refuse(kWhere, widths.key_name, " has ", widths.kv_rows, " rows of keys, no multiple of head_dim ", head_dim);
  }
  return std::make_unique<MultiHeadAttention>(
      MultiHeadAttentionOptions{.d_in = widths.query,
                                .d_out = d_out,
                                .num_heads = options.num_heads,
                                .num_kv_heads = widths.kv_rows / head_dim,
                                .key_width = widths.key,
                                .value_width = widths.value,
                                .context_length = context_length(state, options, "mask"),
                                .causal = options.causal.value_or(state.contains("mask")),
                                .dropout = options.dropout,
                                .qkv_bias = state.contains("W_query.bias") || state.contains("in_proj_bias"),
                                .out_bias = state.contains("out_proj.bias"),
                                .add_bias_kv = state.contains("bias_k"),
                                .add_zero_attn = options.add_zero_attn,
                                .batch_first = options.batch_first});
}

std::unique_ptr<AttentionModule> recognised(const StateDict& state, const CheckpointOptions& options) {
  if (state.contains("in_proj_weight") || state.contains("q_proj_weight") || state.contains("out_proj.weight")) {
    return multi_head_attention(state, options);
  }
  if (state.contains("heads.0.W_query.weight")) return wrapper(state, options);
  if (state.contains("W_query")) return self_attention(state, options, WeightLayout::in_out);
  if (state.contains("W_query.weight")) {
    return options.causal.value_or(state.contains("mask")) ? causal_attention(state, options)
                                                           : self_attention(state, options, WeightLayout::out_in);
  }
  refuse(kWhere,
         "the checkpoint has none of W_query, W_query.weight, heads.0.W_query.weight, in_proj_weight and "
         "q_proj_weight, so it is no attention module's");
}

}  // namespace

std::unique_ptr<AttentionModule> module_from_state_dict(const StateDict& state, const CheckpointOptions& options) {
  std::unique_ptr<AttentionModule> module = recognised(state, options);
  module->load_state_dict(state);
  module->eval();
  return module;
}

}  // namespace saccade
