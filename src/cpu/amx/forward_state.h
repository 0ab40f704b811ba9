// What the forward pass on AMX tiles (amx/forward.h) keeps of a block of query rows: its memory, within and
// between calls, and the offset that relates weights to a row's first scores.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/scores.h"
#include "cpu/attention/softmax.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// 32 keys each: their weights for 32 rows, 24 KiB, stay in the L1 cache. For bf16, 12 are 1 to 3 % faster than 8
/// (Granite Rapids).
template <class T>
inline constexpr int kStepTiles = kPartsOf<T> == 1 ? 12 : 4;
inline constexpr int kLag = 2;  // by how many tiles of keys the weights follow the scores
inline constexpr int kGroups = static_cast<int>(kBlockQAlone) / kTileRows;

/// The weights of a type: 2^((score * kUnit * exp_factor + offset) / kUnit - kBias), where the offset is kFirst
/// minus kUnit times a whole exponent. of_row() also finds the sums of weights before they are rounded: of bf16
/// only if kSums. Keys is KeyScales or NoKeyScales: shifts multiply the rounded weights, but not these sums, by
/// 2^(shift / kUnit).
template <class T, bool kSums = false, class Keys = NoKeyScales>
class WeightsOf : public SplitWeights<kPartsOf<T>> {
 public:
  static constexpr float kUnit = 1, kFirst = 0, kBias = kSplitHeadroom;
  using SplitWeights<kPartsOf<T>>::SplitWeights;
  SACCADE_INLINE void of_row(const float* scores, float offset, const Keys&, std::uint32_t* to, float* sums) {
    SplitWeights<kPartsOf<T>>::of_row(scores, offset, to, kPartWords, sums);
  }
};
template <bool kSums, class Keys>
class WeightsOf<bfloat16, kSums, Keys> : public Weights {
 public:
  static constexpr float kUnit = 256, kFirst = kWeightBias, kBias = 127 - kWeightShift / kUnit;
  using Weights::Weights;
  SACCADE_INLINE void of_row(const float* scores, float offset, const Keys& keys, std::uint32_t* to, float* sums) {
    Weights::of_row(scores, offset, to, keys);
    if constexpr (kSums) Weights::sums_of_row(scores, exponent_of_sums(offset), sums, keys);
  }
  /// The sums are of 2^(score * exp_factor + this): at most 32 after the first keys of a row.
  static SACCADE_INLINE float exponent_of_sums(float offset) { return (offset - kFirst) * (1 / kUnit); }
};

/// The offset of a row that has not seen a key.
inline constexpr float kUnseen = -std::numeric_limits<float>::infinity();

/// What a group of 32 rows accumulates; see AmxScratch.
struct AmxGroup {
  float *outputs, *sums, *rounded_sums, *offsets;
};

/// The sum of the rounded weights of a row of bf16, from its 16 columns.
inline float rounded_sum(const float* columns) { return columns[0] + columns[1]; }

/// The memory of one thread's work on a query block of `groups` groups of 32 rows. kScoreParts: the parts of
/// queries and keys.
template <class T, int kScoreParts = kPartsOf<T>>
class AmxScratch : public ScratchSlices {
 public:
  AmxScratch(const AttentionParams& p, std::int64_t groups, void* memory) : ScratchSlices(memory) {
    depth = depth_tiles(p.head_dim), width = depth_tiles(p.head_dim_v);
    scores = take<float>(kLag * 1024);
    weights = take<std::uint32_t>(kStepTiles<T> * kWords);
    queries = take<std::uint32_t>(groups * depth * kScoreWords);
    outputs = take<float>(groups * width * 1024);
    sums = take<float>(groups * 512);
    tile_sums = take<float>(512);
    rounded_sums = take<float>(groups * 512);
    offsets = take<float>(groups * 32);
    mask = take<float>(1024);
    packed = take<std::byte>(kStepTiles<T> * PackedTile<T, std::byte, kScoreParts>::size(p));
  }

  static constexpr std::int64_t kWords = kWordsOf<T>, kScoreWords = kWordsOf<T, kScoreParts>;

