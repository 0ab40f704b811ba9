// The whole problem of a distributed call in the kernels' form, without its tensors.
#pragma once

#include <string_view>

#include "attention/arguments.h"
#include "saccade/distributed.h"

namespace saccade::distributed {

/// The options that decide which keys a row sees by position and length.
AttentionOptions visibility_of(const AttentionOptions& options);

/// The batch size of a problem, if its options determine it; else 1.
std::int64_t batch_of(const AttentionOptions& options);

/// Checks the options of a whole problem and turns them into parameters that say which keys each row sees. The
/// tensors of `params` have no memory.
class WholeProblem {
 public:
  /// Throws std::invalid_argument as attention() does, in the name of `function`, and for options that a
  /// distributed call does not take.
  WholeProblem(const Sizes& sizes, std::int64_t seqlen_q, std::int64_t seqlen_k, const AttentionOptions& options,
               std::string_view function);

 private:
  AttentionArguments arguments_;

 public:
  const AttentionParams& params = arguments_.params;
};

}  // namespace saccade::distributed
