// Comparison of results that must have the same bits.
#pragma once

#include <saccade/compare.h>
#include <saccade/tensor.h>

#include <cstring>
#include <limits>

namespace saccade::cases {

/// The elements, of two contiguous tensors of one type and size, that differ in their bits.
struct BitDifferences {
  std::int64_t count = 0;   ///< how many there are
  std::int64_t first = -1;  ///< the first one's position in memory, counted in elements; -1: none
};
inline BitDifferences bit_differences(const Tensor& a, const Tensor& b) {
  const std::size_t size = size_of(a.dtype());
  const auto* const x = static_cast<const std::byte*>(a.data());
  const auto* const y = static_cast<const std::byte*>(b.data());
  BitDifferences found;
  for (std::size_t i = 0; i < a.bytes(); i += size) {
    if (std::memcmp(x + i, y + i, size) == 0) continue;
    if (found.count++ == 0) found.first = static_cast<std::int64_t>(i / size);
  }
  return found;
}

/// The comparison of `out` with a tensor of the same type and shape, whose bits it must have: its ratio is 0 or
/// infinite, and the worst element is the first that differs.
inline Comparison compare_bits(const Tensor& out, const Tensor& wanted) {
  const BitDifferences differences = bit_differences(out, wanted);
  Comparison result;
  result.holds = differences.count == 0;
  result.elements = out.size();
  result.failures = differences.count;
  if (result.holds) return result;
  std::int64_t rest = differences.first;
  result.worst_index = out.shape();
  for (std::size_t i = out.shape().size(); i-- > 0;) {
    result.worst_index[i] = rest % out.shape()[i];
    rest /= out.shape()[i];
  }
  result.worst_ratio = std::numeric_limits<double>::infinity();
  result.worst_value = value_at(out, result.worst_index);
  result.worst_reference = value_at(wanted, result.worst_index);
  result.worst_difference = result.largest_difference = result.worst_value - result.worst_reference;
  return result;
}

}  // namespace saccade::cases