  std::int64_t depth, width;  // in tiles
  float* scores;              // [kLag][32][32]
  std::uint32_t* weights;     // [kStepTiles][part][32][16 pairs]
  std::uint32_t* queries;     // [group][depth][part][32][16 pairs]
  float* outputs;             // [group][width][32][32]
  float* sums;                // [group][32][16], of the weights, over keys modulo 16
  float* tile_sums;           // [32][16], of 32 keys
  float* rounded_sums;        // of bf16: [group][32][16], of the rounded weights: see rounded_sum()
  float* offsets;             // [group][32] of WeightsOf::of_row; -inf: the row has not seen a key
  float* mask;                // [32][32], of ScoreFinisher
  std::byte* packed;

  /// The part of a group's memory that outlives a block of keys.
  AmxGroup group(int g) const {
    return {outputs + g * width * 1024, sums + g * 512, rounded_sums + g * 512, offsets + g * 32};
  }
};

// ---- Denominators ----------------------------------------------------------------------------------------------

/// m and l of a group's rows.
template <class T>
class GroupSums {
 public:
  /// `exact`: finds m and l too. `with_m`: finds m_of_o.
  GroupSums(const AmxGroup& group, const ScoreUnit& unit, bool exact, bool with_m = true) : unit_(unit) {
    for (int i = 0; i < 32; ++i) {
      const float offset = group.offsets[i];
      whole[i] = offset / WeightsOf<T>::kUnit;
      if (with_m)
        m_of_o[i] = offset == kUnseen ? static_cast<double>(kNoMaximum)
                                      : static_cast<double>(WeightsOf<T>::kBias - whole[i]) /
                                            static_cast<double>(unit_.exp_factor);
      l_of_o[i] = kRounds ? rounded_sum(group.rounded_sums + i * 16) : sum_of_16(group.sums + i * 16);
      if (kRounds && !exact) continue;
      binades[i] = kRounds ? WeightsOf<bfloat16>::exponent_of_sums(offset) : whole[i] - kSplitHeadroom;
      sums[i] = kRounds ? sum_of_16(group.sums + i * 16) : l_of_o[i];
      if (exact) find_denominator(binades[i], sums[i], m[i], l[i]);
    }
  }

  /// Low scores weigh nothing beside usual ones, but may be all that a row has. `low`: whether row i has low
  /// scores.
  bool needs_fallback(int i, bool low) const { return is_low(i) ? low : !kRounds && has_rough_lse(i); }
  /// Whether the weights of a row that sees keys are so small that others beside them may have become 0.
  bool is_small(int i) const { return whole[i] != kUnseen && l_of_o[i] < 0x1p-90F; }
  /// An lse near 0, of a row that sees a key or two, has no bits to lose: l must be 1 there. And for bf16, the
  /// exponent of sums may be rounded beyond 2^15.
  bool has_rough_lse(int i) const {
    if (sums[i] == 0) return false;
    const float sum = natural_sum(i);
    return (sum > 0.75F && sum < kMaxSum) || (kRounds && std::abs(binades[i]) > 0x1p15F);
  }
  /// Whether other kernels may be needed with more keys: sums only grow.
  bool may_need_other_kernels(int i) const { return is_low(i) || natural_sum(i) < kMaxSum; }

  /// Row i for other kernels, with sums that are exact.
  PartialRow row(int i, const AmxGroup& group) const {
    const bool is_empty = l_of_o[i] == 0;
    return {.m = static_cast<double>(m[i]) * static_cast<double>(unit_.natural),
            .l = is_empty ? 0.0 : static_cast<double>(l[i]),
            .o_factor = is_empty ? 0.0 : static_cast<double>(l[i]) / static_cast<double>(l_of_o[i]),
            .o = group.outputs + i * 32,
            .run = 32,
            .run_stride = 1024};
  }

  // The maximum and sum that o is relative to, and the row's own.
  double m_of_o[32];
  float whole[32];
  // The sum of the row's unrounded weights, and by how many binades it is larger than that of exp(scores); of bf16
  // only if exact, else 0.
  float sums[32] = {}, binades[32] = {};
  alignas(64) Scalar l_of_o[kTileRowsPadded], m[kTileRowsPadded] = {}, l[kTileRowsPadded] = {};

 private:
  static constexpr bool kRounds = kPartsOf<T> == 1;
  static constexpr float kMaxSum = 1.35F;

  bool is_low(int i) const { return whole[i] == kUnseen || whole[i] > 0x1p19F; }

  /// The sum of exp(scores), infinite if it is too large.
  float natural_sum(int i) const {
    return static_cast<float>(sums[i] * std::exp2(-static_cast<double>(binades[i])));
  }

