// What happens when ranks disagree, or when one fails at any step of a call.
#include <gmock/gmock.h>
#include <saccade/distributed.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "cases/failing_communicator.h"
#include "cases/local_ranks.h"
#include "support/environment.h"
#include "support/fault_count.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using cases::FailingCommunicator;
using cases::on_local_ranks;
using distributed::CommunicationError;
using distributed::Communicator;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Sharding;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A small call in which rank 1 may have something of its own.
std::vector<std::string> errors_if(
    const std::function<void(int rank, Tensor& q, ParallelConfig&, AttentionOptions&)>& change,
    std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return on_local_ranks(
      3,
      [&](Communicator& communicator) {
        ParallelConfig division{.rows = Sharding::contiguous(30, 3)};
        AttentionOptions options;
        Tensor q = random_tensor({2, 10, 4}, 1), k = random_tensor({2, 10, 4}, 2);
        change(communicator.rank(), q, division, options);
        Tensor o(q.dtype(), q.shape());
        distributed::attention(communicator, q, k, k, o, division, options);
      },
      timeout);
}

TEST(DistributedFaults, NameTheRankAndTheArgumentOnEveryRank) {
  const auto on_rank_1 = [](auto f) {
    return [f](int rank, Tensor& q, ParallelConfig& division, AttentionOptions& options) {
      if (rank == 1) f(q, division, options);
    };
  };
  EXPECT_THAT(
      errors_if(on_rank_1([](Tensor& q, auto&, auto&) {
        q = random_tensor({2, 9, 4}, 1);
      })),
      Each("[distributed::attention] rank 1: q must hold the 10 rows that the division gives to rank 1, but it "
           "has shape [2, 9, 4]"));
  EXPECT_THAT(
      errors_if(on_rank_1([](Tensor& q, auto&, auto&) { q = Tensor::copy_of(q, DType::bf16); })),
      Each("[distributed::attention] element type of q must be the same on every rank, but it is bf16 on rank "
           "1 and f32 on rank 0"));
  EXPECT_THAT(
      errors_if(on_rank_1([](auto&, auto&, AttentionOptions& o) { o.softcap = 3; })),
      Each("[distributed::attention] softcap must be the same on every rank, but rank 1 has another one than "
           "rank 0"));
  EXPECT_THAT(
      errors_if(on_rank_1([](auto&, ParallelConfig& d, auto&) { d.rows = Sharding::zigzag(30, 3); })),
      Each("[distributed::attention] the division must be the same on every rank, but rank 1 has another one "
           "than rank 0"));
  EXPECT_THAT(errors_if(on_rank_1([](auto&, auto&, AttentionOptions& o) { o.window_left = -2; })),
              Each(AllOf(StartsWith("[distributed::attention] rank 1: "), HasSubstr("window_left"))));
  EXPECT_THAT(errors_if([](int, auto&, auto&, AttentionOptions& o) { o.origin.row = 1; }),
              Each(HasSubstr("origin was given")));
  EXPECT_THAT(errors_if([](int, auto&, ParallelConfig& d, auto&) { d.method = Method::heads; }),
              Each(HasSubstr("method heads needs a kv head for each of the 3 ranks")));
}

void throw_on_last_rows(void*, const ScoreTile& tile) {
  if (tile.first_row + tile.rows > 20) throw std::domain_error("no score for row 20");
}

TEST(DistributedFaults, TellEveryRankWhatAScoreModifierThrew) {
  EXPECT_THAT(errors_if([](int, auto&, auto&, AttentionOptions& o) { o.score_modifier = throw_on_last_rows; }),
              Each("[distributed::attention] rank 2: no score for row 20"));
}

TEST(DistributedFaults, GiveUpWhenARankDoesNotCome) {
  const auto communicators = distributed::local_communicators(2);
  communicators[0]->set_timeout(std::chrono::milliseconds(200));
  const Tensor q = random_tensor({2, 10, 4}, 1);
  Tensor o(DType::f32, q.shape());
  const ParallelConfig division{.rows = Sharding::contiguous(20, 2)};
  const auto message = [&]() -> std::string {
    try {
      distributed::attention(*communicators[0], q, q, q, o, division);
    } catch (const CommunicationError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(), HasSubstr("rank 0, waiting for the arguments of other ranks: no answer within 0.2"));
  EXPECT_THAT(message(), HasSubstr("the communicator failed before: "));
}

TEST(DistributedFaults, GiveUpWhenARankStopsInTheMiddle) {
  // Rank 1 has sent its keys and is busy for longer than the others wait.
  std::vector<std::string> errors = errors_if(
      [](int rank, auto&, auto&, AttentionOptions& o) {
        o.score_modifier = [](void*, const ScoreTile&) {};
        if (rank == 1)
          o.score_modifier = [](void*, const ScoreTile&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(800));
          };
      },
      std::chrono::milliseconds(200));
  EXPECT_THAT(errors[0], HasSubstr("no answer within"));
  EXPECT_THAT(errors[2], HasSubstr("no answer within"));
}

