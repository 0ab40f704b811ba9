// Before any data is sent, every distributed call checks in one small exchange that the ranks call the same
// function with compatible arguments.
#pragma once

#include <functional>
#include <string>

#include "distributed/messages/messages.h"
#include "saccade/distributed.h"

namespace saccade::distributed {

/// What all ranks must have in common.
struct Agreement {
  std::string_view function;
  TensorView q, k, v, o;  ///< only their element types and the dimensions that are not sharded
  Sizes sizes;
  const ParallelConfig* division = nullptr;
  const AttentionOptions* options = nullptr;
};

/// Calls check(), which throws if this rank's arguments are wrong or its memory does not suffice, and shares the
/// outcome. Throws the same exception on every rank if one of them fails or differs from rank 0.
void agree(Messages& messages, const Agreement& agreement, const std::function<void()>& check);

/// Shares the outcome at the end of a call that may have failed on some rank, and throws likewise: `error` is
/// what this rank caught, or nullptr.
void agree_on_end(Messages& messages, std::string_view function, std::exception_ptr error);

}  // namespace saccade::distributed
