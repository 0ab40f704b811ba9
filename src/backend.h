// The door between the public functions and what computes. A public function checks its arguments and hands plain
// parameters to the back end. The CPU's is cpu/cpu_backend.cpp; one for a GPU, or one that spreads work over
// several machines, would implement this class.
#pragma once

#include "attention/params.h"
#include "nn/params.h"

namespace saccade {

/// What computes. Parameters are checked and point into the caller's memory, which is there until the call
/// returns; no batch, head count or query length is 0. Results have to be bit for bit the same for any division of
/// the work. Several threads may call at once.
class Backend {
 public:
  /// A short cut for a call that has no options. Returns whether it has computed all of o; where it has not, which
  /// is always an answer, attention() follows.
  virtual bool attention_at_once(const AttentionOperands&) const { return false; }

  virtual void attention(const AttentionParams&) const = 0;
  /// The same for few rows over many keys.
  virtual void decode(const AttentionParams&) const = 0;
  virtual void attention_backward(const BackwardParams&) const = 0;
  virtual void inspect(const InspectParams&) const = 0;
  /// A matrix product, of projections and their gradients. It has rows and columns.
  virtual void product(const ProductParams&) const = 0;

 protected:
  ~Backend() = default;
};

/// The back end that calls use.
const Backend& active_backend();

}  // namespace saccade
