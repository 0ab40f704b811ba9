// The arithmetic of the products, and the packing of queries, keys and values for their products.
#pragma once

#include "cpu/attention/kv_source.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Arithmetic ----------------------------------------------------------------------------------------------

#ifndef SACCADE_BF16_PRODUCT
// Never called; code for pairs needs the declarations. (AMX multiplies pairs in its own registers.)
inline constexpr bool kLooksUpPairs = false;
SACCADE_INLINE Vec pair_fma_broadcast(const Scalar*, Vec, Vec acc) { return acc; }
template <class A>
SACCADE_INLINE Vec pair_fma(A, Vec, Vec acc) {
  return acc;
}
SACCADE_INLINE Vec pair_fma_from(const Scalar*, Vec, Vec acc) { return acc; }
SACCADE_INLINE Vec round_to_pairs(Vec low, Vec) { return low; }
SACCADE_INLINE Vec interleave_low(Vec even, Vec) { return even; }
SACCADE_INLINE Vec interleave_high(Vec even, Vec) { return even; }
SACCADE_INLINE void order_columns(Vec&, Vec&) {}
SACCADE_INLINE Vec keep_of_pairs(Vec words, bool, bool) { return words; }
SACCADE_INLINE Vec negate_pairs(Vec words) { return words; }
#endif

/// The type of a weight in its product with values.
using Weight = std::conditional_t<kPairs, bfloat16, Scalar>;

/// Calls f(T{}) with the element type of a tensor. Ends the program for types that these kernels do not read; a
/// new type does not compile without its case here.
template <class F>
decltype(auto) with_storage(DType dtype, const F& f) {
  if constexpr (kIsDouble) {
    if (dtype == DType::f64) return f(double{});
  } else {
    switch (dtype) {
      case DType::bf16:
        return f(bfloat16{});
      case DType::f16:
        return f(float16{});
      case DType::f32:
        return f(float{});
      case DType::f64:
      case DType::boolean:
      case DType::i8:
      case DType::i16:
      case DType::i32:
      case DType::i64:
      case DType::u8:
      case DType::u16:
      case DType::u32:
      case DType::u64:
      case DType::f8e4m3:
      case DType::i4:
        break;
    }
  }
  __builtin_trap();
}

/// Calls f(T{}) with the element type of queries.
template <class F>
decltype(auto) with_input(DType dtype, const F& f) {
  if constexpr (kPairs) {
    if (dtype == DType::bf16) return f(bfloat16{});
    __builtin_trap();
  } else {
    return with_storage(dtype, f);
  }
}

SACCADE_INLINE Vec multiply_add(const Scalar* a, Vec b, Vec acc) {
  if constexpr (kPairs)
    return pair_fma_broadcast(a, b, acc);
  else
    return fma_broadcast(a, b, acc);
}

SACCADE_INLINE Vec multiply_add(Vec a, Vec b, Vec acc) {
  if constexpr (kPairs)
    return pair_fma(a, b, acc);
  else
    return fma(a, b, acc);
}

/// acc + a b, where a is a vector in memory.
SACCADE_INLINE Vec multiply_add_from(const Scalar* a, Vec b, Vec acc) {
  if constexpr (kPairs)
    return pair_fma_from(a, b, acc);
  else
    return fma_from(a, b, acc);
}

/// The first step of a chain of multiply-adds: the product alone.
SACCADE_INLINE Vec multiply(Vec a, Vec b) {
  if constexpr (kPairs)
    return pair_fma(a, b, zero());
  else
    return mul(a, b);
}

/// One step of a row of a tile: acc[i] += *a * b[i]. It loads *a once: with a broadcast operand for every
/// multiply-add, a core that does two multiply-adds and two loads a clock would need 26 loads in 12 clocks. A
/// forward at seqlen 1024 takes 0.86 and 0.88 of the time at head_dim 64 and 128 (Zen 5).
template <int kVectors>
SACCADE_INLINE void multiply_add_row(const Scalar* a, const Vec (&b)[kVectors], Vec (&acc)[kVectors]) {
  const Factor factor = factor_from(a);
  SACCADE_UNROLL
  for (int i = 0; i < kVectors; ++i) acc[i] = kPairs ? pair_fma(factor, b[i], acc[i]) : fma(factor, b[i], acc[i]);
}

/// Number of multiply-add steps for n dimensions or keys.
constexpr std::int64_t steps_of(std::int64_t n) { return kPairs ? (n + 1) / 2 : n; }

// ---- Packing -------------------------------------------------------------------------------------------------

/// Steps of a packed query row in one chunk. The stride is constant, so that the rows of a tile are at fixed
/// offsets from one pointer, and not a power of two, so that they fall into different cache sets.
inline constexpr int kQueryChunk = 256;
inline constexpr int kQueryStride = kQueryChunk + 16;

