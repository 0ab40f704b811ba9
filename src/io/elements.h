// Between the bytes of a file and the elements of a tensor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "io/message.h"
#include "saccade/tensor.h"

namespace saccade::io {

// Every format here is little-endian or lets the writer choose, so that numbers go to files as they are in memory.
static_assert(std::endian::native == std::endian::little, "saccade::io is written for little-endian machines");

/// The little-endian number at `at`; the caller has checked that its bytes are there.
template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// "f32 [2, 6, 3]".
std::string describe(DType dtype, const Shape& shape);

/// The bytes that such a tensor takes. Refuses more dimensions than a tensor can have, and sizes that overflow.
std::size_t byte_count(const Origin& origin, DType dtype, const Shape& shape);

/// The tensor whose elements are these bytes, which begin at byte `position` of the file. Their number must be
/// byte_count(); refuses a boolean that is neither 0 nor 1.
Tensor tensor_of(const Origin& origin, std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                 std::size_t position);

/// The bytes of a contiguous view.
std::span<const std::byte> bytes_of(const TensorView& contiguous);

/// Whether the view shows no tensor at all, as opposed to a scalar or a tensor without elements.
inline bool is_absent(const TensorView& view) { return view.rank == 0 && view.data == nullptr; }

}  // namespace saccade::io
