#include "runtime.h"

#include <array>
#include <new>

namespace saccade::onnxruntime {
namespace {

/// Calls a function when it goes out of scope.
template <class Function>
class Cleanup {
 public:
  explicit Cleanup(Function function) : function_(std::move(function)) {}
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;
  ~Cleanup() { function_(); }

 private:
  Function function_;
};

constexpr std::array<const char*, 17> kElementNames = {
    "undefined", "float",   "uint8",  "int8",   "uint16", "int16",     "int32",      "int64",   "string",
    "bool",      "float16", "double", "uint32", "uint64", "complex64", "complex128", "bfloat16"};

}  // namespace

std::string element_name(int type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kElementNames.size() ? kElementNames[index] : "type " + std::to_string(type);
}

DType dtype_of_element(int type, const std::string& name) {
  switch (type) {
    case kFloat:
      return DType::f32;
    case kFloat16:
      return DType::f16;
    case kBfloat16:
      return DType::bf16;
    case kDouble:
      return DType::f64;
    case kBool:
      return DType::boolean;
    case kInt64:
      return DType::i64;
    default:
      throw std::invalid_argument(name + ": a tensor of " + element_name(type) + " is not accepted");
  }
}

void Api::check(OrtStatus* status) const {
  if (status == nullptr) return;
  const std::string message = function<GetErrorMessage>()(status);
  function<ReleaseStatus>()(status);
  throw RuntimeError(message);
}

OrtStatus* Api::status_of_exception(const std::string& prefix) const {
  const auto status = [&](int code, const char* message) {
    return function<CreateStatus>()(code, (prefix + message).c_str());
  };
  try {
    throw;
  } catch (const std::invalid_argument& error) {
    return status(kInvalidArgument, error.what());
  } catch (const std::bad_alloc&) {
    return status(kFail, "memory ran out");
  } catch (const std::exception& error) {
    return status(kFail, error.what());
  }
}

std::optional<std::int64_t> Api::integer(const OrtKernelInfo* info, const char* name) const {
  std::int64_t value = 0;
  OrtStatus* const status = function<KernelInfoGetAttribute_int64>()(info, name, &value);
  if (status == nullptr) return value;
  function<ReleaseStatus>()(status);
  return std::nullopt;
}

std::optional<double> Api::number(const OrtKernelInfo* info, const char* name) const {
  float value = 0;
  OrtStatus* const status = function<KernelInfoGetAttribute_float>()(info, name, &value);
  if (status == nullptr) return value;
  function<ReleaseStatus>()(status);
  return std::nullopt;
}

std::vector<std::string> Api::input_names(const OrtKernelInfo* info) const {
  std::size_t count = 0;
  call<KernelInfo_GetInputCount>(info, &count);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(text<KernelInfo_GetInputName>(info, i));
  return names;
}

std::vector<std::string> Api::output_names(const OrtKernelInfo* info) const {
  std::size_t count = 0;
  call<KernelInfo_GetOutputCount>(info, &count);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(text<KernelInfo_GetOutputName>(info, i));
  return names;
}

int Api::input_type(const OrtKernelInfo* info, std::size_t index) const {
  OrtTypeInfo* type = nullptr;
  call<KernelInfo_GetInputTypeInfo>(info, index, &type);
  const Cleanup release([&] { function<ReleaseTypeInfo>()(type); });
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  call<CastTypeInfoToTensorInfo>(const_cast<const OrtTypeInfo*>(type), &tensor);
  int element = kUndefined;
  if (tensor != nullptr) call<GetTensorElementType>(tensor, &element);
  return element;
}

TensorView Api::input(OrtKernelContext* context, std::size_t index, const char* name) const {
  std::size_t count = 0;
  call<KernelContext_GetInputCount>(const_cast<const OrtKernelContext*>(context), &count);
  if (index >= count) return {};
  const OrtValue* value = nullptr;
  call<KernelContext_GetInput>(const_cast<const OrtKernelContext*>(context), index, &value);
  if (value == nullptr) return {};
  OrtTensorTypeAndShapeInfo* info = nullptr;
  call<GetTensorTypeAndShape>(value, &info);
  const Cleanup release([&] { function<ReleaseTensorTypeAndShapeInfo>()(info); });
  const OrtTensorTypeAndShapeInfo* const known = info;
  int element = kUndefined;
  std::size_t rank = 0;
  call<GetTensorElementType>(known, &element);
  call<GetDimensionsCount>(known, &rank);
  if (rank < 1 || rank > 4)
    throw std::invalid_argument(std::string(name) + ": expected rank 1 to 4, got rank " + std::to_string(rank));
  Shape shape(rank);
  call<GetDimensions>(known, shape.data(), rank);
  void* data = nullptr;
  call<GetTensorMutableData>(const_cast<OrtValue*>(value), &data);
  return {data, dtype_of_element(element, name), std::span<const std::int64_t>(shape)};
}

MutableTensorView Api::output(OrtKernelContext* context, std::size_t index, DType dtype,
                              const Shape& shape) const {
  OrtValue* value = nullptr;
  call<KernelContext_GetOutput>(context, index, shape.data(), shape.size(), &value);
  if (value == nullptr) return {};
  void* data = nullptr;
  call<GetTensorMutableData>(value, &data);
  return {data, dtype, std::span<const std::int64_t>(shape)};
}

}  // namespace saccade::onnxruntime
