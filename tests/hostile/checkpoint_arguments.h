// Checkpoints, right or wrong.
#pragma once

#include "hostile/wrong_arguments.h"
#include "saccade/module.h"

namespace saccade::test {

/// A checkpoint with one entry that may be wrong, missing or too much.
inline StateDict changed(Arguments& a, StateDict state) {
  a.name("load");
  for (auto& [name, tensor] : state) {
    const Tensor right = tensor;
    tensor = a.owned(name, right.shape(), right.dtype());
    if (right.dtype() == DType::i64 && same_bits(tensor, random_tensor(right.shape(), 0, DType::i64)))
      tensor = right;
    if (tensor.shape() == right.shape() && tensor.dtype() == right.dtype()) tensor = right;
  }
  if (!state.empty() && a.is_wrong("missing")) state.erase(state.begin());
  if (a.is_wrong("unexpected")) state.emplace(a.text("unexpected", "surplus"), Tensor(DType::f32, {1}));
  return state;
}

}  // namespace saccade::test
