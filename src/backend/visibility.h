// The keys that a query row sees by its position (causal, window) and by the lengths of its sequence. Masks and
// score modifiers, which hide single keys, apply where scores are computed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/attention_params.h"

namespace saccade {

/// Keys [begin, end); none where begin >= end.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

/// The position of query row 0 of batch entry b: given, or for Causal::bottom_right the one that aligns the last
/// row with the last valid key.
inline std::int64_t position_of_first_row(const AttentionParams& p, std::int64_t b) {
  if (p.query_offsets) return p.query_offsets[b];
  const std::int64_t rows = p.rows_of_head > 0 ? p.rows_of_head : p.rows(b);
  return p.bottom_right ? p.kv_length(b) - rows : p.query_offset;
}

/// Positions and lengths of one batch entry. Both ends of visible() are non-decreasing in the position, so the
/// first and last position of a tile bound all others.
struct Visibility {
  std::int64_t offset, start, length, window_left, window_right;
  std::int64_t rows_of_head;  // see AttentionParams
  bool causal;

  Visibility(const AttentionParams& params, std::int64_t batch)
      : offset(position_of_first_row(params, batch)),
        start(params.kv_start(batch)),
        length(params.kv_length(batch)),
        window_left(params.window_left),
        window_right(params.window_right),
        rows_of_head(params.rows_of_head),
        causal(params.causal) {}

  KeyRange visible(std::int64_t row) const {
    const std::int64_t position = (rows_of_head > 0 ? row % rows_of_head : row) + offset;
    KeyRange range{start, length};
    if (causal) range.end = std::min(range.end, position + 1);
    if (window_right >= 0) range.end = std::min(range.end, position + window_right + 1);
    if (window_left >= 0) range.begin = std::max(range.begin, position - window_left);
    range.end = std::max<std::int64_t>(range.end, 0);
    return range;
  }

  /// The keys that any row of [row, row + rows) sees.
  KeyRange visible(std::int64_t row, std::int64_t rows) const {
    const Bounds of = bounds(row, rows);
    return {visible(of.first).begin, visible(of.last).end};
  }

  /// The keys that all rows of [row, row + rows) see.
  KeyRange visible_to_all(std::int64_t row, std::int64_t rows) const {
    const Bounds of = bounds(row, rows);
    return {visible(of.last).begin, visible(of.first).end};
  }

 private:
  /// The rows of [row, row + rows) with the first and the last position; of more than one head, those of a head.
  struct Bounds {
    std::int64_t first, last;
  };
  Bounds bounds(std::int64_t row, std::int64_t rows) const {
    const std::int64_t last = row + rows - 1;
    if (rows_of_head > 0 && row / rows_of_head != last / rows_of_head) return {0, rows_of_head - 1};
    return {row, last};
  }
};

/// The keys of a batch entry that a call has to read: those that any row sees by position, window and length; all
/// of them if scores are reported.
inline KeyRange readable_keys(const AttentionParams& p, std::int64_t b) {
  const KeyRange all{0, p.block_table ? p.kv_length(b) : p.keys(b)};
  if (p.saves_hidden()) return all;
  return p.rows(b) > 0 ? Visibility(p, b).visible(0, p.rows(b)) : KeyRange{};
}

}  // namespace saccade
