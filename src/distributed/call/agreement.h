// Every distributed call begins with one small exchange: whether the ranks call the same function with arguments
// that fit together, before any data travels.
#pragma once

#include <functional>
#include <string>

#include "distributed/messages/messages.h"
#include "saccade/distributed.h"

namespace saccade::distributed {

/// What all ranks must have in common.
struct Agreement {
  std::string_view function;
  TensorView q, k, v, o;  ///< only element types and the lengths that are not divided
  Sizes sizes;
  const ParallelConfig* division = nullptr;
  const AttentionOptions* options = nullptr;
};

/// Calls check(), which throws if this rank's arguments are wrong or its memory does not suffice, and tells the
/// other ranks. Throws the same exception on every rank if one of them fails or differs from rank 0.
void agree(Messages& messages, const Agreement& agreement, const std::function<void()>& check);

/// The same at the end of a call that may have failed on some rank: `error` is what this rank caught, or nullptr.
void agree_on_end(Messages& messages, std::string_view function, std::exception_ptr error);

}  // namespace saccade::distributed