  /// Finds an m near the row's largest score, and l for this m. For an lse near 0, an m of several binades would
  /// cost the last bits.
  void find_denominator(float larger, float sum, float& maximum, float& total) const {
    maximum = kNoMaximum, total = 0;
    if (!std::isfinite(larger) || !(sum > 0) || !std::isfinite(sum)) return;
    const int shift = static_cast<int>(-larger), exponent = shift + std::ilogb(sum);
    const int wanted = std::abs(exponent) <= 4 ? 0 : exponent;
    maximum = static_cast<float>(wanted) / unit_.exp_factor;
    // Corrects for the rounding of m.
    const double rest = static_cast<double>(maximum) * static_cast<double>(unit_.exp_factor) - wanted;
    total = std::ldexp(sum, shift - wanted) * static_cast<float>(std::exp2(-rest));
  }

  static float sum_of_16(const float* x) {
    float sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = x[i] + x[i + 8];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }

  ScoreUnit unit_;
};

// ---- Between calls ---------------------------------------------------------------------------------------------

/// The f32 kernels of the same level, for rows that tiles cannot compute.
const ForwardKernels& fallback_kernels();

/// Statistics of a group's rows, one bit each.
struct GroupStats {
  std::uint32_t fallback_rows = 0;  // other kernels must compute them
  std::uint32_t low = 0;            // with a score that is too low to give an offset
  std::uint32_t left = 0;           // whose state of other kernels lacks keys
  bool unseen = true;               // some row has no offset
  std::uint8_t seen[32] = {};       // keys that each row sees by its position, at most 255
};

/// The state of a head (HeadState): for each group of 32 rows its stats, then its numbers; then the state of other
/// kernels, which is complete for the rows that need it or may come to need it.
class AmxStates {
 public:
  /// No states.
  AmxStates() = default;
  AmxStates(const AttentionParams& p, std::int64_t rows, const HeadState& head)
      : width_(depth_tiles(p.head_dim_v)), groups_(head.memory), marks_(head.marks) {
    fallback_rows_ = {head.memory + (rows + 31) / 32 * group_bytes(width_), head.marks};
  }

  static std::size_t bytes(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::size_t>((rows + 31) / 32 * group_bytes(depth_tiles(p.head_dim_v))) +
           fallback_kernels().state_bytes(p, rows);
  }

  explicit operator bool() const { return groups_ != nullptr; }
  const HeadState& fallback_rows() const { return fallback_rows_; }

  /// Whether the group of `row`, its first row, has been stored.
  bool has(std::int64_t row) const { return (marks_[row] & HeadState::kTiles) != 0; }
  GroupStats stats(std::int64_t row) const {
    GroupStats stats;
    std::memcpy(&stats, group_at(row), sizeof stats);
    return stats;
  }
  AmxGroup group(std::int64_t row) const {
    float* const numbers = reinterpret_cast<float*>(group_at(row) + kStats);
    float* const rest = numbers + width_ * 1024;
    return {numbers, rest, rest + 512, rest + 1024};
  }

  void load(std::int64_t row, const AmxGroup& to) const { copy(group(row), to); }
  void store(std::int64_t row, const GroupStats& stats, const AmxGroup& from) const {
    std::memcpy(group_at(row), &stats, sizeof stats);
    copy(from, group(row));
    marks_[row] |= HeadState::kTiles;
  }

 private:
  static constexpr std::int64_t kStats = 64;
  static_assert(sizeof(GroupStats) <= kStats);
  static std::int64_t group_bytes(std::int64_t width) {
    return kStats + (width * 1024 + 1056) * static_cast<std::int64_t>(sizeof(float));
  }
  std::byte* group_at(std::int64_t row) const { return groups_ + row / 32 * group_bytes(width_); }

  void copy(const AmxGroup& from, const AmxGroup& to) const {
    std::copy_n(from.outputs, width_ * 1024, to.outputs);
    std::copy_n(from.sums, 512, to.sums);
    std::copy_n(from.rounded_sums, 512, to.rounded_sums);
    std::copy_n(from.offsets, 32, to.offsets);
  }

  std::int64_t width_ = 0;
  std::byte* groups_ = nullptr;
  std::uint8_t* marks_ = nullptr;
  HeadState fallback_rows_;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
