// What network distributed attention needs, by the cost model (docs/distributed.md): prints the tables of that
// page.
//
//   network [--cores 1] [--gbits 10] [--forward 200] [--backward 220]
//
// --cores: of a rank, each with these Gflop/s. Causal, f32, head_dim 128.
#include <saccade/cost_model.h>
#include <saccade/distributed.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace saccade;
using namespace saccade::distributed;

Plan plan_of(std::int64_t rows, int ranks, std::int64_t heads, std::int64_t kv_heads, Method method,
             const CostParameters& machine) {
  return Plan({.num_heads = heads, .num_kv_heads = kv_heads},
              {.rows = Sharding::zigzag(rows * ranks, ranks),
               .method = method,
               .memory = std::int64_t{64} << 30,
               .machine = machine},
              {.causal = Causal::top_left});
}

/// The bandwidth at which gather hides its transfers.
void print_needs(const CostParameters& machine) {
  std::printf(
      "| rows of a rank | forward | forward, 4 query heads a kv head | backward | backward, 4 query heads |\n"
      "|---:|---:|---:|---:|---:|\n");
  for (std::int64_t rows = 512; rows <= 131072; rows *= 2) {
    std::printf("| %lld |", static_cast<long long>(rows));
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      for (const std::int64_t group : {1, 4})
        std::printf(" %.2f |", 8e-9 * needed_bandwidth(plan_of(rows, 8, 8 * group, 8, Method::gather, machine),
                                                       pass, machine));
    }
    std::printf("\n");
  }
}

/// How a forward pass grows with the number of ranks.
void print_ranks(const CostParameters& machine) {
  std::printf(
      "| ranks | rows of a rank | sequence | method | seconds | of them kernels | waiting |\n"
      "|---:|---:|---:|---|---:|---:|---:|\n");
  for (const long long rows : {1024, 8192}) {
    for (int ranks = 8; ranks <= 1024; ranks *= ranks < 64 ? 8 : ranks < 256 ? 4 : 2) {
      const Plan plan = plan_of(rows, ranks, 32, 8, Method::automatic, machine);
      const Estimate model = estimate(plan, Pass::forward, machine);
      const Cost& last = *std::ranges::max_element(model.ranks, {}, &Cost::total);
      const ParallelConfig& chosen = plan.division();
      std::printf("| %d | %lld | %lld | %s%s | %.2f | %.0f %% | %.1f %% |\n", ranks, rows, rows * ranks,
                  std::string(name_of(chosen.method)).c_str(),
                  chosen.method == Method::grid ? (" of " + std::to_string(chosen.head_groups)).c_str() : "",
                  model.total, 100 * last.kernels / model.total, 100 * last.waiting / model.total);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CostParameters machine;
  double cores = 1.0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const double number = std::atof(argv[i + 1]);
    if (name == "--cores") cores = number;
    if (name == "--gbits") machine.bandwidth = number * 1e9 / 8;
    if (name == "--forward") machine.forward = number * 1e9;
    if (name == "--backward") machine.backward = number * 1e9;
  }
  machine.forward *= cores, machine.backward *= cores;
  std::printf(
      "%.0f cores; forward %.0f, backward %.0f Gflop/s a rank; Gbit/s that a rank needs in each direction:\n\n",
      cores, 1e-9 * machine.forward, 1e-9 * machine.backward);
  print_needs(machine);
  std::printf("\n%.0f Gbit/s, 32 heads, 8 kv heads, by the model:\n\n", 8e-9 * machine.bandwidth);
  print_ranks(machine);
}
