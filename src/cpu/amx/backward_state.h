// What the backward pass on AMX tiles (amx/backward.h) keeps of a block of keys and a block of rows: which numbers
// tiles can hold, how they are packed, and its memory.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/backward_shared.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Tiles of 32 keys in a block of keys, and groups of 32 rows in a block of rows: at head_dim 128, what is reused
/// (split P and dS, packed keys and rows, gradients) then fills an L2 cache of 2 MiB. Calculated, not measured.
inline constexpr int kKeyTilesOfAmx = 8;
inline constexpr std::int64_t kKeysOfAmx = 32 * kKeyTilesOfAmx;
template <class T>
inline constexpr int kRowGroupsOf = kPartsOf<T> == 1 ? 8 : 4;
inline constexpr int kMaxRowGroups = 8;

// ---- Packing -------------------------------------------------------------------------------------------------

/// What scans of numbers for products of scores and of values find.
template <class T>
struct BackwardScan {
  ScoreScan<T> scores;
  MagnitudeScan<T, kLeastOfValues<T>> values;

  /// Whether tiles can hold all of them, and no sum over a head of products of two such numbers is infinite.
  bool all_fit() const {
    return scores.all_fit() && values.all_fit() && std::max(scores.largest(), values.largest()) < 0x1p56F;
  }
};

/// Packs rows of q and dout, or of k and v, by `pack`, which adds them to `scan`; and if some rows do not fit or
/// are not usable, again with zeros for those. Returns them, one bit each. `all_usable`: whether all rows are
/// usable.
template <class T, class Usable, class Pack>
std::uint32_t pack_fitting(Rows32<T>& of_scores, Rows32<T>& of_values, const BackwardScan<T>& scan,
                           bool all_usable, const Usable& usable, const Pack& pack) {
  pack();
  if (all_usable && scan.all_fit()) return 0;
  const std::uint32_t bad = of_scores.keep_if([&](int i) {
    BackwardScan<T> of_row;
    of_row.scores.add_row(of_scores[i], of_scores.dim()), of_row.values.add_row(of_values[i], of_values.dim());
    return usable(i) && of_row.all_fit();
  });
  of_values.keep_if([&](int i) { return (bad >> i & 1U) == 0; });
  pack();
  return bad;
}

/// The order of keys in which Bf16Split::split_rows() writes the rows of dS: pairs of keys j and 16 + j.
constexpr int key_of_gradient(int n) { return n / 2 + n % 2 * 16; }

/// The left operand of products over rows, transposed, of query rows in the order in which Bf16Split::split_rows()
/// pairs them: [32 columns][part][32 columns][16 pairs of rows 2 i and 2 i + 1].
template <class T>
void pack_query_pairs(const Rows32<T>& rows, std::uint32_t* to) {
  MagnitudeScan<T, 1> scan;  // of numbers that have been scanned
  rows.for_each_32([&](StridedRows<T> some) {
    alignas(64) std::uint32_t pairs[kWordsOf<T>];
    SACCADE_UNROLL
    for (int pair = 0; pair < 16; ++pair)
      put_pair<kPartsOf<T>>(some[2 * pair], some[2 * pair + 1], pairs + pair * 16, scan);
    transpose_parts<kPartsOf<T>>(pairs, to);
    to += kWordsOf<T>;
  });
}

// ---- Memory --------------------------------------------------------------------------------------------------

/// Statistics of the rows and keys of a block.
struct BackwardTileStats {
  Subtiles subtiles[kMaxRowGroups][kKeyTilesOfAmx];  // none: no row of the group sees a key of the tile
  std::uint32_t bad_rows[kMaxRowGroups];             // a bit for each row that is packed as zeros
  std::uint32_t bad_keys[kKeyTilesOfAmx];            // the same for keys
  bool keeps_all[kMaxRowGroups];                     // all P and dS of the group are in memory, not yet split
};

/// The memory of one block of keys.
template <class T>
class AmxBackwardScratch : public ScratchSlices {
 public:
  static constexpr std::int64_t kGroups = kRowGroupsOf<T>, kTiles = kKeyTilesOfAmx, kWords = kWordsOf<T>;
  static constexpr std::int64_t kBlocks = kGroups * kTiles;

