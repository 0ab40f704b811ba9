// Plan: which rank computes which rows from which keys, in which step.
#include <algorithm>
#include <map>

#include "backend/visibility.h"
#include "core/ceil_div.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "distributed/plan/choose.h"
#include "distributed/plan/pairs.h"
#include "distributed/plan/runs.h"
#include "distributed/plan/whole.h"
#include "saccade/distributed.h"

namespace saccade::distributed {
namespace {

/// The keys that the rows [rows.begin, rows.end) of a batch entry see, as indices within the entry.
Run visible_keys(const AttentionParams& p, std::int64_t b, Run rows) {
  if (rows.size() <= 0) return {};
  const KeyRange keys = Visibility(p, b).visible(rows.begin, rows.size());
  return keys.begin < keys.end ? Run{keys.begin, keys.end} : Run{};
}

/// The rows of a run that belong to a batch entry or document, as indices within it.
Run rows_in(const AttentionParams& p, std::int64_t b, Run run) {
  const Run rows = overlap_of(run, {p.first_row(b), p.first_row(b) + p.rows(b)});
  return {rows.begin - p.first_row(b), rows.end - p.first_row(b)};
}

/// Whether a method splits the keys of a head over several steps, and so computes document by document.
bool is_in_parts(Method method) { return method == Method::stream || method == Method::ring; }

}  // namespace

struct Plan::State {
  State(const Sizes& sizes_of_problem, const ParallelConfig& division_of_call, const AttentionOptions& options,
        std::string_view function)
      : sizes(sizes_of_problem),
        division(division_of_call),
        whole(sizes, division.rows.length(), division.keys.length(), options, function),
        p(whole.params),
        entries(p.cu_seqlens_q ? 1 : p.batch),
        same_entries(!p.query_offsets && !p.kv_lengths && !p.kv_starts) {}

  /// The batch entry whose pieces an entry uses: entries that see the same keys share them.
  std::int64_t alike(std::int64_t batch) const { return same_entries ? 0 : batch; }

  const std::vector<Piece>& pieces(int rank, std::int64_t batch) {
    const auto [found, is_new] = known.try_emplace({rank, alike(batch)});
    if (is_new) {
      for (const Run& run : rows_of_group(rank))
        p.cu_seqlens_q ? add_documents(run, found->second) : add_entry(alike(batch), run, found->second);
    }
    return found->second;
  }

  std::vector<Run> rows_of_group(int rank) const {
    std::vector<Run> runs;
    const int first = rank / groups * groups;
    for (int other = first; other < first + groups; ++other)
      runs.insert(runs.end(), division.rows.runs(other).begin(), division.rows.runs(other).end());
    return merged(runs);
  }

  void add_entry(std::int64_t b, Run rows, std::vector<Piece>& pieces) const {
    const Run keys = visible_keys(p, b, rows);
    const std::int64_t key = keys.begin / kOriginAlignment * kOriginAlignment;
    if (keys.size() <= 0) return pieces.push_back({b, 1, rows, {}, rows.begin, 0});
    pieces.push_back({b, 1, rows, {key, keys.end}, rows.begin, key});
  }

  /// A document that begins before the run is a piece of its own; the others are one piece, unless the keys of a
  /// head are split over several steps.
  void add_documents(Run run, std::vector<Piece>& pieces) const {
    for (std::int64_t d = first_document(run); d < p.batch && p.first_row(d) < run.end; ++d) {
      const Run rows = rows_in(p, d, run);
      if (rows.size() <= 0) continue;
      const Run keys = visible_keys(p, d, rows);
      const bool joins = !is_in_parts(division.method) && rows.begin == 0 && !pieces.empty() &&
                         pieces.back().row == 0 && pieces.back().rows.end == p.first_row(d);
      if (joins) {
        Piece& last = pieces.back();
        last.entries = d + 1 - last.batch;
        last.rows.end = p.first_row(d) + rows.end;
        last.keys.begin = p.first_key(last.batch);
        if (keys.size() > 0) last.keys.end = p.first_key(d) + keys.end;
        last.key = 0;
        continue;
      }
      const std::int64_t key = keys.begin / kOriginAlignment * kOriginAlignment;
      pieces.push_back({d,
                        1,
                        {p.first_row(d) + rows.begin, p.first_row(d) + rows.end},
                        {p.first_key(d) + key, p.first_key(d) + keys.end},
                        rows.begin,
                        key});
    }
  }

