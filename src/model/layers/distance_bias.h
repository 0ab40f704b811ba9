// T5's bias of the scores by the distance of a key.
#pragma once

#include <cstdint>

#include "model/checkpoint/checkpoint.h"
#include "model/table.h"
#include "saccade/attention.h"

namespace saccade::model {

class DistanceBias {
 public:
  /// Empty for a table without a name.
  DistanceBias(const StackTable& table, const Checkpoint& checkpoint);

  /// Adds the bias to the scores of a call, by a score modifier that lives as long as this object.
  void add_to(AttentionOptions& options) const;

 private:
  static void add_to_tile(void* self, const ScoreTile& tile);

  std::int64_t max_distance_ = 0;
  Tensor biases_;  // [heads, 2 max_distance + 1]: by position of the key minus that of the query
};

}  // namespace saccade::model
