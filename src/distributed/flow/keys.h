// The keys and values that a rank needs.
#pragma once

#include "distributed/flow/flow.h"

namespace saccade::distributed {

/// k and v, [batch, num_kv_heads, keys, dim], fetched one step ahead. Every rank calls every function for every
/// step.
class Keys {
 public:
  explicit Keys(Call& call);

  void post(std::int64_t step);
  void wait(std::int64_t step) { fetch_.wait(step); }
  void finish() { fetch_.finish(); }
  /// Keys of the sequence, in the form that a call of attention() takes.
  TensorView k(std::int64_t step, Run keys) const;
  TensorView v(std::int64_t step, Run keys) const;
  std::array<Batch*, 4> open() { return fetch_.open(); }

 private:
  Call& call_;
  Gather fetch_;
};

/// Which keys every rank needs in every step.
Needs needed_keys(const Call& call);

}  // namespace saccade::distributed
