// The element types that keys and values may have.
#pragma once

#include <array>

#include "saccade/dtype.h"

namespace saccade {

template <class... T>
struct TypeList {};

/// The element types of k and v; those of q and o are is_floating(). A new one is a row here and a file of its
/// loads on the CPU: see CONTRIBUTING.md, "Adding an element type".
using KvElements = TypeList<float, bfloat16, float16, double>;

/// The same at run time.
inline constexpr auto kKvTypes = []<class... T>(TypeList<T...>) {
  return std::array{dtype_of<T>...};
}(KvElements{});

/// Whether k and v may have elements of this type.
constexpr bool is_kv_type(DType dtype) {
  return [dtype]<class... T>(TypeList<T...>) { return ((dtype == dtype_of<T>) || ...); }(KvElements{});
}

}  // namespace saccade
