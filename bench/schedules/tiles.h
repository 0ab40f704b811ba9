// What a unit of work costs depends on the tiles of scores that it computes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/ceil_div.h"
#include "cpu/kernels.h"

namespace saccade::simulation {

/// Those of some rows that exist.
inline std::int64_t row_count(const AttentionParams& p, const cpu::QueryRows& work) {
  return std::clamp<std::int64_t>(p.rows(work.batch) - work.row, 0, work.rows);
}

/// The keys of a tile.
inline constexpr std::int64_t kTileKeys = 32;

/// Some rows and keys as tiles of a kernel's rows and kTileKeys keys.
struct Tiles {
  std::int64_t rows = 0;   // tiles of rows
  std::int64_t pairs = 0;  // tiles of scores of which any row sees any key
  std::int64_t edges = 0;  // those of them of which some row does not see some key
};

inline Tiles tiles_of(const AttentionParams& p, const cpu::QueryRows& work, std::int64_t tile_rows,
                      KeyRange keys) {
  const Visibility visibility(p, work.batch);
  const std::int64_t end = std::min(work.row + work.rows, p.rows(work.batch));
  Tiles tiles;
  for (std::int64_t row = work.row; row < end; row += tile_rows, ++tiles.rows) {
    const std::int64_t count = std::min(tile_rows, end - row);
    const KeyRange any = visibility.visible(row, count), all = visibility.visible_to_all(row, count);
    const std::int64_t begin = std::max(any.begin, keys.begin) / kTileKeys;
    const std::int64_t pairs = ceil_div(std::min(any.end, keys.end), kTileKeys) - begin;
    const std::int64_t first_whole = ceil_div(std::max(all.begin, keys.begin), kTileKeys);
    const std::int64_t whole = std::min(all.end, keys.end) / kTileKeys - first_whole;
    if (pairs <= 0) continue;
    tiles.pairs += pairs;
    tiles.edges += pairs - std::max<std::int64_t>(whole, 0);
  }
  return tiles;
}

/// Those of the keys of a block of `size` keys that exist.
inline KeyRange keys_of_block(const AttentionParams& p, std::int64_t batch, std::int64_t block,
                              std::int64_t size) {
  return {block * size, std::min((block + 1) * size, p.kv_length(batch))};
}

inline std::int64_t count(KeyRange keys) { return std::max<std::int64_t>(keys.end - keys.begin, 0); }

/// The keys of a block, and a block of rows that meets them, in a backward pass.
inline KeyRange keys_of_block(const BackwardParams& b, const cpu::KeyBlock& keys, const cpu::BackwardPlan& plan) {
  return keys_of_block(b.attention, keys.batch, keys.block, plan.block_k);
}
inline Tiles tiles_of(const BackwardParams& b, const cpu::KeyBlock& keys, const cpu::QueryRows& rows,
                      const cpu::BackwardPlan& plan) {
  return tiles_of(b.attention, rows, plan.tile_q, keys_of_block(b, keys, plan));
}

}  // namespace saccade::simulation
