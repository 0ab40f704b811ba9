// A few rows of each of the query heads that share a kv head, as the rows of one head: a block of rows is then
// full, and each key is read once for all of them instead of once for each head.
#pragma once

#include <optional>

#include "backend/attention_params.h"
#include "core/parallel.h"

namespace saccade::cpu {

class GroupedRows {
 public:
  /// Whether heads share keys, have so few rows that they leave blocks of rows unfilled, are more than the threads
  /// even together, and have no option by which a row depends on its head or index, but small masks and what hides
  /// keys by position.
  static bool suit(const AttentionParams& p);

  /// Copies q, unless rows of neighboring heads are as far apart as those of a head, and masks that differ between
  /// heads or rows.
  explicit GroupedRows(const AttentionParams& p);

  /// The problem with num_kv_heads query heads. It writes o and lse to memory of this object if they are copied.
  const AttentionParams& params() const { return grouped_; }
  /// Copies o and lse to where the call wants them.
  void write() const;

 private:
  const AttentionParams& p_;
  AttentionParams grouped_;
  std::optional<Workspace> rows_, mask_;  // copies: of q, o and lse; of the mask
};

}  // namespace saccade::cpu
