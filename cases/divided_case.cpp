#include "cases/divided_case.h"

#include <algorithm>
#include <cstring>

#include "cases/attention_case.h"
#include "cases/random.h"
#include "cases/random_case.h"

namespace saccade::cases {
namespace {

using distributed::Division;
using distributed::Method;
using distributed::Run;
using distributed::Sharding;

/// The dimension of q, k, v or o that is divided.
int divided_dim(const TensorView& view, const AttentionOptions& options) {
  if (options.cu_seqlens_q || view.rank == 2) return 0;
  return options.layout == Layout::blhd ? view.rank - 3 : view.rank - 2;
}

/// The rows of a rank, one run after the other, in new memory.
Tensor rows_of_rank(const TensorView& whole, int dim, const Sharding& sharding, int rank) {
  Shape shape(whole.dims().begin(), whole.dims().end());
  shape[static_cast<std::size_t>(dim)] = sharding.rows(rank);
  Tensor rows(whole.dtype, shape);
  std::int64_t at = 0;
  for (const Run& run : sharding.runs(rank)) {
    copy(whole.slice(dim, run.begin, run.end), rows.mutable_view().slice(dim, at, at + run.size()));
    at += run.size();
  }
  return rows;
}

class Drawing {
 public:
  Drawing(std::uint64_t seed, int ranks) : random_(seed), ranks_(ranks) {}

  Sharding sharding(std::int64_t seqlen_q, std::int64_t seqlen_k, const AttentionOptions& options) {
    switch (random_.uniform(0, 5)) {
      case 0:
        return Sharding::contiguous(seqlen_q, ranks_);
      case 1:
        return Sharding::zigzag(seqlen_q, ranks_);
      case 2:
        return Sharding::striped(seqlen_q, ranks_, random_.pick<std::int64_t>({1, 7, 33, 128}));
      case 3:
        return Sharding::balanced(seqlen_q, seqlen_k, ranks_, options);
      default:
        return any(seqlen_q);
    }
  }

  Division division(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t kv_heads,
                    const AttentionOptions& options) {
    Division result;
    result.rows = sharding(seqlen_q, seqlen_k, options);
    if (seqlen_q != seqlen_k || random_.chance(0.3)) result.keys = any(seqlen_k);
    result.method = random_.pick({Method::automatic, Method::gather, Method::gather, Method::heads, Method::grid});
    for (int groups = 2; groups <= ranks_; ++groups)
      if (ranks_ % groups == 0 && groups <= kv_heads) result.head_groups = groups;
    if (result.method == Method::heads && ranks_ > kv_heads) result.method = Method::grid;
    if (result.method == Method::grid && result.head_groups == 0) result.method = Method::gather;
    return result;
  }

 private:
  /// Cuts anywhere, dealt out at random: some ranks have many runs, some none.
  Sharding any(std::int64_t length) {
    std::vector<std::int64_t> cuts{0, length};
    for (std::int64_t i = random_.uniform(0, 3 * ranks_); i > 0; --i) cuts.push_back(random_.uniform(0, length));
    std::ranges::sort(cuts);
    std::vector<std::vector<Run>> runs(static_cast<std::size_t>(ranks_));
    for (std::size_t i = 1; i < cuts.size(); ++i)
      runs[static_cast<std::size_t>(random_.uniform(0, ranks_ - 1))].push_back({cuts[i - 1], cuts[i]});
    return Sharding::of_runs(runs);
  }

  Random random_;
  int ranks_;
};

std::string text_of(const Sharding& sharding) {
  std::string text;
  for (int rank = 0; rank < sharding.ranks(); ++rank) {
    text += rank > 0 ? " |" : "";
    for (const Run& run : sharding.runs(rank))
      text += " " + std::to_string(run.begin) + "-" + std::to_string(run.end);
  }
  return text;
}

std::int64_t count_differences(const Tensor& a, const Tensor& b) {
  const std::size_t size = size_of(a.dtype());
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.bytes(); i += size)
    count += std::memcmp(static_cast<const std::byte*>(a.data()) + i, static_cast<const std::byte*>(b.data()) + i,
                         size) != 0;
  return count;
}

/// The next problem from `seed` on that can be divided.
AttentionCase draw_divisible(std::uint64_t seed) {
  for (;; seed += 1'000'003) {
    AttentionCase c = draw_case(seed);
    if (c.options.block_table) continue;
    c.options.weights = c.options.scores = {};
    return c;
  }
}

}  // namespace

std::vector<std::string> compare_divided(distributed::Communicator& communicator, std::uint64_t seed,
                                         std::string& problem) {
  AttentionCase c = draw_divisible(seed);
  AttentionOptions options = c.options;
  const TensorView q = c.q.view(), k = c.k.view(), v = c.v.view();
  const int dim = divided_dim(q, options), rank = communicator.rank();
  const std::int64_t seqlen_q = q.shape[static_cast<std::size_t>(dim)],
                     seqlen_k = k.shape[static_cast<std::size_t>(dim)];
  const int heads = q.rank == 2                                              ? -1
                    : options.cu_seqlens_q || options.layout == Layout::blhd ? q.rank - 2
                                                                             : q.rank - 3;
  const Division division =
      Drawing(seed, communicator.size())
          .division(seqlen_q, seqlen_k, heads < 0 ? 1 : k.shape[static_cast<std::size_t>(heads)], options);
  problem = describe(c) + ", method " + std::string(name_of(division.method)) + " rows" + text_of(division.rows) +
            (division.keys.ranks() > 0 ? ", keys" + text_of(division.keys) : std::string());
  const Sharding& keys = division.keys.ranks() > 0 ? division.keys : division.rows;

  saccade::attention(q, k, v, c.o.view(), options);
  const Tensor wanted = rows_of_rank(c.o.view(), dim, division.rows, rank);
  Tensor o(wanted.dtype(), wanted.shape()), wanted_lse, lse;
  if (options.lse) {
    wanted_lse = rows_of_rank(options.lse, options.lse.rank - 1, division.rows, rank);
    lse = Tensor(wanted_lse.dtype(), wanted_lse.shape());
    options.lse = lse;
  }
  distributed::attention(communicator, rows_of_rank(q, dim, division.rows, rank), rows_of_rank(k, dim, keys, rank),
                         rows_of_rank(v, dim, keys, rank), o, division, options);
  std::vector<std::string> lines;
  const auto compare = [&](const char* name, const Tensor& got, const Tensor& expected) {
    if (const std::int64_t count = count_differences(got, expected); count > 0)
      lines.push_back(std::string(name) + " of rank " + std::to_string(rank) + ": " + std::to_string(count) +
                      " of " + std::to_string(got.size()) + " numbers differ");
  };
  compare("o", o, wanted);
  if (options.lse) compare("lse", lse, wanted_lse);
  return lines;
}

}  // namespace saccade::cases
