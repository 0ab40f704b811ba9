#include "model/layers/stack.h"

#include <algorithm>

#include "core/parallel.h"
#include "nn/elementwise.h"
#include "saccade/decode.h"

namespace saccade::model {
namespace {

std::string with_number(std::string_view prefix, std::size_t number) {
  std::string pattern(prefix);
  const std::size_t at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.replace(at, 2, std::to_string(number));
}

/// Tokens that go through a feed-forward layer together, so that their wide states stay in a cache.
constexpr std::int64_t kRowsOfMlp = 512;

/// The weights of each head of a projection from heads to states: [heads, head_dim, d_model].
TensorView by_heads(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix,
                    const Projection& output) {
  const std::int64_t heads = table.num_heads, dim = table.head_dim;
  const std::string name = prefix + weight_of(output.name);
  if (table.weight_layout == WeightLayout::in_out)
    return checkpoint.tensor(name, {heads * dim, table.d_model}).reshaped({heads, dim, table.d_model});
  return checkpoint.tensor(name, {table.d_model, heads * dim})
      .reshaped({table.d_model, heads, dim})
      .transposed(0, 1)
      .transposed(1, 2);
}

/// A sequence as a batch of one, as caches take it.
MutableTensorView as_batch(const MutableTensorView& x) {
  return {x.mutable_data(), x.dtype, Shape{1, x.shape[0], x.shape[1], x.shape[2]},
          Shape{0, x.strides[0], x.strides[1], x.strides[2]}};
}

void attend_and_show(const Run& run, const LayerAttention& layer) {
  attention(layer.q, layer.k, layer.v, layer.o, layer.options);
  if (run.on_attention) run.on_attention(layer);
}

}  // namespace

Block::Block(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix,
             std::int64_t d_source) {
  const BlockTable& names = table.block;
  const auto norm = [&](std::string_view name, std::int64_t dim) {
    return NormLayer(table, checkpoint, name.empty() ? "" : prefix + std::string(name), dim);
  };
  qkv = packed_qkv(table, checkpoint, prefix, names.attention);
  query_norm = norm(names.attention.query_norm, table.head_dim);
  key_norm = norm(names.attention.key_norm, table.head_dim);
  attention_output = packed(table, checkpoint, prefix, {{names.attention.output, table.d_model}},
                            table.num_heads * table.head_dim);
  output_weight = by_heads(table, checkpoint, prefix, names.attention.output);
  if (const AttentionTable& cross = names.cross; cross.query) {
    const std::int64_t d_q = table.num_heads * table.head_dim, d_kv = table.num_kv_heads * table.head_dim;
    cross_query = packed(table, checkpoint, prefix, {{cross.query, d_q}}, table.d_model);
    cross_kv = packed(table, checkpoint, prefix, {{cross.key, d_kv}, {cross.value, d_kv}}, d_source);
    cross_output = packed(table, checkpoint, prefix, {{cross.output, table.d_model}}, d_q);
    cross_output_weight = by_heads(table, checkpoint, prefix, cross.output);
    before_cross = norm(names.before_cross, table.d_model);
  }
  up = names.gate
           ? packed(table, checkpoint, prefix, {{names.gate, table.d_hidden}, {names.up, table.d_hidden}},
                    table.d_model)
           : packed(table, checkpoint, prefix, {{names.up, table.d_hidden}}, table.d_model, table.activation);
  down = packed(table, checkpoint, prefix, {{names.down, table.d_model}}, table.d_hidden);
  before_attention = norm(names.before_attention, table.d_model);
  after_attention = norm(names.after_attention, table.d_model);
  attention_sum = norm(names.attention_sum, table.d_model);
  before_mlp = norm(names.before_mlp, table.d_model);
  after_mlp = norm(names.after_mlp, table.d_model);
  mlp_sum = norm(names.mlp_sum, table.d_model);
}

/// The results of a layer's parts, in memory that is kept from call to call.
struct Stack::Buffers {
  Buffers(const StackTable& table, std::int64_t tokens, int threads)
      : num_threads(threads), memory_(static_cast<std::size_t>(tokens * width_of(table)) * sizeof(float)) {
    float* at = reinterpret_cast<float*>(memory_.data());
    const auto next = [&](std::int64_t rows, std::int64_t columns) {
      const MutableTensorView view(at, {rows, columns});
      at += rows * columns;
      return view;
    };
    normalised = next(tokens, table.d_model);
    mlp_input = next(tokens, table.d_model);
    qkv = next(tokens, d_qkv(table));
    o = next(tokens, table.num_heads * table.head_dim);
    hidden = next(std::min(tokens, kRowsOfMlp), d_up(table));
  }

