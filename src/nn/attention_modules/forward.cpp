// One forward call: check, project, attend, project.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "nn/attention_modules/forward_call.h"
#include "nn/attention_modules/masks.h"
#include "nn/attention_modules/torch_dropout.h"
#include "nn/seed.h"
#include "saccade/attention_modules.h"

namespace saccade {
namespace {

Tensor without_batch_axis(Tensor x) {
  Shape shape(x.shape().begin() + 1, x.shape().end());
  return std::move(x).reshaped(std::move(shape));
}

}  // namespace

TensorView batch_first_view(const TensorView& x, const ModuleConfig& config) {
  if (x.rank == 3) return config.batch_first ? x : x.transposed(0, 1);
  const std::array<std::int64_t, 3> shape{1, x.shape[0], x.shape[1]};
  const std::array<std::int64_t, 3> strides{0, x.strides[0], x.strides[1]};
  return TensorView(x.data, x.dtype, shape, strides);
}

Tensor with_axes_of_inputs(Tensor x, bool has_batch, bool batch_first) {
  if (!has_batch) return without_batch_axis(std::move(x));
  return batch_first ? std::move(x) : Tensor::copy_of(x.view().transposed(0, 1));
}

namespace {

TensorView checked_input(const AttentionModule& module, const std::string& argument, const TensorView& x,
                         std::int64_t width) {
  const ModuleConfig& config = module.config();
  if (!x) refuse(module.name(), argument, " was not given");
  if (x.dtype != DType::f32) {
    refuse(module.name(), argument, " must be f32, got ", name_of(x.dtype));
  }
  if ((x.rank != 2 && x.rank != 3) || x.shape[x.rank - 1u] != width) {
    const std::string w = std::to_string(width);
    refuse(module.name(), argument, " must be [seqlen, ", w, "] or ",
           (config.batch_first ? "[batch, seqlen, " : "[seqlen, batch, "), w, "], got ", to_string(x.dims()));
  }
  const TensorView result = batch_first_view(x, config);
  if (config.context_length != 0 && result.shape[1] > config.context_length) {
    refuse(module.name(), argument, " has ", result.shape[1], " tokens, more than context_length ",
           config.context_length);
  }
  return result;
}

/// Whether `output` can hold the result for x.
bool is_output_of(const TensorView& x, const TensorView& output, std::int64_t d_out) {
  if (output.rank != x.rank || output.dtype != DType::f32 || !output.data || !output.is_contiguous()) return false;
  const std::size_t last = x.rank - 1u;
  for (std::size_t dim = 0; dim < last; ++dim)
    if (output.shape[dim] != x.shape[dim]) return false;
  return output.shape[last] == d_out;
}

/// [batch, num_heads, seqlen_q, columns] -> [batch, seqlen_q, columns]
Tensor averaged_over_heads(const Tensor& weights) {
  const std::int64_t num_heads = weights.shape(1);
  const std::int64_t per_head = weights.shape(2) * weights.shape(3);
  Tensor result(DType::f32, {weights.shape(0), weights.shape(2), weights.shape(3)});
  const float* from = weights.values<float>().data();
  float* to = result.values<float>().data();
  for (std::int64_t b = 0; b < weights.shape(0); ++b, to += per_head) {
    for (std::int64_t head = 0; head < num_heads; ++head, from += per_head) {
      for (std::int64_t i = 0; i < per_head; ++i) to[i] += from[i];
    }
    for (std::int64_t i = 0; i < per_head; ++i) to[i] /= static_cast<float>(num_heads);
  }
  return result;
}

}  // namespace

AttentionModule::Inputs AttentionModule::checked_inputs(const TensorView& query, const TensorView& key,
                                                        const TensorView& value) const {
  const Inputs inputs{.query = checked_input(*this, "query", query, config_.d_in),
                      .key = checked_input(*this, "key", key, config_.key_width),
                      .value = checked_input(*this, "value", value, config_.value_width),
                      .has_batch = query.rank == 3};
  const std::int64_t batch = inputs.query.shape[0];
  if (key.rank != query.rank || value.rank != query.rank || inputs.key.shape[0] != batch) {
    refuse(name(), "query, key and value must have the same batch, got query ", to_string(query.dims()), ", key ",
           to_string(key.dims()), ", value ", to_string(value.dims()));
  }
  if (inputs.value.shape[0] != batch || inputs.value.shape[1] != inputs.key.shape[1]) {
    refuse(name(), "key and value must have the same batch and seqlen, got key ", to_string(key.dims()),
           ", value ", to_string(value.dims()));
  }
  return inputs;
}

namespace {

/// The lengths of q and context, and those of k and v.
struct ProjectedLengths {
  std::array<std::int64_t, 3> rows, keys;
  std::int64_t q_size, k_size;

