// Distributed attention: long sequences by every method.
#include <gmock/gmock.h>
#include <saccade/decode.h>
#include <saccade/distributed.h>
#include <saccade/runtime.h>

#include <array>

#include "cases/local_ranks.h"
#include "support/environment.h"
#include "support/refusal.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::on_local_ranks;
using distributed::Communicator;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Run;
using distributed::Sharding;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The rows of a rank of [..., rows, dim].
Tensor own(const Tensor& whole, const Sharding& sharding, int rank, int dim = -2) {
  if (dim < 0) dim += whole.rank();
  Shape shape = whole.shape();
  shape[static_cast<std::size_t>(dim)] = sharding.rows(rank);
  Tensor result(whole.dtype(), shape);
  std::int64_t at = 0;
  for (const Run& run : sharding.runs(rank)) {
    copy(whole.view().slice(dim, run.begin, run.end), result.mutable_view().slice(dim, at, at + run.size()));
    at += run.size();
  }
  return result;
}

// ---- Shardings -------------------------------------------------------------------------------------------------

TEST(Sharding, DividesEvenlyAndUnevenly) {
  EXPECT_THAT(Sharding::contiguous(10, 3).runs(0), ElementsAre(distributed::Run{0, 4}));
  EXPECT_THAT(Sharding::contiguous(10, 3).runs(2), ElementsAre(distributed::Run{7, 10}));
  EXPECT_THAT(Sharding::zigzag(10, 2).runs(0), ElementsAre(distributed::Run{0, 3}, distributed::Run{8, 10}));
  EXPECT_THAT(Sharding::zigzag(10, 2).runs(1), ElementsAre(distributed::Run{3, 6}, distributed::Run{6, 8}));
  EXPECT_THAT(Sharding::striped(10, 2, 3).runs(0), ElementsAre(distributed::Run{0, 3}, distributed::Run{6, 9}));
  EXPECT_EQ(Sharding::striped(10, 2, 3).rows(1), 4);
  EXPECT_EQ(Sharding::striped(10, 2, 3).local_row(0, 7), 4);
  EXPECT_EQ(Sharding::contiguous(1, 3).rows(2), 0);
}

TEST(Sharding, BalancesVisiblePairs) {
  const Sharding causal = Sharding::balanced(1000, 1000, 4, {.causal = Causal::top_left});
  EXPECT_THAT(causal.runs(0),
              ElementsAre(distributed::Run{0, 500}));  // half of the rows have a quarter of the pairs
  EXPECT_NEAR(static_cast<double>(causal.runs(3)[0].begin), 866, 1);
  EXPECT_THAT(Sharding::balanced(1000, 1000, 4, {.causal = Causal::top_left, .window_left = 10}).runs(1)[0].begin,
              ::testing::AllOf(::testing::Gt(240), ::testing::Lt(260)));
}

TEST(Sharding, RefusesGapsAndOverlaps) {
  EXPECT_THAT(refusal([] { Sharding::of_runs({{{0, 3}}, {{4, 6}}}); }), HasSubstr("none has row 3"));
  EXPECT_THAT(refusal([] { Sharding::of_runs({{{0, 3}}, {{2, 6}}}); }), HasSubstr("two have row 2"));
  EXPECT_THAT(refusal([] { Sharding::of_runs({{{3, 6}, {0, 3}}}); }), HasSubstr("must ascend"));
  EXPECT_THAT(refusal([] { Sharding::contiguous(4, 0); }), HasSubstr("ranks must be at least 1, got 0"));
}

// ---- Long sequences --------------------------------------------------------------------------------------------

struct LongCase {
  const char* name;
  std::int64_t rows, keys;
  AttentionOptions options;
};

/// One head, 2 kv heads' worth of queries, [heads, rows, 4], against one process.
void compare_long(const LongCase& one, ParallelConfig division, int ranks) {
  const Tensor q = random_tensor({4, one.rows, 4}, 1), k = random_tensor({2, one.keys, 4}, 2),
               v = random_tensor({2, one.keys, 4}, 3);
  Tensor o(DType::f32, q.shape()), lse(DType::f32, {4, one.rows});
  AttentionOptions options = one.options;
  options.num_threads = 1;
  options.lse = lse;
  attention(q, k, v, o, options);
  const Sharding& keys = division.keys.ranks() > 0 ? division.keys : division.rows;
  const std::vector<std::string> errors = on_local_ranks(ranks, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    Tensor wanted = own(o, division.rows, rank), wanted_lse = own(lse, division.rows, rank, 1);
    Tensor own_o(DType::f32, wanted.shape()), own_lse(DType::f32, wanted_lse.shape());
    AttentionOptions of_rank = options;
    of_rank.lse = own_lse;
    distributed::attention(communicator, own(q, division.rows, rank), own(k, keys, rank), own(v, keys, rank),
                           own_o, division, of_rank);
    if (!same_bits(own_o, wanted)) throw std::runtime_error("o differs");
    if (!same_bits(own_lse, wanted_lse)) throw std::runtime_error("lse differs");
  });
  EXPECT_THAT(errors, Each(std::string())) << one.name << ", " << name_of(division.method);
}