// ---- A fault at each step ------------------------------------------------------------------------------------

enum class Fault : std::uint8_t {
  gone,   ///< it is killed: its transport fails, and sends nothing from then on
  late,   ///< it stops for longer than the others wait, then goes on
  short_  ///< its message is one byte short
};

FailingCommunicator::Fault happens(Fault fault, std::chrono::milliseconds timeout) {
  return [=](std::size_t bytes) -> std::size_t {
    if (fault == Fault::gone) throw CommunicationError("rank 1 is gone");
    if (fault == Fault::late) std::this_thread::sleep_for(2 * timeout);
    return fault == Fault::short_ && bytes > 1 ? 1 : 0;
  };
}

/// A problem of 3 kv heads and a chunk of rows for each of 3 ranks, and what a pass of it gives in one process.
class DividedPass {
 public:
  DividedPass(std::string pass, Method method) : pass_(std::move(pass)) {
    division_ = {.rows = Sharding::contiguous(kRows, 3),
                 .method = method,
                 .head_groups = method == Method::grid ? 3 : 0,
                 .chunk = kOriginAlignment};
    options_ = {.causal = Causal::top_left, .block_mask = block_mask_, .num_threads = 1};
    q_ = random_tensor({3, kRows, 4}, 1), k_ = random_tensor({3, kRows, 4}, 2);
    o_ = Tensor(DType::f32, q_.shape()), lse_ = Tensor(DType::f32, {3, kRows});
    options_.lse = lse_;
    attention(q_, k_, k_, o_, options_);
    EXPECT_THAT(run(Fault::gone, 0, std::chrono::seconds(60)), Each(std::string()));
  }

  /// The messages of rank 1 in a call that no rank disturbs.
  int messages() const { return messages_; }

  /// What each rank throws if rank 1 fails at a message, "other results" if it has others than in the first call.
  /// What messages may still read or write is kept to the end.
  std::vector<std::string> run(Fault fault, int at, std::chrono::milliseconds timeout) {
    std::vector<std::unique_ptr<FailingCommunicator>> communicators(3);
    std::vector<OfRank> tensors;
    for (int rank = 0; rank < 3; ++rank) tensors.emplace_back(*this, rank);
    std::vector<std::string> errors = on_local_ranks(
        3,
        [&](Communicator& inner) {
          const auto rank = static_cast<std::size_t>(inner.rank());
          communicators[rank] =
              std::make_unique<FailingCommunicator>(inner, rank == 1 ? at : 0, happens(fault, timeout));
          try {
            call(*communicators[rank], tensors[rank]);
          } catch (const CommunicationError& error) {
            throw std::runtime_error("CommunicationError: " + std::string(error.what()));
          }
        },
        timeout);
    if (undisturbed_.empty()) messages_ = communicators[1]->messages(), undisturbed_ = std::move(tensors);
    for (std::size_t rank = 0; rank < tensors.size(); ++rank)
      if (errors[rank].empty() && !tensors[rank].has_results_of(undisturbed_[rank]))
        errors[rank] = "other results";
    return errors;
  }

 private:
  static constexpr std::int64_t kRows = 3 * kOriginAlignment;

  /// The tensors of a rank.
  struct OfRank {
    OfRank(const DividedPass& whole, int rank)
        : q(rows(whole.q_, rank)),
          k(rows(whole.k_, rank)),
          o(rows(whole.o_, rank)),
          lse(rows(whole.lse_, rank)),
          result(DType::f32, q.shape()),
          dk(DType::f32, k.shape()),
          dv(DType::f32, k.shape()) {}

    bool has_results_of(const OfRank& other) const {
      return same_bits(result, other.result) && same_bits(dk, other.dk) && same_bits(dv, other.dv);
    }

