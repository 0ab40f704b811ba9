// The backward pass of a forward call: from the output to the parameters and inputs.
#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "core/check.h"
#include "nn/attention_modules/forward_call.h"
#include "nn/attention_modules/torch_dropout.h"
#include "nn/elementwise.h"
#include "saccade/attention_modules.h"
#include "saccade/backward.h"

namespace saccade {
namespace {

void check_dout(const AttentionModule& module, const TensorView& dout, const TensorView& dout_batch_first,
                const Shape& output, bool has_batch) {
  const bool rank_fits = dout.rank == (has_batch ? 3 : 2);
  if (dout.dtype == DType::f32 && rank_fits && std::ranges::equal(dout_batch_first.dims(), output)) return;
  refuse(module.name(), "dout must be f32 and shaped as the output of the last forward call, ",
         has_batch ? "batch first " : "", to_string(std::span(output).subspan(has_batch ? 0 : 1)), ", got ",
         name_of(dout.dtype), " ", to_string(dout.dims()));
}

}  // namespace

/// The gradients of q, k and v, [batch, seqlen, heads * head_dim].
struct AttentionModule::ProjectedGradients {
  Tensor dq, dk, dv;
};

AttentionModule::ProjectedGradients AttentionModule::attend_backward(const ForwardCall& call,
                                                                     const TensorView& dcontext) {
  ProjectedGradients result{.dq = Tensor::uninitialized(DType::f32, call.q.shape()),
                            .dk = Tensor::uninitialized(DType::f32, call.k.shape()),
                            .dv = Tensor::uninitialized(DType::f32, call.v.shape())};
  const TensorView q = split_heads(call.q.view(), config_.num_heads);
  const TensorView k = split_heads(call.k.view(), config_.num_kv_heads),
                   v = split_heads(call.v.view(), config_.num_kv_heads);
  const TensorView context = split_heads(call.context.view(), config_.num_heads),
                   dout = dcontext.reshaped(q.dims());
  const MutableTensorView dq = split_heads(result.dq.mutable_view(), config_.num_heads);
  const MutableTensorView dk = split_heads(result.dk.mutable_view(), config_.num_kv_heads);
  const MutableTensorView dv = split_heads(result.dv.mutable_view(), config_.num_kv_heads);
  AttentionOptions options = call.options;
  if (call.dropped.rank() != 0) {
    options.dropout_p = config_.dropout;
    drop_as_torch_backward({.weights = call.weights,
                            .dropped = call.dropped,
                            .q = q,
                            .k = k,
                            .v = v,
                            .context = context,
                            .dout = dout},
                           {.dq = dq, .dk = dk, .dv = dv}, options);
  } else {
    attention_backward(q, k, v, {.o = context, .lse = call.lse, .dout = dout}, {.dq = dq, .dk = dk, .dv = dv},
                       options);
  }
  if (weights_.bias_k.value.rank() != 0) {
    appended_keys_backward(appended_keys(),
                           {.q = q, .lse = call.lse, .context = context, .dout = dout, .dropped = call.dropped},
                           {.dq = dq,
                            .dbias_k = weights_.bias_k.gradient_to_add_to(),
                            .dbias_v = weights_.bias_v.gradient_to_add_to()},
                           call.k.shape(1), options);
  }
  return result;
}

InputGradients AttentionModule::backward(const TensorView& dout) {
  if (!kept_) {
    throw std::logic_error("[" + name() + "] backward needs a forward call in training mode before it");
  }
  const ForwardCall& call = *kept_;
  const Shape output{call.q.shape(0), call.q.shape(1), config_.d_out};
  const TensorView given = dout.rank == 2 || dout.rank == 3 ? batch_first_view(dout, config_) : dout;
  check_dout(*this, dout, given, output, call.has_batch);
  const LinearOptions layout{.weight_layout = config_.weight_layout, .num_threads = call.options.num_threads};
  /// Returns the gradient of a layer's inputs, and adds the gradients of its parameters.
  const auto project_backward = [&](const TensorView& x, Parameter& weight, Parameter& bias,
                                    const TensorView& dy) {
    Tensor dx = Tensor::uninitialized(DType::f32, Shape(x.dims().begin(), x.dims().end()));
    linear_backward(x, weight.value, dy,
                    {.dx = dx,
                     .dweight = weight.gradient_to_add_to(),
                     .dbias = bias.value.rank() != 0 ? bias.gradient_to_add_to() : MutableTensorView{},
                     .accumulate = true},
                    layout);
    return dx;
  };
  const Tensor dcontext = weights_.out.value.rank() != 0
                              ? project_backward(call.context, weights_.out, weights_.out_bias, given)
                              : Tensor::copy_of(given);
  const ProjectedGradients projected = attend_backward(call, dcontext);
  Tensor query = project_backward(call.query, weights_.query, weights_.query_bias, projected.dq);
  Tensor key = project_backward(call.key_input(), weights_.key, weights_.key_bias, projected.dk);
  Tensor value = project_backward(call.value_input(), weights_.value, weights_.value_bias, projected.dv);

  const auto with_axes = [&](Tensor x) {
    return with_axes_of_inputs(std::move(x), call.has_batch, config_.batch_first);
  };
  InputGradients result;
  if (call.are_one) {
    add_to(query, key);
    add_to(query, value);
    result.x = with_axes(std::move(query));
  } else {
    result.query = with_axes(std::move(query));
    result.key = with_axes(std::move(key));
    result.value = with_axes(std::move(value));
  }
  kept_.reset();
  return result;
}

}  // namespace saccade
