// Plans of distributed calls, for every number of ranks in one process: against the definition of the options, row
// by row and key by key.
#include "saccade/distributed.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cases/random.h"
#include "saccade/cost_model.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using cases::Random;
using distributed::Method;
using distributed::ParallelConfig;
using distributed::Pass;
using distributed::Plan;
using distributed::Run;
using distributed::Sharding;
using ::testing::ElementsAreArray;

TensorView numbers(const std::vector<std::int64_t>& list) {
  return {list.data(), {static_cast<std::int64_t>(list.size())}};
}

/// A problem without tensors.
struct Problem {
  std::int64_t seqlen_q = 0, seqlen_k = 0;
  distributed::Sizes sizes{};
  AttentionOptions options{};
  std::vector<std::int64_t> offsets, lengths, starts, documents_q, documents_k;

  /// The rows and keys of an entry or document in the sequence.
  Run rows(std::int64_t b) const {
    return documents_q.empty() ? Run{0, seqlen_q} : Run{documents_q[at(b)], documents_q[at(b) + 1]};
  }
  Run keys(std::int64_t b) const {
    return documents_k.empty() ? Run{0, seqlen_k} : Run{documents_k[at(b)], documents_k[at(b) + 1]};
  }
  std::int64_t entries() const {
    return documents_q.empty() ? sizes.batch : static_cast<std::int64_t>(documents_q.size()) - 1;
  }

  /// Whether a row sees a key by position and length, both counted in entry b: what docs/options.md says.
  bool sees(std::int64_t b, std::int64_t row, std::int64_t key) const {
    const std::int64_t length = lengths.empty() ? keys(b).size() : std::min(lengths[at(b)], keys(b).size());
    if (key >= length || (!starts.empty() && key < starts[at(b)])) return false;
    std::int64_t position = row + options.query_offset.value_or(0);
    if (!offsets.empty()) position = row + offsets[at(b)];
    if (options.causal == Causal::bottom_right) position = row + length - rows(b).size();
    if (options.causal != Causal::none && key > position) return false;
    if (options.window_left >= 0 && key < position - options.window_left) return false;
    return options.window_right < 0 || key <= position + options.window_right;
  }

 private:
  static std::size_t at(std::int64_t b) { return static_cast<std::size_t>(b); }
};

std::vector<std::int64_t> cuts(Random& random, std::int64_t length, std::int64_t parts) {
  std::vector<std::int64_t> result{0, length};
  for (std::int64_t i = 1; i < parts; ++i) result.push_back(random.uniform(0, length));
  std::ranges::sort(result);
  return result;
}

/// Draws the options that decide what a row sees.
void draw(Random& random, Problem& problem) {
  AttentionOptions& options = problem.options;
  options.causal = random.pick({Causal::none, Causal::top_left, Causal::bottom_right});
  if (random.chance(0.4)) options.window_left = random.uniform(0, problem.seqlen_q / 2 + 1);
  if (random.chance(0.2)) options.window_right = random.uniform(0, problem.seqlen_q / 2 + 1);
  if (random.chance(0.25)) {  // packed
    problem.sizes.batch = 1;
    const std::int64_t documents = random.uniform(1, 6);
    problem.documents_q = cuts(random, problem.seqlen_q, documents);
    problem.documents_k = cuts(random, problem.seqlen_k, documents);
    options.cu_seqlens_q = numbers(problem.documents_q);
    options.cu_seqlens_k = numbers(problem.documents_k);
    return;
  }
  const auto per_entry = [&](std::vector<std::int64_t>& list, std::int64_t least, std::int64_t most) {
    for (std::int64_t b = 0; b < problem.sizes.batch; ++b) list.push_back(random.uniform(least, most));
    return numbers(list);
  };
  if (random.chance(0.3)) options.kv_lengths = per_entry(problem.lengths, 0, problem.seqlen_k);
  if (random.chance(0.3)) options.kv_starts = per_entry(problem.starts, 0, problem.seqlen_k);
  if (options.causal == Causal::bottom_right) return;
  if (random.chance(0.3))
    options.query_offset = random.uniform(-5, problem.seqlen_k);
  else if (random.chance(0.3))
    options.query_offsets = per_entry(problem.offsets, -5, problem.seqlen_k);
}