  MutableTensorView normalised, mlp_input, qkv, o, hidden;
  int num_threads;

 private:
  static std::int64_t d_qkv(const StackTable& table) {
    return (table.num_heads + 2 * table.num_kv_heads) * table.head_dim;
  }
  static std::int64_t d_up(const StackTable& table) { return (table.block.gate ? 2 : 1) * table.d_hidden; }
  static std::int64_t width_of(const StackTable& table) {
    return 2 * table.d_model + d_qkv(table) + table.num_heads * table.head_dim + d_up(table);
  }

  Workspace memory_;
};

Stack::Stack(const StackTable& table, const Checkpoint& checkpoint, AttentionKind kind, std::int64_t d_source)
    : table_(table), kind_(kind), distance_bias_(table, checkpoint) {
  for (const RopeOptions& rope : table.ropes) ropes_.emplace_back(table.head_dim, rope);
  const std::size_t blocks =
      table.num_blocks > 0 ? static_cast<std::size_t>(table.num_blocks) : table.layers.size();
  for (std::size_t i = 0; i < blocks; ++i)
    blocks_.emplace_back(table, checkpoint, with_number(table.block.prefix, i), d_source);
  final_norm_ = NormLayer(table, checkpoint, std::string(table.final_norm), table.d_model);
}

void Stack::prepare(std::size_t layer, const Run& run, const MutableTensorView& q,
                    const MutableTensorView& k) const {
  const Block& block = block_of(layer);
  if (block.query_norm) block.query_norm(q, q);
  if (block.key_norm) block.key_norm(k, k);
  if (const int index = table_.layers[layer].rope; index >= 0) {
    const Rope& rope = ropes_[static_cast<std::size_t>(index)];
    rope.rotate(q, q, run.sequences.positions, Layout::bshd);
    rope.rotate(k, k, run.sequences.positions, Layout::bshd);
  }
}

AttentionOptions Stack::options_of(std::size_t layer, const Run& run) const {
  const LayerTable& own = table_.layers[layer];
  AttentionOptions options{.scale = own.scale,
                           .softcap = table_.softcap,
                           .window_left = own.window_left,
                           .window_right = own.window_right,
                           .layout = Layout::bshd,
                           .num_threads = run.num_threads};
  distance_bias_.add_to(options);
  if (!run.caches.empty()) return options;  // new tokens are the last ones: attention over a cache is causal
  if (table_.is_causal) options.causal = Causal::top_left;
  if (run.sequences.begins.rank() != 0) options.cu_seqlens_q = options.cu_seqlens_k = run.sequences.begins;
  return options;
}

AttentionOptions Stack::cross_options_of(std::size_t layer, const Run& run) const {
  AttentionOptions options{
      .scale = table_.layers[layer].scale, .layout = Layout::bshd, .num_threads = run.num_threads};
  if (run.source.begins.rank() != 0) {
    options.cu_seqlens_q = run.sequences.begins;
    options.cu_seqlens_k = run.source.begins;
  }
  return options;
}

void Stack::attend(std::size_t layer, const Block& block, const Run& run, Buffers& buffers) const {
  const std::int64_t tokens = buffers.qkv.shape[0], heads = table_.num_heads, kv_heads = table_.num_kv_heads;
  // As [tokens, heads, head_dim], with the heads of keys and values after those of queries.
  const Shape by_heads{tokens, heads + 2 * kv_heads, table_.head_dim};
  const MutableTensorView all = buffers.qkv.reshaped(by_heads);
  const MutableTensorView q = all.slice(1, 0, heads), k = all.slice(1, heads, heads + kv_heads),
                          v = all.slice(1, heads + kv_heads, heads + 2 * kv_heads);
  prepare(layer, run, q, k);
  const MutableTensorView o = buffers.o.reshaped({tokens, heads, table_.head_dim});
  const AttentionOptions options = options_of(layer, run);
  if (!run.caches.empty()) {
    KvCache& cache = run.caches[layer];
    cache.append(k, v, Layout::bshd);
    const MutableTensorView rows = as_batch(q), results = as_batch(o);
    return tokens == 1 ? decode(rows, cache, results, options) : attention(rows, cache, results, options);
  }
  attend_and_show(run, {.kind = kind_,
                        .layer = static_cast<std::int64_t>(layer),
                        .q = q,
                        .k = k,
                        .v = v,
                        .options = options,
                        .o = o,
                        .output_weight = block.output_weight});
}

void Stack::add_cross_attention(std::size_t layer, const Block& block, const Run& run, Tensor& x,
                                Buffers& buffers) const {
  const std::int64_t tokens = x.shape(0), heads = table_.num_heads, kv_heads = table_.num_kv_heads;
  block.before_cross(x, buffers.normalised);
  const MutableTensorView columns = buffers.qkv.slice(1, 0, heads * table_.head_dim);
  block.cross_query.forward(buffers.normalised, columns, run.num_threads);
  const MutableTensorView q = buffers.qkv.reshaped({tokens, heads + 2 * kv_heads, table_.head_dim})
                                  .slice(1, 0, heads),
                          o = buffers.o.reshaped({tokens, heads, table_.head_dim});
  Tensor own;
  Tensor& kv = run.source_caches.empty() ? own : run.source_caches[layer];
  if (kv.rank() == 0)
    kv = block.cross_kv.forward(run.source.states, run.num_threads)
             .reshaped({run.source.states.shape[0], 2 * kv_heads, table_.head_dim});
  const TensorView k = kv.view().slice(1, 0, kv_heads), v = kv.view().slice(1, kv_heads, 2 * kv_heads);
  const AttentionOptions options = cross_options_of(layer, run);
  attend_and_show(run, {.kind = AttentionKind::cross,
                        .layer = static_cast<std::int64_t>(layer),
                        .q = q,
                        .k = k,
                        .v = v,
                        .options = options,
                        .o = o,
                        .output_weight = block.cross_output_weight});
  block.cross_output.add_to(buffers.o, x, run.num_threads);
}

void Stack::add_attention(const Block& block, Tensor& x, Buffers& buffers) const {
  if (!block.after_attention) {
    block.attention_output.add_to(buffers.o, x, buffers.num_threads);
  } else {
    block.attention_output.forward(buffers.o, buffers.normalised, buffers.num_threads);
    block.after_attention(buffers.normalised, buffers.normalised);
    add_to(x, buffers.normalised);
  }
  if (block.attention_sum) block.attention_sum(x, x);
}

void Stack::add_mlp(const Block& block, const TensorView& from, Tensor& x, Buffers& buffers) const {
  for (std::int64_t begin = 0; begin < x.shape(0); begin += kRowsOfMlp) {
    const std::int64_t end = std::min(begin + kRowsOfMlp, x.shape(0));
    MutableTensorView hidden = buffers.hidden.slice(0, 0, end - begin);
    const MutableTensorView sum = x.mutable_view().slice(0, begin, end);
    block.up.forward(from.slice(0, begin, end), hidden, buffers.num_threads);
    if (table_.block.gate) {
      const MutableTensorView gate = hidden.slice(1, 0, table_.d_hidden);
      activate_gated(table_.activation, gate, hidden.slice(1, table_.d_hidden, 2 * table_.d_hidden), gate);
      hidden = gate;
    }
    if (!block.after_mlp) {
      block.down.add_to(hidden, sum, buffers.num_threads);
    } else {
      const MutableTensorView result = buffers.normalised.slice(0, begin, end);
      block.down.forward(hidden, result, buffers.num_threads);
      block.after_mlp(result, result);
      add_to(sum, result);
    }
    if (block.mlp_sum) block.mlp_sum(sum, sum);
  }
}

void Stack::run_layer(std::size_t layer, const Run& run, Tensor& x, Buffers& buffers) const {
  const Block& block = block_of(layer);
  const auto normalised = [&](const NormLayer& norm, const MutableTensorView& y) -> TensorView {
    if (!norm) return x;
    norm(x, y);
    return y;
  };
  block.qkv.forward(normalised(block.before_attention, buffers.normalised), buffers.qkv, run.num_threads);
  attend(layer, block, run, buffers);
  if (table_.block.is_parallel) {
    const TensorView from = normalised(block.before_mlp, buffers.mlp_input);
    add_attention(block, x, buffers);
    add_mlp(block, from, x, buffers);
  } else {
    add_attention(block, x, buffers);
    if (block.cross_query) add_cross_attention(layer, block, run, x, buffers);
    add_mlp(block, normalised(block.before_mlp, buffers.mlp_input), x, buffers);
  }
}

void Stack::run_layers(std::size_t begin, std::size_t end, const Run& run, Tensor& x) const {
  Buffers buffers(table_, x.shape(0), run.num_threads);
  for (std::size_t layer = begin; layer < end; ++layer) run_layer(layer, run, x, buffers);
}

void Stack::operator()(Tensor& x, const Run& run) const {
  run_layers(0, table_.layers.size(), run, x);
  if (final_norm_) final_norm_(x, x);
}

}  // namespace saccade::model
