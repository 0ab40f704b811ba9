// Layers, loss and optimisers against PyTorch's (tests/data/layer_goldens.safetensors, made by
// tests/goldens/make_layer_goldens.py).
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/layer_checks.h"
#include "nn/naive_optim.h"
#include "saccade/io.h"
#include "saccade/layers.h"
#include "saccade/optim.h"

namespace saccade::test {
namespace {

using Json = nlohmann::json;

const Safetensors& goldens() {
  static const Safetensors file = load_safetensors(SACCADE_SOURCE_DIR "/tests/data/layer_goldens.safetensors");
  return file;
}

/// The tensors of a case, by the rest of their names.
Tensors golden(const std::string& name) {
  Tensors result;
  for (const auto& [path, tensor] : goldens().tensors)
    if (path.starts_with(name + "/")) result[path.substr(name.size() + 1)] = tensor;
  EXPECT_FALSE(result.empty()) << name;
  return result;
}

/// `golden` with the names of naive_layers.h, in two dimensions.
Tensors inputs_of(const Tensors& golden, const std::map<std::string, std::string>& names) {
  Tensors result;
  for (const auto& [ours, theirs] : names) {
    const Tensor& tensor = golden.at(theirs);
    result[ours] =
        tensor.rank() > 2 ? tensor.reshaped({tensor.size() / tensor.shape(-1), tensor.shape(-1)}) : tensor;
  }
  return result;
}

/// Compares naive code in double with PyTorch, and then the layer's results.
void expect_like_torch(const Tensors& got, const Tensors& torch, const ByHand& by_hand, const ByHand& in_float) {
  for (const auto& [name, tensor] : got) {
    SCOPED_TRACE(name);
    const Tensor reference = torch.at(name).reshaped(by_hand.values.at(name).shape());
    const Tensor& bound = by_hand.bounds.at(name);
    expect_close(by_hand.values.at(name), {reference, reference, bound});
    expect_close(tensor.reshaped(reference.shape()), {reference, in_float.values.at(name), bound, DType::f32},
                 name == "y" ? kForward : kGradient);
  }
}

TEST(LayersTorch, LayerNorm) {
  Tensors torch = golden("layer_norm");
  torch["dscale"] = torch.at("dweight");
  torch["dshift"] = torch.at("dbias");
  const Tensors in =
      inputs_of(torch, {{"x", "x"}, {"scale", "state/weight"}, {"shift", "state/bias"}, {"dout", "dout"}});
  LayerNorm layer(in.at("scale").size());
  layer.load_state_dict({{"scale", in.at("scale")}, {"shift", in.at("shift")}});
  Tensors got{{"y", layer.forward(in.at("x"))}, {"dx", layer.backward(in.at("dout"))}};
  got["dscale"] = gradient_of(layer, "scale");
  got["dshift"] = gradient_of(layer, "shift");
  expect_like_torch(got, torch, layer_norm_by_hand<double>(in, layer.eps()),
                    layer_norm_by_hand<float>(in, layer.eps()));
}

TEST(LayersTorch, Gelu) {
  const Tensors torch = golden("gelu");
  Gelu layer;
  const Tensors got{{"y", layer.forward(torch.at("x"))}, {"dx", layer.backward(torch.at("dout"))}};
  const Tensors in = inputs_of(torch, {{"x", "x"}, {"dout", "dout"}});
  expect_like_torch(got, torch, gelu_by_hand<double>(in), gelu_by_hand<float>(in));
}

TEST(LayersTorch, Embedding) {
  const Tensors torch = golden("embedding");
  Embedding layer(torch.at("state/weight").shape(0), torch.at("state/weight").shape(1));
  layer.load_state_dict({{"weight", torch.at("state/weight")}});
  EXPECT_TRUE(same_bits(layer.forward(torch.at("x")), Tensor::copy_of(torch.at("y"), DType::f32)));
  layer.backward(torch.at("dout"));
  // Up to three rows of a token are summed.
  const Tensor& gradient = torch.at("dweight");
  expect_close(gradient_of(layer, "weight"), {gradient, Tensor::copy_of(gradient, DType::f32)}, kGradient);
}

TEST(LayersTorch, FeedForward) {
  Tensors torch = golden("feed_forward");
  const Tensors in = inputs_of(torch, {{"x", "x"},
                                       {"weight0", "state/layers.0.weight"},
                                       {"bias0", "state/layers.0.bias"},
                                       {"weight2", "state/layers.2.weight"},
                                       {"bias2", "state/layers.2.bias"},
                                       {"dout", "dout"}});
  FeedForward layer(in.at("weight0").shape(1), in.at("weight0").shape(0));
  StateDict state;
  for (const auto& [name, tensor] : torch)
    if (name.starts_with("state/")) state[name.substr(6)] = tensor;
  layer.load_state_dict(state);
  Tensors got{{"y", layer.forward(torch.at("x"))}, {"dx", layer.backward(torch.at("dout"))}};
  EXPECT_EQ(got.at("y").shape(), torch.at("y").shape());
  for (const std::string which : {"0", "2"}) {
    for (const std::string kind : {"weight", "bias"}) {
      const std::string name = "layers." + which + "." + kind;
      got["d" + kind + which] = gradient_of(layer, name);
      torch["d" + kind + which] = torch.at("d" + name);
    }
  }
  expect_like_torch(got, torch, feed_forward_by_hand<double>(in), feed_forward_by_hand<float>(in));
}

TEST(LayersTorch, CrossEntropy) {
  const Tensors torch = golden("cross_entropy");
  const Tensor &logits = torch.at("logits"), &targets = torch.at("targets");
  Tensors got{{"losses", Tensor(DType::f32, targets.shape())}, {"dlogits", Tensor(DType::f32, logits.shape())}};
  got["mean"] = Tensor::of<double>(
      {cross_entropy(logits, targets, {.losses = got.at("losses"), .dlogits = got.at("dlogits")})});
  const Tensors in{{"logits", logits}};
  expect_like_torch(got, torch, cross_entropy_by_hand<double>(in, targets, -100),
                    cross_entropy_by_hand<float>(in, targets, -100));
}

/// The two parameters of the optimiser cases; the tests set their gradients.
class TwoParameters : public Module {
 public:
  TwoParameters(const Tensor& matrix, const Tensor& vector) : Module("TwoParameters") {
    matrix_.value = matrix;
    vector_.value = vector;
  }
  void set_gradients(const Tensor& matrix, const Tensor& vector) {
    matrix_.gradient = matrix;
    vector_.gradient = vector;
  }