Sharding sharding(Random& random, std::int64_t length, int ranks, const Problem& problem, bool of_rows) {
  switch (random.uniform(0, of_rows ? 4 : 3)) {
    case 0:
      return Sharding::contiguous(length, ranks);
    case 1:
      return Sharding::zigzag(length, ranks);
    case 2:
      return Sharding::striped(length, ranks, random.uniform(1, 9));
    case 3: {
      std::vector<std::vector<Run>> runs(static_cast<std::size_t>(ranks));
      const std::vector<std::int64_t> at = cuts(random, length, 2 * ranks);
      for (std::size_t i = 1; i < at.size(); ++i)
        runs[static_cast<std::size_t>(random.uniform(0, ranks - 1))].push_back({at[i - 1], at[i]});
      return Sharding::of_runs(runs);
    }
    default:
      return Sharding::balanced(length, problem.seqlen_k, ranks, problem.options);
  }
}

std::vector<bool> members(const std::vector<Run>& runs, std::int64_t length) {
  std::vector<bool> result(static_cast<std::size_t>(length));
  for (const Run& run : runs)
    for (std::int64_t i = run.begin; i < run.end; ++i) result[static_cast<std::size_t>(i)] = true;
  return result;
}

/// Of what a plan gives: runs ascend and are not adjacent.
std::vector<bool> members_of_plan(const std::vector<Run>& runs, std::int64_t length) {
  for (const Run& run : runs) EXPECT_LT(run.begin, run.end);
  for (std::size_t i = 1; i < runs.size(); ++i) EXPECT_GT(runs[i].begin, runs[i - 1].end);
  return members(runs, length);
}

/// What a plan must be for a problem, checked for all ranks and steps.
class PlanCheck {
 public:
  PlanCheck(const Problem& problem, const Plan& plan) : problem_(problem), plan_(plan) {}

