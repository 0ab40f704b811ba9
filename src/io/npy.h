// The part of the .npy format that .npz archives share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/message.h"
#include "saccade/tensor.h"

namespace saccade::io {

Tensor parse_npy(const Origin& origin, std::span<const std::byte> bytes);

/// All bytes before the elements in a version 1.0, C order file. Throws for types that the format lacks.
std::string npy_header(const Origin& origin, DType dtype, std::span<const std::int64_t> shape);
/// The header of a tensor. Throws for an absent one.
std::string npy_header(const Origin& origin, const TensorView& tensor);

}  // namespace saccade::io
