// estimate(): what each step of a plan sends, and how long sending and computing take.
#include "saccade/cost_model.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "distributed/plan/choose.h"
#include "distributed/plan/runs.h"

namespace saccade::distributed {
namespace {

/// Rows or keys that each rank needs in a step, or has results for, and who holds them.
struct NeededRows {
  const Sharding* sharding;
  std::vector<std::vector<Run>> of_rank;
  std::int64_t bytes = 0;     // of a row, in all tensors and for all heads of a unit
  std::int64_t messages = 0;  // for each run
};

std::int64_t group_of(const Sizes& sizes) {
  return sizes.num_heads / std::max<std::int64_t>(sizes.num_kv_heads, 1);
}
std::int64_t bytes_of_sums(const Sizes& sizes) { return std::max<std::int64_t>(sizes.element_bytes, 4); }

/// What every rank needs from others to compute a step.
std::vector<NeededRows> needs_of(const Plan& plan, Pass pass, std::int64_t step) {
  const Sizes& s = plan.sizes();
  const std::int64_t e = s.element_bytes, group = group_of(s), ranks = plan.ranks();
  const std::int64_t of_row =
      pass == Pass::forward ? s.head_dim * e : (s.head_dim + 2 * s.head_dim_v) * e + bytes_of_sums(s);
  NeededRows keys{&plan.division().keys, {}, (s.head_dim + s.head_dim_v) * e, 2};
  NeededRows rows{&plan.division().rows, {}, of_row * group, (pass == Pass::forward ? 1 : 4) * group};
  for (int rank = 0; rank < ranks; ++rank) {
    if (pass == Pass::backward_of_keys)
      rows.of_rank.push_back(plan.rows_of_keys(rank, step % plan.entries()));
    else
      keys.of_rank.push_back(plan.keys(rank, step)), rows.of_rank.push_back(plan.rows(rank, step));
  }
  if (pass == Pass::backward_of_keys) return {rows};
  return plan.shares_rows() ? std::vector{keys, rows} : std::vector{keys};
}

/// What every rank computes for others in a step.
std::vector<NeededRows> products_of(const Plan& plan, Pass pass, std::int64_t step) {
  const Sizes& s = plan.sizes();
  const bool adds_to_keys = pass == Pass::backward && !plan.division().exact;
  if (pass == Pass::backward_of_keys || (!adds_to_keys && !plan.shares_rows())) return {};
  std::vector<NeededRows> products;
  std::vector<NeededRows> needs = needs_of(plan, pass, step);
  if (adds_to_keys) {
    needs[0].bytes = (s.head_dim + s.head_dim_v) * bytes_of_sums(s);
    products.push_back(std::move(needs[0]));
  }
  if (plan.shares_rows()) {
    needs[1].bytes = group_of(s) * s.element_bytes * (pass == Pass::forward ? s.head_dim_v : s.head_dim);
    needs[1].messages = group_of(s);
    products.push_back(std::move(needs[1]));
  }
  return products;
}

/// A run of a sequence and the rank that holds it.
struct HeldRun {
  Run run;
  std::size_t holder;
};

std::vector<HeldRun> held_runs(const Sharding& sharding) {
  std::vector<HeldRun> held;
  for (int rank = 0; rank < sharding.ranks(); ++rank)
    for (const Run& run : sharding.runs(rank)) held.push_back({run, static_cast<std::size_t>(rank)});
  std::ranges::sort(held, {}, [](const HeldRun& one) { return one.run.begin; });
  return held;
}

/// The transfers from the owners of rows to the ranks that need them, or back.
std::vector<Transfer> transfers_of(const std::vector<NeededRows>& all, int ranks, bool back) {
  std::vector<std::vector<HeldRun>> held;
  for (const NeededRows& rows : all) held.push_back(held_runs(*rows.sharding));
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Transfer> of_holder(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const Run& needed : all[i].of_rank[static_cast<std::size_t>(rank)]) {
        auto next =
            std::ranges::upper_bound(held[i], needed.begin, {}, [](const HeldRun& one) { return one.run.end; });
        for (; next != held[i].end() && next->run.begin < needed.end; ++next) {
          of_holder[next->holder].bytes += overlap_of(needed, next->run).size() * all[i].bytes;
          of_holder[next->holder].messages += all[i].messages;
        }
      }
    }
    for (int holder = 0; holder < ranks; ++holder) {
      Transfer& transfer = of_holder[static_cast<std::size_t>(holder)];
      if (holder == rank || transfer.bytes == 0) continue;
      transfer.from = back ? rank : holder, transfer.to = back ? holder : rank;
      transfers.push_back(transfer);
    }
  }
  return transfers;
}

