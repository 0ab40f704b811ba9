// How long a distributed call takes: a model of computation and network, described in docs/distributed.md.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/distributed.h"

#pragma GCC visibility push(default)
namespace saccade::distributed {

/// What the ranks compute as they walk through the steps of a plan.
enum class Pass : std::uint8_t {
  forward,           ///< distributed::attention(), without lse
  backward,          ///< distributed::attention_backward(); if ParallelConfig::exact is set, without dk and dv
  backward_of_keys,  ///< its dk and dv if ParallelConfig::exact is set: rows travel to the holders of the keys
                     ///< they see
};

/// What one rank sends to another.
struct Transfer {
  int from = 0, to = 0;       ///< the ranks
  std::int64_t bytes = 0;     ///< of all messages together
  std::int64_t messages = 0;  ///< their number
};

/// The number of steps of a pass: the plan's, except for backward_of_keys.
std::int64_t steps_of(const Plan& plan, Pass pass);
/// What is sent before a step of a pass over a plan can be computed: keys and values, and rows if ranks share
/// them.
std::vector<Transfer> inputs_of(const Plan& plan, Pass pass, std::int64_t step);
/// What is sent after a step of a pass over a plan: results for rows of other ranks, and contributions to dk and
/// dv.
std::vector<Transfer> results_of(const Plan& plan, Pass pass, std::int64_t step);
/// What a rank computes in a step of a pass over a plan: 2 floating-point operations per multiply-add of each
/// matrix product, for the pairs of a row and a key that it sees by position and length.
double operations_of(const Plan& plan, Pass pass, int rank, std::int64_t step);

/// What a call costs a rank.
struct Cost {
  double kernels = 0.0;   ///< seconds in kernels, plus CostParameters::per_step for each step
  double copying = 0.0;   ///< seconds spent packing, starting messages and adding up what arrived
  double transfer = 0.0;  ///< seconds that its messages take, one after the other in each direction
  double waiting = 0.0;   ///< seconds idle, waiting for messages
  double total = 0.0;     ///< seconds until it is done: kernels, copying and waiting
  std::int64_t bytes_received = 0, bytes_sent = 0;  ///< by the rank
};

/// The time of a call.
struct Estimate {
  std::vector<Cost> ranks;  ///< of each rank
  double total = 0.0;       ///< seconds until the last rank is done
};

/// Walks through the steps of a plan as distributed::attention() and attention_backward() do: the inputs of a step
/// are sent during the step before it, and its results during the step after it. A rank's link carries one message
/// at a time in each direction, both directions at once; the network has no other limit. `pass`: forward or
/// backward, which includes backward_of_keys if ParallelConfig::exact is set.
///
/// Throws std::invalid_argument for Method::pass_q, which has no steps; for gradients by stream and ring, which
/// are computed as by gather; and for a machine without positive rates.
Estimate estimate(const Plan& plan, Pass pass = Pass::forward, const CostParameters& machine = {});

/// The bandwidth in bytes/s that hides the inputs of each step of a pass over a plan behind the step before it, on
/// a machine whose kernels are as fast as `machine` says: the most that a rank sends or receives in a step,
/// divided by the longest time that a rank computes in it.
double needed_bandwidth(const Plan& plan, Pass pass = Pass::forward, const CostParameters& machine = {});

}  // namespace saccade::distributed
#pragma GCC visibility pop