  std::int64_t first_document(Run run) const { return first_document(p.cu_seqlens_q, run); }
  std::int64_t first_document(const std::int64_t* begins, Run run) const {
    return std::max<std::int64_t>(0, std::upper_bound(begins, begins + p.batch + 1, run.begin) - begins - 1);
  }

  /// The rows of a batch entry that may see some of its keys, as indices within the entry.
  Run rows_seeing(std::int64_t b, Run keys) const {
    const Visibility visibility(p, b);
    const auto first = [&](const auto& holds) {  // the first row for which it holds; it holds for all later ones
      std::int64_t low = 0, high = p.rows(b);
      while (low < high) {
        const std::int64_t row = low + (high - low) / 2;
        if (holds(visibility.visible(row)))
          high = row;
        else
          low = row + 1;
      }
      return low;
    };
    const std::int64_t begin = first([&](KeyRange seen) { return seen.end > keys.begin; });
    return {begin, std::max(begin, first([&](KeyRange seen) { return seen.begin >= keys.end; }))};
  }

  /// Calls f(entry, keys, rows that see them), both counted in the entry, for a rank's keys.
  template <class F>
  void for_keys(int rank, std::int64_t batch, const F& f) const {
    for (const Run& run : division.keys.runs(rank)) {
      const bool packed = p.cu_seqlens_k != nullptr;
      std::int64_t b = packed ? first_document(p.cu_seqlens_k, run) : batch;
      for (const std::int64_t end = packed ? p.batch : batch + 1; b < end && (!packed || p.first_key(b) < run.end);
           ++b) {
        const Run own = overlap_of(run, {p.first_key(b), p.first_key(b) + p.keys(b)});
        const Run keys{own.begin - p.first_key(b), own.end - p.first_key(b)};
        if (keys.size() > 0) f(b, keys, rows_seeing(b, keys));
      }
    }
  }

  /// All keys that a rank's rows see.
  const std::vector<Run>& keys_of(int rank, std::int64_t batch) {
    const auto [found, is_new] = known_keys.try_emplace({rank, alike(batch)});
    if (!is_new) return found->second;
    std::vector<Run> runs;
    for (const Run& run : rows_of_group(rank)) {
      const bool packed = p.cu_seqlens_q != nullptr;
      std::int64_t b = packed ? first_document(run) : alike(batch);
      for (const std::int64_t end = packed ? p.batch : b + 1; b < end && (!packed || p.first_row(b) < run.end);
           ++b) {
        const Run keys = visible_keys(p, b, rows_in(p, b, run));
        runs.push_back({p.first_key(b) + keys.begin, p.first_key(b) + keys.end});
      }
    }
    return found->second = merged(runs);
  }

  /// The keys of part `part` of a head's keys, in the order in which rank `rank` takes the parts.
  std::vector<Run> part(int rank, std::int64_t part) const {
    if (division.method == Method::stream) return {{boundary(part), boundary(part + 1)}};
    const int ranks = division.keys.ranks();
    if (division.method == Method::ring)
      return merged(division.keys.runs(static_cast<int>((rank - part % ranks + ranks) % ranks)));
    return {{0, division.keys.length()}};
  }

  /// The first key of part `part` of stream's keys: at a multiple of kOriginAlignment within its document.
  std::int64_t boundary(std::int64_t part) const {
    const std::int64_t key = part * division.chunk;
    if (part == parts()) return division.keys.length();
    if (!p.cu_seqlens_k) return key;
    const std::int64_t* const begins = p.cu_seqlens_k;
    const std::int64_t begin = *(std::upper_bound(begins, begins + p.batch, key) - 1);
    return begin + (key - begin) / kOriginAlignment * kOriginAlignment;
  }

  std::int64_t parts() const {
    if (division.method == Method::stream)
      return std::max<std::int64_t>(1, ceil_div(division.keys.length(), division.chunk));
    return division.method == Method::ring ? division.keys.ranks() : 1;
  }

  /// The kv heads that a rank computes: a share of them if the ranks of a group share rows.
  Run heads(int rank) const {
    const std::int64_t n = sizes.num_kv_heads, part = rank % groups;
    return {part * n / groups, (part + 1) * n / groups};
  }

