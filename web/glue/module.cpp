// Modules, layers and AdamW for JavaScript. Each is a handle that JavaScript destroys.
#include <memory>
#include <optional>

#include "glue.h"
#include "saccade/attention_modules.h"
#include "saccade/gpt_model.h"
#include "saccade/layers.h"
#include "saccade/optim.h"

using namespace saccade;
using namespace saccade::web;

namespace {

/// A generator, where the option seed asks for parameters as PyTorch draws them.
std::optional<TorchGenerator> generator_of(Fields& fields) {
  if (!fields.has("seed")) return {};
  std::uint64_t seed = 0;
  fields.take("seed", seed);
  return TorchGenerator(seed);
}

/// A module made from its arguments: drawn by the generator, else of zeros.
template <class T, class... Arguments>
std::unique_ptr<Module> made(Fields& fields, const Arguments&... arguments) {
  std::optional<TorchGenerator> generator = generator_of(fields);
  fields.check_all_taken();
  if constexpr (std::is_constructible_v<T, Arguments..., TorchGenerator&>)
    if (generator) return std::make_unique<T>(arguments..., *generator);
  return std::make_unique<T>(arguments...);
}

std::unique_ptr<Module> self_attention(Fields& fields) {
  SelfAttentionOptions options;
  bool in_out = false;
  fields.take("d_in", options.d_in), fields.take("d_out", options.d_out), fields.take("plain", in_out);
  fields.take("qkv_bias", options.qkv_bias);
  if (in_out) options.weight_layout = WeightLayout::in_out;
  return made<SelfAttention>(fields, options);
}

std::unique_ptr<Module> causal_attention(Fields& fields) {
  CausalAttentionOptions options;
  fields.take("d_in", options.d_in), fields.take("d_out", options.d_out);
  fields.take("context_length", options.context_length), fields.take("dropout", options.dropout);
  fields.take("qkv_bias", options.qkv_bias);
  return made<CausalAttention>(fields, options);
}

std::unique_ptr<Module> multi_head_attention(Fields& fields) {
  MultiHeadAttentionOptions options;
  bool torch_multihead = false;
  fields.take("d_in", options.d_in), fields.take("d_out", options.d_out);
  fields.take("num_heads", options.num_heads), fields.take("num_kv_heads", options.num_kv_heads);
  fields.take("key_width", options.key_width), fields.take("value_width", options.value_width);
  fields.take("context_length", options.context_length), fields.take("causal", options.causal);
  fields.take("dropout", options.dropout), fields.take("qkv_bias", options.qkv_bias);
  fields.take("out_bias", options.out_bias), fields.take("add_bias_kv", options.add_bias_kv);
  fields.take("add_zero_attn", options.add_zero_attn), fields.take("torch_multihead", torch_multihead);
  if (torch_multihead) options.init = Initialization::torch_multihead;
  return made<MultiHeadAttention>(fields, options);
}

/// Linear(d_in, d_out, bias): its generator comes before the bias.
std::unique_ptr<Module> linear_layer(Fields& fields) {
  std::int64_t d_in = 0, d_out = 0;
  bool bias = true;
  fields.take("d_in", d_in), fields.take("d_out", d_out), fields.take("bias", bias);
  std::optional<TorchGenerator> generator = generator_of(fields);
  fields.check_all_taken();
  if (generator) return std::make_unique<Linear>(d_in, d_out, *generator, bias);
  return std::make_unique<Linear>(d_in, d_out, bias);
}

std::unique_ptr<Module> layer_norm(Fields& fields) {
  std::int64_t dim = 0;
  double eps = 1e-5;
  fields.take("dim", dim), fields.take("eps", eps);
  return made<LayerNorm>(fields, dim, eps);
}

std::unique_ptr<Module> embedding(Fields& fields) {
  std::int64_t count = 0, dim = 0;
  fields.take("num_embeddings", count), fields.take("dim", dim);
  return made<Embedding>(fields, count, dim);
}

std::unique_ptr<Module> feed_forward(Fields& fields) {
  std::int64_t dim = 0, hidden = 0;
  fields.take("dim", dim), fields.take("hidden", hidden);
  return made<FeedForward>(fields, dim, hidden);
}

std::unique_ptr<Module> gpt_model(Fields& fields) {
  GPTModelOptions options;
  bool sinusoidal = false;
  fields.take("vocab_size", options.vocab_size), fields.take("context_length", options.context_length);
  fields.take("d_model", options.d_model), fields.take("num_layers", options.num_layers);
  fields.take("num_heads", options.num_heads), fields.take("d_hidden", options.d_hidden);
  fields.take("attention_only", options.attention_only), fields.take("dropout", options.dropout);
  fields.take("qkv_bias", options.qkv_bias), fields.take("sinusoidal", sinusoidal);
  if (sinusoidal) options.init = GPTInitialization::sinusoidal;
  return made<GPTModel>(fields, options);
}

struct Kind {
  std::string_view name;
  std::unique_ptr<Module> (*make)(Fields&);
};
constexpr Kind kKinds[] = {{"SelfAttention", self_attention},
                           {"CausalAttention", causal_attention},
                           {"MultiHeadAttention", multi_head_attention},
                           {"Linear", linear_layer},
                           {"LayerNorm", layer_norm},
                           {"Embedding", embedding},
                           {"FeedForward", feed_forward},
                           {"GPTModel", gpt_model}};

std::unique_ptr<Module> module_of(const std::string& name, Fields& fields) {
  for (const Kind& kind : kKinds)
    if (kind.name == name) return kind.make(fields);
  refuse("Module", "there is no module '", name, "'");
}

/// Calls f(layer) for the layers that map one tensor to one.
template <class F>
void with_layer(Module& module, const F& f) {
  if (auto* const linear = dynamic_cast<Linear*>(&module)) return f(*linear);
  if (auto* const norm = dynamic_cast<LayerNorm*>(&module)) return f(*norm);
  if (auto* const table = dynamic_cast<Embedding*>(&module)) return f(*table);
  if (auto* const ff = dynamic_cast<FeedForward*>(&module)) return f(*ff);
  if (auto* const model = dynamic_cast<GPTModel*>(&module)) return f(*model);
  refuse(module.name(), "is no layer of one tensor");
}

ForwardOptions forward_options(Fields& fields) {
  ForwardOptions options;
  std::string weights = "none";
  fields.take("weights", weights), fields.take("steps", options.steps), fields.take("causal", options.causal);
  fields.check_all_taken();
  if (weights == "per_head") options.weights = HeadWeights::per_head;
  if (weights == "averaged") options.weights = HeadWeights::averaged;
  return options;
}

}  // namespace

