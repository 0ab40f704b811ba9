#include "cases/divided_case.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include <saccade/decode.h>

#include "cases/bits.h"
#include "cases/gradient_case.h"
#include "cases/key_rows.h"
#include "cases/random.h"
#include "cases/random_case.h"

namespace saccade::cases {
namespace {

using distributed::Method;
using distributed::ParallelConfig;
using distributed::Run;
using distributed::Sharding;

/// The dimension of q, k, v or o that is divided among the ranks.
int divided_dim(const TensorView& view, const AttentionOptions& options) {
  if (options.cu_seqlens_q || view.rank == 2) return 0;
  return options.layout == Layout::bshd ? view.rank - 3 : view.rank - 2;
}

std::vector<std::pair<std::int64_t, std::int64_t>> runs_of_rank(const Sharding& sharding, int rank) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const Run& run : sharding.runs(rank)) runs.emplace_back(run.begin, run.end);
  return runs;
}

/// The rows of a rank, one run after the other, in new memory.
Tensor rows_of_rank(const TensorView& whole, int dim, const Sharding& sharding, int rank) {
  return rows_along(whole, dim, runs_of_rank(sharding, rank));
}

/// The keys and values of a rank, and the options of a problem with their scales.
struct KeysOfRank {
  KeysOfRank(const AttentionCase& c, const AttentionOptions& whole, int dim, const Sharding& sharding, int rank)
      : runs(runs_of_rank(sharding, rank)),
        k(c.k.view(), dim, runs),
        v(c.v.view(), dim, runs),
        options(whole),
        scales(options, runs) {}

  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  KeyRows k, v;
  AttentionOptions options;
  ScalesOfRows scales;
};

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

  ParallelConfig division(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t kv_heads,
                          const AttentionOptions& options) {
    ParallelConfig result;
    result.rows = sharding(seqlen_q, seqlen_k, options);
    if (seqlen_q != seqlen_k || random_.chance(0.3)) result.keys = any(seqlen_k);
    result.exact = random_.chance(0.4);
    result.method = random_.pick({Method::automatic, Method::gather, Method::gather, Method::heads, Method::grid,
                                  Method::stream, Method::stream, Method::ring});
    result.chunk = kOriginAlignment;
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

/// The first problem that can be divided, with seeds from `seed` on.
AttentionCase draw_divisible(std::uint64_t seed, const Simplification& simpler) {
  for (;; seed += 1'000'003) {
    AttentionCase c = draw_case(seed, simpler);
    if (c.options.block_table) continue;
    c.options.weights = c.options.scores = {};
    return c;
  }
}

/// The gradients of a rank: of its rows and keys, and of the options.
struct Gradients {
  AttentionGradients views() {
    AttentionGradients views{.dq = dq, .dk = dk, .dv = dv, .dmask = {}, .dsinks = {}, .dalibi_slopes = {}};
    for (std::size_t i = 0; i < of_options.size(); ++i)
      views.*kOptionGradients<MutableTensorView>[i].gradient = of_options[i];
    return views;
  }

  Tensor dq, dk, dv;
  std::array<Tensor, std::size(kOptionGradients<Tensor>)> of_options;
};

class DividedComparison {
 public:
  DividedComparison(distributed::Communicator& communicator, std::uint64_t seed, const Simplification& simpler)
      : communicator_(communicator),
        rank_(communicator.rank()),
        seed_(seed),
        case_(draw_divisible(seed, simpler)) {
    const TensorView q = case_.q.view(), k = case_.k.view();
    dim_ = divided_dim(q, case_.options);
    const auto length = [&](const TensorView& view) { return view.shape[static_cast<std::size_t>(dim_)]; };
    const bool heads_last = case_.options.cu_seqlens_q || case_.options.layout == Layout::bshd;
    const std::int64_t kv_heads =
        q.rank == 2 ? 1 : k.shape[static_cast<std::size_t>(q.rank - (heads_last ? 2 : 3))];
    division_ = Drawing(seed, communicator.size()).division(length(q), length(k), kv_heads, case_.options);
    if (division_.keys.ranks() > 0)
      keys_ = division_.keys;
    else
      keys_ = division_.rows;
  }

  std::string problem() const {
    return describe(case_) + ", method " + std::string(name_of(division_.method)) +
           (division_.head_groups > 0 ? " " + std::to_string(division_.head_groups) : "") + ", rows" +
           text_of(division_.rows) + ", keys" + text_of(keys_);
  }

  std::vector<std::string> run() {
    solve();
    compare_forward();
    if (has_gradients(case_)) compare_backward();
    if (!case_.options.cu_seqlens_q) compare_decode();
    return std::move(lines_);
  }

 private:
  Tensor own_rows(const TensorView& whole) const { return rows_of_rank(whole, dim_, division_.rows, rank_); }
  Tensor own_keys(const TensorView& whole) const { return rows_of_rank(whole, dim_, keys_, rank_); }
  Tensor own_lse(const TensorView& whole) const {
    return rows_of_rank(whole, whole.rank - 1, division_.rows, rank_);
  }

  /// In one process. Always requests lse, which gradients need.
  void solve() {
    const TensorView q = case_.q.view();
    Shape rows(q.dims().begin(), q.dims().end() - 1);
    if (case_.options.cu_seqlens_q || case_.options.layout == Layout::bshd)
      if (rows.size() > 1) std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
    lse_ = Tensor(q.dtype == DType::f64 ? DType::f64 : DType::f32, rows);
    case_.options.lse = lse_;
    attention(q, case_.k.view(), case_.v.view(), case_.o.view(), case_.options);
  }

  void compare_forward() {
    const Tensor wanted = own_rows(case_.o.view()), wanted_lse = own_lse(lse_);
    Tensor o(wanted.dtype(), wanted.shape()), lse(wanted_lse.dtype(), wanted_lse.shape());
    AttentionOptions options = case_.options;
    options.lse = {};
    if (seed_ % 3 != 0) options.lse = lse;
    const KeysOfRank own(case_, options, dim_, keys_, rank_);
    distributed::attention(communicator_, own_rows(case_.q.view()), own.k.view(), own.v.view(), o, division_,
                           own.options);
    const bool is_exact = division_.method != Method::ring;
    is_exact ? compare("o", o, wanted) : compare_closely("o", o, wanted);
    if (options.lse) is_exact ? compare("lse", lse, wanted_lse) : compare_closely("lse", lse, wanted_lse);
  }

  /// With keys cut at splits of decode(), and where the division cuts them; also by pass_q.
  void compare_decode() {
    const TensorView q = case_.q.view(), k = case_.k.view(), v = case_.v.view();
    AttentionOptions options = case_.options;
    decode(q, k, v, case_.o.view(), options);
    const Tensor whole = Tensor::copy_of(case_.o.view()), whole_lse = lse_;
    for (const bool is_aligned : {true, false}) {
      ParallelConfig division = division_;
      if (is_aligned) division.keys = Sharding::striped(keys_.length(), communicator_.size(), kDecodeSplitKeys);
      const Sharding& keys = division.keys.ranks() > 0 ? division.keys : division.rows;
      KeysOfRank own(case_, options, dim_, keys, rank_);
      const auto check = [&](const char* name, const Tensor& got, const Tensor& expected) {
        is_aligned ? compare(name, got, expected) : compare_closely(name, got, expected);
      };
      Tensor o(whole.dtype(), whole.shape()), lse(lse_.dtype(), lse_.shape());
      own.options.lse = lse;
      distributed::decode(communicator_, q, own.k.view(), own.v.view(), o, division, own.options);
      check("o of decode", o, whole);
      check("lse of decode", lse, whole_lse);
      division.method = Method::pass_q;
      const Tensor own_q = own_rows(q);
      const Tensor wanted = own_rows(whole), wanted_lse = own_lse(whole_lse);
      Tensor own_o(wanted.dtype(), wanted.shape()), lse_of_rank(wanted_lse.dtype(), wanted_lse.shape());
      own.options.lse = lse_of_rank;
      distributed::attention(communicator_, own_q, own.k.view(), own.v.view(), own_o, division, own.options);
      check("o by pass_q", own_o, wanted);
      check("lse by pass_q", lse_of_rank, wanted_lse);
    }
  }

  /// dq, and dk and dv where documented, have the bits of one process; everything else has the same bits in every
  /// run and agrees with the reference.
  void compare_backward() {
    CheckedGradients whole(case_, seed_);
    whole.compute();
    Gradients own = empty_gradients(whole), again = own;
    backward(whole, own);
    const bool is_exact = division_.exact || division_.method == Method::heads;
    compare("dq", own.dq, own_rows(whole.dq.view()));
    if (is_exact) {
      compare("dk", own.dk, own_keys(whole.dk.view()));
      compare("dv", own.dv, own_keys(whole.dv.view()));
    } else {
      backward(whole, again);
      compare("dk, the second time,", again.dk, own.dk);
      compare("dv, the second time,", again.dv, own.dv);
    }
    whole.of_options = own.of_options;
    for (const auto& [all, part, sharding] : {std::tuple{&whole.dq, &own.dq, &division_.rows},
                                              {&whole.dk, &own.dk, &keys_},
                                              {&whole.dv, &own.dv, &keys_}})
      gather(*part, *sharding, all->view());
    if (seed_ % static_cast<std::uint64_t>(communicator_.size()) != static_cast<std::uint64_t>(rank_)) return;
    for (const Finding& finding : whole.compare())
      if (!finding.comparison.holds) lines_.push_back(finding.result + ": " + to_string(finding.comparison));
  }

  Gradients empty_gradients(const CheckedGradients& whole) const {
    return {own_rows(whole.dq.view()), own_keys(whole.dk.view()), own_keys(whole.dv.view()), whole.of_options};
  }

  void backward(const CheckedGradients& whole, Gradients& own) {
    const AttentionOutcome all = whole.outcome();
    const Tensor o = own_rows(all.o), dout = own_rows(all.dout), lse = own_lse(all.lse);
    AttentionOutcome outcome{.o = o, .lse = lse, .dout = dout, .dlse = {}};
    Tensor dlse;
    if (all.dlse) outcome.dlse = dlse = own_lse(all.dlse);
    distributed::attention_backward(communicator_, own_rows(case_.q.view()), own_keys(case_.k.view()),
                                    own_keys(case_.v.view()), outcome, own.views(), division_, case_.options);
  }

  /// Gathers the parts of all ranks in `whole`.
  void gather(const Tensor& own, const Sharding& sharding, const MutableTensorView& whole) {
    std::vector<Tensor> parts;
    std::size_t most = 1;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      Shape shape = own.shape();
      shape[static_cast<std::size_t>(dim_)] = sharding.rows(rank);
      most = std::max(most, parts.emplace_back(own.dtype(), shape).bytes());
    }
    std::vector<std::byte> sent(most), received(most * parts.size());
    if (own.bytes() > 0) std::memcpy(sent.data(), own.data(), own.bytes());
    communicator_.all_gather(sent.data(), received.data(), most,
                             std::chrono::steady_clock::now() + communicator_.timeout());
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      Tensor& part = parts[static_cast<std::size_t>(rank)];
      if (part.bytes() == 0) continue;
      std::memcpy(part.data(), received.data() + static_cast<std::size_t>(rank) * most, part.bytes());
      std::int64_t at = 0;
      for (const Run& run : sharding.runs(rank)) {
        copy(part.view().slice(dim_, at, at + run.size()), whole.slice(dim_, run.begin, run.end));
        at += run.size();
      }
    }
  }

  /// A few roundings of the coarsest type involved: weights are rounded to bf16 before they multiply bf16 values.
  double eps_of(DType dtype) const {
    double eps = dtype == DType::f64 ? 1e-13 : 1e-5;
    for (const ScatteredTensor* tensor : {&case_.q, &case_.k, &case_.v, &case_.o})
      eps = std::max(eps, tensor->memory().dtype() == DType::bf16  ? 2e-2
                          : tensor->memory().dtype() == DType::f16 ? 2e-3
                                                                   : 0.0);
    return eps;
  }

  /// For sums in another order: within a few roundings of the largest number.
  void compare_closely(const char* name, const Tensor& got, const Tensor& expected) {
    const Tensor a = Tensor::copy_of(got, DType::f64), b = Tensor::copy_of(expected, DType::f64);
    double largest = 0.0, difference = 0.0;
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const double x = a.values<double>()[static_cast<std::size_t>(i)],
                   y = b.values<double>()[static_cast<std::size_t>(i)];
      if (std::isnan(x) && std::isnan(y)) continue;
      largest = std::max(largest, std::abs(y));
      difference =
          std::isnan(x - y) ? std::numeric_limits<double>::infinity() : std::max(difference, std::abs(x - y));
    }
    const double eps = eps_of(got.dtype());
    if (difference > eps * (1.0 + largest))
      lines_.push_back(std::string(name) + " of rank " + std::to_string(rank_) + " differs by " +
                       std::to_string(difference) + ", numbers are up to " + std::to_string(largest));
  }

  void compare(const char* name, const Tensor& got, const Tensor& expected) {
    if (const std::int64_t count = bit_differences(got, expected).count; count > 0)
      lines_.push_back(std::string(name) + " of rank " + std::to_string(rank_) + ": " + std::to_string(count) +
                       " of " + std::to_string(got.size()) + " numbers differ");
  }

  distributed::Communicator& communicator_;
  int rank_;
  std::uint64_t seed_;
  AttentionCase case_;
  int dim_ = 0;
  ParallelConfig division_;
  Sharding keys_;
  Tensor lse_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> compare_divided(distributed::Communicator& communicator, std::uint64_t seed,
                                         std::string& problem, const Simplification& simpler) {
  DividedComparison comparison(communicator, seed, simpler);
  problem = comparison.problem();
  return comparison.run();
}

}  // namespace saccade::cases