  void run() {
    computed_.clear();
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      for (std::int64_t step = 0; step < plan_.steps(); ++step)
        if (plan_.unit(rank, step).exists) check(rank, step);
    }
    const std::int64_t batches = problem_.documents_q.empty() ? problem_.sizes.batch : 1;
    std::size_t wanted = 0;
    for (std::int64_t b = 0; b < batches; ++b)
      for (std::int64_t head = 0; head < problem_.sizes.num_kv_heads; ++head)
        for (std::int64_t row = 0; row < problem_.seqlen_q; ++row, ++wanted)
          EXPECT_EQ((computed_[{b, head, row}]), 1) << "row " << row << " of kv head " << head << ", entry " << b;
    EXPECT_EQ(computed_.size(), wanted);
    for (std::int64_t step = 0; step < plan_.steps(); ++step) check_traffic(step);
  }

 private:
  /// The keys of the sequence that some of these rows see in a batch entry (all documents), and how many pairs.
  std::vector<bool> seen(std::int64_t batch, const std::vector<bool>& rows, const std::vector<bool>& among,
                         double& pairs) const {
    std::vector<bool> keys(static_cast<std::size_t>(problem_.seqlen_k));
    const bool packed = !problem_.documents_q.empty();
    for (std::int64_t b = packed ? 0 : batch; b < (packed ? problem_.entries() : batch + 1); ++b) {
      const Run of_rows = problem_.rows(b), of_keys = problem_.keys(b);
      for (std::int64_t row = of_rows.begin; row < of_rows.end; ++row) {
        if (!rows[static_cast<std::size_t>(row)]) continue;
        for (std::int64_t key = of_keys.begin; key < of_keys.end; ++key) {
          if (!among[static_cast<std::size_t>(key)]) continue;
          if (!problem_.sees(b, row - of_rows.begin, key - of_keys.begin)) continue;
          keys[static_cast<std::size_t>(key)] = true;
          pairs += 1.0;
        }
      }
    }
    return keys;
  }

  void check(int rank, std::int64_t step) {
    const Plan::Unit unit = plan_.unit(rank, step);
    const std::vector<Run> runs = plan_.rows(rank, step);
    const std::vector<bool> rows = members_of_plan(runs, problem_.seqlen_q);
    if (unit.part == 0) {
      for (std::int64_t row = 0; row < problem_.seqlen_q; ++row)
        if (rows[static_cast<std::size_t>(row)]) ++computed_[{unit.batch, unit.kv_head, row}];
      check_pieces(rank, unit, rows);
      known_[rank].assign(static_cast<std::size_t>(problem_.seqlen_k), false);
      pairs_[rank] = 0.0;
    }
    const std::vector<bool> keys = members_of_plan(plan_.keys(rank, step), problem_.seqlen_k);
    std::vector<bool>& known = known_[rank];
    for (std::size_t key = 0; key < keys.size(); ++key) {
      EXPECT_FALSE(keys[key] && known[key]) << "key " << key << " comes twice to rank " << rank;
      if (keys[key]) known[key] = true;
    }
    pairs_[rank] += plan_.pairs(rank, step);
    if (!unit.is_last) return;
    double pairs = 0.0;
    EXPECT_EQ(known, seen(unit.batch, rows, std::vector<bool>(known.size(), true), pairs)) << "rank " << rank;
    EXPECT_EQ(pairs_[rank], pairs) << "rank " << rank;
    if (unit.kv_head == 0) check_keys(rank, unit.batch);
  }

  /// Pieces cover the rows in order, and each has the keys of its rows.
  void check_pieces(int rank, const Plan::Unit& unit, const std::vector<bool>& rows) const {
    std::vector<bool> covered(rows.size());
    std::int64_t last = 0;
    for (const Plan::Piece& piece : plan_.pieces(rank, unit.batch)) {
      EXPECT_GE(piece.rows.begin, last);
      last = piece.rows.end;
      const bool packed = !problem_.documents_q.empty();
      EXPECT_TRUE(packed || piece.batch == unit.batch);
      EXPECT_EQ(piece.row, piece.rows.begin - problem_.rows(piece.batch).begin);
      EXPECT_EQ(piece.key % kOriginAlignment, 0);
      EXPECT_TRUE(piece.keys.size() <= 0 || piece.key == piece.keys.begin - problem_.keys(piece.batch).begin);
      for (std::int64_t b = piece.batch; b < piece.batch + piece.entries; ++b) {
        for (std::int64_t row = std::max(piece.rows.begin, problem_.rows(b).begin);
             row < std::min(piece.rows.end, problem_.rows(b).end); ++row) {
          covered[static_cast<std::size_t>(row)] = true;
          for (std::int64_t key = problem_.keys(b).begin; key < problem_.keys(b).end; ++key) {
            const bool is_seen = problem_.sees(b, row - problem_.rows(b).begin, key - problem_.keys(b).begin);
            EXPECT_TRUE(!is_seen || (key >= piece.keys.begin && key < piece.keys.end))
                << "row " << row << ", key " << key;
          }
        }
      }
    }
    EXPECT_EQ(covered, rows) << "rank " << rank;
  }

  /// For exact gradients of keys: the rows that see a rank's keys.
  void check_keys(int rank, std::int64_t batch) const {
    const std::vector<bool> own = members(plan_.division().keys.runs(rank), problem_.seqlen_k);
    const std::vector<bool> rows = members_of_plan(plan_.rows_of_keys(rank, batch), problem_.seqlen_q);
    double pairs = 0.0;
    for (std::int64_t row = 0; row < problem_.seqlen_q; ++row) {
      std::vector<bool> one(rows.size());
      one[static_cast<std::size_t>(row)] = true;
      const double before = pairs;
      seen(batch, one, own, pairs);
      if (pairs > before) {
        EXPECT_TRUE(rows[static_cast<std::size_t>(row)]) << "row " << row << " sees keys of rank " << rank;
      }
    }
    EXPECT_EQ(plan_.pairs_of_keys(rank, batch), pairs) << "rank " << rank;
  }

  /// A rank receives what it needs and does not hold, and nothing else.
  void check_traffic(std::int64_t step) const {
    const distributed::Sizes& sizes = problem_.sizes;
    const std::int64_t of_key = (sizes.head_dim + sizes.head_dim_v) * sizes.element_bytes;
    const std::int64_t of_row = sizes.head_dim * sizes.element_bytes * sizes.num_heads / sizes.num_kv_heads;
    std::vector<std::int64_t> wanted(static_cast<std::size_t>(plan_.ranks())), got(wanted.size());
    const auto missing = [](const std::vector<Run>& needed, const std::vector<Run>& own, std::int64_t length) {
      const std::vector<bool> a = members(needed, length);
      std::vector<bool> b(a.size());
      for (const Run& run : own) std::fill(b.begin() + run.begin, b.begin() + run.end, true);
      std::int64_t count = 0;
      for (std::size_t i = 0; i < a.size(); ++i) count += a[i] && !b[i];
      return count;
    };
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      std::int64_t& bytes = wanted[static_cast<std::size_t>(rank)];
      bytes = of_key * missing(plan_.keys(rank, step), plan_.division().keys.runs(rank), problem_.seqlen_k);
      if (plan_.shares_rows())
        bytes += of_row * missing(plan_.rows(rank, step), plan_.division().rows.runs(rank), problem_.seqlen_q);
    }
    for (const distributed::Transfer& transfer : inputs_of(plan_, Pass::forward, step))
      got[static_cast<std::size_t>(transfer.to)] += transfer.bytes;
    EXPECT_THAT(got, ElementsAreArray(wanted));
  }

  const Problem& problem_;
  const Plan& plan_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> computed_;
  std::map<int, std::vector<bool>> known_;
  std::map<int, double> pairs_;
};