SACCADE_WEB_API(web_module_create)
saccade_status web_module_create(const char* kind, const char* texts, std::size_t bytes, Module** module) {
  return c_api::guarded([&] {
    Fields fields(kind, texts, bytes);
    *module = module_of(kind, fields).release();
  });
}
SACCADE_WEB_API(web_module_destroy) void web_module_destroy(Module* module) { delete module; }
SACCADE_WEB_API(web_module_train) void web_module_train(Module* module, std::int32_t training) {
  module->train(training != 0);
}

/// The parameters' values, or their gradients as far as there are any.
SACCADE_WEB_API(web_module_parameters)
saccade_status web_module_parameters(Module* module, std::int32_t gradients) {
  return c_api::guarded([&] {
    std::vector<std::pair<std::string, Tensor>> results;
    for (const NamedParameter& parameter : module->parameters()) {
      const TensorView view = gradients != 0 ? parameter.gradient : parameter.value;
      if (view.rank != 0) results.emplace_back(parameter.name, Tensor::copy_of(view));
    }
    give_results(std::move(results));
  });
}
SACCADE_WEB_API(web_module_zero_grad) saccade_status web_module_zero_grad(Module* module) {
  return c_api::guarded([&] { module->zero_grad(); });
}
SACCADE_WEB_API(web_module_load)
saccade_status web_module_load(Module* module, const char* names, std::size_t bytes,
                               const saccade_tensor* tensors) {
  return c_api::guarded([&] { module->load_state_dict(state_of("loadStateDict", names, bytes, tensors)); });
}