    static Tensor rows(const Tensor& whole, int rank) {
      return Tensor::copy_of(whole.view().slice(1, rank * kRows / 3, (rank + 1) * kRows / 3));
    }

    Tensor q, k, o, lse, result, dk, dv;
  };

  void call(Communicator& communicator, OfRank& t) const {
    AttentionOptions options = options_;
    options.lse = {};
    if (pass_ == "backward")
      return distributed::attention_backward(communicator, t.q, t.k, t.k, {.o = t.o, .lse = t.lse, .dout = t.q},
                                             {.dq = t.result, .dk = t.dk, .dv = t.dv}, division_, options);
    if (pass_ == "decode") {
      options.causal = Causal::none, options.block_mask = {};
      return distributed::decode(communicator, q_.view().slice(1, 0, 2), t.k, t.k,
                                 t.result.mutable_view().slice(1, 0, 2), division_, options);
    }
    distributed::attention(communicator, t.q, t.k, t.k, t.result, division_, options);
    const bool has_other_order = division_.method == Method::ring || division_.method == Method::pass_q;
    if (!has_other_order && !same_bits(t.result, t.o)) throw std::domain_error("o differs");
  }

  std::string pass_;
  ParallelConfig division_;
  AttentionOptions options_;
  const Tensor block_mask_ = sparse_block_mask(kRows);
  Tensor q_, k_, o_, lse_;
  std::vector<OfRank> undisturbed_;  // of the first call
  int messages_ = 0;
};

#ifdef SACCADE_EMULATED
constexpr double kMostSeconds = 600.0;
#else
constexpr double kMostSeconds = 60.0;  // the threads of all calls share few cores
#endif

struct OneFault {
  std::shared_ptr<DividedPass> pass;
  std::string name;
  Fault fault = Fault::gone;
  int message = 0;
};

/// All faults of a pass, or about `most` of each kind.
void add_faults(std::vector<OneFault>& faults, const std::string& pass, Method method, int most) {
  const auto divided = std::make_shared<DividedPass>(pass, method);
  const int messages = divided->messages(), stride = std::max(1, messages / most);
  for (const Fault fault : {Fault::gone, Fault::late, Fault::short_})
    for (int at = 1; at <= messages; at += stride)
      faults.push_back({divided, pass + ", " + std::string(name_of(method)), fault, at});
}

/// Every rank ends, and soon, with its results or with a CommunicationError; the rank that is gone, and some rank
/// in any case, with the latter. The next call is as if nothing had been.
void expect_end(const OneFault& f) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> errors = f.pass->run(f.fault, f.message, std::chrono::milliseconds(80));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const std::string what =
      f.name + ", fault " + std::to_string(static_cast<int>(f.fault)) + " at message " + std::to_string(f.message);
  EXPECT_THAT(errors, Each(AnyOf("", StartsWith("CommunicationError: ")))) << what;
  EXPECT_THAT(errors[1], f.fault == Fault::gone ? StartsWith("CommunicationError: ") : StartsWith("")) << what;
  EXPECT_TRUE(f.fault == Fault::late || std::ranges::any_of(errors, [](const auto& e) { return !e.empty(); }))
      << what;
  EXPECT_LT(seconds.count(), kMostSeconds) << what;
  if (f.message > 1) return;  // it takes as long as the rest
  EXPECT_THAT(f.pass->run(Fault::gone, 0, std::chrono::seconds(60)), Each(std::string())) << what;
}

TEST(DistributedFaults, EndOnEveryRankAtWhateverMessageOneFails) {
  const int most = static_cast<int>(from_environment("SACCADE_TEST_CASES", 3));
  std::vector<OneFault> faults;
  for (const Method method :
       {Method::gather, Method::heads, Method::grid, Method::stream, Method::ring, Method::pass_q})
    add_faults(faults, "forward", method, most);
  for (const Method method : {Method::gather, Method::heads, Method::grid})
    add_faults(faults, "backward", method, most);
  add_faults(faults, "decode", Method::gather, most);
  EXPECT_GE(faults.size(), 90U);
  count_faults(faults.size());
  // Most of the time is waiting, so several go on side by side.
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (std::size_t at; (at = next++) < faults.size();) expect_end(faults[at]);
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("%zu faults\n", faults.size());
}

}  // namespace
}  // namespace saccade::test
