// Converts between the bytes of a file and the elements of a tensor.
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

// All formats here are little-endian or let the writer choose, so files hold numbers exactly as memory does.
static_assert(std::endian::native == std::endian::little, "saccade::io is written for little-endian machines");

/// The little-endian number at `at`; the caller has checked the bounds.
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

/// The size of such a tensor in bytes. Throws for more dimensions than a tensor can have, and for sizes that
/// overflow.
std::size_t byte_count(const Origin& origin, DType dtype, const Shape& shape);

/// A view of these bytes as a tensor. Throws for numbers that are not aligned in memory, and as tensor_of()
/// does.
TensorView view_of(const Origin& origin, std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                   std::size_t position);

/// A tensor of these bytes, which begin at byte `position` of the file. Their number must be byte_count();
/// throws for a boolean that is neither 0 nor 1.
Tensor tensor_of(const Origin& origin, std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                 std::size_t position);

/// The bytes of a contiguous view.
std::span<const std::byte> bytes_of(const TensorView& contiguous);

/// Whether the view is empty ("not given"), as opposed to a scalar or a tensor without elements.
inline bool is_absent(const TensorView& view) { return view.rank == 0 && view.data == nullptr; }

}  // namespace saccade::io
