#include "distributed/sums.h"

namespace saccade::distributed {
namespace {

template <class T>
void add(const T* from, const TensorView& of_from, T* to, const TensorView& of_to, std::size_t dim) {
  const std::int64_t length = dim < of_to.rank ? of_to.shape[dim] : 1;
  if (dim + 1 < of_to.rank) {
    for (std::int64_t i = 0; i < length; ++i)
      add(from + i * of_from.strides[dim], of_from, to + i * of_to.strides[dim], of_to, dim + 1);
    return;
  }
  const std::int64_t step_from = of_to.rank > 0 ? of_from.strides[dim] : 0,
                     step_to = of_to.rank > 0 ? of_to.strides[dim] : 0;
  if (step_from == 1 && step_to == 1)
    for (std::int64_t i = 0; i < length; ++i) to[i] += from[i];
  else
    for (std::int64_t i = 0; i < length; ++i) to[i * step_to] += from[i * step_from];
}

}  // namespace

void add_numbers(const TensorView& from, const MutableTensorView& to) {
  if (to.size() == 0) return;
  if (to.dtype == DType::f64)
    add(from.as<double>(), from, static_cast<double*>(to.mutable_data()), to, 0);
  else
    add(from.as<float>(), from, static_cast<float*>(to.mutable_data()), to, 0);
}

}  // namespace saccade::distributed
