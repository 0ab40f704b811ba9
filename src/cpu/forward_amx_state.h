// What the forward pass on AMX tiles (forward_amx.h) keeps of a block of query rows: its memory, and how weights
// are relative to a row's first scores.
#pragma once

#include "cpu/packing_amx.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// 32 keys each: their weights for 32 rows, 16 to 24 KiB, stay in the L1 cache.
template <class T>
inline constexpr int kStepTiles = kTermsOf<T> == 1 ? 8 : 4;
inline constexpr int kLag = 2;  // how many tiles of keys the weights follow the scores
inline constexpr int kGroups = static_cast<int>(kBlockQAlone) / kTileRows;

/// The weights of a type: 2^((score * kUnit * exp_factor + offset) / kUnit - kBias), with an offset of kFirst less
/// kUnit times a whole exponent.
template <class T>
class WeightsOf : public TermWeights<kTermsOf<T>> {
 public:
  static constexpr float kUnit = 1, kFirst = 0, kBias = kTermHeadroom;
  using TermWeights<kTermsOf<T>>::TermWeights;
};
template <>
class WeightsOf<bfloat16> : public Weights {
 public:
  static constexpr float kUnit = 256, kFirst = kWeightBias, kBias = 127 - kWeightShift / kUnit;
  using Weights::Weights;
  SACCADE_INLINE void of_row(const float* scores, float offset, std::uint32_t* to, std::int64_t, float*) {
    Weights::of_row(scores, offset, to);
  }
};

/// The memory of one thread's work on a query block of `groups` groups of 32 rows.
template <class T>
class AmxScratch : public ScratchPieces {
 public:
  AmxScratch(const AttentionParams& p, std::int64_t groups, void* memory) : ScratchPieces(memory) {
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v);
    scores = take<float>(kLag * 1024);
    weights = take<std::uint32_t>(kStepTiles<T> * kWords);
    queries = take<std::uint32_t>(groups * depth * kWords);
    outputs = take<float>(groups * width * 1024);
    sums = take<float>(groups * 512);
    tile_sums = take<float>(512);
    rounded_sums = take<float>(groups * 512);
    maxima = take<float>(groups * 32);
    offsets = take<float>(groups * 32);
    mask = take<float>(1024);
    packed = take<std::byte>(kStepTiles<T> * PackedTile<T, std::byte>::size(p));
  }

  static constexpr std::int64_t kWords = kTermsOf<T> * kTermWords;

  std::int64_t depth, width;  // in tiles
  float* scores;              // [kLag][32][32]
  std::uint32_t* weights;     // [kStepTiles][term][32][16 pairs]
  std::uint32_t* queries;     // [group][depth][term][32][16 pairs]
  float* outputs;             // [group][width][32][32]
  float* sums;                // [group][32][16], of the weights, over keys modulo 16
  float* tile_sums;           // [32][16], of 32 keys
  float* rounded_sums;        // of bf16: [group][32][16], of the rounded weights; the 16 columns are equal
  float* maxima;              // of bf16: [group][32], of the scores; the sums are relative to them
  float* offsets;             // [group][32] of WeightsOf::of_row; -inf: the row has not seen a key
  float* mask;                // [32][32], of ScoreFinisher
  std::byte* packed;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
