// Where one hostile number reaches in projections, layers, rotations, quantized rows and optimizers, on every
// instruction set.
#include <string>
#include <utility>
#include <vector>

#include "hostile/number_reach.h"
#include "saccade/functional.h"
#include "saccade/layers.h"
#include "saccade/linear.h"
#include "saccade/optim.h"
#include "saccade/packed_linear.h"
#include "saccade/quantize.h"
#include "saccade/rope.h"

namespace saccade::test {
namespace {

using NumberReachInLayers = NumberReach;
SACCADE_FOR_EACH_ISA(NumberReachInLayers);

// ---- Projections ---------------------------------------------------------------------------------------------

Reach reach_of_product(std::size_t input, const Place& at, std::size_t, const Place& of) {
  return nan_if(input == 0 ? at[0] == of[0] : at[0] == of[1]);  // a row of x; an output of the weight and the bias
}

TEST_P(NumberReachInLayers, OfProjections) {
  std::vector<Function> functions;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<Tensor> tensors{random_tensor({19, 70}, 1, dtype), random_tensor({45, 70}, 2, dtype),
                                      random_tensor({45}, 3, dtype)};
    functions.push_back({"linear of " + std::string(name_of(dtype)), tensors,
                         [](const auto& t) { return std::vector{linear(t[0], t[1], {.bias = t[2]})}; },
                         reach_of_product});
    functions.push_back(
        {"PackedLinear of " + std::string(name_of(dtype)),
         {random_tensor({19, 70}, 1), tensors[1], tensors[2]},
         [](const auto& t) { return std::vector{PackedLinear(t[1], {.bias = t[2]}).forward(t[0])}; },
         reach_of_product});
    functions.push_back({"linear_backward of " + std::string(name_of(dtype)),
                         {tensors[0], tensors[1], random_tensor({19, 45}, 4, dtype)},
                         [](const auto& t) {
                           std::vector<Tensor> to{Tensor(DType::f32, {19, 70}), Tensor(DType::f32, {45, 70}),
                                                  Tensor(DType::f32, {45})};
                           linear_backward(t[0], t[1], t[2], {.dx = to[0], .dweight = to[1], .dbias = to[2]});
                           return to;
                         },
                         [](std::size_t input, const Place& at, std::size_t result, const Place& of) {
                           if (input == 0) return nan_if(result == 1 && at[1] == of[1]);
                           if (input == 1) return nan_if(result == 0 && at[1] == of[1]);
                           return nan_if(result == 0 ? at[0] == of[0] : at[1] == of[0]);
                         }});
  }
  expect_reaches(functions);
}

// ---- Rows and numbers ----------------------------------------------------------------------------------------

/// A number of any input reaches the row of the results with its index.
Reach reach_of_row(std::size_t, const Place& at, std::size_t, const Place& of) { return nan_if(at[0] == of[0]); }
/// It reaches the number at its own place only.
Reach reach_of_place(std::size_t, const Place& at, std::size_t, const Place& of) { return nan_if(at == of); }

/// Of a norm: x reaches its row; scale and shift their column.
Reach reach_of_norm(std::size_t input, const Place& at, std::size_t, const Place& of) {
  return nan_if(input == 0 ? at[0] == of[0] : at[0] == of[1]);
}

std::vector<Function> functions_of_rows() {
  const Tensor x = random_tensor({9, 53}, 1), other = random_tensor({9, 53}, 2), of_dim = random_tensor({53}, 3);
  std::vector<Function> functions{
      {"layer_norm",
       {x, of_dim, of_dim},
       [](const auto& t) {
         Tensor y(DType::f32, t[0].shape());
         layer_norm(t[0], t[1], t[2], y);
         return std::vector{y};
       },
       reach_of_norm},
      {"rms_norm",
       {x, of_dim},
       [](const auto& t) {
         Tensor y(DType::f32, t[0].shape());
         rms_norm(t[0], t[1], y);
         return std::vector{y};
       },
       reach_of_norm},
      {"hadamard",
       {random_tensor({9, 48}, 1)},
       [](const auto& t) { return std::vector{hadamard(t[0])}; },
       [](std::size_t, const Place& at, std::size_t, const Place& of) {
         return nan_if(at[0] == of[0] && at[1] / 16 == of[1] / 16);
       }},
      {"cross_entropy",
       {x},
       [](const auto& t) {
         Tensor targets(DType::i64, {9}), losses(DType::f32, {9}), gradient(DType::f32, {9, 53});
         cross_entropy(t[0], targets, {.losses = losses, .dlogits = gradient});
         return std::vector{losses, gradient};
       },
       reach_of_row},
      {"Rope::rotate",
       {random_tensor({9, 64}, 1)},
       [](const auto& t) {
         Tensor y(DType::f32, t[0].shape());
         Rope(64).rotate(t[0], y, 5);
         return std::vector{y};
       },
       [](std::size_t, const Place& at, std::size_t, const Place& of) {
         return nan_if(at[0] == of[0] && at[1] % 32 == of[1] % 32);
       }}};
  for (const DType dtype : {DType::i8, DType::i4, DType::f8e4m3})
    functions.push_back({"quantize to " + std::string(name_of(dtype)),
                         {x},
                         [=](const auto& t) { return std::vector{dequantize(quantize(t[0], dtype))}; },
                         reach_of_row});
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::quick_gelu,
                             Activation::silu, Activation::tanh}) {
    functions.push_back({"activate " + std::to_string(static_cast<int>(f)),
                         {x},
                         [=](const auto& t) {
                           Tensor y(DType::f32, t[0].shape());
                           activate(f, t[0], y);
                           return std::vector{y};
                         },
                         reach_of_place});
    functions.push_back({"activate_gated " + std::to_string(static_cast<int>(f)),
                         {x, other},
                         [=](const auto& t) {
                           Tensor y(DType::f32, t[0].shape());
                           activate_gated(f, t[0], t[1], y);
                           return std::vector{y};
                         },
                         reach_of_place});
    functions.push_back(
        {"activate_backward " + std::to_string(static_cast<int>(f)),
         {x, other},
         [=](const auto& t) {
           Tensor dx(DType::f32, t[0].shape());
           activate_backward(f, t[0], t[1], dx);
           return std::vector{dx};
         },
         [](std::size_t, const Place& at, std::size_t, const Place& of) { return change_if(at == of); }});
  }
  return functions;
}

