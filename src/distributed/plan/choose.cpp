// choose(): gather, unless memory or the network rules it out.
#include "distributed/plan/choose.h"

#include <algorithm>

#include "distributed/plan/runs.h"
#include "saccade/cost_model.h"

namespace saccade::distributed {
namespace {

/// The most bytes that a rank holds of the keys and values of two kv heads, which may be too many for an integer.
double memory_of_gather(const Plan& plan) {
  std::int64_t most = 0;
  for (std::int64_t batch = 0, step = 0; batch < plan.entries(); ++batch, ++step) {
    if (batch > 0 && plan.are_alike(step, 0)) break;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const std::vector<Run> keys = plan.keys(rank, step);
      if (!keys.empty()) most = std::max(most, keys.back().end - keys.front().begin);
    }
  }
  const Sizes& sizes = plan.sizes();
  const double dimensions = static_cast<double>(sizes.head_dim) + static_cast<double>(sizes.head_dim_v);
  return 2.0 * static_cast<double>(most) * dimensions * static_cast<double>(sizes.element_bytes);
}

}  // namespace

ParallelConfig choose(const Sizes& sizes, const ParallelConfig& division, const AttentionOptions& options,
                      std::string_view function) {
  // Another method needs more memory, so it must gain noticeably.
  constexpr double kGain = 0.02;
  ParallelConfig best = division;
  best.method = Method::gather;
  best.head_groups = 1;
  const int ranks = division.rows.ranks();
  if (ranks == 1) return best;
  const Plan gather(sizes, best, options, function);
  if (memory_of_gather(gather) > static_cast<double>(division.memory)) {
    best.method = Method::stream;
    return best;
  }
  if (sizes.num_kv_heads < 2) return best;
  check_rates(division.machine, function);
  const Estimate by_gather = estimate(gather, Pass::forward, division.machine);
  double wanted = by_gather.total * (1.0 - kGain), kernels = 0.0;
  for (const Cost& rank : by_gather.ranks) kernels += rank.kernels;
  if (kernels / ranks > wanted) return best;  // no method computes less
  for (int groups = 2; groups <= ranks && groups <= sizes.num_kv_heads; ++groups) {
    if (ranks % groups != 0) continue;
    ParallelConfig other = best;
    other.method = groups == ranks ? Method::heads : Method::grid;
    other.head_groups = groups;
    const double total = estimate(Plan(sizes, other, options, function), Pass::forward, division.machine).total;
    if (total >= wanted) continue;
    wanted = total;
    best = other;
  }
  return best;
}

}  // namespace saccade::distributed