/// The transfers of one time, and each rank's totals over its messages.
struct Traffic {
  Traffic(std::vector<Transfer> all, int ranks)
      : transfers(std::move(all)),
        sent(static_cast<std::size_t>(ranks)),
        received(sent.size()),
        messages(sent.size()) {
    for (const Transfer& transfer : transfers) {
      const auto from = static_cast<std::size_t>(transfer.from), to = static_cast<std::size_t>(transfer.to);
      sent[from] += transfer.bytes;
      received[to] += transfer.bytes;
      messages[from] += transfer.messages;
      messages[to] += transfer.messages;
    }
  }

  std::vector<Transfer> transfers;
  std::vector<std::int64_t> sent, received, messages;
};

/// One step of a pass, or several equal ones.
struct StepKind {
  std::int64_t step;
  Traffic inputs, results;
  std::vector<double> kernels;  // seconds of each rank
};

double rate_of(const Plan& plan, Pass pass, const CostParameters& machine) {
  const double rate = pass == Pass::forward ? machine.forward : machine.backward;
  return rate * 4.0 / static_cast<double>(plan.sizes().element_bytes);
}

/// The steps of a pass by kinds, and the kind of each step.
struct PassSteps {
  PassSteps(const Plan& plan, Pass pass, const CostParameters& machine) {
    const double rate = rate_of(plan, pass, machine);
    for (std::int64_t step = 0; step < steps_of(plan, pass); ++step) {
      const auto is_alike = [&](const StepKind& kind) {
        return pass == Pass::backward_of_keys ? step % plan.entries() == kind.step % plan.entries()
                                              : plan.are_alike(step, kind.step);
      };
      const auto found = std::ranges::find_if(kinds, is_alike);
      order.push_back(static_cast<std::size_t>(found - kinds.begin()));
      if (found != kinds.end()) continue;
      StepKind kind{.step = step,
                    .inputs = {inputs_of(plan, pass, step), plan.ranks()},
                    .results = {results_of(plan, pass, step), plan.ranks()},
                    .kernels = {}};
      for (int rank = 0; rank < plan.ranks(); ++rank)
        kind.kernels.push_back(machine.per_step + operations_of(plan, pass, rank, step) / rate);
      kinds.push_back(std::move(kind));
    }
  }

  std::vector<StepKind> kinds;
  std::vector<std::size_t> order;
};

/// Advances the clocks of all ranks through the steps of a pass in the order of the executors.
class StepWalk {
 public:
  StepWalk(const CostParameters& machine, std::vector<Cost>& ranks)
      : machine_(machine), ranks_(ranks), in_free_(ranks.size()), out_free_(ranks.size()) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) in_free_[rank] = out_free_[rank] = ranks[rank].total;
  }

  void run(const PassSteps& steps) {
    if (steps.order.empty()) return;
    const auto kind = [&](std::size_t step) -> const StepKind& { return steps.kinds[steps.order[step]]; };
    std::vector<double> inputs = send(kind(0).inputs), results;
    for (std::size_t step = 0; step < steps.order.size(); ++step) {
      wait(inputs);
      if (step + 1 < steps.order.size()) inputs = send(kind(step + 1).inputs);
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        spend(rank, kind(step).kernels[rank], &Cost::kernels);
      const std::vector<double> own = send(kind(step).results);
      if (step > 0) receive_results(kind(step - 1).results, results);
      results = own;
    }
    receive_results(kind(steps.order.size() - 1).results, results);
  }

 private:
  void spend(std::size_t rank, double seconds, double Cost::*on) {
    ranks_[rank].*on += seconds;
    ranks_[rank].total += seconds;
  }

  void wait(const std::vector<double>& until) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      spend(rank, std::max(0.0, until[rank] - ranks_[rank].total), &Cost::waiting);
  }

  void receive_results(const Traffic& traffic, const std::vector<double>& until) {
    wait(until);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      spend(rank, static_cast<double>(traffic.received[rank]) / machine_.copying, &Cost::copying);
  }

  /// Starts sending; returns the time at which each rank has received its data.
  std::vector<double> send(const Traffic& traffic) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const double packing = static_cast<double>(traffic.sent[rank]) / machine_.copying;
      spend(rank, packing + static_cast<double>(traffic.messages[rank]) * machine_.per_message, &Cost::copying);
      count(rank, traffic);
    }
    std::vector<double> sent(ranks_.size()), arrived(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const double now = ranks_[rank].total;
      sent[rank] = std::max(out_free_[rank], now) + seconds_of(traffic.sent[rank]);
      arrived[rank] = std::max(in_free_[rank], now) + seconds_of(traffic.received[rank]);
    }
    // A message needs both ranks; those of a rank advance together, so the last ends when all do.
    const std::vector<double> all_sent = sent;
    for (const Transfer& transfer : traffic.transfers) {
      const auto from = static_cast<std::size_t>(transfer.from), to = static_cast<std::size_t>(transfer.to);
      arrived[to] = std::max(arrived[to], all_sent[from]);
      sent[from] = std::max(sent[from], ranks_[to].total + seconds_of(transfer.bytes));
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (traffic.sent[rank] > 0) out_free_[rank] = sent[rank];
      if (traffic.received[rank] == 0) {
        arrived[rank] = 0.0;
        continue;
      }
      in_free_[rank] = arrived[rank];
      arrived[rank] += machine_.latency;
    }
    return arrived;
  }

  double seconds_of(std::int64_t bytes) const { return static_cast<double>(bytes) / machine_.bandwidth; }

  void count(std::size_t rank, const Traffic& traffic) {
    Cost& cost = ranks_[rank];
    cost.bytes_sent += traffic.sent[rank];
    cost.bytes_received += traffic.received[rank];
    const std::int64_t most = std::max(traffic.sent[rank], traffic.received[rank]);
    if (most > 0) cost.transfer += machine_.latency + seconds_of(most);
  }

  const CostParameters& machine_;
  std::vector<Cost>& ranks_;
  std::vector<double> in_free_, out_free_;  // when a rank has received or sent everything that it has started
};

