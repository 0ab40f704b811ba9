// The cost model beside a simulation of every message: the ranks of a plan under SimGrid's SMPI, which needs no
// network and no memory for their tensors. bench/mpi/simulate builds and runs it.
//
//   smpirun ... simulated [--rows 1024] [--kv-heads 4] [--group 1] [--method gather|stream|ring] [--window -1]
//                         [--backward] [--contiguous]
//
// Each rank sends and receives the messages of distributed::attention() (or of what attention_backward() does by
// rows) in its order, between all ranks that exchange keys; kernels take the seconds of the model. Causal, zigzag
// unless --contiguous.
#include <saccade/cost_model.h>
#include <saccade/distributed.h>
#include <smpi/smpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace saccade;
using namespace saccade::distributed;

struct Settings {
  std::map<std::string, std::string> given;
  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : std::atoll(found->second.c_str());
  }
};

/// A rank that goes through the steps as src/distributed/forward.cpp and backward_rows.cpp do.
class SimulatedRank {
 public:
  SimulatedRank(const Plan& plan, Pass pass, const CostParameters& machine)
      : plan_(plan), pass_(pass), machine_(machine), memory_(SMPI_SHARED_MALLOC(kMemory)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  }
  ~SimulatedRank() { SMPI_SHARED_FREE(memory_); }

  double run() {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    post_keys(0);
    for (std::int64_t step = 0; step < plan_.steps(); ++step) {
      wait(slot(keys_, step).receives);
      if (step + 1 < plan_.steps()) post_keys(step + 1);
      const double rate = pass_ == Pass::forward ? machine_.forward : machine_.backward;
      smpi_execute(machine_.per_step + operations_of(plan_, pass_, rank_, step) / rate);
      if (pass_ == Pass::forward) continue;
      post_sums(step);
      if (step > 0) add_up(step - 1);
    }
    if (pass_ != Pass::forward) add_up(plan_.steps() - 1);
    for (const std::int64_t step : {0, 1}) wait(slot(keys_, step).sends), wait(slot(sums_, step).sends);
    return MPI_Wtime() - begin;
  }

 private:
  static constexpr std::size_t kMemory = std::size_t{64} << 20;  // the largest message

  struct Slot {
    std::vector<MPI_Request> receives, sends;
    std::int64_t bytes_received = 0;
  };
  using Slots = Slot[2];
  static Slot& slot(Slots& slots, std::int64_t step) { return slots[step % 2]; }

  static void wait(std::vector<MPI_Request>& requests) {
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    requests.clear();
  }

  /// The numbers of keys in the messages from the holder of keys to a rank that sees them, which share one
  /// connection: simulated as a single message.
  std::vector<std::int64_t> messages(int holder, int rank, std::int64_t step) const {
    std::vector<std::int64_t> keys;
    for (const Run& seen : plan_.keys(rank, step)) {
      for (const Run& held : plan_.division().keys.runs(holder)) {
        const std::int64_t size = std::min(seen.end, held.end) - std::max(seen.begin, held.begin);
        if (size > 0) keys.insert(keys.end(), {size, size});  // k and v
      }
    }
    return keys;
  }

  void post_keys(std::int64_t step) {
    post(slot(keys_, step), [&](int from, int to) { return messages(from, to, step); });
  }
  void post_sums(std::int64_t step) {
    post(slot(sums_, step), [&](int from, int to) { return messages(to, from, step); });
  }

  void post(Slot& slot, const auto& keys_of_messages) {
    wait(slot.sends);
    slot.bytes_received = 0;
    std::int64_t sent = 0, count = 0;
    const int ranks = plan_.ranks();
    const std::int64_t row = plan_.sizes().head_dim * plan_.sizes().element_bytes;
    std::vector<std::pair<int, int>> sends, receives;
    for (int i = 1; i < ranks; ++i) {
      const int from = (rank_ + ranks - i) % ranks, to = (rank_ + i) % ranks;
      const auto add_all = [&](const std::vector<std::int64_t>& all, int rank, auto& messages) {
        const std::int64_t keys = std::accumulate(all.begin(), all.end(), std::int64_t{0});
        count += static_cast<std::int64_t>(all.size());
        if (keys > 0) messages.emplace_back(rank, static_cast<int>(keys * row));
        return keys * row;
      };
      slot.bytes_received += add_all(keys_of_messages(from, rank_), from, receives);
      sent += add_all(keys_of_messages(rank_, to), to, sends);
    }
    smpi_execute(static_cast<double>(sent) / machine_.copying + static_cast<double>(count) * machine_.per_message);
    for (const auto& [from, bytes] : receives)
      MPI_Irecv(memory_, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, &slot.receives.emplace_back());
    for (const auto& [to, bytes] : sends)
      MPI_Isend(memory_, bytes, MPI_BYTE, to, 1, MPI_COMM_WORLD, &slot.sends.emplace_back());
  }

  void add_up(std::int64_t step) {
    Slot& one = slot(sums_, step);
    wait(one.receives);
    smpi_execute(static_cast<double>(one.bytes_received) / machine_.copying);
  }

  const Plan& plan_;
  Pass pass_;
  CostParameters machine_;
  void* memory_;
  int rank_ = 0;
  Slots keys_, sums_;
};

void simulate(const Settings& settings) {
  int ranks = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::int64_t rows = settings.number("--rows", 1024), kv_heads = settings.number("--kv-heads", 4);
  const bool contiguous = settings.given.contains("--contiguous");
  ParallelConfig division{
      .rows = contiguous ? Sharding::contiguous(rows * ranks, ranks) : Sharding::zigzag(rows * ranks, ranks),
      .method = Method::gather};
  for (const Method method : {Method::stream, Method::ring})
    if (settings.given.contains("--method") && settings.given.at("--method") == name_of(method))
      division.method = method;
  const Plan plan({.num_heads = kv_heads * settings.number("--group", 1), .num_kv_heads = kv_heads}, division,
                  {.causal = Causal::top_left, .window_left = settings.number("--window", -1)});
  const Pass pass = settings.given.contains("--backward") ? Pass::backward : Pass::forward;
  const CostParameters machine;
  double own = SimulatedRank(plan, pass, machine).run(), simulated = 0.0;
  MPI_Reduce(&own, &simulated, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank > 0) return;
  const Estimate model = estimate(plan, pass, machine);
  std::printf("| %d | %lld | %s, %s%s | %.4f s | %.4f s | %+.1f %% | %.0f %% |\n", ranks,
              static_cast<long long>(rows), std::string(name_of(division.method)).c_str(),
              pass == Pass::forward ? "forward" : "backward", contiguous ? ", contiguous" : "", simulated,
              model.total, 100 * (model.total / simulated - 1), 100 * model.ranks[0].waiting / model.total);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
    settings.given[name] = has_value ? argv[++i] : "";
  }
  simulate(settings);
  MPI_Finalize();
}