/// Methods that a plan can have, with groups of ranks.
std::vector<std::pair<Method, int>> methods(int ranks, std::int64_t kv_heads) {
  std::vector<std::pair<Method, int>> result{
      {Method::automatic, 0}, {Method::gather, 0}, {Method::stream, 0}, {Method::ring, 0}};
  if (ranks <= kv_heads) result.emplace_back(Method::heads, 0);
  for (int groups = 2; groups <= ranks; ++groups)
    if (ranks % groups == 0 && groups <= kv_heads) result.emplace_back(Method::grid, groups);
  return result;
}

TEST(DistributedPlan, ComputesEveryRowOnceFromTheKeysItSees) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      Random random(1000 * static_cast<std::uint64_t>(ranks) + seed);
      Problem problem;
      problem.seqlen_q = random.uniform(0, 60);
      problem.seqlen_k = random.chance(0.5) ? problem.seqlen_q : random.uniform(0, 60);
      const std::int64_t kv_heads = random.uniform(1, 4);
      problem.sizes = {.batch = random.uniform(1, 2),
                       .num_heads = kv_heads * random.uniform(1, 2),
                       .num_kv_heads = kv_heads,
                       .head_dim = 8,
                       .head_dim_v = 5};
      draw(random, problem);
      ParallelConfig division{.rows = sharding(random, problem.seqlen_q, ranks, problem, true)};
      if (problem.seqlen_q != problem.seqlen_k || random.chance(0.3))
        division.keys = sharding(random, problem.seqlen_k, ranks, problem, false);
      const auto all = methods(ranks, kv_heads);
      std::tie(division.method, division.head_groups) =
          all[static_cast<std::size_t>(random.uniform(0, static_cast<std::int64_t>(all.size()) - 1))];
      SCOPED_TRACE(std::to_string(ranks) + " ranks, seed " + std::to_string(seed) + ", method " +
                   std::string(name_of(division.method)));
      const Plan plan(problem.sizes, division, problem.options);
      PlanCheck(problem, plan).run();
      if (HasFailure()) return;
    }
  }
}

