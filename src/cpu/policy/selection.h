// Which kernels of a level a call gets: AMX tiles, bf16 pairs, or multiply-adds. The choice depends only on
// element types, head dimensions and options: a row's bits must not depend on how a prompt is cut, nor on how many
// other rows there are.
#pragma once

#include <algorithm>

#include "cpu/kernels.h"

namespace saccade::cpu {

// ---- AMX tiles -------------------------------------------------------------------------------------------------

/// Whether tiles are faster with `products` bf16 products for each one of f16 or f32. 32 x 32 scores take 64
/// clocks for each product of 32 dimensions on tiles, and 32 clocks a dimension by multiply-adds (Sapphire
/// Rapids). Tiles reach some 0.6 of that speed, multiply-adds 0.85. Gradients follow the same rule: of f32 they
/// take 0.67 to 0.8 of the time of multiply-adds with 192 to 512 keys of 64 dimensions (Granite Rapids).
inline bool is_worth_split(const AttentionOperands& p, std::int64_t products) {
  const std::int64_t tiles = (p.head_dim + 31) / 32 + (p.head_dim_v + 31) / 32;
  return 10 * (p.head_dim + p.head_dim_v) >= 28 * products * tiles;
}

/// Whether f32 is faster as a split into three bf16 numbers: six products.
inline bool tiles_take_f32(const AttentionOperands& p) { return is_worth_split(p, 6); }

/// The type in which kernels compute with keys or values of a stored type: quantized ones are read as f32.
inline DType computed_type(DType stored) { return is_quantized(stored) ? DType::f32 : stored; }

/// The kernels on tiles for q, k and v and an output of type `o`; nullptr if multiply-adds are faster or required.
inline const AmxAttention* on_tiles(const KernelSet& level, const AttentionParams& p, DType o) {
  if (!level.amx) return nullptr;
  // A hidden key's score of -inf, scaled after the product, must not become NaN.
  const DType k = computed_type(p.k.dtype), v = computed_type(p.v.dtype);
  if (k != p.q.dtype || v != p.q.dtype || static_cast<float>(p.scale) == 0) return nullptr;
  if (p.q.dtype == DType::bf16) return level.amx->bf16;
  // A weight is split into two parts, as f16 is: too few for an o of f32.
  if (p.q.dtype == DType::f16) return o == DType::f16 && is_worth_split(p, 4) ? level.amx->f16 : nullptr;
  return p.q.dtype == DType::f32 && tiles_take_f32(p) ? level.amx->f32 : nullptr;
}

// ---- Attention -------------------------------------------------------------------------------------------------

inline const AttentionKernels& multiply_adds(const KernelSet& level, const AttentionParams& p) {
  return p.q.dtype == DType::f64 ? *level.f64 : level.f32;
}

/// Whether pairs of bf16 are multiplied; quantized keys and values have scales that are applied later. Pairs are
/// scaled after the product, where a scale of 0 would turn a hidden key's -inf into NaN.
inline bool takes_pairs(const AttentionParams& p) {
  const auto fits = [](DType dtype) { return dtype == DType::bf16 || is_quantized(dtype); };
  return p.q.dtype == DType::bf16 && fits(p.k.dtype) && fits(p.v.dtype) && static_cast<float>(p.scale) != 0;
}

/// The kernels on vectors.
inline const AttentionKernels& on_vectors(const KernelSet& level, const AttentionParams& p) {
  return level.pairs && takes_pairs(p) ? level.pairs->attention : multiply_adds(level, p);
}

/// Whether no row sees more keys than a short row, so that a call has the bits of multiply-adds from either
/// kernel.
inline bool has_short_rows(const AttentionParams& p, const AmxAttention& tiles) {
  const std::int64_t right = p.causal ? 0 : p.window_right;
  const bool has_window = p.window_left >= 0 && right >= 0;
  const std::int64_t most = has_window ? std::min(p.seqlen_k, p.window_left + right + 1) : p.seqlen_k;
  return most <= (p.hides_by_position() ? tiles.short_causal_row : tiles.short_row);
}

/// on_tiles() for forward passes, where tiles of bf16 take what pairs take. A score modifier takes the work on
/// scores out of the shadow of the products: f32 takes 1.08 of the time of multiply-adds then at head_dim 64, and
/// 0.81 at 128 (Granite Rapids).
inline const AmxAttention* forward_on_tiles(const KernelSet& level, const AttentionParams& p) {
  constexpr std::int64_t kDimsOfModifiers = 192;
  const bool is_small = p.q.dtype == DType::f32 && p.head_dim + p.head_dim_v < kDimsOfModifiers;
  if (level.amx && takes_pairs(p)) return level.amx->bf16;
  return p.score_modifier && is_small ? nullptr : on_tiles(level, p, p.o.dtype);
}

inline const ForwardKernels& forward_kernels(const KernelSet& level, const AttentionParams& p) {
  const AmxAttention* const tiles = forward_on_tiles(level, p);
  if (tiles && has_short_rows(p, *tiles)) return multiply_adds(level, p).forward;
  return tiles ? tiles->forward : on_vectors(level, p).forward;
}

/// The kernels of states, which do not depend on how many keys a call has.
inline const ForwardKernels& state_kernels(const KernelSet& level, const AttentionParams& p) {
  const AmxAttention* const tiles = forward_on_tiles(level, p);
  return tiles ? tiles->forward : on_vectors(level, p).forward;
}

/// The kernels for decode() over k and v of bytes that are faster than those for all types; nullptr: none.
inline const DecodeKernels* decode_of_bytes(const KernelSet& level, const AttentionParams& p) {
  constexpr std::int64_t kMostDims = std::int64_t{1} << 16;  // sums of products of two bytes must fit into 32 bits
  const auto is_integer = [](DType dtype) { return dtype == DType::i8 || dtype == DType::i4; };
  const bool fits =
      (p.q.dtype == DType::f32 || p.q.dtype == DType::bf16) && std::max(p.head_dim, p.head_dim_v) <= kMostDims;
  if (!fits) return nullptr;
  if (p.k.dtype == DType::f8e4m3 && p.v.dtype == DType::f8e4m3) return level.float8;
  if (!level.bytes || !is_integer(p.k.dtype) || !is_integer(p.v.dtype)) return nullptr;
  return level.pairs && p.given_q == DType::bf16 ? &level.bytes->integers_for_bf16 : &level.bytes->integers;
}

/// Quantized keys and values are multiplied as bytes where there are such kernels. With AVX-512, pairs are faster
/// unless they are of i4 (Zen 4, 32768 keys in memory: 4.7 instead of 5.4 ms with i8, and 7.2 instead of 6.6 with
/// i4).
inline const DecodeKernels& decode_kernels(const KernelSet& level, const AttentionParams& p) {
  if (is_quantized(p.k.dtype) || is_quantized(p.v.dtype)) {
    const bool has_int4 = p.k.dtype == DType::i4 || p.v.dtype == DType::i4;
    const bool prefers_pairs =
        level.bytes && level.bytes->has_faster_pairs && level.pairs && takes_pairs(p) && !has_int4;
    const DecodeKernels* const bytes = prefers_pairs ? nullptr : decode_of_bytes(level, p);
    return bytes ? *bytes : on_vectors(level, p).decode;
  }
  const AmxAttention* const tiles = on_tiles(level, p, p.o.dtype);
  return tiles && tiles == level.amx->bf16 ? level.amx->decode_bf16 : on_vectors(level, p).decode;
}

inline const MergeKernels& merge_kernels(const KernelSet& level, const MergeParams& p) {
  return p.o.dtype == DType::f64 ? level.f64->merge : level.f32.merge;
}

inline const BackwardKernels& backward_kernels(const KernelSet& level, const BackwardParams& b) {
  const bool one_type = b.o.dtype == b.attention.q.dtype && b.dout.dtype == b.o.dtype;
  const AmxAttention* const tiles = one_type ? on_tiles(level, b.attention, b.o.dtype) : nullptr;
  return tiles ? tiles->backward : multiply_adds(level, b.attention).backward;
}

inline const InspectKernels& inspect_kernels(const KernelSet& level, const AttentionParams& p) {
  const AmxAttention* const tiles = on_tiles(level, p, p.q.dtype);  // there is no o
  return tiles ? tiles->inspect : on_vectors(level, p).inspect;
}

// ---- Products --------------------------------------------------------------------------------------------------

/// Tiles take f32 only for sums over rows, the gradients of weights: splitting b takes too long if c has few rows,
/// and a row's bits must not depend on how many there are.
inline const ProductKernels& product_kernels(const KernelSet& level, const ProductParams& p) {
  if (!level.amx || p.depth < 32 || p.columns < 32) return level.product;
  if (p.dtype == DType::bf16) return level.amx->product_bf16;
  if (p.dtype == DType::f16) return level.amx->product_f16;
  return p.a_depth_stride != 1 && p.rows >= 32 && p.depth >= 64 ? level.amx->product_f32 : level.product;
}

}  // namespace saccade::cpu