  ProjectedLengths(const ModuleConfig& config, const TensorView& query, const TensorView& key)
      : rows{query.shape[0], query.shape[1], config.num_heads * config.head_dim},
        keys{query.shape[0], key.shape[1], config.num_kv_heads * config.head_dim} {
    constexpr std::size_t kAll = 4 * sizeof(float);  // sizes in bytes must not overflow
    q_size = element_count(rows, kAll);
    k_size = element_count(keys, kAll);
  }
};

}  // namespace

AttentionModule::Projections::Projections(const ModuleConfig& config, const Inputs& inputs, ForwardCall& call) {
  const ProjectedLengths lengths(config, inputs.query, inputs.key);
  const auto room = [](Tensor& kept, const std::array<std::int64_t, 3>& shape) {
    kept = Tensor::uninitialized(DType::f32, Shape(shape.begin(), shape.end()));
    return kept.mutable_view();
  };
  q = room(call.q, lengths.rows);
  k = room(call.k, lengths.keys);
  v = room(call.v, lengths.keys);
  context = room(call.context, lengths.rows);
}

// New memory would be mapped page by page in each call: 12% of a call of width 768 (Zen 4).
AttentionModule::Projections::Projections(const ModuleConfig& config, const Inputs& inputs,
                                          const MutableTensorView& output) {
  const ProjectedLengths lengths(config, inputs.query, inputs.key);
  const std::int64_t numbers = (output ? 1 : 2) * lengths.q_size + 2 * lengths.k_size;
  workspace.emplace(static_cast<std::size_t>(numbers) * sizeof(float));
  auto* const memory = reinterpret_cast<float*>(workspace->data());
  q = MutableTensorView(memory, DType::f32, lengths.rows);
  k = MutableTensorView(memory + lengths.q_size, DType::f32, lengths.keys);
  v = MutableTensorView(memory + lengths.q_size + lengths.k_size, DType::f32, lengths.keys);
  context =
      output ? output : MutableTensorView(memory + lengths.q_size + 2 * lengths.k_size, DType::f32, lengths.rows);
}

AppendedKeys AttentionModule::appended_keys() const {
  return {.bias_k = weights_.bias_k.value, .bias_v = weights_.bias_v.value, .zero = config_.add_zero_attn};
}

void AttentionModule::add_fresh_dropout(AttentionOptions& call) {
  if (!dropout_seed_) dropout_seed_ = seed_from_operating_system();
  call.dropout_p = config_.dropout;
  call.dropout_seed = *dropout_seed_;
  call.dropout_offset = dropout_calls_++;
}

AttentionOptions AttentionModule::plain_options(bool causal, int num_threads) const {
  return {.scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim)),
          .causal = config_.causal || causal ? Causal::top_left : Causal::none,
          .layout = Layout::bshd,
          .num_threads = num_threads};
}

void AttentionModule::attend(const Projections& projections, ForwardCall& call, const ForwardOptions& options) {
  const std::int64_t seqlen_k = projections.k.shape[1];
  const ScoreShape scores{projections.q.shape[0], config_.num_heads, projections.q.shape[1], seqlen_k};
  const bool drops = training() && config_.dropout > 0.0;
  const bool draws_as_torch = drops && options.dropout_generator != nullptr;
  const AppendedKeys appended = appended_keys();
  CallMask mask = call_mask(name(), options.mask, options.key_mask, scores);

  AttentionOptions& to = call.options;
  to = plain_options(options.causal, options.num_threads);
  if (options.alignment == Causal::bottom_right)  // not by `causal`, which counts from kv_lengths
    to.query_offset = seqlen_k - projections.q.shape[1];
  to.mask = mask.mask();
  to.kv_lengths = mask.kv_lengths;
  to.weights_after_dropout = options.weights_after_dropout;
  if (drops && !draws_as_torch) add_fresh_dropout(to);

  const TensorView q = split_heads(projections.q, config_.num_heads);
  const TensorView k = split_heads(projections.k, config_.num_kv_heads);
  const TensorView v = split_heads(projections.v, config_.num_kv_heads);
  const MutableTensorView context = split_heads(projections.context, config_.num_heads);
  MutableTensorView weights;
  if (options.weights != HeadWeights::none || draws_as_torch) {
    call.weights = Tensor(DType::f32, {scores[0], scores[1], scores[2], seqlen_k + appended.count()});
    weights = call.weights.mutable_view();
    to.weights = weights.slice(3, 0, seqlen_k);
  }
  if (appended.count() != 0 || training()) {
    call.lse = Tensor::uninitialized(DType::f32, {scores[0], scores[1], scores[2]});
    to.lse = call.lse.mutable_view();
  }
  attention(q, k, v, context, to);
  if (appended.count() != 0) {
    merge_appended_keys(appended, {.q = q, .lse = to.lse, .context = context, .weights = weights}, seqlen_k, to);
  }
  if (draws_as_torch) {
    call.dropped = drop_as_torch(*options.dropout_generator, options.dropout_build, config_.dropout,
                                 {.weights = weights,
                                  .v = v,
                                  .bias_v = appended.bias_v,
                                  .context = context,
                                  .independent_heads = config_.independent_heads});
  }
  if (!training()) return;
  call.mask = mask.joint.rank() != 0 ? std::move(mask.joint) : copy_without_repetition(mask.given);
  call.kv_lengths = std::move(mask.kv_lengths);
  to.mask = call.mask;
  to.kv_lengths = call.kv_lengths;
}