/// key and value: NULL where the inputs attend to themselves.
SACCADE_WEB_API(web_attention_forward)
saccade_status web_attention_forward(Module* module, const saccade_tensor* query, const saccade_tensor* key,
                                     const saccade_tensor* value, const saccade_tensor* mask,
                                     const saccade_tensor* key_mask, const char* texts, std::size_t bytes) {
  return c_api::guarded([&] {
    auto& attention = dynamic_cast<AttentionModule&>(*module);
    Fields fields(module->name(), texts, bytes);
    ForwardOptions options = forward_options(fields);
    options.mask = c_api::optional_view_of(module->name(), "mask", mask);
    options.key_mask = c_api::optional_view_of(module->name(), "keyMask", key_mask);
    const TensorView x = c_api::view_of(module->name(), "query", query);
    ModuleOutput result = key == nullptr
                              ? attention.forward(x, options)
                              : attention.forward(x, c_api::view_of(module->name(), "key", key),
                                                  c_api::view_of(module->name(), "value", value), options);
    give_results({{"output", std::move(result.output)},
                  {"weights", std::move(result.weights)},
                  {"q", std::move(result.q)},
                  {"k", std::move(result.k)},
                  {"v", std::move(result.v)},
                  {"context", std::move(result.context)}});
  });
}
SACCADE_WEB_API(web_attention_backward)
saccade_status web_attention_backward(Module* module, const saccade_tensor* dout) {
  return c_api::guarded([&] {
    InputGradients found =
        dynamic_cast<AttentionModule&>(*module).backward(c_api::view_of(module->name(), "dout", dout));
    give_results({{"x", std::move(found.x)},
                  {"query", std::move(found.query)},
                  {"key", std::move(found.key)},
                  {"value", std::move(found.value)}});
  });
}

SACCADE_WEB_API(web_layer_forward)
saccade_status web_layer_forward(Module* module, const saccade_tensor* x) {
  return c_api::guarded([&] {
    const TensorView view = c_api::view_of(module->name(), "x", x);
    with_layer(*module, [&](auto& layer) { give_results({{"y", layer.forward(view)}}); });
  });
}
/// Tables and models, whose inputs are tokens, have no gradient of them.
SACCADE_WEB_API(web_layer_backward)
saccade_status web_layer_backward(Module* module, const saccade_tensor* dout) {
  return c_api::guarded([&] {
    const TensorView view = c_api::view_of(module->name(), "dout", dout);
    give_results({});
    with_layer(*module, [&](auto& layer) {
      if constexpr (std::is_void_v<decltype(layer.backward(view))>)
        layer.backward(view);
      else
        give_results({{"dx", layer.backward(view)}});
    });
  });
}

/// The mean loss, and its gradient.
SACCADE_WEB_API(web_cross_entropy)
saccade_status web_cross_entropy(const saccade_tensor* logits, const saccade_tensor* targets, std::int64_t ignored,
                                 double* loss) {
  return c_api::guarded([&] {
    const TensorView given = c_api::view_of("crossEntropy", "logits", logits);
    Tensor dlogits(DType::f32, Shape(given.dims().begin(), given.dims().end()));
    *loss = cross_entropy(given, c_api::view_of("crossEntropy", "targets", targets),
                          {.ignore_index = ignored, .dlogits = dlogits});
    give_results({{"dlogits", std::move(dlogits)}});
  });
}

SACCADE_WEB_API(web_adamw_create)
saccade_status web_adamw_create(Module* module, const char* texts, std::size_t bytes, AdamW** optimizer) {
  return c_api::guarded([&] {
    Fields fields("AdamW", texts, bytes);
    AdamWOptions options;
    fields.take("lr", options.lr), fields.take("beta1", options.beta1), fields.take("beta2", options.beta2);
    fields.take("eps", options.eps), fields.take("weight_decay", options.weight_decay);
    fields.take("decay_vectors", options.decay_vectors);
    fields.check_all_taken();
    *optimizer = std::make_unique<AdamW>(*module, options).release();
  });
}
SACCADE_WEB_API(web_adamw_step) saccade_status web_adamw_step(AdamW* optimizer, double lr) {
  return c_api::guarded([&] { optimizer->set_lr(lr), optimizer->step(); });
}
SACCADE_WEB_API(web_adamw_destroy) void web_adamw_destroy(AdamW* optimizer) { delete optimizer; }