inline std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Splits scratch memory into slices aligned to cache lines; with nullptr, only counts the bytes.
class ScratchSlices {
 public:
  explicit ScratchSlices(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  std::size_t bytes() const { return used_; }

 protected:
  template <class T>
  T* take(std::int64_t n) {
    void* const piece = memory_ ? memory_ + used_ : nullptr;
    used_ += static_cast<std::size_t>(round_up(n * static_cast<std::int64_t>(sizeof(T)), 64));
    return static_cast<T*>(piece);
  }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

/// Steps of packed queries and keys: whole vectors, and at least two, since score_tiles treats the first and last
/// step separately. The padding is zeros.
inline std::int64_t padded_steps(std::int64_t steps) { return round_up(std::max<std::int64_t>(steps, 2), kWidth); }

inline std::int64_t query_chunks(std::int64_t steps) { return (steps + kQueryChunk - 1) / kQueryChunk; }

/// Size of the packed queries of one tile, in numbers: [chunk][kTileRows][kQueryStride].
inline std::int64_t packed_query_size(std::int64_t steps) {
  return query_chunks(steps) * kTileRows * kQueryStride;
}

/// Rows needed later that are not in the near caches. They are prefetched a few cache lines at a time during other
/// work: all at once, they would delay the loads of that work.
struct PrefetchRows {
  static constexpr int kParts = kBlockK / kTileColumns;

  const std::byte* data = nullptr;
  std::int64_t stride = 0, bytes = 0;  // of a row

  /// Prefetches every kParts-th cache line of a row, from line `part` on.
  SACCADE_INLINE void fetch(int row, int part) const {
    constexpr std::int64_t kLine = 64;
    for (std::int64_t at = part * kLine; at < bytes; at += kParts * kLine)
      __builtin_prefetch(data + row * stride + at);
  }
};

/// Steps of a query row as the product needs them: times `factor`; for pairs, only times its sign.
SACCADE_INLINE Vec as_query(Vec x, Scalar factor) {
  if constexpr (!kPairs) return canonical_nan(mul(x, broadcast(factor)));
  return factor < 0 ? negate_pairs(x) : x;
}

/// Packs one row of q, with zeros up to a whole vector.
template <class T>
void pack_query(const T* row, std::int64_t head_dim, Scalar factor, Scalar* packed) {
  for (std::int64_t step = 0; step < steps_of(head_dim); step += kWidth)
    store(packed + step, as_query(load_steps(row, step, head_dim), factor));
}

/// Packs `rows` rows of q into one tile; missing rows are zeros.
template <class T>
void pack_queries(const T* q, std::int64_t row_stride, int rows, std::int64_t head_dim, Scalar factor,
                  Scalar* packed) {
  const std::int64_t steps = padded_steps(steps_of(head_dim));
  const std::int64_t whole = head_dim / kStepNumbers / kWidth * kWidth;
  for (std::int64_t begin = 0; begin < steps; begin += kQueryChunk, packed += kTileRows * kQueryStride) {
    const std::int64_t end = std::min<std::int64_t>(begin + kQueryChunk, steps);
    for (int row = 0; row < rows; ++row) {
      const T* from = q + row * row_stride;
      Scalar* out = packed + row * kQueryStride - begin;
      for (std::int64_t step = begin; step < std::min(whole, end); step += kWidth) {
        __builtin_prefetch(from + kTileRows * row_stride + step);
        store(out + step, as_query(loadu_steps(from, step), factor));
      }
      for (std::int64_t step = std::max(whole, begin); step < end; step += kWidth)
        store(out + step, as_query(load_steps(from, step, head_dim), factor));
    }
    for (int row = rows; row < kTileRows; ++row) std::fill_n(packed + row * kQueryStride, end - begin, Scalar{0});
  }
}

/// Size of a packed block's keys, in numbers: tiles of kTileColumns keys, [tile][padded_steps][key of the tile],
/// so that score_tiles reads contiguous memory.
inline std::int64_t packed_key_size(std::int64_t head_dim) { return padded_steps(steps_of(head_dim)) * kBlockK; }

/// Checks the sum of the numbers, which is NaN if any of them is; checking each would take a third of the
/// packing's time.
SACCADE_INLINE void make_nan_canonical(Scalar* packed) {
  Vec sums[2] = {zero(), zero()};
  SACCADE_UNROLL
  for (int i = 0; i < kWidth; ++i) sums[i % 2] = add(sums[i % 2], load(packed + i * kTileColumns));
  if (!any(is_nan(add(sums[0], sums[1])))) return;
  for (int i = 0; i < kWidth; ++i)
    store(packed + i * kTileColumns, canonical_nan(load(packed + i * kTileColumns)));
}

/// Packs kWidth keys from `key` on, transposed: packed[step][kTileColumns]. Keys outside `readable` are zeros.
template <class Rows>
void pack_keys(const Rows& k, std::int64_t key, KeyRange readable, std::int64_t head_dim, Scalar* packed) {
  const std::int64_t steps = padded_steps(steps_of(head_dim));
  if (key >= readable.end || key + kWidth <= readable.begin) {
    for (std::int64_t step = 0; step < steps; ++step) store(packed + step * kTileColumns, zero());
    return;
  }
  std::int64_t in_place = 0;  // numbers of each row that are read in place
  if constexpr (Rows::kStoredAsSteps) {
    const bool all = key >= readable.begin && key + kWidth <= readable.end && k.run(key).count >= kWidth;
    if (all && k.row_stride() % kStepNumbers == 0) {
      in_place = head_dim / (kWidth * kStepNumbers) * kWidth * kStepNumbers;
      const bool prefetches = key + 2 * kWidth <= readable.end && k.run(key).count >= 2 * kWidth;
      for (std::int64_t d = 0; d < in_place; d += kWidth * kStepNumbers) {
        const auto from = k[key] + d;
        if (prefetches) prefetch_rows<kWidth>(from + kWidth * k.row_stride(), k.row_stride());
        Scalar* to = packed + d / kStepNumbers * kTileColumns;
        transpose_tile(stored_steps(from), k.row_stride() / kStepNumbers, to, kTileColumns);
        if constexpr (!kPairs) make_nan_canonical(to);
      }
    }
  }
  alignas(64) Scalar edge[kWidth * kWidth];
  for (std::int64_t step = in_place / kStepNumbers; step < steps; step += kWidth) {
    Scalar* to = packed + step * kTileColumns;
    for (int i = 0; i < kWidth; ++i) {
      const bool is_there = key + i >= readable.begin && key + i < readable.end;
      store(edge + i * kWidth, is_there ? load_steps(k[key + i], step, head_dim) : zero());
    }
    transpose_tile(edge, kWidth, to, kTileColumns);
    if constexpr (!kPairs) make_nan_canonical(to);
  }
}

/// Packs the keys of the block at `first_key`. Keys outside `readable` are not read; those in a subtile with
/// readable keys become zeros.
template <class Rows>
void pack_key_block(const Rows& k, std::int64_t first_key, KeyRange readable, std::int64_t head_dim,
                    Scalar* packed) {
  const std::int64_t end = std::min<std::int64_t>(round_up(readable.end - first_key, kKeySubtile), kBlockK);
  const std::int64_t begin = std::max<std::int64_t>(readable.begin - first_key, 0) / kKeySubtile * kKeySubtile;
  const std::int64_t padded = padded_steps(steps_of(head_dim));
  for (std::int64_t j = begin; j < end; j += kWidth) {
    const std::int64_t column = j % kTileColumns;
    pack_keys(k, first_key + j, readable, head_dim, packed + (j - column) * padded + column);
  }
}

/// Columns of a packed block's values, and their size in numbers: [steps of kBlockK][columns].
inline std::int64_t packed_value_columns(std::int64_t head_dim_v) { return round_up(head_dim_v, kWidth); }
inline std::int64_t packed_value_size(std::int64_t head_dim_v) {
  return steps_of(kBlockK) * packed_value_columns(head_dim_v);
}

/// Packs the value rows of the block at `first_key`; those next to `readable`, and columns beyond head_dim_v, are
/// zeros.
template <class Rows>
void pack_values(const Rows& v, std::int64_t first_key, KeyRange readable, std::int64_t head_dim_v,
                 Scalar* packed) {
  const std::int64_t columns = packed_value_columns(head_dim_v);
  const std::int64_t begin = std::max(first_key, readable.begin);
  const std::int64_t end = std::min<std::int64_t>(first_key + kBlockK, readable.end);
  const auto load_row = [&](std::int64_t key, std::int64_t d) {
    const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - d));
    return load_first(v[key] + d, n);
  };
  if constexpr (kPairs) {
    for (std::int64_t key = begin / 2 * 2; key < end; key += 2) {
      const bool has_even = key >= begin, has_odd = key + 1 < end;
      const auto even = v[has_even ? key : key + 1];
      const auto odd = v[has_odd ? key + 1 : key];
      for (std::int64_t d = 0; d < columns; d += kWidth) {
        const int n = static_cast<int>(std::min<std::int64_t>(kWidth, head_dim_v - d));
        const Vec words = interleave_first(even + d, odd + d, n);
        store(packed + (key - first_key) / 2 * columns + d, keep_of_pairs(words, has_even, has_odd));
      }
    }
  } else {
    for (std::int64_t key = begin; key < end; ++key)
      for (std::int64_t d = 0; d < columns; d += kWidth)
        store(packed + (key - first_key) * columns + d, load_row(key, d));
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
