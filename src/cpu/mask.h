// What a score becomes between the product and the softmax: softcap, ALiBi, masks, visibility by position.
// All scores here are in base 2: already times log2(e).
#pragma once

#include "cpu/block_sizes.h"
#include "cpu/math.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Keys [begin, end) that a query row may see by position, window and length.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

/// Positions and lengths of one batch entry. Both ends of visible() never fall as the row grows, so the first
/// and last row of a tile bound all others.
struct Visibility {
  std::int64_t offset, length, window_left, window_right;
  bool causal;

  Visibility(const AttentionParams& params, std::int64_t batch)
      : offset(params.offset(batch)),
        length(params.kv_length(batch)),
        window_left(params.window_left),
        window_right(params.window_right),
        causal(params.causal) {}

  KeyRange visible(std::int64_t row) const {
    const std::int64_t position = row + offset;
    KeyRange range{0, length};
    if (causal) range.end = std::min(range.end, position + 1);
    if (window_right >= 0) range.end = std::min(range.end, position + window_right + 1);
    if (window_left >= 0) range.begin = std::max(range.begin, position - window_left);
    range.end = std::max<std::int64_t>(range.end, 0);
    return range;
  }
};

/// Whether scores need more than their product: if not, only tiles that cross a visibility border are touched.
inline bool changes_every_score(const AttentionParams& params) {
  return params.softcap != 0.0f || params.alibi_slopes.data != nullptr || params.mask.type != MaskType::none;
}

inline void apply_softcap(float* scores, int begin, int end, float softcap) {
  const Vec bound = broadcast(softcap * kLog2E);
  for (int j = begin; j < end; j += kWidth) store(scores + j, mul(bound, tanh(load(scores + j))));
}

/// Adds -slope * |position - key| to the keys from `first_key` on.
inline void apply_alibi(float* scores, int begin, int end, float slope, std::int64_t position,
                        std::int64_t first_key) {
  const Vec factor = broadcast(-slope * kLog2E);
  for (int j = begin; j < end; j += kWidth) {
    const Vec distance = abs(sub(broadcast(static_cast<float>(position - first_key - j)), lane_index()));
    store(scores + j, fma(factor, distance, load(scores + j)));
  }
}

/// Columns [begin, end) of a mask's row as numbers to add: 0 or -inf for a boolean mask.
inline void read_mask_row(const MaskParams& mask, std::int64_t batch, std::int64_t head, std::int64_t row,
                          std::int64_t first_key, int begin, int end, float* out) {
  const std::int64_t start = batch * mask.batch_stride + head * mask.head_stride + row * mask.row_stride;
  const std::int64_t stride = mask.column_stride;
  const auto read = [&](const auto* data, auto convert) {
    data += start + (first_key + begin) * stride;
    if (stride == 1)
      for (int j = begin; j < end; ++j) out[j] = convert(data[j - begin]);
    else
      for (int j = begin; j < end; ++j) out[j] = convert(data[(j - begin) * stride]);
  };
  switch (mask.type) {
    case MaskType::boolean:
      return read(static_cast<const std::uint8_t*>(mask.data),
                  [](std::uint8_t x) { return x ? 0.0f : -kInfinity; });
    case MaskType::f32:
      return read(static_cast<const float*>(mask.data), [](float x) { return x; });
    case MaskType::f64:
      return read(static_cast<const double*>(mask.data), [](double x) { return static_cast<float>(x); });
    case MaskType::none:
      return;
  }
}

/// Adds a mask row; where it is -inf the key is hidden, whatever its score was.
inline void apply_mask(float* scores, int begin, int end, const float* mask) {
  const Vec hidden = broadcast(-kInfinity), log2e = broadcast(kLog2E);
  for (int j = begin; j < end; j += kWidth) {
    const Vec bias = load(mask + j);
    const Vec sum = canonical_nan(fma(bias, log2e, load(scores + j)));
    store(scores + j, select(equal(bias, hidden), hidden, sum));
  }
}

/// Hides the keys outside [visible.begin, visible.end) and returns the largest score of each lane.
inline Vec apply_range(float* scores, int begin, int end, KeyRange visible, std::int64_t first_key) {
  const int from = static_cast<int>(std::clamp<std::int64_t>(visible.begin - first_key, 0, kBlockK));
  const int to = static_cast<int>(std::clamp<std::int64_t>(visible.end - first_key, 0, kBlockK));
  const Vec hidden = broadcast(-kInfinity);
  Vec largest = hidden;
  for (int j = begin; j < end; j += kWidth) {
    const Vec s = select(columns_within(j, from, to), load(scores + j), hidden);
    store(scores + j, s);
    largest = max(largest, s);
  }
  return largest;
}

/// Everything between product and softmax for one row of a tile: columns [begin, end) of the block at `first_key`.
inline Vec finish_scores(const AttentionParams& params, const Visibility& visibility, std::int64_t batch,
                         std::int64_t head, std::int64_t row, std::int64_t first_key, int begin, int end,
                         float* scores, float* mask_row) {
  if (params.softcap != 0.0f) apply_softcap(scores, begin, end, params.softcap);
  if (params.alibi_slopes.data)
    apply_alibi(scores, begin, end, *params.alibi_slopes.head(batch, head), row + visibility.offset, first_key);
  if (params.mask.type != MaskType::none) {
    const int readable = static_cast<int>(std::min<std::int64_t>(end, params.seqlen_k - first_key));
    read_mask_row(params.mask, batch, head, row, first_key, begin, readable, mask_row);
    for (int j = readable; j < end; ++j) mask_row[j] = 0.0f;
    apply_mask(scores, begin, end, mask_row);
  }
  return apply_range(scores, begin, end, visibility.visible(row), first_key);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