TEST_P(NumberReachInLayers, OfRows) { expect_reaches(functions_of_rows()); }

TEST_P(NumberReachInLayers, OfLayers) {
  const Tensor x = random_tensor({9, 24}, 1), dout = random_tensor({9, 24}, 2);
  std::vector<Function> functions{{"LayerNorm",
                                   {x, dout},
                                   [](const auto& t) {
                                     LayerNorm layer(24);
                                     const Tensor y = layer.forward(t[0]);
                                     return std::vector{y, layer.backward(t[1])};
                                   },
                                   [](std::size_t input, const Place& at, std::size_t result, const Place& of) {
                                     return nan_if(at[0] == of[0] && (input == 0 || result == 1));
                                   }},
                                  {"FeedForward",
                                   {x, dout},
                                   [](const auto& t) {
                                     TorchGenerator generator(1);
                                     FeedForward layer(24, 33, generator);
                                     const Tensor y = layer.forward(t[0]);
                                     return std::vector{y, layer.backward(t[1])};
                                   },
                                   [](std::size_t input, const Place& at, std::size_t result, const Place& of) {
                                     return nan_if(at[0] == of[0] && (input == 0 || result == 1));
                                   }}};
  expect_reaches(functions);
}

/// Three steps of an optimizer with these numbers as gradients.
template <class Optimizer, class Options>
std::vector<Tensor> trained(const Tensor& gradient, const Options& options) {
  TorchGenerator generator(1);
  Linear layer(24, 9, generator, false);
  layer.zero_grad();
  Optimizer optimizer(layer, options);
  for (int step = 0; step < 3; ++step) {
    copy(gradient, layer.parameters()[0].gradient);
    optimizer.step();
  }
  return {layer.state_dict().at("weight")};
}

TEST_P(NumberReachInLayers, OfOptimizers) {
  const Tensor gradient = random_tensor({9, 24}, 1);
  expect_reaches(
      {{"AdamW", {gradient}, [](const auto& t) { return trained<AdamW>(t[0], AdamWOptions{}); }, reach_of_place},
       {"Sgd",
        {gradient},
        [](const auto& t) { return trained<Sgd>(t[0], SgdOptions{.momentum = 0.9, .nesterov = true}); },
        reach_of_place}});
}

}  // namespace
}  // namespace saccade::test
