// Converts between the bytes of a file and the elements of a tensor.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "io/message.h"
#include "saccade/tensor.h"

namespace saccade::io {

// npy lets the writer choose the order of a number's bytes; the other formats are little-endian.
inline constexpr bool kIsBigEndian = std::endian::native == std::endian::big;

/// The little-endian number at `at`; the caller has checked the bounds.
template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::byte own[sizeof(T)];
  std::memcpy(own, bytes.data() + at, sizeof own);
  if (kIsBigEndian) std::ranges::reverse(own);
  return std::bit_cast<T>(own);
}

/// The bytes of a number, little-endian.
template <class T>
std::string little_endian(T number) {
  std::string bytes(reinterpret_cast<const char*>(&number), sizeof number);
  if (kIsBigEndian) std::ranges::reverse(bytes);
  return bytes;
}

/// Reverses the bytes of each number.
void reverse_byte_order(Tensor& tensor);

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
