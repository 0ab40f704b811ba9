// The wrapper of every function of the C interface: converts arguments and exceptions.
#pragma once

#include <string_view>

#include "core/check.h"
#include "saccade/attention.h"
#include "saccade/c_api.h"

namespace saccade::c_api {

/// Thrown when the C progress hook ends a call.
struct Interrupted {};

/// Records the exception being handled as the thread's last error, and returns its status. Exported for
/// saccade::io, whose C functions have the same last error.
[[gnu::visibility("default")]] saccade_status noted_error() noexcept;

/// Runs a function and returns its status.
template <class Function>
saccade_status guarded(const Function& function) noexcept {
  try {
    function();
    return SACCADE_OK;
  } catch (...) {
    return noted_error();
  }
}

/// Dereferences a pointer. Throws if it is NULL.
template <class T>
T& required(std::string_view function, std::string_view name, T* pointer) {
  if (pointer == nullptr) refuse(function, name, " must be given, but it is NULL");
  return *pointer;
}

/// Converts a number to an element type. Throws if it is none.
DType known_dtype(std::string_view function, std::string_view name, saccade_dtype dtype);

/// A view of a tensor. Throws for an unknown type, an invalid rank or lengths, and missing or misaligned data.
MutableTensorView view_of(std::string_view function, std::string_view name, const saccade_tensor* tensor);

/// The same, but an empty view for NULL.
MutableTensorView optional_view_of(std::string_view function, std::string_view name, const saccade_tensor* tensor);

/// A string of the caller. Throws if it is NULL.
std::string_view text_of(std::string_view function, std::string_view name, const char* text);

/// "bhsd" or "bshd"; NULL: bhsd.
Layout layout_of(std::string_view function, const char* text);

}  // namespace saccade::c_api
