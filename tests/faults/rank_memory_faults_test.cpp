// Memory that runs out on one rank of a distributed call.
#include <gmock/gmock.h>
#include <saccade/distributed.h>

#include <functional>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "cases/local_ranks.h"
#include "faults/allocation_faults.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using distributed::Communicator;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Sharding;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr std::int64_t kRows = kRanks * kOriginAlignment;

/// What a rank works on, and its results.
struct OfRank {
  explicit OfRank(int rank)
      : q(random_tensor({3, kOriginAlignment, 4}, 10 + static_cast<std::uint64_t>(rank))),
        row(random_tensor({3, 1, 4}, 1)),
        results{{"o", Tensor(DType::f32, q.shape())},  {"lse", Tensor(DType::f32, {3, kOriginAlignment})},
                {"dq", Tensor(DType::f32, q.shape())}, {"dk", Tensor(DType::f32, q.shape())},
                {"dv", Tensor(DType::f32, q.shape())}, {"o of decode", Tensor(DType::f32, row.shape())}} {}

  Tensor q, row;
  std::map<std::string, Tensor> results;
};

using DividedCall = std::function<void(Communicator&, OfRank&)>;

/// The errors and the bits of all ranks, where this allocation of rank 1 fails.
struct Outcome {
  std::vector<std::string> errors, bits{kRanks};
  bool has_come = false;

  Outcome(const DividedCall& call, const FailingAllocations& failing) : bits(kRanks) {
    std::vector<OfRank> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(rank);
    release_workspaces();
    const SparedAllocations of_this_thread;
    const AllocationFault fault(failing);
    errors = cases::on_local_ranks(
        kRanks,
        [&](Communicator& communicator) {
          OfRank& mine = ranks[static_cast<std::size_t>(communicator.rank())];
          if (communicator.rank() != 1) {
            const SparedAllocations of_another_rank;
            return call(communicator, mine);
          }
          try {
            call(communicator, mine);
          } catch (const std::bad_alloc&) {
            const SparedAllocations of_what_it_says;
            throw std::runtime_error("bad_alloc");
          }
        },
        failing.first == 0 ? std::chrono::seconds(60) : std::chrono::milliseconds(150));
    has_come = fault.has_come();
    for (std::size_t rank = 0; rank < kRanks; ++rank) bits[rank] = bits_of_all(ranks[rank].results);
  }
};

/// Every rank ends with its results or says what happened, and the one whose memory ran out throws std::bad_alloc.
/// The next call is as if nothing had been. Returns how many allocations failed.
int failures_of_rank(const DividedCall& call) {
  const Outcome undisturbed(call, {});
  EXPECT_THAT(undisturbed.errors, Each(""));
  const std::size_t one_by_one = from_environment("SACCADE_TEST_CASES", 4);
  int failures = 0;
  for (std::size_t n = 1; !::testing::Test::HasFailure(); n += n < one_by_one ? 1 : 1 + n / 3) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    const Outcome outcome(call, {.first = n});
    if (!outcome.has_come) break;
    ++failures;
    EXPECT_EQ(outcome.errors[1], "bad_alloc");
    for (const std::size_t other : {0U, 2U}) {
      EXPECT_THAT(outcome.errors[other], AnyOf("", HasSubstr("rank 1"), HasSubstr("no answer within")))
          << "on rank " << other;
      EXPECT_TRUE(!outcome.errors[other].empty() || outcome.bits[other] == undisturbed.bits[other]);
    }
  }
  const Outcome next(call, {});
  EXPECT_THAT(next.errors, Each(""));
  EXPECT_TRUE(next.bits == undisturbed.bits);
  return failures;
}

ParallelConfig divided_by(Method method) {
  return {.rows = Sharding::contiguous(kRows, kRanks),
          .method = method,
          .head_groups = method == Method::grid ? kRanks : 0,
          .chunk = kOriginAlignment};
}

TEST(RankMemoryFaults, OfForward) {
  for (const Method method :
       {Method::gather, Method::heads, Method::grid, Method::stream, Method::ring, Method::pass_q}) {
    SCOPED_TRACE(name_of(method));
    EXPECT_GT(failures_of_rank([&](Communicator& communicator, OfRank& rank) {
                distributed::attention(communicator, rank.q, rank.q, rank.q, rank.results.at("o"),
                                       divided_by(method), {.causal = Causal::top_left, .num_threads = 1});
              }),
              5);
  }
}

TEST(RankMemoryFaults, OfBackward) {
  for (const Method method : {Method::gather, Method::heads, Method::grid}) {
    SCOPED_TRACE(name_of(method));
    EXPECT_GT(failures_of_rank([&](Communicator& communicator, OfRank& rank) {
                auto& of = rank.results;
                distributed::attention(communicator, rank.q, rank.q, rank.q, of.at("o"), divided_by(method),
                                       {.causal = Causal::top_left, .lse = of.at("lse"), .num_threads = 1});
                distributed::attention_backward(
                    communicator, rank.q, rank.q, rank.q, {.o = of.at("o"), .lse = of.at("lse"), .dout = rank.q},
                    {.dq = of.at("dq"), .dk = of.at("dk"), .dv = of.at("dv")}, divided_by(method),
                    {.causal = Causal::top_left, .num_threads = 1});
              }),
              5);
  }
}

TEST(RankMemoryFaults, OfDecode) {
  EXPECT_GT(failures_of_rank([&](Communicator& communicator, OfRank& rank) {
              distributed::decode(communicator, rank.row, rank.q, rank.q, rank.results.at("o of decode"),
                                  divided_by(Method::gather), {.num_threads = 1});
            }),
            5);
}

}  // namespace
}  // namespace saccade::test
