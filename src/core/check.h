// Argument checks of the public functions, and their errors.
#pragma once

#include <clocale>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/element_types.h"
#include "core/printable.h"
#include "core/quantized/rows.h"
#include "saccade/tensor.h"

namespace saccade {

/// Appends part of a message, as a stream prints it. A stream would bring 40 kB of locales into saccade.js (gzip).
inline void append_to(std::string& text, std::string_view part) { text += part; }
inline void append_to(std::string& text, char part) { text += part; }
inline void append_to(std::string& text, std::integral auto part) { text += std::to_string(part); }
template <class Enumeration>
requires std::is_enum_v<Enumeration>
void append_to(std::string& text, Enumeration part) {
  text += std::to_string(static_cast<std::underlying_type_t<Enumeration>>(part));
}
inline void append_to(std::string& text, std::floating_point auto part) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", static_cast<double>(part));
  const std::string_view point = std::localeconv()->decimal_point;  // the C library prints that of its locale
  std::string number = digits;
  if (const auto at = number.find(point); at != std::string::npos) number.replace(at, point.size(), ".");
  text += number;
}

/// Throws std::invalid_argument("[function] " + all parts in order). By value: references would force values out
/// of registers into memory, even in calls without an error.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void refuse(std::string_view function, Parts... parts) {
  std::string text = "[" + std::string(function) + "] ";
  (append_to(text, parts), ...);
  throw std::invalid_argument(one_line(text));
}

/// Throws unless a view has the element type `wanted`.
inline void check_dtype(std::string_view function, std::string_view name, const TensorView& view, DType wanted) {
  if (view.dtype != wanted)
    refuse(function, name, " must be ", name_of(wanted), ", but it is ", name_of(view.dtype));
}

/// Throws unless k and v may have elements of this type.
[[gnu::cold, gnu::noinline]] inline void check_kv_type(std::string_view function, std::string_view name,
                                                       DType dtype) {
  if (is_kv_type(dtype)) return;
  std::string types;
  for (std::size_t i = 0; i < kKvTypes.size(); ++i) {
    types += i == 0 ? "" : i + 1 < kKvTypes.size() ? ", " : " or ";
    types += name_of(kKvTypes[i]);
  }
  refuse(function, name, " must be ", types, ", but it is ", name_of(dtype));
}

/// Throws if k or v is quantized, in a call that reads numbers without scales.
inline void check_not_quantized(std::string_view function, std::string_view name, const TensorView& view) {
  if (is_quantized(view.dtype))
    refuse(function, name, " is ", name_of(view.dtype), ", but ", function,
           " has no quantized keys and values: dequantize() them");
}

/// Throws for a view of i4, whose numbers stand for others by multipliers and scales that it does not have.
inline void check_has_numbers(std::string_view function, std::string_view name, const TensorView& view) {
  if (view.dtype == DType::i4 && view.size() > 0)
    refuse(function, name, " is i4, without scales: dequantize() it");
}

/// Throws unless rows of i4 begin at whole bytes and hold the numbers that fill them up.
inline void check_int4_strides(std::string_view function, std::string_view name, const TensorView& view) {
  if (view.dtype != DType::i4) return;
  for (int i = 0; i + 1 < view.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t stride = view.strides[at], least = stored_dim(DType::i4, view.shape[view.rank - 1]);
    if (view.shape[at] < 2 || stride == 0 || (stride % 2 == 0 && (stride >= least || stride <= -least))) continue;
    refuse(function, name, " of i4 must have rows of ", least, " numbers and even strides, but a stride is ",
           stride);
  }
}

/// Throws unless a view has the shape `wanted`.
inline void check_shape(std::string_view function, std::string_view name, const TensorView& view,
                        std::initializer_list<std::int64_t> wanted) {
  bool same = view.rank == wanted.size();
  for (std::size_t i = 0; same && i < wanted.size(); ++i) same = view.shape[i] == wanted.begin()[i];
  if (!same)
    refuse(function, name, " must have shape ", to_string(std::span(wanted.begin(), wanted.size())),
           ", but it has shape ", to_string(view.dims()));
}

/// Throws unless a view with elements has a pointer.
inline void check_data(std::string_view function, std::string_view name, const TensorView& view) {
  if (view.data == nullptr && view.size() > 0)
    refuse(function, name, " has shape ", to_string(view.dims()), " but no data (null pointer)");
}

/// Throws unless the innermost dimension of a view is contiguous and a view with elements has a pointer.
inline void check_memory(std::string_view function, std::string_view name, const TensorView& view) {
  const int last = view.rank - 1;
  if (last >= 0 && view.shape[last] > 1 && view.strides[last] != 1)
    refuse(function, name, " must have a contiguous innermost dimension (stride 1), but its stride is ",
           view.strides[last]);
  check_data(function, name, view);
}

/// Whether a view of at least one dimension obviously passes check_memory. True for nearly every operand: a fast
/// path, because the full check is too slow for the smallest calls.
inline bool has_usual_memory(const TensorView& view) {
  return view.rank > 0 && view.data != nullptr && view.strides[static_cast<std::size_t>(view.rank - 1)] == 1;
}

/// The same together with check_dtype(f32).
inline bool is_usual_f32(const TensorView& view) { return view.dtype == DType::f32 && has_usual_memory(view); }

}  // namespace saccade