TEST(DistributedPlan, CutsLongSequencesIntoParts) {
  for (int ranks = 1; ranks <= 16; ranks += 3) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      Random random(500 * static_cast<std::uint64_t>(ranks) + seed);
      Problem problem;
      problem.seqlen_q = random.uniform(1, 40);
      problem.seqlen_k = random.uniform(9000, 14000);
      problem.sizes = {.num_heads = 2, .num_kv_heads = 2};
      draw(random, problem);
      const ParallelConfig division{.rows = sharding(random, problem.seqlen_q, ranks, problem, true),
                                    .keys = sharding(random, problem.seqlen_k, ranks, problem, false),
                                    .method = seed % 2 == 0 ? Method::stream : Method::ring,
                                    .chunk = kOriginAlignment};
      const Plan plan(problem.sizes, division, problem.options);
      EXPECT_EQ(plan.steps() % 2, 0);
      EXPECT_EQ(plan.steps() / 2, division.method == Method::ring ? ranks : (problem.seqlen_k + 4095) / 4096);
      SCOPED_TRACE(std::to_string(ranks) + " ranks, seed " + std::to_string(seed));
      PlanCheck(problem, plan).run();
      if (HasFailure()) return;
    }
  }
}

TEST(DistributedPlan, SendsAWindowOfKeysOverEachBoundary) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    for (const std::int64_t window : {0, 1, 17, 64, 100}) {
      for (const bool both : {false, true}) {
        AttentionOptions options{.causal = both ? Causal::none : Causal::top_left, .window_left = window};
        if (both) options.window_right = window;
        const std::int64_t seqlen = 100 * ranks + 3, dim = 16, kv_heads = 3;
        const Plan plan({.num_heads = 6, .num_kv_heads = kv_heads, .head_dim = dim, .head_dim_v = dim},
                        {.rows = Sharding::contiguous(seqlen, ranks), .method = Method::gather}, options);
        std::vector<std::int64_t> right(static_cast<std::size_t>(ranks)), left(right);  // keys over each boundary
        for (std::int64_t step = 0; step < plan.steps(); ++step) {
          for (const auto& [from, to, bytes, messages] : inputs_of(plan, Pass::forward, step)) {
            ASSERT_EQ(std::abs(from - to), 1) << "keys pass by a rank";
            (from < to ? right[static_cast<std::size_t>(from)] : left[static_cast<std::size_t>(to)]) +=
                bytes / (2 * dim * 4);
          }
        }
        for (std::size_t boundary = 0; boundary + 1 < right.size(); ++boundary) {
          EXPECT_EQ(right[boundary], window * kv_heads) << ranks << " ranks";
          EXPECT_EQ(left[boundary], both ? window * kv_heads : 0) << ranks << " ranks";
        }
      }
    }
  }
}

// ---- Method::automatic -----------------------------------------------------------------------------------------

/// A causal problem of eight kv heads, four ranks and a network.
ParallelConfig automatic(std::int64_t seqlen, double bandwidth, int ranks = 4) {
  ParallelConfig division{.rows = Sharding::zigzag(seqlen, ranks)};
  division.machine.bandwidth = bandwidth;
  return division;
}
ParallelConfig chosen(const ParallelConfig& division,
                      distributed::Sizes sizes = {.num_heads = 32, .num_kv_heads = 8}) {
  return Plan(sizes, division, {.causal = Causal::top_left}).division();
}

TEST(DistributedPlan, ChoosesGatherWhereComputingHidesTheNetwork) {
  EXPECT_EQ(chosen(automatic(65536, 1e9)).method, Method::gather);
  EXPECT_EQ(chosen(automatic(65536, 1e9, 1)).method, Method::gather);
}

TEST(DistributedPlan, ChoosesHeadsWhereLessTravelsThatWay) {
  // Of each pair of heads gather moves 3/4 of 16384 keys to every rank, heads 3/4 of 4096 rows and keys.
  EXPECT_EQ(chosen(automatic(16384, 1e7), {.num_heads = 8, .num_kv_heads = 8}).method, Method::heads);
  // Two kv heads are too few for all ranks, but not for groups of two.
  const ParallelConfig division = chosen(automatic(16384, 1e7), {.num_heads = 2, .num_kv_heads = 2});
  EXPECT_EQ(division.method, Method::grid);
  EXPECT_EQ(division.head_groups, 2);
  EXPECT_EQ(chosen(automatic(16384, 1e7), {.num_heads = 1, .num_kv_heads = 1}).method, Method::gather);
}

