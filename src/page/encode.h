// Numbers as bytes, and bytes as text within HTML.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "saccade/tensor.h"

namespace saccade::page {

/// A weight as a byte c: 2^((c - 255) / 16), within 2.2 %, and 0 for weights below 2^-16.
std::uint8_t code_of(float weight);

/// A zlib stream at its highest level.
std::string deflated(std::span<const std::uint8_t> bytes);

std::string base64(std::string_view bytes);

/// The codes of a matrix, row after row; of a causal one those up to the diagonal. Deflated.
std::string coded(const TensorView& weights, bool is_causal);

/// The codes of a coarse map of a matrix, [rows, columns]: the largest weight of each cell.
std::vector<std::uint8_t> thumbnail_of(const TensorView& weights, std::int64_t rows, std::int64_t columns);

/// Numbers relative to the largest: its value as f32, then each as i16, all little-endian.
void append_scaled(std::vector<std::uint8_t>& bytes, const TensorView& numbers);

}  // namespace saccade::page
