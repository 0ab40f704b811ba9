// Causal attention over several processes: "mpirun -n 4 distributed_attention". Each holds its rows of the
// sequence, and compares what it gets with the whole, which it computes alone.
#include <saccade/mpi.h>
#include <saccade/saccade.h>

#include <cstdio>
#include <cstring>

namespace {

using saccade::Tensor;
using saccade::distributed::Sharding;

/// The rows of a rank, one run after the other.
Tensor rows_of(const Tensor& whole, const Sharding& sharding, int rank) {
  Tensor rows(whole.dtype(), {whole.shape(0), sharding.rows(rank), whole.shape(2)});
  std::int64_t at = 0;
  for (const auto& run : sharding.runs(rank)) {
    copy(whole.view().slice(1, run.begin, run.end), rows.mutable_view().slice(1, at, at + run.size()));
    at += run.size();
  }
  return rows;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

bool attend() {
  saccade::mpi::Communicator ranks(MPI_COMM_WORLD);
  const Sharding sharding = Sharding::zigzag(4096, ranks.size());
  saccade::TorchGenerator random(42);
  const Tensor q = random.randn({8, 4096, 64}), k = random.randn({2, 4096, 64}), v = random.randn({2, 4096, 64});
  const saccade::AttentionOptions options{.causal = saccade::Causal::top_left};

  const Tensor own_q = rows_of(q, sharding, ranks.rank()), own_k = rows_of(k, sharding, ranks.rank()),
               own_v = rows_of(v, sharding, ranks.rank());
  Tensor o(own_q.dtype(), own_q.shape());
  saccade::distributed::attention(ranks, own_q, own_k, own_v, o, {.rows = sharding}, options);

  const bool is_same = same_bits(o, rows_of(saccade::attention(q, k, v, options), sharding, ranks.rank()));
  std::printf("rank %d of %d: %lld rows, %s\n", ranks.rank(), ranks.size(),
              static_cast<long long>(sharding.rows(ranks.rank())),
              is_same ? "bit-identical to one process" : "NOT bit-identical to one process");
  return is_same;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  const bool is_same = attend();
  MPI_Finalize();
  return is_same ? 0 : 1;
}