TEST(DistributedPlan, ChoosesStreamByMemory) {
  ParallelConfig division = automatic(16384, 1e9);
  division.memory = 2 * 16384 * (128 + 128) * 4;  // two kv heads
  EXPECT_EQ(chosen(division).method, Method::gather);
  --division.memory;
  EXPECT_EQ(chosen(division).method, Method::stream);
  EXPECT_EQ(chosen(division, {.num_heads = 32, .num_kv_heads = 8, .head_dim = 64}).method, Method::gather);
}

TEST(DistributedPlan, ChoosesTheFastestByTheModel) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    for (const std::int64_t seqlen : {64, 4096, 65536, 1 << 20}) {
      for (const double bandwidth : {1e7, 1e9, 1e11}) {
        const distributed::Sizes sizes{.num_heads = 16, .num_kv_heads = 8};
        ParallelConfig division = automatic(seqlen, bandwidth, ranks);
        const auto seconds = [&] {
          const Plan plan(sizes, division, {.causal = Causal::top_left});
          EXPECT_NE(plan.division().method, Method::automatic);
          return estimate(plan, Pass::forward, division.machine).total;
        };
        const double automatic = seconds();
        for (const auto& [method, groups] : methods(ranks, sizes.num_kv_heads)) {
          if (method == Method::automatic || method == Method::stream || method == Method::ring) continue;
          division.method = method, division.head_groups = groups;
          EXPECT_LE(automatic, seconds() / 0.98) << ranks << " ranks, " << seqlen << ", " << name_of(method);
        }
      }
    }
  }
}

// ---- The cost model --------------------------------------------------------------------------------------------

/// Two ranks of 1000 rows, not causal, three kv heads: in each step a rank computes 4 * 8 * 1000 * 2000 operations
/// and receives 1000 * 16 numbers.
struct TwoRanks {
  Plan plan{{.num_heads = 3, .num_kv_heads = 3, .head_dim = 8, .head_dim_v = 8},
            {.rows = Sharding::contiguous(2000, 2), .method = Method::gather},
            {}};
  distributed::CostParameters machine{.forward = 64e6,  // a step takes 1 s
                                      .backward = 64e6,
                                      .copying = 1e300,
                                      .per_step = 0.0,
                                      .per_message = 0.0,
                                      .bandwidth = 64000.0,  // and so does a transfer
                                      .latency = 0.0};
};

TEST(DistributedPlan, RefusesSizesWhoseProductsOverflow) {
  ParallelConfig division{.rows = Sharding::contiguous(1 << 20, 2), .method = Method::gather};
  const auto refused = [&](const distributed::Sizes& sizes) {
    return refusal([&] { Plan(sizes, division, {}); });
  };
  EXPECT_EQ(refused({.head_dim = std::int64_t{1} << 41}),
            "[distributed::Plan] sizes.head_dim must be from 0 to 2^40, got 2199023255552");
  EXPECT_EQ(refused({.num_heads = -1}), "[distributed::Plan] sizes.num_heads must be from 0 to 2^40, got -1");
  EXPECT_EQ(refused({.head_dim = std::int64_t{1} << 38, .head_dim_v = 0}),
            "[distributed::Plan] sizes are too large: q, k or v would have more than 2^59 bytes");
  EXPECT_EQ(refused({.head_dim = std::int64_t{1} << 37, .head_dim_v = 0}), "");
  division.chunk = std::int64_t{1} << 41;
  EXPECT_EQ(refused({}), "[distributed::Plan] chunk must be a multiple of " + std::to_string(kOriginAlignment) +
                             " up to 2^40, got 2199023255552");
}

TEST(DistributedPlan, RefusesAMachineThatComputesNothing) {
  ParallelConfig division{.rows = Sharding::contiguous(100, 2)};
  division.machine.forward = 0.0;
  EXPECT_EQ(refusal([&] { Plan({.num_heads = 2, .num_kv_heads = 2}, division, {}); }),
            "[distributed::Plan] forward of the machine must be positive, got 0");
}

