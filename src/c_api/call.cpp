#include "c_api/call.h"

#include <bit>
#include <new>
#include <string>

#include "saccade/attention_options.h"

namespace saccade::c_api {

// The values of the C constants are part of the ABI.
static_assert(static_cast<int>(DType::f32) == SACCADE_F32 && static_cast<int>(DType::f64) == SACCADE_F64);
static_assert(static_cast<int>(DType::f16) == SACCADE_F16 && static_cast<int>(DType::bf16) == SACCADE_BF16);
static_assert(static_cast<int>(DType::boolean) == SACCADE_BOOL && static_cast<int>(DType::i8) == SACCADE_I8);
static_assert(static_cast<int>(DType::i16) == SACCADE_I16 && static_cast<int>(DType::i32) == SACCADE_I32);
static_assert(static_cast<int>(DType::i64) == SACCADE_I64 && static_cast<int>(DType::u8) == SACCADE_U8);
static_assert(static_cast<int>(DType::u16) == SACCADE_U16 && static_cast<int>(DType::u32) == SACCADE_U32);
static_assert(static_cast<int>(DType::u64) == SACCADE_U64 && kMaxRank == SACCADE_MAX_RANK);
static_assert(static_cast<int>(DType::f8e4m3) == SACCADE_F8E4M3);

namespace {

/// The text of the last error, truncated if very long. It has no destructor, as programs may call saccade while
/// they or their threads exit.
struct LastError {
  char message[2048];

  void set(std::string_view what) noexcept { message[what.copy(message, sizeof message - 1)] = '\0'; }
};

constinit thread_local LastError last_error{};

/// The fields of a DLTensor that a view needs, as DLPack's header declares them since version 0.2.
struct DlTensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

DType dtype_of_dlpack(const DlTensor& from) {
  enum Code : std::uint8_t { integer = 0, natural = 1, floating = 2, brain = 4, boolean = 6, e4m3 = 10 };
  struct Known {
    std::uint8_t code, bits;
    DType dtype;
  };
  static constexpr Known kKnown[] = {
      {integer, 8, DType::i8},      {integer, 16, DType::i16},  {integer, 32, DType::i32},
      {integer, 64, DType::i64},    {natural, 8, DType::u8},    {natural, 16, DType::u16},
      {natural, 32, DType::u32},    {natural, 64, DType::u64},  {floating, 16, DType::f16},
      {floating, 32, DType::f32},   {floating, 64, DType::f64}, {brain, 16, DType::bf16},
      {boolean, 8, DType::boolean}, {e4m3, 8, DType::f8e4m3}};
  for (const Known& known : kKnown)
    if (known.code == from.code && known.bits == from.bits && from.lanes == 1) return known.dtype;
  refuse("saccade_tensor_from_dlpack", "the element type has code ", int{from.code}, ", ", int{from.bits},
         " bits and ", from.lanes, " lanes, which no tensor here has");
}

}  // namespace

saccade_status noted_error() noexcept {
  try {
    throw;
  } catch (const std::invalid_argument& error) {
    last_error.set(error.what());
    return SACCADE_INVALID_ARGUMENT;
  } catch (const std::out_of_range& error) {
    last_error.set(error.what());
    return SACCADE_INVALID_ARGUMENT;
  } catch (const Interrupted&) {
    last_error.set("[saccade] the progress hook ended the call");
    return SACCADE_INTERRUPTED;
  } catch (const std::bad_alloc&) {
    last_error.set("out of memory");
    return SACCADE_OUT_OF_MEMORY;
  } catch (const std::length_error& error) {  // from a standard container
    last_error.set(error.what());
    return SACCADE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error.set(error.what());
    return SACCADE_FAILED;
  } catch (...) {
    last_error.set("an exception of an unknown type");
    return SACCADE_FAILED;
  }
}

DType known_dtype(std::string_view function, std::string_view name, saccade_dtype dtype) {
  if (dtype < SACCADE_F32 || dtype > SACCADE_F8E4M3)
    refuse(function, name, " has element type ", dtype, ", but types are from 0 to ", SACCADE_F8E4M3);
  return static_cast<DType>(dtype);
}

MutableTensorView view_of(std::string_view function, std::string_view name, const saccade_tensor* tensor) {
  const saccade_tensor& given = required(function, name, tensor);
  const DType dtype = known_dtype(function, name, given.dtype);
  if (given.rank < 1 || given.rank > kMaxRank)
    refuse(function, name, " must have rank 1 to ", kMaxRank, ", but it has rank ", given.rank);
  if (given.shape == nullptr) refuse(function, name, " has no shape (null pointer)");
  const std::span<const std::int64_t> shape(given.shape, static_cast<std::size_t>(given.rank));
  const MutableTensorView view =
      given.strides == nullptr ? MutableTensorView(given.data, dtype, shape)
                               : MutableTensorView(given.data, dtype, shape,
                                                   std::span(given.strides, static_cast<std::size_t>(given.rank)));
  if (given.data == nullptr && view.size() > 0)
    refuse(function, name, " has shape ", to_string(shape), " but no data (null pointer)");
  if (std::bit_cast<std::uintptr_t>(given.data) % size_of(dtype) != 0)
    refuse(function, name, " begins at an address that is no multiple of ", size_of(dtype), " bytes");
  return view;
}

MutableTensorView optional_view_of(std::string_view function, std::string_view name,
                                   const saccade_tensor* tensor) {
  return tensor == nullptr ? MutableTensorView() : view_of(function, name, tensor);
}

std::string_view text_of(std::string_view function, std::string_view name, const char* text) {
  return &required(function, name, text);
}

Layout layout_of(std::string_view function, const char* text) {
  if (text == nullptr) return Layout::bhsd;
  if (const std::optional<Layout> layout = option_value<Layout>(text)) return *layout;
  refuse(function, "layout must be bhsd or bshd, but it is '", std::string(text), "'");
}

}  // namespace saccade::c_api

using namespace saccade;
using namespace saccade::c_api;

const char* saccade_last_error(void) { return last_error.message; }

saccade_status saccade_tensor_from_dlpack(const void* dl_tensor, saccade_tensor* tensor) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_tensor_from_dlpack";
    const auto& from =
        *static_cast<const DlTensor*>(&required(kFunction, "dl_tensor", static_cast<const DlTensor*>(dl_tensor)));
    saccade_tensor& to = required(kFunction, "tensor", tensor);
    constexpr std::int32_t kCpu = 1;
    if (from.device_type != kCpu)
      refuse(kFunction, "the tensor is on device type ", from.device_type,
             ", but only the CPU's memory (1) is read");
    const saccade_tensor view{
        .data = from.data == nullptr ? nullptr : static_cast<std::byte*>(from.data) + from.byte_offset,
        .dtype = static_cast<saccade_dtype>(dtype_of_dlpack(from)),
        .rank = from.ndim,
        .shape = from.shape,
        .strides = from.strides};
    view_of(kFunction, "dl_tensor", &view);
    to = view;
  });
}