/// Counts the bytes of rows that a rank sends to each other rank.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& inner)
      : sent(static_cast<std::size_t>(inner.size())), inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request send(int to, const void* data, std::size_t bytes) override {
    sent[static_cast<std::size_t>(to)] += bytes;
    return inner_.send(to, data, bytes);
  }
  Request receive(int from, void* data, std::size_t bytes) override { return inner_.receive(from, data, bytes); }
  bool is_finished(Request request) override { return inner_.is_finished(request); }
  void all_gather(const void* own, void* all, std::size_t bytes,
                  std::chrono::steady_clock::time_point until) override {
    inner_.all_gather(own, all, bytes, until);
  }

  std::vector<std::size_t> sent;

 private:
  Communicator& inner_;
};

TEST(Distributed, NamesTheTensorThatIsTooLarge) {
  const Tensor q = random_tensor({2, 6, 4}, 1);
  constexpr std::int64_t kHuge = (std::int64_t{1} << 40) + 1;
  const TensorView nothing(static_cast<const float*>(nullptr), {2, 0, kHuge});
  const std::vector<std::string> errors = on_local_ranks(2, [&](Communicator& communicator) {
    Tensor o(DType::f32, q.shape());
    distributed::attention(communicator, q, nothing, nothing, o, {.rows = Sharding::contiguous(12, 2)});
  });
  EXPECT_THAT(errors,
              Each(HasSubstr("rank 0: k has a dimension longer than 2^40: its shape is [2, 0, 1099511627777]")));
}

TEST(Distributed, SendsTheWindowOnlyOverEachBoundary) {
  constexpr std::int64_t kWindow = 100, kRows = 1000, kKvHeads = 2, kDim = 8;
  const ParallelConfig division{.rows = Sharding::contiguous(kRows, 4)};
  const std::vector<std::string> errors = on_local_ranks(4, [&](Communicator& communicator) {
    CountingCommunicator counting(communicator);
    const Tensor q = random_tensor({4, kRows / 4, kDim}, 1), k = random_tensor({kKvHeads, kRows / 4, kDim}, 2);
    Tensor o(DType::f32, q.shape());
    distributed::attention(counting, q, k, k, o, division,
                           {.causal = Causal::top_left, .window_left = kWindow, .num_threads = 1});
    std::vector<std::size_t> wanted(4);
    const auto next = static_cast<std::size_t>(communicator.rank()) + 1;
    if (next < 4) wanted[next] = kWindow * kKvHeads * 2 * kDim * sizeof(float);
    if (counting.sent != wanted) throw std::runtime_error("sent " + ::testing::PrintToString(counting.sent));
  });
  EXPECT_THAT(errors, Each(std::string()));
}

TEST(Distributed, HasTheBitsOfOneProcessOnLongSequences) {
  const Tensor slopes = alibi_slopes(4);
  const std::array cases{
      LongCase{"causal", 1500, 21000, {.causal = Causal::top_left, .query_offset = 17000}},
      LongCase{"window and dropout",
               2000,
               21000,
               {.causal = Causal::top_left,
                .query_offset = 15000,
                .window_left = 6000,
                .dropout_p = 0.3,
                .dropout_seed = 5}},
      LongCase{"all keys, slopes", 700, 13001, {.softcap = 20, .alibi_slopes = slopes}},
  };
  std::size_t turn = 0;
  for (const Method method : {Method::gather, Method::stream, Method::heads}) {
    for (const LongCase& one : one_if_slow(cases, ++turn)) {
      const int ranks = method == Method::heads ? 2 : 3;
      compare_long(one,
                   {.rows = Sharding::zigzag(one.rows, ranks),
                    .keys = Sharding::zigzag(one.keys, ranks),
                    .method = method,
                    .chunk = 8192},
                   ranks);
      compare_long(one,
                   {.rows = Sharding::contiguous(one.rows, ranks),
                    .keys = Sharding::striped(one.keys, ranks, 1000),
                    .method = method,
                    .chunk = 4096},
                   ranks);
    }
  }
}