TEST(DistributedPlan, AStripeMayBeLongerThanTheSequence) {
  const Sharding sharding = Sharding::striped(10, 2, std::numeric_limits<std::int64_t>::max());
  ASSERT_EQ(sharding.runs(0).size(), 1U);
  EXPECT_EQ(sharding.runs(0)[0].end, 10);
  EXPECT_TRUE(sharding.runs(1).empty());
}

TEST(CostModel, HidesTransfersBehindTheStepBefore) {
  TwoRanks two;
  EXPECT_DOUBLE_EQ(estimate(two.plan, Pass::forward, two.machine).total, 4.0);  // the first transfer is not hidden
  EXPECT_DOUBLE_EQ(needed_bandwidth(two.plan, Pass::forward, two.machine), 64000.0);
  two.machine.bandwidth /= 2.0;
  const distributed::Estimate slow = estimate(two.plan, Pass::forward, two.machine);
  EXPECT_DOUBLE_EQ(slow.total, 7.0);
  EXPECT_DOUBLE_EQ(slow.ranks[0].kernels, 3.0);
  EXPECT_DOUBLE_EQ(slow.ranks[0].transfer, 6.0);
  EXPECT_DOUBLE_EQ(slow.ranks[0].waiting, 4.0);
  EXPECT_EQ(slow.ranks[0].bytes_received, 3 * 64000);
  EXPECT_EQ(slow.ranks[1].bytes_sent, 3 * 64000);
}

TEST(CostModel, CountsLatencyMessagesAndCopies) {
  TwoRanks two;
  two.machine.latency = 0.25;
  EXPECT_DOUBLE_EQ(estimate(two.plan, Pass::forward, two.machine).total, 4.0 + 3 * 0.25);  // no longer hidden
  two.machine.latency = 0.0;
  two.machine.per_step = 0.5;
  EXPECT_DOUBLE_EQ(estimate(two.plan, Pass::forward, two.machine).total, 4.0 + 3 * 0.5);
  two.machine.per_step = 0.0;
  two.machine.bandwidth = 1e300;
  two.machine.per_message = 0.125;  // k and v are sent and received in each step
  EXPECT_DOUBLE_EQ(estimate(two.plan, Pass::forward, two.machine).total, 3.0 + 3 * 4 * 0.125);
  two.machine.per_message = 0.0;
  two.machine.copying = 128000.0;
  EXPECT_DOUBLE_EQ(estimate(two.plan, Pass::forward, two.machine).total, 3.0 + 3 * 0.5);
}

TEST(CostModel, CountsTheOperationsOfEachPass) {
  const TwoRanks two;
  constexpr double kPairs = 1000.0 * 2000.0;
  EXPECT_EQ(operations_of(two.plan, Pass::forward, 0, 0), 2 * 2 * 8 * kPairs);
  EXPECT_EQ(operations_of(two.plan, Pass::backward, 1, 2), 2 * 5 * 8 * kPairs);
  ParallelConfig exact = two.plan.division();
  exact.exact = true;
  const Plan plan(two.plan.sizes(), exact, {});
  EXPECT_EQ(operations_of(plan, Pass::backward, 0, 0) + operations_of(plan, Pass::backward_of_keys, 0, 0),
            2 * 7 * 8 * kPairs);
}

TEST(CostModel, RefusesWhatItDoesNotKnow) {
  TwoRanks two;
  ParallelConfig division = two.plan.division();
  division.method = Method::pass_q;
  EXPECT_THROW(estimate(Plan(two.plan.sizes(), division, {})), std::invalid_argument);
  division.method = Method::ring;
  EXPECT_NO_THROW(estimate(Plan(two.plan.sizes(), division, {})));
  EXPECT_THROW(estimate(Plan(two.plan.sizes(), division, {}), Pass::backward), std::invalid_argument);
  two.machine.bandwidth = 0.0;
  EXPECT_THROW(estimate(two.plan, Pass::forward, two.machine), std::invalid_argument);
  EXPECT_THROW(needed_bandwidth(two.plan, Pass::forward, two.machine), std::invalid_argument);
}

}  // namespace
}  // namespace saccade::test
