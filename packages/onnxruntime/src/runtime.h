// ONNX Runtime's interface with exceptions in place of statuses.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "abi.h"
#include "saccade/tensor.h"

namespace saccade::onnxruntime {

/// An error of ONNX Runtime itself.
struct RuntimeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The table of functions.
class Api {
 public:
  explicit Api(const OrtApi* table) : table_(table) {}

  const OrtApi* table() const { return table_; }

  /// Calls a function; throws RuntimeError for a status that is an error.
  template <class Function, class... Arguments>
  void call(Arguments... arguments) const {
    check(function<Function>()(arguments...));
  }

  /// A new status from the exception that is being handled, to be returned to ONNX Runtime.
  /// `prefix`: what its text begins with.
  OrtStatus* status_of_exception(const std::string& prefix) const;

  /// Calls a function that writes a text, which is "" for values that a node leaves out.
  template <class Function, class... Arguments>
  std::string text(Arguments... arguments) const {
    std::size_t size = 0;
    call<Function>(arguments..., static_cast<char*>(nullptr), &size);
    std::string found(size, '\0');
    if (size > 0) call<Function>(arguments..., found.data(), &size);
    while (!found.empty() && found.back() == '\0') found.pop_back();
    return found;
  }

  /// An attribute of a node; nothing if the node does not have it.
  std::optional<std::int64_t> integer(const OrtKernelInfo* info, const char* name) const;
  std::optional<double> number(const OrtKernelInfo* info, const char* name) const;

  /// The names of a node's inputs and outputs.
  std::vector<std::string> input_names(const OrtKernelInfo* info) const;
  std::vector<std::string> output_names(const OrtKernelInfo* info) const;

  /// The element type of a node's input.
  int input_type(const OrtKernelInfo* info, std::size_t index) const;

  /// An input of a running kernel; empty if the node leaves it out.
  TensorView input(OrtKernelContext* context, std::size_t index, const char* name) const;

  /// The memory of an output of a running kernel; empty if the node leaves it out.
  MutableTensorView output(OrtKernelContext* context, std::size_t index, DType dtype, const Shape& shape) const;

 private:
  template <class Function>
  typename Function::Type* function() const {
    // The table's members are pointers to functions, and nothing else.
    return reinterpret_cast<typename Function::Type* const*>(table_)[Function::position];
  }

  void check(OrtStatus* status) const;

  const OrtApi* table_;
};

/// The element type of a tensor; throws std::invalid_argument, with its name, for one that no tensor here has.
DType dtype_of_element(int type, const std::string& name);

/// "float", "bfloat16", ...: ONNX's name of an element type.
std::string element_name(int type);

}  // namespace saccade::onnxruntime
