// MultiHeadAttention against torch.nn.MultiheadAttention, over all of its arguments: the cases of
// tests/data/module_goldens.safetensors, made by tests/goldens/make_module_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "nn/attention_modules/naive_module.h"
#include "nn/attention_modules/naive_module_backward.h"
#include "saccade/attention_modules.h"
#include "saccade/io.h"
#include "support/expect_close.h"

namespace saccade::test {
namespace {

using Json = nlohmann::json;

struct Golden {
  Json arguments;
  std::map<std::string, Tensor> tensors;
  StateDict state;  ///< with PyTorch's names

  bool batched() const { return arguments.at("batched").get<bool>(); }
  bool has_batch_axis_second() const { return batched() && !arguments.at("batch_first").get<bool>(); }

  /// An input or output as [batch, seqlen, width].
  Tensor batch_first(const std::string& name) const {
    const Tensor& x = tensors.at(name);
    if (!batched()) return x.reshaped({1, x.shape(0), x.shape(1)});
    return has_batch_axis_second() ? Tensor::copy_of(x.view().transposed(0, 1)) : x;
  }

  /// A mask with our meaning, or an empty tensor.
  Tensor mask(const std::string& name) const {
    return tensors.contains(name) ? mask_from_torch(tensors.at(name)) : Tensor();
  }
};

std::vector<Golden> load_goldens() {
  Safetensors file = load_safetensors(SACCADE_SOURCE_DIR "/tests/data/module_goldens.safetensors");
  std::map<std::string, Golden> goldens;
  for (const auto& [name, arguments] : file.metadata) goldens[name].arguments = Json::parse(arguments);
  const std::string state = "state/";
  for (auto& [path, tensor] : file.tensors) {
    const auto slash = path.find('/');
    const std::string name = path.substr(slash + 1);
    Golden& golden = goldens.at(path.substr(0, slash));
    if (name.starts_with(state)) {
      golden.state[name.substr(state.size())] = std::move(tensor);
    } else {
      golden.tensors[name] = std::move(tensor);
    }
  }
  std::vector<Golden> result;
  for (auto& [name, golden] : goldens) result.push_back(std::move(golden));
  return result;
}

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = load_goldens();
  return all;
}

MultiHeadAttentionOptions options_of(const Json& arguments) {
  return {.d_in = 6,
          .d_out = 6,
          .num_heads = arguments.at("num_heads"),
          .key_width = arguments.at("kdim"),
          .value_width = arguments.at("vdim"),
          .dropout = arguments.at("dropout"),
          .qkv_bias = arguments.at("bias"),
          .out_bias = arguments.at("bias"),
          .add_bias_kv = arguments.at("add_bias_kv"),
          .add_zero_attn = arguments.at("add_zero_attn"),
          .batch_first = arguments.at("batch_first"),
          .init = Initialization::torch_multihead};
}

ModuleOutput forward(MultiHeadAttention& module, const Golden& golden) {
  const Tensor mask = golden.mask("mask"), key_mask = golden.mask("key_mask");
  TorchGenerator generator(golden.arguments.at("seed").get<std::uint64_t>());
  return module.forward(
      golden.tensors.at("query"), golden.tensors.at("key"), golden.tensors.at("value"),
      {.mask = mask,
       .key_mask = key_mask,
       .weights = golden.arguments.at("average").get<bool>() ? HeadWeights::averaged : HeadWeights::per_head,
       .weights_after_dropout = true,
       .dropout_generator = &generator});
}

/// The same call for naive code, batch first.
class CallByHand {
 public:
  CallByHand(MultiHeadAttention& module, const Golden& golden)
      : module_(module),
        state_(module.state_dict()),
        query_(golden.batch_first("query")),
        key_(golden.batch_first("key")),
        value_(golden.batch_first("value")) {
    const std::int64_t batch = query_.shape(0), num_heads = module.config().num_heads;
    Tensor mask = golden.mask("mask"), key_mask = golden.mask("key_mask");
    if (mask.rank() == 3) mask = mask.reshaped({batch, num_heads, query_.shape(1), key_.shape(1)});
    if (key_mask.rank() == 1) key_mask = key_mask.reshaped({1, key_.shape(1)});
    added_ = added_by(mask, key_mask, false, key_.shape(1));
    if (module.config().dropout == 0) return;
    TorchGenerator generator(golden.arguments.at("seed").get<std::uint64_t>());
    const std::int64_t columns = golden.tensors.at("weights").shape(-1);
    keep_ = generator.dropout_mask({batch, num_heads, query_.shape(1), columns}, module.config().dropout);
  }

