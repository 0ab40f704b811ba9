// One forward call: check, project, attend, project.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "check.h"
#include "modules/appended_keys.h"
#include "modules/masks.h"
#include "modules/torch_dropout.h"
#include "saccade/modules.h"

namespace saccade {
namespace {

/// The inputs of a call as views of rank 3, batch first.
struct Inputs {
  TensorView query, key, value;
  bool has_batch = false;

  std::int64_t batch() const { return query.shape[0]; }
  std::int64_t seqlen_q() const { return query.shape[1]; }
  std::int64_t seqlen_k() const { return key.shape[1]; }
};

TensorView batch_first_view(const TensorView& x, const ModuleConfig& config) {
  if (x.rank == 3) return config.batch_first ? x : x.transposed(0, 1);
  const std::array<std::int64_t, 3> shape{1, x.shape[0], x.shape[1]};
  const std::array<std::int64_t, 3> strides{0, x.strides[0], x.strides[1]};
  return TensorView(x.data, x.dtype, shape, strides);
}

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

Inputs checked_inputs(const AttentionModule& module, const TensorView& query, const TensorView& key,
                      const TensorView& value) {
  const ModuleConfig& config = module.config();
  const Inputs inputs{.query = checked_input(module, "query", query, config.d_in),
                      .key = checked_input(module, "key", key, config.key_width),
                      .value = checked_input(module, "value", value, config.value_width),
                      .has_batch = query.rank == 3};
  if (key.rank != query.rank || value.rank != query.rank || inputs.key.shape[0] != inputs.batch()) {
    refuse(module.name(), "query, key and value must have the same batch, got query ", to_string(query.dims()),
           ", key ", to_string(key.dims()), ", value ", to_string(value.dims()));
  }
  if (inputs.value.shape[0] != inputs.batch() || inputs.value.shape[1] != inputs.seqlen_k()) {
    refuse(module.name(), "key and value must have the same batch and seqlen, got key ", to_string(key.dims()),
           ", value ", to_string(value.dims()));
  }
  return inputs;
}

/// [batch, seqlen, heads * head_dim] as [batch, seqlen, heads, head_dim]
TensorView split_heads(const Tensor& x, std::int64_t heads) {
  return x.view().reshaped({x.shape(0), x.shape(1), heads, x.shape(2) / heads});
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

Tensor without_batch_axis(Tensor x) {
  Shape shape(x.shape().begin() + 1, x.shape().end());
  return std::move(x).reshaped(std::move(shape));
}

/// Gives a result [batch, seqlen, width] the axes that the inputs had.
Tensor with_axes_of_inputs(Tensor x, bool has_batch, bool batch_first) {
  if (!has_batch) return without_batch_axis(std::move(x));
  return batch_first ? std::move(x) : Tensor::copy_of(x.view().transposed(0, 1));
}

std::uint64_t seed_from_operating_system() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

}  // namespace

struct AttentionModule::Attended {
  Tensor context;  ///< [batch, seqlen_q, num_heads * head_dim]
  Tensor weights;  ///< [batch, num_heads, seqlen_q, seqlen_k and the appended keys], where they were needed
};

void AttentionModule::add_fresh_dropout(AttentionOptions& call) {
  if (!dropout_seed_) dropout_seed_ = seed_from_operating_system();
  call.dropout_p = config_.dropout;
  call.dropout_seed = *dropout_seed_;
  call.dropout_offset = dropout_calls_++;
}

AttentionModule::Attended AttentionModule::attend(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const ForwardOptions& options) {
  const std::int64_t seqlen_k = k.shape(1);
  const ScoreShape scores{q.shape(0), config_.num_heads, q.shape(1), seqlen_k};
  const bool drops = training_ && config_.dropout > 0.0;
  const bool draws_as_torch = drops && options.dropout_generator != nullptr;
  const AppendedKeys appended{.bias_k = weights_.bias_k, .bias_v = weights_.bias_v, .zero = config_.add_zero_attn};
  const TensorView q_heads = split_heads(q, config_.num_heads);
  const TensorView k_heads = split_heads(k, config_.num_kv_heads);
  const TensorView v_heads = split_heads(v, config_.num_kv_heads);
  const CallMask mask = call_mask(name_, options.mask, options.key_mask, scores);

  AttentionOptions call{.scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim)),
                        .causal = config_.causal || options.causal ? Causal::top_left : Causal::none,
                        .mask = mask.mask(),
                        .kv_lengths = mask.kv_lengths,
                        .weights_after_dropout = options.weights_after_dropout,
                        .layout = Layout::blhd,
                        .num_threads = options.num_threads};
  if (drops && !draws_as_torch) add_fresh_dropout(call);

