// The projections of a checkpoint, packed.
#pragma once

#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/table.h"
#include "saccade/packed_linear.h"

namespace saccade::model {

/// One projection of several that read the same x, and its width.
struct Part {
  Projection projection{};
  std::int64_t d_out = 0;
};

/// Projections side by side, as one: y has the columns of each part in turn.
PackedLinear packed(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix,
                    const std::vector<Part>& parts, std::int64_t d_in, Activation activation = Activation::none);

/// Queries, keys and values as one projection: columns [num_heads + 2 num_kv_heads][head_dim].
PackedLinear packed_qkv(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix,
                        const AttentionTable& attention);

}  // namespace saccade::model