  NaiveCall call() const {
    NaiveCall call{.state = state_,
                   .config = module_.config(),
                   .query = query_,
                   .key = key_,
                   .value = value_,
                   .added = added_,
                   .dropout_factor = {}};
    if (keep_.rank() != 0) {
      call.dropout_factor = [this](auto... at) {
        return keep_.at<bool>(at...) ? 1 / (1 - module_.config().dropout) : 0.0;
      };
    }
    return call;
  }

 private:
  MultiHeadAttention& module_;
  StateDict state_;
  Tensor query_, key_, value_, keep_;
  PerWeight added_;
};

/// The result of naive code for the same call; output and weights have the axes of the golden ones.
template <class T>
NaiveResult<T> naive(MultiHeadAttention& module, const Golden& golden) {
  const CallByHand by_hand(module, golden);
  const NaiveCall call = by_hand.call();
  NaiveResult<T> result = naive_module<T>(call);
  const std::int64_t batch = call.query.shape[0], seqlen_q = call.query.shape[1];
  const std::int64_t num_heads = module.config().num_heads;

  const auto with_axes = [&](const Tensor& x) {
    if (!golden.batched()) return x.reshaped({x.shape(1), x.shape(2)});
    return golden.has_batch_axis_second() ? Tensor::copy_of(x.view().transposed(0, 1)) : x;
  };
  result.output = with_axes(result.output);
  result.bound = with_axes(result.bound);
  if (golden.arguments.at("average").get<bool>()) {
    Tensor mean(dtype_of<T>, {batch, seqlen_q, result.weights.shape(3)});
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < num_heads; ++h)
        for (std::int64_t i = 0; i < mean.shape(1); ++i)
          for (std::int64_t j = 0; j < mean.shape(2); ++j)
            mean.at<T>(b, i, j) += result.weights.template at<T>(b, h, i, j) / static_cast<T>(num_heads);
    result.weights = std::move(mean);
  }
  result.weights = result.weights.reshaped(golden.tensors.at("weights").shape());
  return result;
}

TEST(ModulesTorch, OutputAndWeightsAreThoseOfMultiheadAttention) {
  ASSERT_GT(goldens().size(), 60u);
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.arguments.dump());
    MultiHeadAttention module(options_of(golden.arguments));
    module.load_state_dict(golden.state);
    const ModuleOutput result = forward(module, golden);
    const auto by_hand = naive<double>(module, golden);
    const auto in_float = naive<float>(module, golden);
    const Tensor& output = golden.tensors.at("output");
    const Tensor& weights = golden.tensors.at("weights");
    // First check the naive code itself, the reference of all other module tests.
    expect_close(by_hand.output,
                 {.reference = output, .naive = output, .bound = by_hand.bound, .coarsest = DType::f32});
    expect_close(by_hand.weights, {.reference = weights, .naive = weights, .coarsest = DType::f32});
    expect_close(result.output, {.reference = output, .naive = in_float.output, .bound = by_hand.bound});
    expect_close(result.weights, {.reference = weights, .naive = in_float.weights});
  }
}

/// Gradients with the names of torch.nn.MultiheadAttention, and those of the inputs with their axes.
template <class T>
std::map<std::string, Tensor> as_in_torch(const Golden& golden, std::map<std::string, Tensor> gradients) {
  const auto stack = [&](const std::string& name, const std::string& suffix) {
    if (!golden.tensors.contains("gradient/" + name)) return;
    std::vector<T> rows;
    for (const std::string layer : {"W_query", "W_key", "W_value"}) {
      const auto values = gradients.at(layer + suffix).template values<T>();
      rows.insert(rows.end(), values.begin(), values.end());
      gradients.erase(layer + suffix);
    }
    const Shape& shape = golden.tensors.at("gradient/" + name).shape();
    gradients[name] = Tensor::copy_of(TensorView(rows.data(), dtype_of<T>, std::span(shape)));
  };
  stack("in_proj_weight", ".weight");
  stack("in_proj_bias", ".bias");
  for (const auto& [ours, theirs] : {std::pair{"W_query.weight", "q_proj_weight"},
                                     {"W_key.weight", "k_proj_weight"},
                                     {"W_value.weight", "v_proj_weight"}}) {
    const auto entry = gradients.find(ours);
    if (entry == gradients.end()) continue;
    gradients[theirs] = std::move(entry->second);
    gradients.erase(entry);
  }
  for (const std::string name : {"query", "key", "value"}) {
    const Shape& shape = golden.tensors.at(name).shape();
    Tensor& gradient = gradients.at(name);
    if (golden.has_batch_axis_second() && gradient.shape() != shape)
      gradient = Tensor::copy_of(gradient.view().transposed(0, 1));
    gradient = gradient.reshaped(shape);
  }
  return gradients;
}

