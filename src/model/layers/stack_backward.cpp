// The backward pass of a model's layers, for the gradients of its attention. Computes no gradients of weights.
#include "model/layers/stack.h"
#include "nn/elementwise.h"
#include "saccade/backward.h"

namespace saccade::model {
namespace {

Tensor normalised(const NormLayer& norm, const Tensor& x) {
  Tensor y = x;
  if (norm) norm(y, y);
  return y;
}

/// The gradient before a norm; dout if there is no norm.
Tensor norm_backward(const NormLayer& norm, const Tensor& x, const Tensor& dout) {
  return norm ? norm.backward(x, dout) : dout;
}

Tensor sum_of(const Tensor& x, const Tensor& y) {
  Tensor sum = x;
  add_to(sum, y);
  return sum;
}

/// [tokens, width] as [tokens, heads, head_dim].
MutableTensorView by_heads(Tensor& x, std::int64_t head_dim) {
  return x.mutable_view().reshaped({x.shape(0), x.shape(1) / head_dim, head_dim});
}

}  // namespace

/// What a layer computes from x; see BlockTable.
struct Stack::Steps {
  /// Queries, keys and values of one attention, and its results.
  struct Attended {
    TensorView q{}, k{}, v{};
    AttentionOptions options{};
    Tensor o{}, lse{};

    void run() {
      o = Tensor::uninitialized(DType::f32, {q.shape[0], q.shape[1], v.shape[2]});
      lse = Tensor::uninitialized(DType::f32, {q.shape[1], q.shape[0]});
      options.lse = lse;
      attention(q, k, v, o, options);
      options.lse = {};
    }

    /// Passes the gradient of o to on_gradient, and computes those of q, k and v from it.
    void back(AttentionKind kind, std::size_t layer, const TensorView& weight, const Tensor& dout,
              const AttentionGradients& gradients, const OnAttentionGradient& on_gradient) const {
      Tensor shown = o;  // a copy: the callback may change it without an effect
      on_gradient({.kind = kind,
                   .layer = static_cast<std::int64_t>(layer),
                   .q = q,
                   .k = k,
                   .v = v,
                   .options = options,
                   .o = shown,
                   .output_weight = weight},
                  dout);
      saccade::attention_backward(q, k, v, {.o = o, .lse = lse, .dout = dout}, gradients, options);
    }
  };