void AttentionModule::hand_over(AttentionKind kind, const Projections& projections, const ForwardCall& call,
                                const OnAttention& on_attention) const {
  if (training())
    refuse(name(), "on_attention is not for training mode: gradients would not know what it changes");
  if (projections.q.shape[0] != 1)
    refuse(name(), "on_attention is for one sequence, but the batch has ", projections.q.shape[0]);
  if (appended_keys().count() != 0) refuse(name(), "on_attention is not for modules with appended keys");
  LayerAttention layer{.kind = kind,
                       .q = split_heads(projections.q, config_.num_heads).select(0, 0),
                       .k = split_heads(projections.k, config_.num_kv_heads).select(0, 0),
                       .v = split_heads(projections.v, config_.num_kv_heads).select(0, 0),
                       .options = call.options,
                       .o = split_heads(projections.context, config_.num_heads).select(0, 0)};
  layer.options.lse = {}, layer.options.weights = {};
  if (const TensorView out = weights_.out.value; out.rank != 0)  // [d_out, num_heads * head_dim]
    layer.output_weight =
        out.reshaped({config_.d_out, config_.num_heads, config_.head_dim}).transposed(0, 1).transposed(1, 2);
  on_attention(layer);
}

AttentionModule::Inputs AttentionModule::checked_input_of_all(const TensorView& x) const {
  if (config_.key_width != config_.d_in || config_.value_width != config_.d_in) {
    refuse(name(), "one input for query, key and value needs equal widths, but d_in is ", config_.d_in,
           ", key_width ", config_.key_width, ", value_width ", config_.value_width);
  }
  const TensorView input = checked_input(*this, "x", x, config_.d_in);
  return {.query = input, .key = input, .value = input, .has_batch = x.rank == 3, .are_one = true};
}

ModuleOutput AttentionModule::forward(const TensorView& x, const ForwardOptions& options) {
  return forward(checked_input_of_all(x), options);
}

ModuleOutput AttentionModule::forward(const TensorView& query, const TensorView& key, const TensorView& value,
                                      const ForwardOptions& options) {
  return forward(checked_inputs(query, key, value), options);
}

void AttentionModule::forward_into(const TensorView& x, const MutableTensorView& output, int num_threads) {
  const Inputs inputs = checked_input_of_all(x);
  if (!is_output_of(x, output, config_.d_out)) {
    refuse(name(), "output must be f32 and contiguous with the shape of x and d_out ", config_.d_out,
           " last, but x has shape ", to_string(x.dims()), " and output is ", name_of(output.dtype), " ",
           to_string(output.dims()));
  }
  if (training() || appended_keys().count() != 0 || (inputs.has_batch && !config_.batch_first)) {
    copy(forward(inputs, {.num_threads = num_threads}).output, output);
    return;
  }
  const bool has_out = weights_.out.value.rank() != 0;
  const MutableTensorView rows = output.reshaped({inputs.query.shape[0], inputs.query.shape[1], config_.d_out});
  const Projections projections(config_, inputs, has_out ? MutableTensorView() : rows);
  project(inputs, projections, num_threads);
  attention(split_heads(projections.q, config_.num_heads), split_heads(projections.k, config_.num_kv_heads),
            split_heads(projections.v, config_.num_kv_heads), split_heads(projections.context, config_.num_heads),
            plain_options(false, num_threads));
  if (has_out) project(projections.context, weights_.out, weights_.out_bias, rows, num_threads);
}

void AttentionModule::project(const TensorView& x, const Parameter& weight, const Parameter& bias,
                              const MutableTensorView& y, int num_threads) const {
  linear(x, weight.value, y,
         {.weight_layout = config_.weight_layout, .bias = bias.value, .num_threads = num_threads});
}

void AttentionModule::project(const Inputs& inputs, const Projections& projections, int num_threads) const {
  project(inputs.query, weights_.query, weights_.query_bias, projections.q, num_threads);
  project(inputs.key, weights_.key, weights_.key_bias, projections.k, num_threads);
  project(inputs.value, weights_.value, weights_.value_bias, projections.v, num_threads);
}

