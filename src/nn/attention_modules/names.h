#pragma once

#include <cstdint>
#include <string>

namespace saccade {

/// The prefix of one head's parameters in MultiHeadAttentionWrapper: "heads.0."
inline std::string head_prefix(std::int64_t head) { return "heads." + std::to_string(head) + "."; }

}  // namespace saccade
