// The part of ONNX Runtime's C interface that a library of custom operators needs. Wheels of ONNX Runtime contain
// no headers, and no package of this size does. Its functions are a table that only ever grows at its end: the
// position of each is fixed from the version that introduced it, and onnxruntime checks that at compile time
// (onnxruntime_c_api.cc, "Size of version N API cannot change"). The newest position here came with version 15,
// the newest member of OrtCustomOp with 16.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OrtApi;
struct OrtCustomOpDomain;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;

struct OrtApiBase {
  const OrtApi* (*GetApi)(std::uint32_t version);
  const char* (*GetVersionString)();
};

/// The schema of an operator and its callbacks. Members that the interface has after KernelComputeV2 belong to
/// later versions than `version` says and are not read.
struct OrtCustomOp {
  std::uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, std::size_t index);
  std::size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, std::size_t index);
  std::size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const OrtCustomOp*, std::size_t index);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, std::size_t index);
  int (*GetInputMemoryType)(const OrtCustomOp*, std::size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, void* context);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
};

}  // extern "C"

namespace saccade::onnxruntime {

/// The version of the interface that this library asks for: that of ONNX Runtime 1.17.
inline constexpr std::uint32_t kApiVersion = 17;

enum ErrorCode { kFail = 1, kInvalidArgument = 2 };
enum Characteristic { kRequired = 0, kOptional = 1 };
enum ElementType {
  kUndefined = 0,
  kFloat = 1,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBfloat16 = 16
};

/// A function of the table: its position and its type.
template <std::size_t index, class Signature>
struct ApiFunction {
  static constexpr std::size_t position = index;
  using Type = Signature;
};

using CreateStatus = ApiFunction<0, OrtStatus*(int code, const char* message)>;
using GetErrorMessage = ApiFunction<2, const char*(const OrtStatus*)>;
using CreateCustomOpDomain = ApiFunction<26, OrtStatus*(const char* domain, OrtCustomOpDomain**)>;
using CustomOpDomain_Add = ApiFunction<27, OrtStatus*(OrtCustomOpDomain*, const OrtCustomOp*)>;
using AddCustomOpDomain = ApiFunction<28, OrtStatus*(OrtSessionOptions*, OrtCustomOpDomain*)>;
using GetTensorMutableData = ApiFunction<51, OrtStatus*(OrtValue*, void**)>;
using CastTypeInfoToTensorInfo =
    ApiFunction<55, OrtStatus*(const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**)>;
using GetTensorElementType = ApiFunction<60, OrtStatus*(const OrtTensorTypeAndShapeInfo*, int*)>;
using GetDimensionsCount = ApiFunction<61, OrtStatus*(const OrtTensorTypeAndShapeInfo*, std::size_t*)>;
using GetDimensions =
    ApiFunction<62, OrtStatus*(const OrtTensorTypeAndShapeInfo*, std::int64_t* lengths, std::size_t count)>;
using GetTensorTypeAndShape = ApiFunction<65, OrtStatus*(const OrtValue*, OrtTensorTypeAndShapeInfo**)>;
using KernelInfoGetAttribute_float = ApiFunction<85, OrtStatus*(const OrtKernelInfo*, const char* name, float*)>;
using KernelInfoGetAttribute_int64 =
    ApiFunction<86, OrtStatus*(const OrtKernelInfo*, const char* name, std::int64_t*)>;
using KernelContext_GetInputCount = ApiFunction<88, OrtStatus*(const OrtKernelContext*, std::size_t*)>;
using KernelContext_GetInput =
    ApiFunction<90, OrtStatus*(const OrtKernelContext*, std::size_t index, const OrtValue**)>;
using KernelContext_GetOutput =
    ApiFunction<91, OrtStatus*(OrtKernelContext*, std::size_t index, const std::int64_t* lengths, std::size_t rank,
                               OrtValue**)>;
using ReleaseStatus = ApiFunction<93, void(OrtStatus*)>;
using ReleaseTypeInfo = ApiFunction<98, void(OrtTypeInfo*)>;
using ReleaseTensorTypeAndShapeInfo = ApiFunction<99, void(OrtTensorTypeAndShapeInfo*)>;
using KernelInfo_GetInputCount = ApiFunction<230, OrtStatus*(const OrtKernelInfo*, std::size_t*)>;
using KernelInfo_GetOutputCount = ApiFunction<231, OrtStatus*(const OrtKernelInfo*, std::size_t*)>;
using KernelInfo_GetInputName =
    ApiFunction<232, OrtStatus*(const OrtKernelInfo*, std::size_t index, char* name, std::size_t* size)>;
using KernelInfo_GetOutputName =
    ApiFunction<233, OrtStatus*(const OrtKernelInfo*, std::size_t index, char* name, std::size_t* size)>;
using KernelInfo_GetInputTypeInfo =
    ApiFunction<234, OrtStatus*(const OrtKernelInfo*, std::size_t index, OrtTypeInfo**)>;
using HasSessionConfigEntry = ApiFunction<237, OrtStatus*(const OrtSessionOptions*, const char* key, int*)>;
using GetSessionConfigEntry =
    ApiFunction<238, OrtStatus*(const OrtSessionOptions*, const char* key, char* value, std::size_t* size)>;
using KernelInfo_GetNodeName = ApiFunction<244, OrtStatus*(const OrtKernelInfo*, char* name, std::size_t* size)>;

}  // namespace saccade::onnxruntime