  Attended result{.context = Tensor(DType::f32, q.shape()), .weights = {}};
  const MutableTensorView context = result.context.mutable_view().reshaped(q_heads.dims());
  MutableTensorView weights;
  if (options.weights != HeadWeights::none || draws_as_torch) {
    result.weights = Tensor(DType::f32, {scores[0], scores[1], scores[2], seqlen_k + appended.count()});
    weights = result.weights.mutable_view();
    call.weights = weights.slice(3, 0, seqlen_k);
  }
  Tensor lse;
  if (appended.count() != 0) {
    lse = Tensor(DType::f32, {scores[0], scores[1], scores[2]});
    call.lse = lse.mutable_view();
  }
  attention(q_heads, k_heads, v_heads, context, call);
  if (appended.count() != 0) {
    merge_appended_keys(appended, {.q = q_heads, .lse = lse, .context = context, .weights = weights}, seqlen_k,
                        call);
  }
  if (draws_as_torch) {
    Tensor dropped = drop_as_torch(*options.dropout_generator, options.dropout_build, config_.dropout,
                                   {.weights = weights,
                                    .v = v_heads,
                                    .bias_v = appended.bias_v,
                                    .context = context,
                                    .independent_heads = config_.independent_heads});
    if (options.weights_after_dropout) result.weights = std::move(dropped);
  }
  return result;
}

ModuleOutput AttentionModule::forward(const TensorView& x, const ForwardOptions& options) {
  if (config_.key_width != config_.d_in || config_.value_width != config_.d_in) {
    refuse(name_, "one input for query, key and value needs equal widths, but d_in is ", config_.d_in,
           ", key_width ", config_.key_width, ", value_width ", config_.value_width);
  }
  checked_input(*this, "x", x, config_.d_in);
  return forward(x, x, x, options);
}

ModuleOutput AttentionModule::forward(const TensorView& query, const TensorView& key, const TensorView& value,
                                      const ForwardOptions& options) {
  const Inputs inputs = checked_inputs(*this, query, key, value);
  const auto project = [&](const TensorView& x, const Tensor& weight, const Tensor& bias) {
    return linear(x, weight,
                  {.weight_layout = config_.weight_layout, .bias = bias, .num_threads = options.num_threads});
  };
  Tensor q = project(inputs.query, weights_.query, weights_.query_bias);
  Tensor k = project(inputs.key, weights_.key, weights_.key_bias);
  Tensor v = project(inputs.value, weights_.value, weights_.value_bias);
  Attended attended = attend(q, k, v, options);

  const auto with_axes = [&](Tensor x) {
    return with_axes_of_inputs(std::move(x), inputs.has_batch, config_.batch_first);
  };
  ModuleOutput result;
  if (options.weights != HeadWeights::none) {
    result.weights = options.weights == HeadWeights::averaged ? averaged_over_heads(attended.weights)
                                                              : std::move(attended.weights);
    if (!inputs.has_batch) result.weights = without_batch_axis(std::move(result.weights));
  }
  if (options.steps) {
    result.q = with_axes(std::move(q));
    result.k = with_axes(std::move(k));
    result.v = with_axes(std::move(v));
    result.context = with_axes(attended.context);
  }
  result.output = with_axes(weights_.out.rank() != 0 ? project(attended.context, weights_.out, weights_.out_bias)
                                                     : std::move(attended.context));
  return result;
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
    return options.layout == Layout::blhd && x.rank > 2 ? x.transposed(-2, -3) : x;
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