template <class T>
std::map<std::string, Tensor> naive_gradients(MultiHeadAttention& module, const Golden& golden, bool absolute) {
  const CallByHand by_hand(module, golden);
  const NaiveCall call = by_hand.call();
  NaiveGradients gradients = NaiveModuleBackward<T>(call, golden.batch_first("dout"), absolute).run();
  std::map<std::string, Tensor> all = std::move(gradients.parameters);
  all["query"] = std::move(gradients.query);
  all["key"] = std::move(gradients.key);
  all["value"] = std::move(gradients.value);
  return as_in_torch<T>(golden, std::move(all));
}

std::map<std::string, Tensor> gradients_of(MultiHeadAttention& module, const Golden& golden) {
  forward(module, golden);
  InputGradients inputs = module.backward(golden.tensors.at("dout"));
  std::map<std::string, Tensor> all;
  for (const NamedParameter& parameter : module.parameters())
    all[parameter.name] = Tensor::copy_of(parameter.gradient);
  all["query"] = std::move(inputs.query);
  all["key"] = std::move(inputs.key);
  all["value"] = std::move(inputs.value);
  return as_in_torch<float>(golden, std::move(all));
}

TEST(ModulesTorch, GradientsAreThoseOfMultiheadAttention) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.arguments.dump());
    MultiHeadAttention module(options_of(golden.arguments));
    module.load_state_dict(golden.state);
    const auto gradients = gradients_of(module, golden);
    const auto in_double = naive_gradients<double>(module, golden, false);
    const auto in_float = naive_gradients<float>(module, golden, false);
    const auto bound = naive_gradients<double>(module, golden, true);
    std::size_t count = 0;
    for (const auto& [name, reference] : golden.tensors) {
      if (!name.starts_with("gradient/")) continue;
      ++count;
      const std::string own = name.substr(name.find('/') + 1);
      SCOPED_TRACE(own);
      // First check the naive gradients, the reference of all other module tests.
      expect_close(in_double.at(own),
                   {.reference = reference, .naive = reference, .bound = bound.at(own), .coarsest = DType::f32},
                   kGradient);
      expect_close(gradients.at(own), {.reference = reference, .naive = in_float.at(own), .bound = bound.at(own)},
                   kGradient);
    }
    EXPECT_EQ(count, gradients.size());
  }
}

TEST(ModulesTorch, CausalIsTheTriangularMask) {
  int count = 0;
  for (const Golden& golden : goldens()) {
    if (golden.arguments.at("mask") != "causal" || golden.arguments.at("key_mask") != "none") continue;
    SCOPED_TRACE(golden.arguments.dump());
    Golden without_mask = golden;
    without_mask.tensors.erase("mask");
    MultiHeadAttentionOptions options = options_of(golden.arguments);
    options.causal = true;
    MultiHeadAttention module(options);
    module.load_state_dict(golden.state);
    const auto by_hand = naive<double>(module, golden);
    const auto in_float = naive<float>(module, golden);
    expect_close(forward(module, without_mask).output,
                 {.reference = golden.tensors.at("output"), .naive = in_float.output, .bound = by_hand.bound});
    ++count;
  }
  EXPECT_GT(count, 1);
}

TEST(ModulesTorch, SeededParametersAreThoseOfMultiheadAttention) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.arguments.dump());
    const MultiHeadAttentionOptions options = options_of(golden.arguments);
    TorchGenerator generator(golden.arguments.at("seed").get<std::uint64_t>());
    const MultiHeadAttention drawn(options, generator);
    MultiHeadAttention loaded(options);
    loaded.load_state_dict(golden.state);
    for (const auto& [name, value] : loaded.state_dict()) {
      if (name.ends_with(".bias")) continue;  // 0 in PyTorch; the goldens have other ones
      EXPECT_TRUE(std::ranges::equal(drawn.state_dict().at(name).values<float>(), value.values<float>())) << name;
    }
  }
}

TEST(ModulesTorch, CheckpointsAreRecognised) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.arguments.dump());
    const MultiHeadAttentionOptions options = options_of(golden.arguments);
    const auto module = module_from_state_dict(golden.state, {.num_heads = options.num_heads,
                                                              .dropout = options.dropout,
                                                              .add_zero_attn = options.add_zero_attn,
                                                              .batch_first = options.batch_first});
    MultiHeadAttention expected(options);
    expected.load_state_dict(golden.state);
    EXPECT_EQ(module->name(), "MultiHeadAttention");
    EXPECT_FALSE(module->training());
    EXPECT_EQ(module->config().key_width, options.key_width);
    EXPECT_EQ(module->config().value_width, options.value_width);
    const StateDict state = module->state_dict();
    ASSERT_EQ(state.size(), expected.state_dict().size());
    for (const auto& [name, value] : expected.state_dict()) {
      EXPECT_TRUE(std::ranges::equal(state.at(name).values<float>(), value.values<float>())) << name;
    }
  }
}

}  // namespace
}  // namespace saccade::test
