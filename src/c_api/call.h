// What every function of the C interface does around the C++ one: arguments in, exceptions out.
#pragma once

#include <string_view>

#include "core/check.h"
#include "saccade/attention.h"
#include "saccade/c_api.h"

namespace saccade::c_api {

/// What the progress hook of C throws to end a call.
struct Interrupted {};

/// Notes the exception that is being handled as the thread's last error, and returns its status.
saccade_status noted_error() noexcept;

/// Runs a function and returns what became of it.
template <class Function>
saccade_status guarded(const Function& function) noexcept {
  try {
    function();
    return SACCADE_OK;
  } catch (...) {
    return noted_error();
  }
}

/// What a pointer points to. Throws if it is NULL.
template <class T>
T& required(std::string_view function, std::string_view name, T* pointer) {
  if (pointer == nullptr) refuse(function, name, " must be given, but it is NULL");
  return *pointer;
}

/// Throws for a number that is no element type.
DType known_dtype(std::string_view function, std::string_view name, saccade_dtype dtype);

/// A view of a tensor. Throws for an unknown type, a rank or lengths that no tensor has, and numbers that are not
/// there or not aligned.
MutableTensorView view_of(std::string_view function, std::string_view name, const saccade_tensor* tensor);

/// The same, but nothing for NULL.
MutableTensorView optional_view_of(std::string_view function, std::string_view name, const saccade_tensor* tensor);

/// A text of the caller. Throws if it is NULL.
std::string_view text_of(std::string_view function, std::string_view name, const char* text);

/// "bhld" or "blhd"; NULL: bhld.
Layout layout_of(std::string_view function, const char* text);

}  // namespace saccade::c_api