TEST(Distributed, DifferentiatesOverAllKeysWhereAttentionStreams) {
  const Tensor q = random_tensor({2, 60, 4}, 1), k = random_tensor({2, 9000, 4}, 2),
               v = random_tensor({2, 9000, 4}, 3), dout = random_tensor({2, 60, 4}, 4);
  Tensor o(DType::f32, q.shape()), lse(DType::f32, {2, 60}), dq(DType::f32, q.shape());
  Tensor dk(DType::f32, k.shape()), dv(DType::f32, v.shape());
  attention(q, k, v, o, {.lse = lse, .num_threads = 1});
  attention_backward(q, k, v, {o, lse, dout, {}}, {dq, dk, dv, {}, {}, {}}, {.num_threads = 1});
  ParallelConfig division{.rows = Sharding::contiguous(60, 2), .keys = Sharding::contiguous(9000, 2)};
  division.chunk = kOriginAlignment;
  division.memory = 0;  // automatic: attention() streams
  const std::vector<std::string> errors = on_local_ranks(2, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const auto rows = [&](const Tensor& whole) { return own(whole, division.rows, rank); };
    const Tensor own_k = own(k, division.keys, rank), own_v = own(v, division.keys, rank);
    Tensor own_o(DType::f32, {2, 30, 4}), own_lse(DType::f32, {2, 30}), own_dq(DType::f32, {2, 30, 4});
    Tensor own_dk(DType::f32, own_k.shape()), own_dv(DType::f32, own_v.shape());
    distributed::attention(communicator, rows(q), own_k, own_v, own_o, division,
                           {.lse = own_lse, .num_threads = 1});
    distributed::attention_backward(communicator, rows(q), own_k, own_v, {own_o, own_lse, rows(dout), {}},
                                    {own_dq, own_dk, own_dv, {}, {}, {}}, division, {.num_threads = 1});
    if (!same_bits(own_o, rows(o))) throw std::runtime_error("o differs");
    if (!same_bits(own_dq, rows(dq))) throw std::runtime_error("dq differs");
  });
  EXPECT_THAT(errors, Each(std::string()));
}

TEST(Distributed, StreamsPackedDocumentsWithTheBitsOfOneProcess) {
  const std::int64_t begins[] = {0, 100, 9100, 9100, 20000};
  const TensorView cu_seqlens(begins, {5});
  const Tensor q = random_tensor({20000, 2, 4}, 1), k = random_tensor({20000, 1, 4}, 2);
  const AttentionOptions options{.causal = Causal::top_left,
                                 .window_left = 5000,
                                 .cu_seqlens_q = cu_seqlens,
                                 .cu_seqlens_k = cu_seqlens,
                                 .dropout_p = 0.2,
                                 .num_threads = 1};
  const Tensor o = attention(q, k, k, options);
  constexpr std::array kMethods{Method::stream, Method::gather};
  for (const Method method : one_if_slow(kMethods, 0)) {
    const ParallelConfig division{.rows = Sharding::zigzag(20000, 3), .method = method, .chunk = 4096};
    EXPECT_THAT(on_local_ranks(3,
                               [&](Communicator& communicator) {
                                 const Tensor wanted = own(o, division.rows, communicator.rank(), 0);
                                 const Tensor keys = own(k, division.rows, communicator.rank(), 0);
                                 Tensor result(DType::f32, wanted.shape());
                                 distributed::attention(communicator,
                                                        own(q, division.rows, communicator.rank(), 0), keys, keys,
                                                        result, division, options);
                                 if (!same_bits(result, wanted)) throw std::runtime_error("o differs");
                               }),
                Each(std::string()))
        << name_of(method);
  }
}

TEST(Distributed, DecodesALongCacheWithTheBitsOfOneProcess) {
  const Tensor q = random_tensor({4, 3, 8}, 1), k = random_tensor({2, 30000, 8}, 2),
               v = random_tensor({2, 30000, 8}, 3);
  for (const std::int64_t window : {std::int64_t{-1}, std::int64_t{9000}}) {
    const AttentionOptions options{.causal = Causal::bottom_right, .window_left = window, .num_threads = 1};
    const Tensor o = decode(q, k, v, options);
    const ParallelConfig division{.keys = Sharding::striped(30000, 3, 2 * kDecodeSplitKeys)};
    EXPECT_THAT(on_local_ranks(3,
                               [&](Communicator& communicator) {
                                 Tensor result(DType::f32, o.shape());
                                 distributed::decode(communicator, q, own(k, division.keys, communicator.rank()),
                                                     own(v, division.keys, communicator.rank()), result, division,
                                                     options);
                                 if (!same_bits(result, o)) throw std::runtime_error("o differs");
                               }),
                Each(std::string()));
  }
}

}  // namespace
}  // namespace saccade::test
