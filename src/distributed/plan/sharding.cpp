// Sharding: which rows each rank holds.
#include <algorithm>

#include "backend/visibility.h"
#include "core/ceil_div.h"
#include "core/check.h"
#include "distributed/plan/whole.h"
#include "saccade/distributed.h"

namespace saccade::distributed {
namespace {

constexpr std::string_view kSharding = "distributed::Sharding";

void check_sizes(std::int64_t length, int ranks) {
  if (length < 0 || length > kMaxLength) refuse(kSharding, "length must be from 0 to 2^40, got ", length);
  if (ranks < 1) refuse(kSharding, "ranks must be at least 1, got ", ranks);
}

/// Range i of n nearly equal ranges of a length.
Run part_of(std::int64_t length, std::int64_t i, std::int64_t n) {
  const std::int64_t least = length / n, more = length % n;
  const std::int64_t begin = i * least + std::min(i, more);
  return {begin, begin + least + (i < more)};
}

}  // namespace

Sharding Sharding::contiguous(std::int64_t length, int ranks) {
  check_sizes(length, ranks);
  std::vector<std::vector<Run>> runs;
  for (int rank = 0; rank < ranks; ++rank) runs.push_back({part_of(length, rank, ranks)});
  return of_runs(std::move(runs));
}

Sharding Sharding::zigzag(std::int64_t length, int ranks) {
  check_sizes(length, ranks);
  std::vector<std::vector<Run>> runs;
  for (int rank = 0; rank < ranks; ++rank)
    runs.push_back({part_of(length, rank, 2 * ranks), part_of(length, 2 * ranks - 1 - rank, 2 * ranks)});
  return of_runs(std::move(runs));
}

Sharding Sharding::striped(std::int64_t length, int ranks, std::int64_t stripe) {
  check_sizes(length, ranks);
  if (stripe < 1) refuse(kSharding, "stripe must be at least 1, got ", stripe);
  stripe = std::min(stripe, std::max<std::int64_t>(1, length));
  std::vector<std::vector<Run>> runs(static_cast<std::size_t>(ranks));
  for (std::int64_t i = 0; i < ceil_div(length, stripe); ++i)
    runs[static_cast<std::size_t>(i % ranks)].push_back({i * stripe, std::min(length, (i + 1) * stripe)});
  return of_runs(std::move(runs));
}

Sharding Sharding::balanced(std::int64_t seqlen_q, std::int64_t seqlen_k, int ranks,
                            const AttentionOptions& options) {
  check_sizes(seqlen_q, ranks);
  check_sizes(seqlen_k, ranks);
  const AttentionOptions visible = visibility_of(options);
  const WholeProblem whole({.batch = batch_of(visible)}, seqlen_q, seqlen_k, visible, kSharding);
  std::vector<double> pairs(static_cast<std::size_t>(seqlen_q));  // of each row, over batch entries
  for (std::int64_t b = 0; b < whole.params.batch; ++b) {
    const Visibility visibility(whole.params, b);
    for (std::int64_t i = 0; i < whole.params.rows(b); ++i) {
      const KeyRange keys = visibility.visible(i);
      pairs[static_cast<std::size_t>(whole.params.first_row(b) + i)] +=
          static_cast<double>(std::max<std::int64_t>(keys.end - keys.begin, 0));
    }
  }
  double all = 0.0, before = 0.0;
  for (const double count : pairs) all += count;
  std::vector<std::vector<Run>> runs;
  std::int64_t row = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t begin = row;
    for (; row < seqlen_q &&
           (rank + 1 == ranks || before + pairs[static_cast<std::size_t>(row)] / 2 <= all * (rank + 1) / ranks);
         ++row)
      before += pairs[static_cast<std::size_t>(row)];
    runs.push_back({{begin, row}});
  }
  return of_runs(std::move(runs));
}

Sharding Sharding::of_runs(std::vector<std::vector<Run>> runs) {
  if (runs.empty()) refuse(kSharding, "runs must have an entry for each of at least 1 rank");
  std::vector<Run> all;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    std::erase_if(runs[rank], [](const Run& run) { return run.begin == run.end; });
    std::int64_t last = 0;
    for (const Run& run : runs[rank]) {
      if (run.begin < last || run.end < run.begin)
        refuse(kSharding, "the runs of rank ", rank, " must ascend, but [", run.begin, ", ", run.end,
               ") follows row ", last);
      last = run.end;
      all.push_back(run);
    }
  }
  std::ranges::sort(all, {}, &Run::begin);
  Sharding result;
  for (const Run& run : all) {
    if (run.begin != result.length_)
      refuse(kSharding, "every row must be in one run, but ",
             run.begin < result.length_ ? "two have row " : "none has row ", std::min(run.begin, result.length_));
    result.length_ = run.end;
  }
  if (result.length_ > kMaxLength) refuse(kSharding, "length must be from 0 to 2^40, got ", result.length_);
  result.runs_ = std::move(runs);
  return result;
}

const std::vector<Run>& Sharding::runs(int rank) const {
  if (rank < 0 || rank >= ranks()) refuse(kSharding, "rank must be from 0 to ", ranks() - 1, ", got ", rank);
  return runs_[static_cast<std::size_t>(rank)];
}

std::int64_t Sharding::rows(int rank) const {
  std::int64_t rows = 0;
  for (const Run& run : runs(rank)) rows += run.size();
  return rows;
}

std::int64_t Sharding::local_row(int rank, std::int64_t row) const {
  std::int64_t before = 0;
  for (const Run& run : runs(rank)) {
    if (row < run.end) return before + row - run.begin;
    before += run.size();
  }
  return before;
}

}  // namespace saccade::distributed
