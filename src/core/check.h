// Refusals: what a public function says when an argument is not what it needs.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "saccade/tensor.h"

namespace saccade {

/// Throws std::invalid_argument("[function] " + the parts, one after the other). Takes them by value: what a
/// caller has in registers would have to lie in memory for a reference, also where nothing is refused.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void refuse(std::string_view function, Parts... parts) {
  std::ostringstream text;
  text << '[' << function << "] ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

/// Refuses a view of another element type than `wanted`.
inline void check_dtype(std::string_view function, std::string_view name, const TensorView& view, DType wanted) {
  if (view.dtype != wanted)
    refuse(function, name, " must be ", name_of(wanted), ", but it is ", name_of(view.dtype));
}

/// Refuses a view whose shape is not `wanted`.
inline void check_shape(std::string_view function, std::string_view name, const TensorView& view,
                        std::initializer_list<std::int64_t> wanted) {
  bool same = view.rank == wanted.size();
  for (std::size_t i = 0; same && i < wanted.size(); ++i) same = view.shape[i] == wanted.begin()[i];
  if (!same)
    refuse(function, name, " must have shape ", to_string(std::span(wanted.begin(), wanted.size())),
           ", but it has shape ", to_string(view.dims()));
}

/// Refuses a view whose innermost dimension is not contiguous, or that has numbers but no pointer.
inline void check_memory(std::string_view function, std::string_view name, const TensorView& view) {
  const int last = view.rank - 1;
  if (last >= 0 && view.shape[last] > 1 && view.strides[last] != 1)
    refuse(function, name, " must have a contiguous innermost dimension (stride 1), but its stride is ",
           view.strides[last]);
  if (view.data == nullptr && view.size() > 0)
    refuse(function, name, " has shape ", to_string(view.dims()), " but no data (null pointer)");
}

/// Whether a view of at least one dimension passes check_memory at first sight: what nearly every operand does,
/// and what the smallest calls have no time to look at more closely.
inline bool has_usual_memory(const TensorView& view) {
  return view.rank > 0 && view.data != nullptr && view.strides[static_cast<std::size_t>(view.rank - 1)] == 1;
}

/// The same, and check_dtype(f32).
inline bool is_usual_f32(const TensorView& view) { return view.dtype == DType::f32 && has_usual_memory(view); }

}  // namespace saccade