  AmxBackwardScratch(const BackwardParams& b, void* memory) : ScratchSlices(memory) {
    const AttentionParams& p = b.attention;
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v);
    stats = take<BackwardTileStats>(1);
    if (b.wants_rows()) key_pairs = take<std::uint32_t>(kTiles * depth * kWords);
    row_gradients = take<std::uint32_t>(kBlocks * kWords);
    parked = bytes();
    keys = take<std::uint32_t>(kTiles * depth * kWords);
    values = take<std::uint32_t>(kTiles * width * kWords);
    queries = take<std::uint32_t>(depth * kWords);
    douts = take<std::uint32_t>(width * kWords);
    if (b.wants_keys()) {
      query_pairs = take<std::uint32_t>(kGroups * depth * kWords);
      dout_pairs = take<std::uint32_t>(kGroups * width * kWords);
    }
    weights = take<std::uint32_t>(kBlocks * kWords);
    pair_gradients = take<std::uint32_t>(kBlocks * kWords);
    ring = take<float>(2 * kRing * 1024);
    probabilities = take<float>(kBlocks * 1024);
    gradients = take<float>(kBlocks * 1024);
    if (p.dropout_p > 0.0) keeps = take<float>(kGroups * kKeepsOfGroup);
    if (p.softcap != 0.0 || b.score_modifier_backward) softcapped = take<float>(kBlocks * 1024);
    mask = take<float>(1024);
    if (!b.wants_keys()) return;
    dk = take<float>(kTiles * depth * 1024);
    dv = take<float>(kTiles * width * 1024);
    written = take<float>(std::max(depth, width) * 1024);
  }

  /// Those of the first tiles of keys: the others do not exist.
  void clear_gradients(std::int64_t tiles) {
    std::fill_n(dk, tiles * depth * 1024, 0.0F);
    std::fill_n(dv, tiles * width * 1024, 0.0F);
  }

  static constexpr int kRing = 2;
  static constexpr std::int64_t kKeepsOfGroup = 32 * kKeysOfAmx;

  std::int64_t depth, width;  // in tiles
  std::size_t parked;         // bytes up to the end of row_gradients
  BackwardTileStats* stats;
  std::uint32_t* keys;                   // [tile][depth], of pack_columns()
  std::uint32_t* values;                 // [tile][width], the same
  std::uint32_t* key_pairs = nullptr;    // for dq: [tile][depth], of pack_key_pairs()
  std::uint32_t* queries;                // [depth], of pack_rows()
  std::uint32_t* douts;                  // [width], the same
  std::uint32_t* query_pairs = nullptr;  // for dk and dv: [group][depth], of pack_query_pairs()
  std::uint32_t* dout_pairs = nullptr;   // [group][width], the same
  std::uint32_t* weights;                // [group][tile], P after dropout, not scaled: pairs of rows
  std::uint32_t* row_gradients;          // [group][tile], dS: rows
  std::uint32_t* pair_gradients;         // [group][tile], dS: pairs of rows
  float* ring;                           // [kRing][2][32][32], S and dP, then P and dS, of tiles in progress
  float* probabilities;                  // [group][tile][32][32], of groups that keep all
  float* gradients;                      // the same
  float* keeps = nullptr;                // [group][32][kKeysOfAmx], of dropout: 1 or 0
  float* softcapped = nullptr;           // [group][tile][32][32], scores before the score modifier
  float* mask;                           // [32][32], of ScoreFinisher
  float* dk = nullptr;                   // [tile][depth][32 dimensions][32 keys]; nullptr: not requested
  float* dv = nullptr;                   // [tile][width], the same
  float* written = nullptr;              // [depth or width][32 keys][32 dimensions]
};

// ---- Results -------------------------------------------------------------------------------------------------

/// Writes, if requested, `scale` times the sums of a block of keys, [tile][32 dimensions of each][32
/// dimensions][32 keys]. `transposed` has space for a tile.
inline void write_keys(const AttentionParams& p, const KeyBlock& keys, const StridedHeads<void>& to,
                       const float* sums, std::int64_t dim, double scale, float* transposed) {
  if (to.data == nullptr) return;
  const std::int64_t size = depth_tiles(dim) * 1024, block_key = keys.block * kKeysOfAmx;
  const std::int64_t count = std::min<std::int64_t>(kKeysOfAmx, p.keys(keys.batch) - block_key);
  for (std::int64_t first = 0; first < count; first += 32, sums += size) {
    for (std::int64_t at = 0; at < size; at += 1024)
      for (int d = 0; d < 32; d += kWidth)
        for (int j = 0; j < 32; j += kWidth)
          transpose_tile(sums + at + d * 32 + j, 32, transposed + at + j * 32 + d, 32);
    with_storage(to.dtype, [&](auto type) {
      for (std::int64_t j = first; j < std::min(first + 32, count); ++j)
        write_scaled(transposed + (j - first) * 32, 1024, dim, static_cast<float>(scale),
                     to.row<decltype(type)>(keys.batch, keys.kv_head, p.first_key(keys.batch) + block_key + j), 0);
    });
  }
}

/// Writes the gradients of a block of rows from their sums, [group][32 dimensions of each][32 rows][32
/// dimensions], or zeros if there are none.
inline void write_rows(const BackwardParams& b, const QueryRows& work, const float* sums) {
  const AttentionParams& p = b.attention;
  const std::int64_t rows = std::min(work.rows, p.rows(work.batch) - work.row);
  const std::int64_t size_of_group = depth_tiles(p.head_dim) * 1024;
  with_storage(b.dq.dtype, [&](auto type) {
    for (std::int64_t i = 0; i < rows; ++i) {
      auto* const to = p.row_of<decltype(type)>(b.dq, work.batch, work.head, work.row + i);
      if (sums)
        write_scaled(sums + i / 32 * size_of_group + i % 32 * 32, 1024, p.head_dim, static_cast<float>(p.scale),
                     to, 0);
      else
        std::fill_n(to, p.head_dim, decltype(type){});
    }
  });
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