void check_machine(const Plan& plan, Pass pass, const CostParameters& m, std::string_view function) {
  const Method method = plan.division().method;
  if (method == Method::pass_q) refuse(function, "method pass_q has no steps to walk through");
  if (pass != Pass::forward && (method == Method::stream || method == Method::ring))
    refuse(function, "method ", name_of(method), " computes gradients as gather: give a plan of that");
  check_rates(m, function);
}

}  // namespace

void check_rates(const CostParameters& machine, std::string_view function) {
  for (const auto& [name, rate] : {std::pair{"forward", machine.forward},
                                   {"backward", machine.backward},
                                   {"copying", machine.copying},
                                   {"bandwidth", machine.bandwidth}})
    if (!(rate > 0.0)) refuse(function, name, " of the machine must be positive, got ", rate);
}

std::int64_t steps_of(const Plan& plan, Pass pass) {
  return pass == Pass::backward_of_keys ? plan.sizes().num_kv_heads * plan.entries() : plan.steps();
}

std::vector<Transfer> inputs_of(const Plan& plan, Pass pass, std::int64_t step) {
  return transfers_of(needs_of(plan, pass, step), plan.ranks(), false);
}

std::vector<Transfer> results_of(const Plan& plan, Pass pass, std::int64_t step) {
  return transfers_of(products_of(plan, pass, step), plan.ranks(), true);
}

double operations_of(const Plan& plan, Pass pass, int rank, std::int64_t step) {
  if (step < 0) refuse("distributed::operations_of", "step must be 0 or more, got ", step);
  const auto qk = static_cast<double>(plan.sizes().head_dim), pv = static_cast<double>(plan.sizes().head_dim_v);
  const auto heads = static_cast<double>(group_of(plan.sizes()));
  if (pass == Pass::backward_of_keys)  // scores, dp, dv, dk
    return 2.0 * heads * (2.0 * qk + 2.0 * pv) * plan.pairs_of_keys(rank, step % plan.entries());
  const double pairs = 2.0 * heads * plan.pairs(rank, step);
  if (pass == Pass::forward) return pairs * (qk + pv);
  // scores, dp, dq; and dv, dk
  return pairs * (plan.division().exact ? 2.0 * qk + pv : 3.0 * qk + 2.0 * pv);
}

Estimate estimate(const Plan& plan, Pass pass, const CostParameters& machine) {
  check_machine(plan, pass, machine, "distributed::estimate");
  Estimate result;
  result.ranks.resize(static_cast<std::size_t>(plan.ranks()));
  StepWalk walk(machine, result.ranks);
  if (pass == Pass::backward && plan.division().exact) walk.run(PassSteps(plan, Pass::backward_of_keys, machine));
  walk.run(PassSteps(plan, pass, machine));
  for (const Cost& rank : result.ranks) result.total = std::max(result.total, rank.total);
  return result;
}

double needed_bandwidth(const Plan& plan, Pass pass, const CostParameters& machine) {
  check_machine(plan, pass, machine, "distributed::needed_bandwidth");
  double needed = 0.0;
  for (const StepKind& kind : PassSteps(plan, pass, machine).kinds) {
    std::int64_t bytes = 0;
    for (std::size_t rank = 0; rank < kind.kernels.size(); ++rank)
      bytes = std::max({bytes, kind.inputs.sent[rank] + kind.results.sent[rank],
                        kind.inputs.received[rank] + kind.results.received[rank]});
    const double seconds = *std::ranges::max_element(kind.kernels);
    if (seconds > 0.0) needed = std::max(needed, static_cast<double>(bytes) / seconds);
  }
  return needed;
}

}  // namespace saccade::distributed