namespace {

/// Whether two inputs are the same numbers in memory.
bool are_same(const TensorView& a, const TensorView& b) {
  return a.data == b.data && std::ranges::equal(a.dims(), b.dims()) &&
         std::equal(a.strides.begin(), a.strides.begin() + a.rank, b.strides.begin());
}

}  // namespace

ModuleOutput AttentionModule::forward(const Inputs& inputs, const ForwardOptions& options) {
  const bool has_out = weights_.out.value.rank() != 0;
  const bool keeps = training() || options.steps;
  ForwardCall call;
  if (!keeps && !has_out)
    call.context =
        Tensor::uninitialized(DType::f32, {inputs.query.shape[0], inputs.query.shape[1], config_.d_out});
  const Projections projections =
      keeps ? Projections(config_, inputs, call) : Projections(config_, inputs, call.context.mutable_view());
  project(inputs, projections, options.num_threads);
  attend(projections, call, options);
  if (options.on_attention) {
    const AttentionKind kind = !are_same(inputs.query, inputs.key)   ? AttentionKind::cross
                               : call.options.causal != Causal::none ? AttentionKind::decoder
                                                                     : AttentionKind::encoder;
    hand_over(kind, projections, call, options.on_attention);
  }

  const auto with_axes = [&](Tensor x) {
    return with_axes_of_inputs(std::move(x), inputs.has_batch, config_.batch_first);
  };
  ModuleOutput result;
  if (options.weights != HeadWeights::none) result.weights = reported_weights(call, inputs.has_batch, options);
  if (options.steps) {
    result.q = with_axes(call.q);
    result.k = with_axes(call.k);
    result.v = with_axes(call.v);
    result.context = with_axes(call.context);
  }
  if (has_out) {
    Tensor output =
        Tensor::uninitialized(DType::f32, {inputs.query.shape[0], inputs.query.shape[1], config_.d_out});
    project(projections.context, weights_.out, weights_.out_bias, output.mutable_view(), options.num_threads);
    result.output = with_axes(std::move(output));
  } else {
    result.output = with_axes(training() ? call.context : std::move(call.context));
  }
  if (training()) keep(std::move(call), inputs);
  return result;
}

Tensor AttentionModule::reported_weights(ForwardCall& call, bool has_batch, const ForwardOptions& options) const {
  const bool drawn = call.dropped.rank() != 0;
  Tensor& weights = drawn && options.weights_after_dropout ? call.dropped : call.weights;
  Tensor result = options.weights == HeadWeights::averaged ? averaged_over_heads(weights)
                  : drawn && training()                    ? weights
                                                           : std::move(weights);
  return has_batch ? std::move(result) : without_batch_axis(std::move(result));
}

void AttentionModule::keep(ForwardCall call, const Inputs& inputs) {
  if (call.dropped.rank() == 0) call.weights = Tensor();
  call.options.weights = {};
  call.query = Tensor::copy_of(inputs.query);
  if (!inputs.are_one) {
    call.key = Tensor::copy_of(inputs.key);
    call.value = Tensor::copy_of(inputs.value);
  }
  call.has_batch = inputs.has_batch;
  call.are_one = inputs.are_one;
  kept_ = std::make_shared<const ForwardCall>(std::move(call));
}

void AttentionModule::seed_dropout(std::uint64_t seed) {
  dropout_seed_ = seed;
  dropout_calls_ = 0;
}

AttentionAndWeights scaled_dot_product_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                                 const TensorView& mask, AttentionOptions options) {
  const std::string where = "scaled_dot_product_attention";
  if (mask && options.mask) refuse(where, "mask was given twice: as an argument and in options");
  if (options.weights) refuse(where, "weights are returned, so options.weights must be left empty");
  if (q.rank < 2 || q.rank > 4 || k.rank != q.rank) {
    refuse(where, "q and k must have the same rank, 2, 3 or 4, got ", to_string(q.dims()), " and ",
           to_string(k.dims()));
  }
  const auto lengths_first = [&](const TensorView& x) {
    return options.layout == Layout::bshd && x.rank > 2 ? x.transposed(-2, -3) : x;
  };
  const TensorView rows = lengths_first(q);
  Shape shape(rows.dims().begin(), rows.dims().end());
  shape.back() = lengths_first(k).shape[q.rank - 2u];

  AttentionAndWeights result;
  result.weights = Tensor(DType::f32, std::move(shape));
  if (mask) options.mask = mask;
  options.weights = result.weights.mutable_view();
  result.output = attention(q, k, v, options);
  return result;
}

}  // namespace saccade
