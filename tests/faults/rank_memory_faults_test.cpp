// Memory that runs out on one rank of a distributed call.
#include <gmock/gmock.h>
#include <saccade/distributed.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "cases/local_ranks.h"
#include "faults/allocation_faults.h"
#include "support/fault_count.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using distributed::Communicator;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Sharding;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Matcher;

constexpr int kRanks = 3;
constexpr std::int64_t kRows = kRanks * kOriginAlignment;

/// How long a rank waits for one that may never come, and for one that comes.
constexpr std::chrono::milliseconds kShort{200}, kLong{60'000};

/// What a rank works on in a call, and its results.
struct OfRank {
  OfRank(int rank, std::uint64_t seed)
      : q(random_tensor({3, kOriginAlignment, 4}, seed + static_cast<std::uint64_t>(rank))),
        row(random_tensor({3, 1, 4}, seed)),
        slopes(random_tensor({3}, seed)),
        results{{"o", Tensor(DType::f32, q.shape())},
                {"lse", Tensor(DType::f32, {3, kOriginAlignment})},
                {"dq", Tensor(DType::f32, q.shape())},
                {"dk", Tensor(DType::f32, q.shape())},
                {"dv", Tensor(DType::f32, q.shape())},
                {"dslopes", Tensor(DType::f32, {3})},
                {"o of decode", Tensor(DType::f32, row.shape())}} {}

  Tensor q, row, slopes;
  std::map<std::string, Tensor> results;
};

using DividedCall = std::function<void(Communicator&, OfRank&)>;

/// What becomes of a call in which this allocation of rank 1 fails, and of another call of the same communicators.
struct Outcome {
  using OfRanks = std::array<std::string, kRanks>;
  std::array<OfRanks, 2> errors, bits;  // of the two calls
  bool has_come = false;

  Outcome(const DividedCall& call, const FailingAllocations& failing) {
    std::vector<OfRank> first, second;
    for (int rank = 0; rank < kRanks; ++rank) first.emplace_back(rank, 10), second.emplace_back(rank, 20);
    release_workspaces();
    const SparedAllocations of_this_thread;
    const AllocationFault fault(failing);
    std::latch first_has_ended(kRanks);
    std::atomic<bool> is_lost = false;
    cases::on_local_ranks(kRanks, [&](Communicator& communicator) {
      const SparedAllocations of_this_rank;
      const auto rank = static_cast<std::size_t>(communicator.rank());
      if (failing.first > 0) communicator.set_timeout(kShort);
      errors[0][rank] = error_of(communicator, rank == 1, [&] { call(communicator, first[rank]); });
      if (!communicator.failure().empty()) is_lost = true;
      first_has_ended.arrive_and_wait();
      communicator.set_timeout(is_lost ? kShort : kLong);
      errors[1][rank] = error_of(communicator, false, [&] { call(communicator, second[rank]); });
    });
    has_come = fault.has_come();
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      bits[0][rank] = bits_of_all(first[rank].results), bits[1][rank] = bits_of_all(second[rank].results);
  }

 private:
  static std::string error_of(const Communicator& communicator, bool may_fail, const std::function<void()>& run) {
    try {
      is_spared = !may_fail;
      run();
      is_spared = true;
    } catch (const std::exception& error) {
      is_spared = true;
      const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
      return (is_memory ? "bad_alloc" : error.what()) +
             std::string(communicator.failure().empty() ? ", usable" : "");
    }
    return "";
  }
};

/// Every rank ends, with its results or with an error; the one whose memory ran out throws std::bad_alloc. Nor
/// does a later call give other results: it fails, or all ranks agreed on what happened. Returns how many
/// allocations failed.
int failures_of_rank(const DividedCall& call) {
  const Outcome undisturbed(call, {});
  for (const Outcome::OfRanks& errors : undisturbed.errors) EXPECT_THAT(errors, Each(""));
  const std::size_t one_by_one = std::min<std::size_t>(from_environment("SACCADE_TEST_CASES", 2), 30);
  int failures = 0;
  for (std::size_t n = 1; !::testing::Test::HasFailure(); n += n < one_by_one ? 1 : n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    const Outcome outcome(call, {.first = n});
    if (!outcome.has_come) break;
    const bool is_late = outcome.errors[0][1].find("no answer within") != std::string::npos;  // on a busy machine
    EXPECT_TRUE(is_late || outcome.errors[0][1].starts_with("bad_alloc")) << outcome.errors[0][1];
    failures += is_late ? 0 : 1;
    const bool is_agreed = outcome.errors[0][1].ends_with("usable");
    for (const std::size_t other : {0U, 2U}) {
      const Matcher<std::string> expected =
          is_agreed ? Matcher<std::string>(AllOf(HasSubstr("rank 1: memory ran out"), HasSubstr("usable")))
                    : Matcher<std::string>(AnyOf("", HasSubstr("no answer within")));
      EXPECT_THAT(outcome.errors[0][other], expected);
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(outcome.errors[1][rank].empty(), is_agreed) << outcome.errors[1][rank];
      for (const std::size_t of : {0U, 1U})
        EXPECT_TRUE(!outcome.errors[of][rank].empty() || outcome.bits[of][rank] == undisturbed.bits[of][rank])
            << "call " << of << " of rank " << rank;
    }
  }
  count_faults(static_cast<std::size_t>(failures));
  return failures;
}

ParallelConfig divided_by(Method method, bool exact = false) {
  return {.rows = Sharding::contiguous(kRows, kRanks),
          .method = method,
          .head_groups = method == Method::grid ? kRanks : 0,
          .chunk = kOriginAlignment,
          .exact = exact};
}

// What a call is given is made before, where nothing fails.

DividedCall forward(Method method, ScoreModifier modifier = nullptr) {
  return [division = divided_by(method), modifier, mask = sparse_block_mask(kRows)](Communicator& communicator,
                                                                                    OfRank& rank) {
    distributed::attention(
        communicator, rank.q, rank.q, rank.q, rank.results.at("o"), division,
        {.causal = Causal::top_left, .block_mask = mask, .score_modifier = modifier, .num_threads = 1});
  };
}

DividedCall backward(Method method, bool exact = false) {
  return [division = divided_by(method, exact), mask = sparse_block_mask(kRows)](Communicator& communicator,
                                                                                 OfRank& rank) {
    auto& of = rank.results;
    AttentionOptions options{.causal = Causal::top_left,
                             .block_mask = mask,
                             .alibi_slopes = rank.slopes,
                             .lse = of.at("lse"),
                             .num_threads = 1};
    distributed::attention(communicator, rank.q, rank.q, rank.q, of.at("o"), division, options);
    options.lse = {};
    distributed::attention_backward(
        communicator, rank.q, rank.q, rank.q, {.o = of.at("o"), .lse = of.at("lse"), .dout = rank.q},
        {.dq = of.at("dq"), .dk = of.at("dk"), .dv = of.at("dv"), .dalibi_slopes = of.at("dslopes")}, division,
        options);
  };
}

DividedCall decoding() {
  return [division = divided_by(Method::gather)](Communicator& communicator, OfRank& rank) {
    distributed::decode(communicator, rank.row, rank.q, rank.q, rank.results.at("o of decode"), division,
                        {.num_threads = 1});
  };
}

TEST(RankMemoryFaults, OfForward) {
  for (const Method method :
       {Method::gather, Method::heads, Method::grid, Method::stream, Method::ring, Method::pass_q}) {
    SCOPED_TRACE(name_of(method));
    EXPECT_GT(failures_of_rank(forward(method)), 4);
  }
}

TEST(RankMemoryFaults, OfCallsThatAgreeOnTheirEnd) {
  for (const Method method : {Method::gather, Method::pass_q}) {
    SCOPED_TRACE(name_of(method));
    EXPECT_GT(failures_of_rank(forward(method, [](void*, const ScoreTile&) {})), 4);
  }
}

TEST(RankMemoryFaults, OfBackward) {
  EXPECT_GT(failures_of_rank(backward(Method::gather)), 4);
  EXPECT_GT(failures_of_rank(backward(Method::gather, true)), 4);
  EXPECT_GT(failures_of_rank(backward(Method::grid)), 4);
}

TEST(RankMemoryFaults, OfDecode) { EXPECT_GT(failures_of_rank(decoding()), 4); }

}  // namespace
}  // namespace saccade::test
