// The keys and values that a rank needs.
#pragma once

#include "distributed/flow/flow.h"

namespace saccade::distributed {

/// k and v, [batch, num_kv_heads, keys, dim], and what belongs to them, fetched one step ahead. Every rank calls
/// every function for every step.
class Keys {
 public:
  explicit Keys(Call& call);

  void post(std::int64_t step);
  void wait(std::int64_t step) { fetch_.wait(step); }
  void finish() { fetch_.finish(); }
  /// Keys of the sequence, in the form that a call of attention() takes.
  TensorView k(std::int64_t step, Run keys) const;
  TensorView v(std::int64_t step, Run keys) const;
  /// Sets the options of such a call that belong to its keys and values: scales and multipliers.
  void describe(std::int64_t step, Run keys, AttentionOptions& options) const;

 private:
  /// The rows of tensors [begin, end) of fetch_, in the form that a call takes, and of channels.
  std::vector<TensorView> rows(std::int64_t step, Run keys, std::size_t begin, std::size_t end) const;
  TensorView channels_of(const KeyRows& of, std::int64_t step) const;

  Call& call_;
  Gather fetch_;
};

/// Which keys every rank needs in every step.
Needs needed_keys(const Call& call);

}  // namespace saccade::distributed
