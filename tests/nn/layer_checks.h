// Shared helpers of the layer tests.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "nn/naive_layers.h"
#include "saccade/module.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {

inline constexpr std::int64_t kDims[] = {1, 3, 17, 64, 100, 257};
inline constexpr std::int64_t kRows[] = {0, 1, 7, 130};

/// Every instruction set; restores the default number of threads after each test.
class EachIsaAndThreads : public EachIsa {
 protected:
  void TearDown() override {
    set_num_threads(0);
    EachIsa::TearDown();
  }
};

/// The gradient of one parameter.
inline Tensor gradient_of(Module& module, const std::string& name) {
  for (const NamedParameter& parameter : module.parameters())
    if (parameter.name == name) return Tensor::copy_of(parameter.gradient);
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

/// Fails unless backward() throws because nothing is kept.
template <class Layer>
void expect_nothing_kept(Layer& layer, const TensorView& dout) {
  try {
    layer.backward(dout);
    ADD_FAILURE() << "backward() did not throw";
  } catch (const std::invalid_argument& error) {
    ADD_FAILURE() << error.what();
  } catch (const std::logic_error& error) {
    EXPECT_EQ(error.what(), "[" + layer.name() + "] backward needs a forward call in training mode before it");
  }
}

inline Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t end) {
  return Tensor::copy_of(x.view().slice(0, first, end));
}

/// Fails unless rows and gradients of `make()` have the same bits for all numbers of threads and pieces of x.
template <class Make>
void expect_same_however_divided(const Make& make, const Tensor& x, const Tensor& dout) {
  const auto run = [&](const Tensor& input, const Tensor& gradient) {
    auto layer = make();
    Tensors result{{"y", layer.forward(input)}, {"dx", layer.backward(gradient)}};
    for (const NamedParameter& parameter : layer.parameters())
      result[parameter.name] = Tensor::copy_of(parameter.gradient);
    return result;
  };
  set_num_threads(1);
  const Tensors all = run(x, dout);
  for (const int threads : {2, 3, 5}) {
    set_num_threads(threads);
    for (const auto& [name, tensor] : run(x, dout)) EXPECT_TRUE(same_bits(tensor, all.at(name))) << name;
  }
  for (const auto& [first, end] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 100}, {333, 700}}) {
    const Tensors some = run(rows_of(x, first, end), rows_of(dout, first, end));
    EXPECT_TRUE(same_bits(some.at("y"), rows_of(all.at("y"), first, end))) << first;
    EXPECT_TRUE(same_bits(some.at("dx"), rows_of(all.at("dx"), first, end))) << first;
  }
}

/// Fails unless a layer gives the same for x and dout with other strides, and accepts a single row.
template <class Layer>
void expect_same_for_any_strides(Layer layer, const Tensor& x, const Tensor& dout) {
  Layer same = layer;
  const TensorView turned = x.view().transposed(0, 1), turned_dout = dout.view().transposed(0, 1);
  const Tensor y = layer.forward(turned), dx = layer.backward(turned_dout);
  EXPECT_TRUE(same_bits(y, same.forward(Tensor::copy_of(turned)))) << layer.name();
  EXPECT_TRUE(same_bits(dx, same.backward(Tensor::copy_of(turned_dout)))) << layer.name();
  EXPECT_EQ(layer.forward(Tensor(DType::f32, {x.shape(-1)})).shape(), (Shape{x.shape(-1)})) << layer.name();
}

/// A layer's error for a dout of another shape.
template <class Layer>
std::string refusal_of_dout(Layer layer, const Tensor& x) {
  layer.forward(x);
  return refusal([&] { layer.backward(Tensor(DType::f32, {x.shape(0) + 1, x.shape(1)})); });
}

}  // namespace saccade::test
