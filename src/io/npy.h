// The .npy format as .npz archives share it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/message.h"
#include "saccade/tensor.h"

namespace saccade::io {

Tensor parse_npy(const Origin& origin, std::span<const std::byte> bytes);

/// Everything that stands before the elements in a version 1.0, C order file. Refuses what the format cannot hold.
std::string npy_header(const Origin& origin, const TensorView& tensor);

}  // namespace saccade::io
