// Bytes of a page: weights as codes, deflated, in base64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace saccade::page {

/// The code of a weight: 0 for weights below 2^-16, or else 255 + 16 log2(weight), rounded; so that its error is
/// at most 2.2 %, and weights below 1.7e-5 are 1. Codes of other numbers than weights are clamped; NaN is 0.
std::uint8_t code_of(float weight);

/// Compressed as zlib's format has it (RFC 1950), at its best level.
std::string deflated(std::span<const std::uint8_t> bytes);
std::string base64(const std::string& bytes);

}  // namespace saccade::page