  Sizes sizes;
  ParallelConfig division;
  WholeProblem whole;
  const AttentionParams& p;
  std::int64_t entries;  // batch entries that are computed one after the other
  bool same_entries;
  int groups = 1;  // ranks of a group that share their rows
  std::map<std::pair<int, std::int64_t>, std::vector<Piece>> known;
  std::map<std::pair<int, std::int64_t>, std::vector<Run>> known_keys;
};

std::string_view name_of(Method method) {
  constexpr std::string_view kNames[] = {"automatic", "gather", "heads", "grid", "stream", "ring", "pass_q"};
  const auto index = static_cast<std::size_t>(method);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

namespace {

constexpr std::string_view kPlan = "distributed::Plan";

void check_rank(int rank, int ranks) {
  if (rank < 0 || rank >= ranks) refuse(kPlan, "rank must be from 0 to ", ranks - 1, ", got ", rank);
}

void check_batch(std::int64_t batch, std::int64_t entries) {
  if (batch < 0 || batch >= entries) refuse(kPlan, "batch must be from 0 to ", entries - 1, ", got ", batch);
}

/// No product of sizes and lengths overflows.
void check_sizes(std::string_view function, const Sizes& sizes, const ParallelConfig& division) {
  constexpr double kMostBytes = 0x1p59;
  const std::pair<const char*, std::int64_t> all[] = {
      {"batch", sizes.batch},       {"num_heads", sizes.num_heads},   {"num_kv_heads", sizes.num_kv_heads},
      {"head_dim", sizes.head_dim}, {"head_dim_v", sizes.head_dim_v}, {"element_bytes", sizes.element_bytes}};
  for (const auto& [name, value] : all)
    if (value < 0 || value > kMaxLength) refuse(function, "sizes.", name, " must be from 0 to 2^40, got ", value);
  const auto factor = [](std::int64_t size) { return static_cast<double>(std::max<std::int64_t>(1, size)); };
  const double heads = std::max(factor(sizes.num_heads), factor(sizes.num_kv_heads)),
               length = std::max(factor(division.rows.length()), factor(division.keys.length()));
  if (factor(sizes.batch) * heads * length * factor(sizes.head_dim + sizes.head_dim_v) *
          factor(sizes.element_bytes) >
      kMostBytes)
    refuse(function, "sizes are too large: q, k or v would have more than 2^59 bytes");
}

}  // namespace

Plan::Plan(const Sizes& sizes, const ParallelConfig& division, const AttentionOptions& options,
           std::string_view function) {
  ParallelConfig complete = division;
  if (complete.rows.ranks() == 0) refuse(function, "rows of the division were not given");
  if (complete.keys.ranks() == 0) complete.keys = complete.rows;
  const int ranks = complete.rows.ranks();
  if (complete.keys.ranks() != ranks)
    refuse(function, "the division has rows for ", ranks, " ranks but keys for ", complete.keys.ranks());
  if (complete.chunk < kOriginAlignment || complete.chunk > kMaxLength || complete.chunk % kOriginAlignment != 0)
    refuse(function, "chunk must be a multiple of ", kOriginAlignment, " up to 2^40, got ", complete.chunk);
  check_sizes(function, sizes, complete);
  if (complete.method == Method::automatic) complete = choose(sizes, complete, options, function);
  if (complete.method == Method::pass_q) check_options_of(AttentionCall::distributed_decode, function, options);
  if (complete.method == Method::heads) complete.head_groups = ranks;
  if (complete.method != Method::heads && complete.method != Method::grid) complete.head_groups = 1;
  const int groups = complete.head_groups;
  if (groups < 1 || ranks % groups != 0)
    refuse(function, "head_groups must divide the ", ranks, " ranks, got ", groups);
  if (groups > 1 && groups > sizes.num_kv_heads)
    refuse(function,
           complete.method == Method::heads ? "method heads needs a kv head for each of the "
                                            : "head_groups needs a kv head for each of the ",
           groups, " ranks of a group, but k has ", sizes.num_kv_heads);
  state_ = std::make_unique<State>(sizes, complete, options, function);
  state_->groups = groups;
}
Plan::~Plan() = default;

const ParallelConfig& Plan::division() const { return state_->division; }
const Sizes& Plan::sizes() const { return state_->sizes; }
std::int64_t Plan::entries() const { return state_->entries; }
int Plan::ranks() const { return state_->division.rows.ranks(); }
bool Plan::shares_rows() const { return state_->groups > 1; }

std::vector<Run> Plan::rows(int rank, std::int64_t step) const {
  return unit(rank, step).exists ? state_->rows_of_group(rank) : std::vector<Run>{};
}

std::int64_t Plan::steps() const {
  const std::int64_t most_heads = ceil_div(state_->sizes.num_kv_heads, std::int64_t{state_->groups});
  return most_heads * state_->entries * state_->parts();
}

Plan::Unit Plan::unit(int rank, std::int64_t step) const {
  check_rank(rank, ranks());
  if (step < 0) refuse(kPlan, "step must be 0 or more, got ", step);
  if (step >= steps()) return {};
  const std::int64_t parts = state_->parts(), index = step / parts;
  const Run heads = state_->heads(rank);
  Unit unit{
      .batch = index % state_->entries, .kv_head = heads.begin + index / state_->entries, .part = step % parts};
  unit.exists = unit.kv_head < heads.end;
  unit.is_last = unit.part + 1 == parts;
  return unit;
}

std::vector<Plan::Piece> Plan::pieces(int rank, std::int64_t batch) const {
  check_rank(rank, ranks());
  check_batch(batch, entries());
  std::vector<Piece> pieces = state_->pieces(rank, batch);
  if (!state_->p.cu_seqlens_q) {
    for (Piece& piece : pieces) piece.batch = batch;
  }
  return pieces;
}

std::vector<Plan::Piece> Plan::pieces_of_keys(int rank, std::int64_t batch) const {
  check_rank(rank, ranks());
  check_batch(batch, entries());
  const AttentionParams& p = state_->p;
  std::vector<Piece> pieces;
  state_->for_keys(rank, batch, [&](std::int64_t b, Run keys, Run rows) {
    const std::int64_t row = rows.size() > 0 ? rows.begin / kRowAlignment * kRowAlignment : rows.begin;
    pieces.push_back({.batch = b,
                      .entries = 1,
                      .rows = {p.first_row(b) + row, p.first_row(b) + rows.end},
                      .keys = {p.first_key(b) + keys.begin, p.first_key(b) + keys.end},
                      .row = row,
                      .key = keys.begin});
  });
  return pieces;
}

std::vector<Run> Plan::rows_of_keys(int rank, std::int64_t batch) const {
  check_rank(rank, ranks());
  check_batch(batch, entries());
  std::vector<Run> runs;
  state_->for_keys(rank, batch, [&](std::int64_t b, Run, Run rows) {
    runs.push_back({state_->p.first_row(b) + rows.begin, state_->p.first_row(b) + rows.end});
  });
  return merged(runs);
}

Run Plan::keys_of_call(const Piece& piece, Run keys) const {
  if (state_->parts() == 1) return piece.keys;
  const Run seen = overlap_of(piece.keys, keys);
  if (seen.size() == 0) return seen;
  const std::int64_t entry = piece.keys.begin - piece.key;  // where its keys begin in the sequence
  return {std::max(piece.keys.begin, entry + (seen.begin - entry) / kOriginAlignment * kOriginAlignment),
          seen.end};
}

std::vector<Run> Plan::keys(int rank, std::int64_t step) const {
  const Unit one = unit(rank, step);
  if (!one.exists) return {};
  const std::vector<Run>& all = state_->keys_of(rank, one.batch);
  return state_->parts() == 1 ? all : overlap_of(all, state_->part(rank, one.part));
}

bool Plan::are_alike(std::int64_t a, std::int64_t b) const {
  for (int rank = 0; rank < ranks(); ++rank) {
    const Unit one = unit(rank, a), other = unit(rank, b);
    if (one.exists != other.exists || one.part != other.part) return false;
    if (state_->alike(one.batch) != state_->alike(other.batch)) return false;
  }
  return true;
}

double Plan::pairs(int rank, std::int64_t step) const {
  const Unit one = unit(rank, step);
  double pairs = 0.0;
  for (const Run& rows : rows(rank, step))
    pairs += pairs_of(state_->p, one.batch, rows, state_->part(rank, one.part));
  return pairs;
}

double Plan::pairs_of_keys(int rank, std::int64_t batch) const {
  check_rank(rank, ranks());
  check_batch(batch, entries());
  const std::vector<Run>& keys = state_->division.keys.runs(rank);
  return pairs_of(state_->p, batch, {0, state_->division.rows.length()}, keys);
}

}  // namespace saccade::distributed