 protected:
  std::vector<Part> parts() override { return {Part("matrix", matrix_), Part("vector", vector_)}; }

 private:
  Parameter matrix_, vector_;
};

/// Three steps of one case. `make` creates the optimiser of a module from JSON options.
template <class Make, class ByHandDouble, class ByHandFloat>
void check_steps(const std::string& name, const Make& make, const ByHandDouble& in_double,
                 const ByHandFloat& in_float) {
  SCOPED_TRACE(name);
  const Tensors torch = golden(name);
  TwoParameters module(torch.at("before/matrix"), torch.at("before/vector"));
  auto optimizer = make(module);
  for (const std::string step : {"1", "2", "3"}) {
    module.set_gradients(torch.at(step + "/matrix"), torch.at(step + "/vector"));
    optimizer.step();
  }
  for (const auto& [parameter, value] : module.state_dict()) {
    SCOPED_TRACE(parameter);
    const std::vector<Tensor> gradients{torch.at("1/" + parameter), torch.at("2/" + parameter),
                                        torch.at("3/" + parameter)};
    const Tensor& before = torch.at("before/" + parameter);
    const Trained by_hand = trained_by_hand<double>(before, gradients, in_double);
    const Trained naive = trained_by_hand<float>(before, gradients, in_float);
    const Tensor& after = torch.at("after/" + parameter);
    expect_close(by_hand.value, {after, after, by_hand.bound});
    expect_close(value, {after, naive.value, by_hand.bound});
  }
}

TEST(LayersTorch, AdamW) {
  for (const std::string name : {"adamw", "adamw_options"}) {
    const Json given = Json::parse(goldens().metadata.at(name));
    AdamWOptions options;
    options.lr = given.value("lr", options.lr);
    options.eps = given.value("eps", options.eps);
    options.weight_decay = given.value("weight_decay", options.weight_decay);
    if (given.contains("betas")) {
      options.beta1 = given.at("betas").at(0);
      options.beta2 = given.at("betas").at(1);
    }
    check_steps(
        name, [&](Module& module) { return AdamW(module, options); }, adamw_by_hand<double>(options),
        adamw_by_hand<float>(options));
  }
}

TEST(LayersTorch, Sgd) {
  for (const std::string name : {"sgd", "sgd_options", "sgd_nesterov"}) {
    const Json given = Json::parse(goldens().metadata.at(name));
    const SgdOptions options{.lr = given.at("lr"),
                             .momentum = given.at("momentum"),
                             .dampening = given.value("dampening", 0.0),
                             .weight_decay = given.value("weight_decay", 0.0),
                             .nesterov = given.value("nesterov", false)};
    check_steps(
        name, [&](Module& module) { return Sgd(module, options); }, sgd_by_hand<double>(options),
        sgd_by_hand<float>(options));
  }
}

TEST(LayersTorch, ClipGradNorm) {
  const Tensors torch = golden("clip");
  TwoParameters module(torch.at("1/matrix"), torch.at("1/vector"));
  module.set_gradients(torch.at("1/matrix"), torch.at("1/vector"));
  const Tensor norm = Tensor::of<double>({clip_grad_norm(module, 1.0)});
  expect_close(norm, {torch.at("norm"), torch.at("norm")});
  for (const std::string name : {"matrix", "vector"}) {
    const Tensor& after = torch.at("after/" + name);
    expect_close(gradient_of(module, name), {after, Tensor::copy_of(after, DType::f32)});
  }
}

}  // namespace
}  // namespace saccade::test
