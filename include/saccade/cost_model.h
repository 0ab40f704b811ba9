// How long a distributed call takes: a model of computing and of the network, written down in docs/distributed.md.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/distributed.h"

namespace saccade {
namespace [[gnu::visibility("default")]] distributed {

/// What a rank computes in a pass through the steps of a plan.
enum class Pass : std::uint8_t {
  forward,           ///< distributed::attention(), without lse
  backward,          ///< distributed::attention_backward(); if ParallelConfig::exact is set, without dk and dv
  backward_of_keys,  ///< its dk and dv if ParallelConfig::exact is set: rows travel to the holders of the keys they see
};

/// What one rank sends to another.
struct Transfer {
  int from = 0, to = 0;
  std::int64_t bytes = 0, messages = 0;
};

/// The steps of a pass: those of the plan, but for backward_of_keys.
std::int64_t steps_of(const Plan& plan, Pass pass);
/// What travels so that a step can be computed: keys and values, and rows if ranks share them.
std::vector<Transfer> inputs_of(const Plan& plan, Pass pass, std::int64_t step);
/// What travels after it: results for rows of others, and what a rank adds to dk and dv.
std::vector<Transfer> results_of(const Plan& plan, Pass pass, std::int64_t step);
/// What a rank computes in a step: 2 floating-point operations for each number of each product of matrices, for
/// pairs of a row and a key that it sees by position and length.
double operations_of(const Plan& plan, Pass pass, int rank, std::int64_t step);

/// How a rank fares in a call.
struct Cost {
  double kernels = 0.0;   ///< seconds that the kernels compute, and of CostParameters::per_step
  double copying = 0.0;   ///< seconds in which it packs, begins messages, and adds up what arrived
  double transfer = 0.0;  ///< seconds that its messages take, one after the other in each direction
  double waiting = 0.0;   ///< seconds in which it does nothing because messages are under way
  double total = 0.0;     ///< seconds until it is done: kernels, copying and waiting
  std::int64_t bytes_received = 0, bytes_sent = 0;
};

struct Estimate {
  std::vector<Cost> ranks;
  double total = 0.0;  ///< seconds until the last rank is done
};

/// Walks through the steps of a plan as distributed::attention() and attention_backward() do: the inputs of a step
/// travel while the step before it is computed, and its results while the next one is. A rank's link carries its
/// messages one after the other, in both directions at once; nothing else is a limit of the network. `pass`:
/// forward or backward, which includes backward_of_keys if ParallelConfig::exact is set.
///
/// Throws std::invalid_argument for Method::pass_q, which has no steps, gradients by stream and ring, which are
/// computed as by gather, and a machine without positive rates.
Estimate estimate(const Plan& plan, Pass pass = Pass::forward, const CostParameters& machine = {});

/// The bandwidth in bytes/s at which the inputs of each step arrive while the step before it is computed: the most
/// that a rank sends or receives in a step, by the longest time that a rank computes in it.
double needed_bandwidth(const Plan& plan, Pass pass = Pass::forward, const CostParameters& machine = {});

}  // namespace distributed
}  // namespace saccade
