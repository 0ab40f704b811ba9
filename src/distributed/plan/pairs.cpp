#include "distributed/plan/pairs.h"

#include <algorithm>

#include "backend/visibility.h"
#include "distributed/plan/runs.h"

namespace saccade::distributed {
namespace {

/// The keys of `among` that a row sees. From row to row, each end stays or moves on by one.
Run seen_by(const Visibility& visibility, std::int64_t row, Run among) {
  const KeyRange keys = visibility.visible(row);
  return {std::clamp(keys.begin, among.begin, among.end), std::clamp(keys.end, among.begin, among.end)};
}

/// The visible pairs of rows [first, last]; rows and keys are indices within a batch entry. While each end
/// either stays or moves throughout, the number of keys is linear in the row; otherwise the rows are halved.
double count_pairs(const Visibility& visibility, std::int64_t first, std::int64_t last, Run among) {
  const Run a = seen_by(visibility, first, among), b = seen_by(visibility, last, among);
  const auto is_linear = [&](std::int64_t change) { return change == 0 || change == last - first; };
  const bool crosses = (a.size() < 0) != (b.size() < 0);
  if (!crosses && is_linear(b.begin - a.begin) && is_linear(b.end - a.end)) {
    if (a.size() < 0) return 0.0;
    return static_cast<double>(last - first + 1) * static_cast<double>(a.size() + b.size()) / 2;
  }
  const std::int64_t middle = first + (last - first) / 2;
  return count_pairs(visibility, first, middle, among) + count_pairs(visibility, middle + 1, last, among);
}

}  // namespace

double pairs_of(const AttentionParams& p, std::int64_t batch, Run rows, const std::vector<Run>& keys) {
  const bool is_packed = p.cu_seqlens_q != nullptr;
  std::int64_t b = batch;
  if (is_packed)
    b = std::max<std::int64_t>(
        0, std::upper_bound(p.cu_seqlens_q, p.cu_seqlens_q + p.batch + 1, rows.begin) - p.cu_seqlens_q - 1);
  double pairs = 0.0;
  for (const std::int64_t end = is_packed ? p.batch : batch + 1; b < end && p.first_row(b) < rows.end; ++b) {
    const Run own = overlap_of(rows, {p.first_row(b), p.first_row(b) + p.rows(b)});
    if (own.size() == 0) continue;
    const Visibility visibility(p, b);
    for (const Run& run : keys) {
      const Run among = overlap_of(run, {p.first_key(b), p.first_key(b) + p.keys(b)});
      if (among.size() > 0)
        pairs += count_pairs(visibility, own.begin - p.first_row(b), own.end - 1 - p.first_row(b),
                             {among.begin - p.first_key(b), among.end - p.first_key(b)});
    }
  }
  return pairs;
}

}  // namespace saccade::distributed
