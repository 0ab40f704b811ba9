// The scores of inspection (inspect.h) on AMX tiles, for q and k of one type, computed as in the forward pass
// (amx/forward.h): 32 rows and kFoldColumns keys at a time. Tiles cannot hold queries and keys that are not finite
// or too small, nor scores that overflow; such pairs are multiplied one by one.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/inspect.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// kParts: of q and k.
template <class T, int kParts>
class TileScores {
  static constexpr int kTiles = kFoldColumns / 32;  // of a step's keys
  static constexpr std::int64_t kWords = kWordsOf<T, kParts>;
  template <class Byte>
  using Tile = PackedTile<T, Byte, kParts>;

 public:
  class Scratch : public ScratchSlices {
   public:
    Scratch(const AttentionParams& p, std::int64_t tiles, void* memory) : ScratchSlices(memory) {
      queries = take<std::uint32_t>(tiles * depth_tiles(p.head_dim) * kWords);
      packed = take<std::byte>(kTiles * Tile<std::byte>::size(p));
      mask = take<float>(kTiles * 1024);
    }

    std::uint32_t* queries;  // [tile of rows][32 dimensions][part][32 rows][16 words]
    std::byte* packed;       // [kTiles], where the caller has packed none
    float* mask;             // [kTiles][32][32]
  };

  TileScores(const AttentionParams& p, const QueryRows& work, const PackedKeys& packed,
             const Visibility& visibility, const Scratch& scratch)
      : p_(p),
        batch_(work.batch),
        head_(work.head),
        kv_head_(work.head / (p.num_heads / p.num_kv_heads)),
        packed_(packed),
        finisher_(p, visibility, work.batch, work.head),
        factor_(factor_of_queries<T>(score_unit(p).query_factor)),
        scratch_(scratch) {}

  void pack_queries(int tile, std::int64_t row, int rows) {
    queries_[tile] = pack_query_tile<T, kParts>(p_, {batch_, head_, row, rows}, factor_, queries(tile));
  }

  /// As ProductScores::compute().
  unsigned compute(const InspectStep& step, KeyRange range, float* scores, float* row_max, bool with_maxima) {
    std::array<Subtiles, kTiles> subtiles;
    unsigned computed = 0;
    for (int t = 0; t < kTiles; ++t) {
      const std::int64_t key = step.first_key + t * 32;
      if (key + 32 <= range.begin || key >= range.end) continue;
      Subtiles& some = subtiles[static_cast<std::size_t>(t)];
      some = finisher_.plan(step.row, step.rows, key, scratch_.mask + t * 1024);
      computed |= static_cast<unsigned>(some.count != 0) << t;
    }
    if (computed == 0) return 0;
    if (!packed_.blocks && step.first_key != packed_key_) pack_step(step.first_key, range);
    if (poll_progress() || p_.score_modifier) tiles_.configure();  // the caller's functions may have used tiles
    multiply(step, computed, scores);
    for (unsigned left = computed; left != 0; left &= left - 1) {
      const int t = std::countr_zero(left);
      const Subtiles& some = subtiles[static_cast<std::size_t>(t)];
      float* const block = scores + t * 1024;
      multiply_bad_pairs(step, t, range, block);
      if (some.partial != 0)
        finisher_.finish(step.row, step.rows, step.first_key + t * 32, some, scratch_.mask + t * 1024, block,
                         row_max);
      else if (with_maxima)
        raise_maxima(block, row_max);
    }
    return computed;
  }

 private:
  std::uint32_t* queries(int tile) const { return scratch_.queries + tile * depth_tiles(p_.head_dim) * kWords; }

  Tile<const std::byte> keys_at(std::int64_t first_key) const {
    const std::int64_t tile = first_key / 32, size = Tile<std::byte>::size(p_);
    if (!packed_.blocks) return {p_, scratch_.packed + tile % kTiles * size};
    return {p_, static_cast<const std::byte*>(packed_.blocks) + (tile - packed_.first_block) * size};
  }

  void pack_step(std::int64_t first_key, KeyRange range) {
    packed_key_ = first_key;
    const KvSource k = p_.key_source(batch_, kv_head_);
    for (std::int64_t t = 0; t < kTiles; ++t)
      pack_tile<T, kParts>(p_, k, k, first_key + t * 32, range,
                           {p_, scratch_.packed + t * Tile<std::byte>::size(p_)});
  }

  void multiply(const InspectStep& step, unsigned computed, float* scores) {
    TileStream stream(tiles_);
    for (unsigned left = computed; left != 0; left &= left - 1) {
      const int t = std::countr_zero(left);
      multiply_rows<PairsOf<T, kParts>::kExact>(stream, queries(step.tile), keys_at(step.first_key + t * 32).keys,
                                                depth_tiles(p_.head_dim), scores + t * 1024, NoOverlap{});
    }
    stream.leave_all();
  }

  /// Multiplies pairs whose query or key tiles cannot hold, and pairs whose score may have overflowed.
  void multiply_bad_pairs(const InspectStep& step, int tile, KeyRange range, float* block) const {
    constexpr float kMost = 1e30F;
    const std::int64_t first_key = step.first_key + tile * 32;
    const auto& keys = *keys_at(first_key).stats;
    const QueryTileStats& rows = queries_[step.tile];
    const bool fits = rows.largest * keys.largest * static_cast<float>(p_.head_dim) < kMost;
    if (fits && rows.bad == 0 && keys.bad == 0) [[likely]]
      return;
    const int begin = static_cast<int>(std::max<std::int64_t>(range.begin - first_key, 0));
    const int end = static_cast<int>(std::min<std::int64_t>(range.end - first_key, 32));
    with_rows<T>(p_.key_source(batch_, kv_head_), [&](const auto& k) {
      for (int i = 0; i < step.rows; ++i) {
        const T* const query = p_.template row_of<T>(p_.q, batch_, head_, step.row + i);
        for (int j = begin; j < end; ++j)
          if (((rows.bad >> i | keys.bad >> j) & 1U) != 0 || !(std::abs(block[i * 32 + j]) < kMost))
            block[i * 32 + j] = dot(query, k[first_key + j]);
      }
    });
  }

  template <class Row>
  float dot(const T* query, Row key) const {
    LaneSum sum;
    for (std::int64_t d = 0; d < p_.head_dim; d += kWidth) {
      const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim - d));
      sum.add(d, mul(broadcast(factor_), load_first(query + d, n)), load_first(key + d, n));
    }
    const float product = sum.total();
    return product == product ? product : std::numeric_limits<float>::quiet_NaN();  // without a payload
  }

  static void raise_maxima(const float* block, float* row_max) {
    for (int i = 0; i < 32; ++i) {
      Vec largest = load(row_max + i * kWidth);
      for (int j = 0; j < 32; j += kWidth) largest = max(largest, load(block + i * 32 + j));
      store(row_max + i * kWidth, largest);
    }
  }

  const AttentionParams& p_;
  std::int64_t batch_, head_, kv_head_;
  PackedKeys packed_;
  ScoreFinisher finisher_;
  float factor_;
  const Scratch& scratch_;
  Tiles tiles_;
  std::int64_t packed_key_ = -1;  // the first key of scratch_.packed
  QueryTileStats queries_[kMaxTiles];
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
