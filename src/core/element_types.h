// Lists of element types, and dispatch from a DType to its C++ type.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "saccade/dtype.h"

namespace saccade {

template <class... T>
struct TypeList {};

/// The C++ types of all elements that are numbers by themselves: all but int4.
using Elements = TypeList<float, double, float16, bfloat16, bool, std::int8_t, std::int16_t, std::int32_t,
                          std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, float8_e4m3>;

/// The types that q and o may have: the is_floating() ones.
using FloatElements = TypeList<float, bfloat16, float16, double>;

/// The types that k and v may have. A new type is a row here and a file with
/// its loads on the CPU: see CONTRIBUTING.md, "Adding an element type".
using KvElements = TypeList<float, bfloat16, float16, double, std::int8_t, float8_e4m3, int4>;
using QuantizedElements = TypeList<std::int8_t, float8_e4m3, int4>;

/// The same at run time.
inline constexpr auto kKvTypes = []<class... T>(TypeList<T...>) {
  return std::array{dtype_of<T>...};
}(KvElements{});

/// Whether k and v may have elements of this type.
constexpr bool is_kv_type(DType dtype) {
  return [dtype]<class... T>(TypeList<T...>) { return ((dtype == dtype_of<T>) || ...); }(KvElements{});
}

/// Calls f(std::type_identity<T>{}) with the T of the list that matches `dtype`; if none does, otherwise(), which
/// must not return.
template <class First, class... Others, class F, class Otherwise>
decltype(auto) with_type_of(TypeList<First, Others...>, DType dtype, const F& f, const Otherwise& otherwise) {
  if (dtype == dtype_of<First>) return f(std::type_identity<First>{});
  if constexpr (sizeof...(Others) > 0) return with_type_of(TypeList<Others...>{}, dtype, f, otherwise);
  otherwise();
  __builtin_unreachable();
}

}  // namespace saccade
