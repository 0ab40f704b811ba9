#pragma once

#include <cstdint>
#include <string>

namespace saccade {

/// Where MultiHeadAttentionWrapper keeps the parameters of one head: "heads.0."
inline std::string head_prefix(std::int64_t head) { return "heads." + std::to_string(head) + "."; }

}  // namespace saccade
