// Wrong calls of distributed attention: divisions, plans, their costs, and calls by a single rank.
#include <array>

#include "hostile/attention_arguments.h"
#include "hostile/wrong_calls.h"
#include "saccade/cost_model.h"
#include "saccade/distributed.h"

namespace saccade::test {
namespace {

using namespace distributed;

constexpr int kRanks = 2;

Sharding sharding_of(Arguments& a, std::string_view name, std::int64_t length) {
  a.name("length");
  const int ranks = a.small_number("ranks", kRanks);
  const int few = ranks > 100 ? -1 : ranks;  // a list of two billion ranks takes its memory
  switch (a.below(4)) {
    case 0:
      return Sharding::contiguous(a.number(name, length), few);
    case 1:
      return Sharding::zigzag(a.number(name, length), few);
    case 2:
      return Sharding::striped(a.number(name, length), few, a.number("stripe", 2));
    default:
      return Sharding::balanced(a.number("seqlen_q", length), 9, few, {.causal = Causal::top_left});
  }
}

void call_sharding(Arguments& a) {
  const Sharding sharding = sharding_of(a, "length", 12);
  for (const std::int64_t row : {a.number("row", 0), a.number("row", 11)}) {
    const int rank = a.small_number("rank", 0);
    sharding.runs(rank);
    sharding.rows(rank);
    if (row == 0) sharding.local_row(rank, row);
  }
}

void call_runs(Arguments& a) {
  a.name("run");
  Sharding::of_runs({{{a.number("runs", 0), a.number("runs", 4)}, {6, 9}}, {{a.number("runs", 4), 6}}});
}

ParallelConfig config_of(Arguments& a) {
  for (const char* name : {"heads", "head_groups", "division", "chunk"}) a.name(name);
  ParallelConfig config{.rows = sharding_of(a, "rows", 12)};
  if (a.below(2) == 0) config.keys = sharding_of(a, "keys", 9);
  config.method =
      a.choice("method", {Method::automatic, Method::gather, Method::heads, Method::stream, Method::ring});
  if (a.below(3) == 0) config.head_groups = a.small_number("head_groups", 0);
  if (a.below(3) == 0) config.chunk = a.number("chunk", 4096);
  if (a.below(3) == 0) config.memory = a.number("memory", 1 << 20);
  config.exact = a.below(3) == 0;
  if (a.below(3) == 0) config.machine.forward = a.real("machine", 1e11);
  if (a.below(3) == 0) config.machine.bandwidth = a.real("machine", 1e9);
  return config;
}

Sizes problem_of(Arguments& a) {
  return {.batch = a.number("batch", 2),
          .num_heads = a.number("num_heads", 4),
          .num_kv_heads = a.number("num_kv_heads", 2),
          .head_dim = a.number("head_dim", 16),
          .head_dim_v = a.number("head_dim_v", 8),
          .element_bytes = a.number("element_bytes", 4)};
}

void call_plan(Arguments& a) {
  const ParallelConfig config = config_of(a);
  const Plan plan(problem_of(a), config, {.causal = Causal::top_left});
  const int rank = a.small_number("rank", 1);
  const std::int64_t step = a.number("step", 0), batch = a.number("batch", 0);
  if (plan.steps() == 0) return;
  plan.unit(rank, step);
  plan.rows(rank, step);
  plan.pairs(rank, step);
  plan.are_alike(step, a.number("step", 0));
  plan.keys(rank, step);
  for (const Plan::Piece& piece : plan.pieces(rank, batch)) plan.keys_of_call(piece, piece.keys);
  if (plan.shares_rows()) return;
  plan.pieces_of_keys(rank, batch);
  plan.rows_of_keys(rank, batch);
  plan.pairs_of_keys(rank, batch);
}

void call_costs(Arguments& a) {
  const Plan plan({.batch = 2, .num_heads = 4, .num_kv_heads = 2},
                  {.rows = Sharding::contiguous(12, kRanks), .method = Method::gather}, {});
  const Pass pass = a.choice("pass", {Pass::forward, Pass::backward});
  const std::int64_t step = a.number("step", 0);
  steps_of(plan, pass);
  inputs_of(plan, pass, step);
  results_of(plan, pass, step);
  operations_of(plan, pass, a.small_number("rank", 1), step);
  CostParameters machine;
  machine.forward = a.real("machine", 1e11);
  machine.bandwidth = a.real("machine", 1e9);
  machine.copying = a.real("machine", 1e9);
  estimate(plan, pass, machine);
  needed_bandwidth(plan, pass, machine);
}

/// A rank alone: what it is given is checked as with many.
void call_by_one_rank(Arguments& a) {
  a.name("length");
  const auto communicators = local_communicators(1);
  Communicator& alone = *communicators[0];
  ParallelConfig config{.rows = Sharding::contiguous(a.number("rows", 6), 1), .keys = Sharding::contiguous(9, 1)};
  config.method = a.choice("method", {Method::automatic, Method::gather, Method::stream});
  AttentionOptions options;
  draw_options(a, options);
  options.origin = {};
  attention(alone, a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), a.result("o", kO), config, options);
  decode(alone, a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV), a.result("o", kO), config, options);
  attention_backward(alone, a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV),
                     {a.tensor("o", kO), a.tensor("lse", kLse), a.tensor("dout", kO)},
                     {a.result("dq", kQ), a.result("dk", kK), a.result("dv", kV)}, config, options);
}

