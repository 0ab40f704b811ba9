#include "io/elements.h"

#include <cstdint>
#include <stdexcept>

namespace saccade::io {

std::string describe(DType dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + " " + to_string(std::span(shape));
}

std::size_t byte_count(const Origin& origin, DType dtype, const Shape& shape) {
  if (shape.size() > kMaxRank) {
    origin.refuse("has " + std::to_string(shape.size()) + " dimensions, " + std::to_string(kMaxRank) +
                  " are the most that a tensor has here");
  }
  try {
    return static_cast<std::size_t>(element_count(shape, size_of(dtype))) * size_of(dtype);
  } catch (const std::invalid_argument&) {
    origin.refuse("the size of " + describe(dtype, shape) + " overflows");
  }
}

namespace {

void check_booleans(const Origin& origin, std::span<const std::byte> bytes, std::size_t position) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > std::byte{1}) {
      origin.refuse("a boolean is " + std::to_string(std::to_integer<int>(bytes[i])) +
                    ", neither 0 nor 1, at byte " + std::to_string(position + i));
    }
  }
}

}  // namespace

void reverse_byte_order(Tensor& tensor) {
  const std::size_t width = size_of(tensor.dtype());
  auto* const begin = static_cast<std::byte*>(tensor.data());
  for (std::size_t at = 0; at < tensor.bytes(); at += width) std::reverse(begin + at, begin + at + width);
}

TensorView view_of(const Origin& origin, std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                   std::size_t position) {
  if (dtype == DType::boolean) check_booleans(origin, bytes, position);
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(dtype) != 0) {
    origin.refuse("the numbers begin at byte " + std::to_string(position) + ", which is no multiple of " +
                  std::to_string(size_of(dtype)) + " in memory: such a file has to be read whole");
  }
  return {bytes.data(), dtype, shape};
}

Tensor tensor_of(const Origin& origin, std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                 std::size_t position) {
  if (dtype == DType::boolean) check_booleans(origin, bytes, position);
  Tensor tensor(dtype, shape);
  if (!bytes.empty()) std::memcpy(tensor.data(), bytes.data(), bytes.size());
  return tensor;
}

std::span<const std::byte> bytes_of(const TensorView& contiguous) {
  return {static_cast<const std::byte*>(contiguous.data),
          static_cast<std::size_t>(contiguous.size()) * size_of(contiguous.dtype)};
}

}  // namespace saccade::io