  Tensor x{}, input{};          // before and after before_attention
  Tensor projected{}, ready{};  // queries, keys and values: as projected, and as attended
  Attended attended{};
  Tensor result{}, sum{}, middle{};  // the attention's projection; x + after_attention; attention_sum of that
  Tensor cross_input{}, cross_q{}, cross_kv{};
  Attended cross{};
  Tensor before_mlp{};  // what the feed-forward layer's result is added to
  Tensor mlp_input{}, up{}, hidden{}, mlp_result{}, mlp_sum{};
};

Stack::Steps Stack::steps_of(std::size_t layer, const Run& run, const Tensor& x) const {
  const Block& block = block_of(layer);
  const std::int64_t heads = table_.num_heads, kv_heads = table_.num_kv_heads, dim = table_.head_dim,
                     width = heads * dim, tokens = x.shape(0);
  Steps steps{.x = x, .input = normalised(block.before_attention, x)};
  steps.projected = block.qkv.forward(steps.input, run.num_threads);
  steps.ready = steps.projected;
  const MutableTensorView all = by_heads(steps.ready, dim);
  prepare(layer, run, all.slice(1, 0, heads), all.slice(1, heads, heads + kv_heads));
  steps.attended = {.q = all.slice(1, 0, heads),
                    .k = all.slice(1, heads, heads + kv_heads),
                    .v = all.slice(1, heads + kv_heads, heads + 2 * kv_heads),
                    .options = options_of(layer, run)};
  steps.attended.run();
  steps.result =
      block.attention_output.forward(steps.attended.o.view().reshaped({tokens, width}), run.num_threads);
  steps.sum = sum_of(x, normalised(block.after_attention, steps.result));
  steps.before_mlp = steps.middle = normalised(block.attention_sum, steps.sum);
  if (block.cross_query) {
    steps.cross_input = normalised(block.before_cross, steps.middle);
    steps.cross_q = block.cross_query.forward(steps.cross_input, run.num_threads);
    steps.cross_kv = block.cross_kv.forward(run.source.states, run.num_threads);
    const MutableTensorView kv = by_heads(steps.cross_kv, dim);
    steps.cross = {.q = by_heads(steps.cross_q, dim),
                   .k = kv.slice(1, 0, kv_heads),
                   .v = kv.slice(1, kv_heads, 2 * kv_heads),
                   .options = cross_options_of(layer, run)};
    steps.cross.run();
    steps.before_mlp = sum_of(
        steps.middle, block.cross_output.forward(steps.cross.o.view().reshaped({tokens, width}), run.num_threads));
  }
  steps.mlp_input = normalised(block.before_mlp, table_.block.is_parallel ? x : steps.before_mlp);
  steps.up = steps.hidden = block.up.forward(steps.mlp_input, run.num_threads);
  if (table_.block.gate) {
    const TensorView both = steps.up;
    steps.hidden = Tensor::uninitialized(DType::f32, {tokens, table_.d_hidden});
    activate_gated(table_.activation, both.slice(1, 0, table_.d_hidden),
                   both.slice(1, table_.d_hidden, 2 * table_.d_hidden), steps.hidden);
  }
  steps.mlp_result = block.down.forward(steps.hidden, run.num_threads);
  steps.mlp_sum = sum_of(steps.before_mlp, normalised(block.after_mlp, steps.mlp_result));
  return steps;
}

/// Returns the gradient with respect to before_mlp; if both halves read x, adds the feed-forward layer's share
/// to dx.
Tensor Stack::mlp_backward(std::size_t layer, const Steps& steps, const Tensor& dout, Tensor& dx,
                           int num_threads) const {
  const Block& block = block_of(layer);
  Tensor dsum = norm_backward(block.mlp_sum, steps.mlp_sum, dout);
  const Tensor dresult = norm_backward(block.after_mlp, steps.mlp_result, dsum);
  Tensor dup = block.down.backward(steps.hidden, dresult, num_threads);
  if (table_.block.gate) {
    // hidden = f(gate) * up
    const TensorView both = steps.up, gate = both.slice(1, 0, table_.d_hidden),
                     up = both.slice(1, table_.d_hidden, 2 * table_.d_hidden);
    Tensor dboth = Tensor::uninitialized(DType::f32, steps.up.shape());
    const MutableTensorView dgate = dboth.mutable_view().slice(1, 0, table_.d_hidden),
                            dvalue = dboth.mutable_view().slice(1, table_.d_hidden, 2 * table_.d_hidden);
    activate_gated(table_.activation, gate, dup, dvalue);
    activate_gated(Activation::none, up, dup, dgate);
    activate_backward(table_.activation, gate, dgate, dgate);
    dup = std::move(dboth);
  }
  const Tensor dinput = block.up.backward(steps.mlp_input, dup, num_threads);
  const Tensor& read = table_.block.is_parallel ? steps.x : steps.before_mlp;
  add_to(table_.block.is_parallel ? dx : dsum, norm_backward(block.before_mlp, read, dinput));
  return dsum;
}

/// Returns the gradient with respect to middle, and adds that with respect to the source's states to dsource.
Tensor Stack::cross_backward(std::size_t layer, const Run& run, const Steps& steps, Tensor dsum, Tensor& dsource,
                             const OnAttentionGradient& on_gradient) const {
  const Block& block = block_of(layer);
  if (!block.cross_query) return dsum;
  const std::int64_t kv_heads = table_.num_kv_heads;
  Tensor flat = block.cross_output.backward(steps.cross_q, dsum, run.num_threads);
  Tensor dq = Tensor::uninitialized(DType::f32, steps.cross_q.shape()),
         dkv = Tensor::uninitialized(DType::f32, steps.cross_kv.shape());
  const MutableTensorView both = by_heads(dkv, table_.head_dim);
  const Tensor dout = Tensor::copy_of(by_heads(flat, table_.head_dim));
  steps.cross.back(AttentionKind::cross, layer, block.cross_output_weight, dout,
                   {.dq = by_heads(dq, table_.head_dim),
                    .dk = both.slice(1, 0, kv_heads),
                    .dv = both.slice(1, kv_heads, 2 * kv_heads)},
                   on_gradient);
  add_to(dsource, block.cross_kv.backward(run.source.states, dkv, run.num_threads));
  const Tensor dinput = block.cross_query.backward(steps.cross_input, dq, run.num_threads);
  add_to(dsum, norm_backward(block.before_cross, steps.middle, dinput));
  return dsum;
}

/// Adds the gradient with respect to x to dx.
void Stack::attention_backward(std::size_t layer, const Run& run, const Steps& steps, const Tensor& dmiddle,
                               Tensor& dx, const OnAttentionGradient& on_gradient) const {
  const Block& block = block_of(layer);
  const std::int64_t heads = table_.num_heads, kv_heads = table_.num_kv_heads;
  const Tensor dsum = norm_backward(block.attention_sum, steps.sum, dmiddle);
  add_to(dx, dsum);
  const Tensor dresult = norm_backward(block.after_attention, steps.result, dsum);
  Tensor flat = block.attention_output.backward(
      steps.attended.o.view().reshaped({steps.x.shape(0), heads * table_.head_dim}), dresult, run.num_threads);
  const Tensor dout = Tensor::copy_of(by_heads(flat, table_.head_dim));
  Tensor dready = Tensor::uninitialized(DType::f32, steps.ready.shape());
  const MutableTensorView all = by_heads(dready, table_.head_dim), dq = all.slice(1, 0, heads),
                          dk = all.slice(1, heads, heads + kv_heads);
  steps.attended.back(kind_, layer, block.output_weight, dout,
                      {.dq = dq, .dk = dk, .dv = all.slice(1, heads + kv_heads, heads + 2 * kv_heads)},
                      on_gradient);
  if (const int index = table_.layers[layer].rope; index >= 0) {
    // The transpose of a rotation is the rotation by the negative angle.
    Tensor back = run.sequences.positions;
    for (std::int64_t& position : back.values<std::int64_t>()) position = -position;
    const Rope& rope = ropes_[static_cast<std::size_t>(index)];
    rope.rotate(dq, dq, back, Layout::bshd);
    rope.rotate(dk, dk, back, Layout::bshd);
  }
  Tensor projected = steps.projected;
  const MutableTensorView before = by_heads(projected, table_.head_dim);
  if (block.query_norm) copy(block.query_norm.backward(before.slice(1, 0, heads), dq), dq);
  if (block.key_norm) copy(block.key_norm.backward(before.slice(1, heads, heads + kv_heads), dk), dk);
  const Tensor dinput = block.qkv.backward(steps.input, dready, run.num_threads);
  add_to(dx, norm_backward(block.before_attention, steps.x, dinput));
}

Tensor Stack::backward(Tensor x, const TensorView& dout, const Run& run,
                       const OnAttentionGradient& on_gradient) const {
  std::vector<Tensor> inputs;  // of each layer
  Run forward = run;
  forward.on_attention = nullptr;
  for (std::size_t layer = 0; layer < table_.layers.size(); ++layer) {
    inputs.push_back(x);
    run_layers(layer, layer + 1, forward, x);
  }
  Tensor gradient = norm_backward(final_norm_, x, Tensor::copy_of(dout));
  Tensor dsource =
      run.source.states.rank != 0
          ? Tensor(DType::f32, Shape(run.source.states.dims().begin(), run.source.states.dims().end()))
          : Tensor();
  for (std::size_t layer = table_.layers.size(); layer-- > 0; inputs.pop_back()) {
    const Steps steps = steps_of(layer, run, inputs.back());
    Tensor dx(DType::f32, gradient.shape());
    Tensor dsum = mlp_backward(layer, steps, gradient, dx, run.num_threads);
    dsum = cross_backward(layer, run, steps, std::move(dsum), dsource, on_gradient);
    attention_backward(layer, run, steps, dsum, dx, on_gradient);
    gradient = std::move(dx);
  }
  return dsource;
}

}  // namespace saccade::model
