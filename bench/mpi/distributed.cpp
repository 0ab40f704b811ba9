// Distributed attention over MPI beside one process, by turns in one run:
//
//   mpirun -n 2 mpi_bench [--seqlen 16384] [--heads 8] [--kv-heads 8] [--head-dim 128] [--threads 1] [--samples 5]
//                         [--method gather] [--backward]
//
// Rank 0 prints the best and median times, and the ratio of the speed of all ranks to that of one process with as
// many threads as all ranks have together.
#include <saccade/backward.h>
#include <saccade/distributed.h>
#include <saccade/mpi.h>
#include <saccade/runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace saccade;

Tensor normal(Shape shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  Tensor result(DType::f32, std::move(shape));
  for (float& x : result.values<float>()) x = draw(random);
  return result;
}

Tensor own(const Tensor& whole, const distributed::Sharding& sharding, int rank) {
  Shape shape = whole.shape();
  shape[1] = sharding.rows(rank);
  Tensor result(whole.dtype(), shape);
  std::int64_t at = 0;
  for (const distributed::Run& run : sharding.runs(rank)) {
    copy(whole.view().slice(1, run.begin, run.end), result.mutable_view().slice(1, at, at + run.size()));
    at += run.size();
  }
  return result;
}

struct Problem {
  Tensor q, k, v, o, lse, dout, dq, dk, dv;

  explicit Problem(std::int64_t heads, std::int64_t kv_heads, std::int64_t seqlen, std::int64_t dim)
      : q(normal({heads, seqlen, dim}, 1)),
        k(normal({kv_heads, seqlen, dim}, 2)),
        v(normal({kv_heads, seqlen, dim}, 3)),
        dout(normal({heads, seqlen, dim}, 4)) {
    make_results();
  }
  Problem(const Problem& whole, const distributed::Sharding& sharding, int rank)
      : q(own(whole.q, sharding, rank)),
        k(own(whole.k, sharding, rank)),
        v(own(whole.v, sharding, rank)),
        dout(own(whole.dout, sharding, rank)) {
    make_results();
  }

 private:
  void make_results() {
    o = dq = Tensor(DType::f32, q.shape());
    dk = dv = Tensor(DType::f32, k.shape());
    lse = Tensor(DType::f32, {q.shape(0), q.shape(1)});
  }
};

/// Waits without keeping a processor busy.
void meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) usleep(500);
  }
}

double seconds_of(const auto& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Settings {
  std::map<std::string, std::string> given;
  std::int64_t number(const std::string& name, std::int64_t otherwise) const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : std::atoll(found->second.c_str());
  }
};

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

void measure(const Settings& settings) {
  mpi::Communicator communicator(MPI_COMM_WORLD);
  const int ranks = communicator.size(), rank = communicator.rank();
  const std::int64_t heads = settings.number("--heads", 8), seqlen = settings.number("--seqlen", 16384);
  const bool backward = settings.given.contains("--backward");
  Problem whole(heads, settings.number("--kv-heads", heads), seqlen, settings.number("--head-dim", 128));
  distributed::ParallelConfig division{.rows = distributed::Sharding::zigzag(seqlen, ranks)};
  for (const auto method : {distributed::Method::gather, distributed::Method::heads, distributed::Method::stream,
                            distributed::Method::ring})
    if (settings.given.contains("--method") && settings.given.at("--method") == name_of(method))
      division.method = method;
  Problem part(whole, division.rows, rank);
  const int threads = static_cast<int>(settings.number("--threads", 1));
  const auto alone = [&] {
    const AttentionOptions options{.causal = Causal::top_left, .lse = whole.lse, .num_threads = threads * ranks};
    attention(whole.q, whole.k, whole.v, whole.o, options);
    if (backward)
      attention_backward(whole.q, whole.k, whole.v, {whole.o, whole.lse, whole.dout, {}},
                         {whole.dq, whole.dk, whole.dv, {}, {}, {}}, options);
  };
  const auto together = [&] {
    const AttentionOptions options{.causal = Causal::top_left, .lse = part.lse, .num_threads = threads};
    distributed::attention(communicator, part.q, part.k, part.v, part.o, division, options);
    if (backward)
      distributed::attention_backward(communicator, part.q, part.k, part.v, {part.o, part.lse, part.dout, {}},
                                      {part.dq, part.dk, part.dv, {}, {}, {}}, division, options);
  };
  std::vector<double> one, all;
  for (std::int64_t i = 0; i <= settings.number("--samples", 5); ++i) {
    meet();
    const double time = rank == 0 ? seconds_of(alone) : 0.0;
    meet();
    const double shared = seconds_of([&] { together(), meet(); });
    if (i > 0) one.push_back(time), all.push_back(shared);  // the first call warms up
  }
  if (rank > 0) return;
  std::printf(
      "%s, S %lld, %lld heads, zigzag, %s, %d ranks of %d: best %.1f ms, median %.1f; one process: %.1f, %.1f; "
      "speed %.3f, %.3f\n",
      backward ? "forward and backward" : "forward", static_cast<long long>(seqlen), static_cast<long long>(heads),
      std::string(name_of(division.method)).c_str(), ranks, threads, 1e3 * *std::ranges::min_element(all),
      1e3 * median(all), 1e3 * *std::ranges::min_element(one), 1e3 * median(one),
      *std::ranges::min_element(one) / *std::ranges::min_element(all), median(one) / median(all));
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    settings.given[name] = i + 1 < argc && argv[i + 1][0] != '-' ? argv[++i] : "";
  }
  measure(settings);
  MPI_Finalize();
}