void call_communicators(Arguments& a) {
  const int ranks = a.is_wrong("ranks") ? a.one_of({0, -1}) : 2;
  const auto communicators = local_communicators(ranks);
  communicators[0]->set_timeout(std::chrono::nanoseconds(a.number("timeout", 1'000'000'000)));
}

std::vector<Caller> distributed_callers() {
  return {
      {{"Sharding::contiguous(length, ranks)", "Sharding::zigzag(length, ranks)",
        "Sharding::striped(length, ranks, stripe)", "Sharding::balanced(seqlen_q, seqlen_k, ranks)",
        "Sharding::runs(rank)", "Sharding::rows(rank)", "Sharding::local_row(rank, row)"},
       call_sharding},
      {{"Sharding::of_runs(runs)"}, call_runs},
      {{"Plan::Plan(sizes, division, function)", "Plan::unit(rank, step)", "Plan::rows(rank, step)",
        "Plan::pairs(rank, step)", "Plan::are_alike(a, b)", "Plan::keys(rank, step)", "Plan::pieces(rank, batch)",
        "Plan::keys_of_call(piece, keys)", "Plan::pieces_of_keys(rank, batch)", "Plan::rows_of_keys(rank, batch)",
        "Plan::pairs_of_keys(rank, batch)", "Sharding::contiguous(length, ranks)"},
       call_plan},
      {{"steps_of(plan, pass)", "inputs_of(plan, pass, step)", "results_of(plan, pass, step)",
        "operations_of(plan, pass, rank, step)", "estimate(plan, pass, machine)",
        "needed_bandwidth(plan, pass, machine)"},
       call_costs,
       Throws::invalid_argument,
       {"Plan"}},
      {{"sizes_of(q, k, v, function)"},
       [](Arguments& a) { sizes_of(a.tensor("q", kQ), a.tensor("k", kK), a.tensor("v", kV)); }},
      {{"attention(communicator, q, k, v, o, division)", "decode(communicator, q, k, v, o, division)",
        "attention_backward(communicator, q, k, v, outcome, gradients, division)",
        "Sharding::contiguous(length, ranks)"},
       call_by_one_rank},
      {{"local_communicators(ranks)", "Communicator::set_timeout(timeout)"}, call_communicators},
  };
}

constexpr const char* kTransport = "a transport, which the functions of distributed.h call";

const std::map<std::string, std::string> kNotCalled{
    {"name_of(method)", "a look-up of an enumeration"},
    {"Communicator::send(to, data, bytes)", kTransport},
    {"Communicator::receive(from, data, bytes)", kTransport},
    {"Communicator::is_finished(request)", kTransport},
    {"Communicator::all_gather(own, all, bytes, until)", kTransport},
    {"Communicator::fail(why, memory)", kTransport},
    {"wait(communicator, requests, until)", kTransport},
    {"Communicator::Communicator(communicator)", "saccade::mpi, whose tests need MPI"},
};

TEST(WrongCallsOfDistributed, AreRefusedInTheHousesForm) { make_wrong_calls(distributed_callers(), 2000); }

TEST(WrongCallsOfDistributed, CoverEveryFunction) {
  expect_all_called({"communicator.h", "cost_model.h", "distributed.h", "mpi.h"}, distributed_callers(),
                    kNotCalled);
}

}  // namespace
}  // namespace saccade::test
