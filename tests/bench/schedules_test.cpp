// The simulation of schedules: that it is right where the answer is known, and how well the schedules use many
// threads by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/schedules/costs.h"
#include "bench/schedules/fit.h"
#include "bench/schedules/kernels.h"
#include "bench/schedules/problems.h"
#include "bench/schedules/simulation.h"
#include "bench/schedules/tiles.h"
#include "core/parallel.h"

namespace saccade::simulation {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// ---- Virtual threads

/// The time of items of these lengths.
double seconds_of_items(int threads, const std::vector<double>& items, const ThreadCosts& costs = {}) {
  return simulate(threads, costs, [&] {
    parallel_for(max_threads(), static_cast<std::int64_t>(items.size()), 0,
                 [&](std::int64_t item, std::byte*) { spend(items[static_cast<std::size_t>(item)]); });
  });
}

TEST(VirtualThreads, TakeTheNextItemWhenTheyAreFree) {
  EXPECT_THAT(seconds_of_items(1, {2, 2, 2}), DoubleEq(6));
  EXPECT_THAT(seconds_of_items(2, {2, 2, 2}), DoubleEq(4));
  EXPECT_THAT(seconds_of_items(2, {3, 1, 1, 1}), DoubleEq(3));
  EXPECT_THAT(seconds_of_items(2, {1, 1, 1, 3}), DoubleEq(4));
  EXPECT_THAT(seconds_of_items(128, std::vector<double>(129, 1.0)), DoubleEq(2));
}

TEST(VirtualThreads, PayForEachTeam) {
  EXPECT_THAT(seconds_of_items(2, {1, 1}, {.team = 0.5}), DoubleEq(1.5));
  EXPECT_THAT(seconds_of_items(8, {1, 1}, {.team = 0.5}), DoubleEq(2.5));
  EXPECT_THAT(seconds_of_items(1, {1, 1}, {.team = 0.5}), DoubleEq(2));
}

/// Thread 1 works for a second, and waits for what thread 0 sets when it has worked for `seconds`.
double seconds_of_wait(double seconds, const ThreadCosts& costs) {
  std::atomic<std::int64_t> number = 0;
  return simulate(2, costs, [&] {
    run_on_threads(2, [&](int thread) {
      spend(thread == 0 ? seconds : 1);
      if (thread == 0) return number.store(1);
      wait_for(number, 1);
      spend(2);
    });
  });
}

TEST(VirtualThreads, WaitForEachOther) {
  EXPECT_THAT(seconds_of_wait(5, {}), DoubleEq(7));
  EXPECT_THAT(seconds_of_wait(0.5, {.notice = 0.25, .wake = 0.25}), DoubleEq(3));
  EXPECT_THAT(seconds_of_wait(5, {.notice = 0.25, .wake = 0.5}), DoubleEq(7.5));
  EXPECT_THAT(seconds_of_wait(1.0005, {.notice = 0.25, .wake = 0.5}), DoubleEq(3.2505));
}

TEST(VirtualThreads, ReportWhatWouldNeverEnd) {
  const std::atomic<std::int64_t> never = 0;
  EXPECT_THAT([&] { simulate(3, {}, [&] { run_on_threads(3, [&](int) { wait_for(never, 1); }); }); },
              ThrowsMessage<std::logic_error>(HasSubstr("all threads wait")));
  EXPECT_THAT([&] { simulate(1, {}, [&] { wait_for(never, 1); }); },
              ThrowsMessage<std::logic_error>(HasSubstr("the only thread waits")));
  EXPECT_THAT([] { simulate(2, {}, [] { run_on_threads(2, [](int) { run_on_threads(2, [](int) {}); }); }); },
              ThrowsMessage<std::logic_error>(HasSubstr("starts another team")));
}

// ---- The work of units, and what it costs

TEST(Tiles, AreCountedWhereARowSeesAKey) {
  const Problem problem{.name = "", .heads = 1, .kv_heads = 1, .rows = 100, .keys = 100, .causal = true};
  const AttentionParams p = attention_params(problem, DType::f32);
  // Rows 32-63, 64-95 and 96-99 see 2, 3 and 4 tiles of keys, the last of each with hidden keys.
  const Tiles tiles = tiles_of(p, {.row = 32, .rows = 256}, 32, {0, 100});
  EXPECT_EQ(tiles.rows, 3);
  EXPECT_EQ(tiles.pairs, 2 + 3 + 4);
  EXPECT_EQ(tiles.edges, 3);
  EXPECT_EQ(tiles_of(p, {.row = 0, .rows = 64}, 32, {64, 100}).pairs, 0);
}

TEST(Fit, FindsTheCostsOfExactTimes) {
  const std::vector<Sample<2>> samples{{{1, 10}, 23}, {{1, 20}, 43}, {{2, 1}, 8}};
  EXPECT_THAT(fit(samples), ElementsAre(DoubleNear(3, 1e-9), DoubleNear(2, 1e-9)));
}

TEST(Fit, HasNoNegativeCosts) {
  const std::vector<Sample<2>> samples{{{1, 1}, 1}, {{1, 2}, 3}};  // exactly: -1 and 2
  const auto [call, unit] = fit(samples);
  EXPECT_EQ(call, 0);
  EXPECT_THAT(unit, DoubleNear((1 / 1. + 2 / 3.) / (1 / 1. + 4 / 9.), 1e-9));
}

TEST(Costs, AreReadAsTheyAreWritten) {
  UnitCosts costs;
  costs.title = "a processor";
  costs.backward.rows_pair = 0.25, costs.decode.plan.split = 4096;
  std::stringstream text;
  write_costs(text, costs);
  const UnitCosts read = read_costs(text);
  EXPECT_EQ(read.title, costs.title);
  EXPECT_EQ(read.backward.rows_pair, 0.25);
  EXPECT_EQ(read.decode.plan.split, 4096);
}

TEST(Costs, RefuseAnIncompleteFile) {
  std::stringstream nothing("a processor\n"), unknown, word("a processor\nforward.call fast\n");
  write_costs(unknown, {});
  unknown << "forward.calls 1\n";
  EXPECT_THAT([&] { read_costs(nothing); },
              ThrowsMessage<std::runtime_error>(HasSubstr("no number threads.team")));
  EXPECT_THAT([&] { read_costs(word); }, ThrowsMessage<std::runtime_error>(HasSubstr("forward.call")));
  std::stringstream both(unknown.str());
  EXPECT_THAT([&] { read_costs(both); }, ThrowsMessage<std::runtime_error>(HasSubstr("no cost 'forward.calls'")));
  EXPECT_THAT([] { read_costs(std::string("nowhere")); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be read")));
}

// ---- The library's schedules

/// One causal head of three blocks.
TEST(Schedules, ParkWhatComesBeforeItsTurn) {
  const Problem problem{
      .name = "", .pass = Pass::backward, .heads = 1, .kv_heads = 1, .rows = 192, .keys = 192, .causal = true};
  UnitCosts costs;
  costs.backward.plan = {.block_q = 64, .block_k = 64, .dq = 64, .tile_q = 32, .scratch = 64, .parked = 64};
  costs.backward.logits_call = 3, costs.backward.rows_call = 1;
  EXPECT_THAT(seconds_of(problem, costs, 1), DoubleEq(6 * (3 + 1)));
  // Thread 0 adds block 0 to rows 0, 1 and 2 until 4, 8 and 12. Thread 1 has the logits of block 1 for rows 1 and
  // 2 at 3 and 6, and those of block 2 at 9, adds the first until 10, and when thread 0 has ended the others until
  // 13 and 14. If it waited, it would add the first at 8, and the last would end at 16.
  EXPECT_THAT(seconds_of(problem, costs, 2), DoubleEq(14));
}

/// The least efficiency with 16 and 64 threads, for f32 on vectors and bf16 on AMX tiles.
struct Least {
  double f32_16, f32_64, bf16_16, bf16_64;
};
const std::map<std::string, Least> kLeast = {
    {"forward, 1 head, S 16384", {0.96, 0.96, 0.99, 0.97}},
    {"forward, 8 heads, S 4096", {0.99, 0.96, 0.98, 0.96}},
    {"forward, 8 heads, S 4096, causal", {0.98, 0.94, 0.98, 0.93}},
    {"forward, 32 heads over 8, S 1024, causal", {0.99, 0.95, 0.96, 0.83}},
    {"forward, batch 64, 12 heads, S 128", {0.99, 0.98, 0.98, 0.94}},
    {"forward, 16 documents of 64 to 3904 tokens, 8 heads, causal", {0.98, 0.96, 0.97, 0.87}},
    {"backward, 1 head, S 4096", {0.91, 0.22, 0.86, 0.21}},
    {"backward, 8 heads, S 4096", {0.99, 0.96, 0.99, 0.95}},
    {"backward, 8 heads, S 4096, causal", {0.97, 0.91, 0.95, 0.83}},
    {"backward, batch 64, 12 heads, S 128", {0.97, 0.90, 0.98, 0.93}},
    {"decode, 1 token, 32768 keys, 32 heads over 8", {0.98, 0.95, 0.98, 0.93}},
    {"decode, batch 16, 1 token each, 4096 keys, 32 heads over 8", {0.99, 0.98, 0.99, 0.96}},
};

UnitCosts costs_of(const std::string& name) {
  return read_costs(SACCADE_SOURCE_DIR "/bench/schedules/costs/" + name + ".txt");
}

class Efficiency : public testing::TestWithParam<Problem> {};

TEST_P(Efficiency, IsAtLeastWhatItWas) {
  const Problem& problem = GetParam();
  ASSERT_TRUE(kLeast.contains(problem.name));
  const Least& least = kLeast.at(problem.name);
  const UnitCosts f32 = costs_of("f32"), bf16 = costs_of("bf16");
  EXPECT_GE(efficiency(problem, f32, 16), least.f32_16);
  EXPECT_GE(efficiency(problem, f32, 64), least.f32_64);
  EXPECT_GE(efficiency(problem, bf16, 16), least.bf16_16);
  EXPECT_GE(efficiency(problem, bf16, 64), least.bf16_64);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Efficiency, testing::ValuesIn(problems().begin(), problems().end()),
                         [](const auto& test) { return "Problem" + std::to_string(test.index); });

}  // namespace
}  // namespace saccade::simulation
