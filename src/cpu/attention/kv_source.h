// Keys and values as kernels read them: the rows of a KvSource in the type of their elements, and the functions
// that load their numbers, widened to the type of the products. A kernel calls with_elements() once for some keys,
// outside its inner loops. Queries are loaded by the same functions.
//
// What kernels need of a row:
//   row + d                                           the row from number d on
//   loadu(row), load_first(row, n)                    kWidth numbers, or the first n of them and zeros
//   load_16(row, x), load_64(row, x)                  16 or 64 numbers: see load_together()
//   loadu_steps(row, step), load_steps(row, step, n)  the same in steps of the product
//   stored_steps(row)                                 the steps in memory, where KvRows::kStoredAsSteps
//   prefetch_line<kLocality>(row, ahead)              prefetches the cache line `ahead` bytes further on
// and where pairs are multiplied load_first_pairs() and interleave_first(). The row of an element type is a
// pointer, of i4 an Int4Row; simd/ has loadu() and load_first() for each type. These rows of quantized types lack
// their scales, which decode() and products of pairs apply to scores and weights; with_elements()
// gives rows with them (ScaledRow).
#pragma once

#include "cpu/policy/block_sizes.h"
#include "cpu/simd/quantized.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Rows ----------------------------------------------------------------------------------------------------

/// Rows a constant distance apart. Unlike those of a list, their addresses are not read from memory.
template <class T>
struct StridedRows {
  const T* first;
  std::int64_t stride;
  const T* operator[](std::integral auto j) const { return first + j * stride; }
  StridedRows operator+(int j) const { return {first + j * stride, stride}; }
};
template <>
struct StridedRows<int4> {
  Int4Row first;
  std::int64_t stride, multiplier_stride;  // bytes
  SACCADE_INLINE Int4Row operator[](std::integral auto j) const {
    return {first.bytes + j * stride, first.multipliers + j * multiplier_stride, first.half};
  }
  StridedRows operator+(int j) const { return {(*this)[j], stride, multiplier_stride}; }
};

/// The rows of a source whose elements are T, without scales.
template <class T>
class KvRows {
 public:
  using Row = decltype(std::declval<StridedRows<T>>()[0]);
  /// Whether memory holds the steps of a product as the product takes them.
  static constexpr bool kStoredAsSteps = kPairs ? std::is_same_v<T, bfloat16> : std::is_same_v<T, Scalar>;

  explicit KvRows(const KvSource& source) : source_(source) {}

  Row operator[](std::int64_t key) const { return run(key).rows[0]; }

  /// Rows a constant distance apart, beginning with a row that may be read, and their number.
  struct Run {
    StridedRows<T> rows;
    std::int64_t count;
  };
  Run run(std::int64_t key) const {
    if (!source_.pages) return {rows_at(0, key), std::int64_t{1} << 62};
    const std::int64_t row = key % source_.page_size;
    return {rows_at(source_.pages[key / source_.page_size], row), source_.page_size - row};
  }
  std::int64_t row_stride() const { return source_.row_stride; }

 private:
  StridedRows<T> rows_at(std::int64_t page, std::int64_t row) const {
    const std::int64_t at = page * source_.page_stride + row * source_.row_stride;
    if constexpr (std::is_same_v<T, int4>) {
      const std::int64_t group = page * source_.multiplier_page_stride + row * source_.multiplier_stride;
      return {{static_cast<const std::uint8_t*>(source_.data) + at / 2, source_.multipliers + group,
               stored_dim(DType::i4, source_.dim) / 2},
              source_.row_stride / 2,
              source_.multiplier_stride};
    } else {
      return {static_cast<const T*>(source_.data) + at, source_.row_stride};
    }
  }

  KvSource source_;
};

/// Where the scale of a row is; nullptr: it is 1.
inline const float* scale_address(const KvSource& source, std::int64_t key) {
  if (!source.scales || !source.pages) return source.scales ? source.scales + key * source.scale_stride : nullptr;
  return source.scales + source.pages[key / source.page_size] * source.scale_page_stride +
         key % source.page_size * source.scale_stride;
}
inline float scale_of(const KvSource& source, std::int64_t key) {
  const float* const scale = scale_address(source, key);
  return scale ? *scale : 1;
}

/// The rows of a quantized source, with scales.
template <class T>
class ScaledKvRows {
 public:
  using Row = ScaledRow<typename KvRows<T>::Row>;
  static constexpr bool kStoredAsSteps = false;

  explicit ScaledKvRows(const KvSource& source) : source_(source), rows_(source) {}
  Row operator[](std::int64_t key) const { return {rows_[key], scale_of(source_, key)}; }

 private:
  KvSource source_;
  KvRows<T> rows_;
};

/// Whether these kernels load rows of T: kernels for f64 load only f64, kernels for pairs only bf16, and those
/// with kOnlyFloat8 only e4m3. Tiles of f32 take quantized rows.
template <class T>
inline constexpr bool kLoads = kIsDouble     ? std::is_same_v<T, double>
                               : kOnlyFloat8 ? std::is_same_v<T, float8_e4m3>
                               : kPairs      ? std::is_same_v<T, bfloat16> || (kAmx && is_quantized(dtype_of<T>))
                                             : !std::is_same_v<T, double>;

/// Calls f(rows) with the rows of a source, with their scales if it has any. These kernels must be able to load
/// them.
template <class F, class First, class... Others>
void with_elements(const KvSource& source, const F& f, TypeList<First, Others...>) {
  if constexpr (kLoads<First>) {
    using Rows = std::conditional_t<is_quantized(dtype_of<First>), ScaledKvRows<First>, KvRows<First>>;
    if (source.dtype == dtype_of<First>) return f(Rows(source));
  }
  if constexpr (sizeof...(Others) > 0)
    with_elements(source, f, TypeList<Others...>{});
  else
    __builtin_trap();  // refused before: see is_kv_type()
}
template <class F>
void with_elements(const KvSource& source, const F& f) {
  with_elements(source, f, KvElements{});
}

/// The same without scales, also as pairs.
template <class F, class First, class... Others>
void with_stored_elements(const KvSource& source, const F& f, TypeList<First, Others...>) {
  if constexpr (kLoads<First> || (kPairs && is_quantized(dtype_of<First>)))
    if (source.dtype == dtype_of<First>) return f(KvRows<First>(source));
  if constexpr (sizeof...(Others) > 0)
    with_stored_elements(source, f, TypeList<Others...>{});
  else
    __builtin_trap();
}
template <class F>
void with_stored_elements(const KvSource& source, const F& f) {
  with_stored_elements(source, f, KvElements{});
}

/// Whether multiply-adds can read the numbers of a source in place, in rows a constant distance apart.
inline bool is_in_place(const KvSource& source) { return source.dtype == dtype_of<Scalar> && !source.pages; }
/// A row of such a source.
inline const Scalar* row_in_place(const KvSource& source, std::int64_t key) {
  return static_cast<const Scalar*>(source.data) + key * source.row_stride;
}

// ---- Loads ---------------------------------------------------------------------------------------------------

/// 16 numbers. (simd/*.h has faster ones for some types.)
template <class Row>
SACCADE_INLINE void load_16(Row row, Vec (&x)[16 / kWidth]) {
  SACCADE_UNROLL
  for (int i = 0; i < 16 / kWidth; ++i) x[i] = loadu(row + i * kWidth);
}

/// Numbers of a quantized row, without its scale, as pairs of bf16, which hold all of them. (See
/// simd/avx512_bf16.h.)
template <class Row>
concept QuantizedNumbers =
    std::same_as<Row, const std::int8_t*> || std::same_as<Row, const float8_e4m3*> || std::same_as<Row, Int4Row>;
template <QuantizedNumbers Row>
SACCADE_INLINE Vec loadu_pairs(Row row) {
  return round_to_pairs(loadu(row), loadu(row + kWidth));
}
/// 16 numbers, where a vector has four. (V is Vec: templates need round_to_pairs() only where there are pairs.)
template <QuantizedNumbers Row, class V>
SACCADE_INLINE void load_16_pairs(Row row, V (&x)[2]) {
  V numbers[4];
  load_16(row, numbers);
  x[0] = round_to_pairs(numbers[0], numbers[1]), x[1] = round_to_pairs(numbers[2], numbers[3]);
}
template <QuantizedNumbers Row>
SACCADE_INLINE Vec load_first_pairs(Row row, int n) {
  return round_to_pairs(load_first(row, std::min(n, kWidth)), load_first(row + kWidth, std::max(n - kWidth, 0)));
}
template <QuantizedNumbers Row>
SACCADE_INLINE Vec interleave_first(Row even, Row odd, int n) {
  return pair_numbers(load_first(even, n), load_first(odd, n));
}

/// kWidth steps of a row of `length` numbers, from `step` on; zeros beyond its end.
template <class Row>
SACCADE_INLINE Vec load_steps(Row row, std::int64_t step, std::int64_t length) {
  if constexpr (kPairs)
    return load_first_pairs(row + 2 * step,
                            static_cast<int>(std::min<std::int64_t>(2 * kWidth, length - 2 * step)));
  else
    return load_first(row + step, static_cast<int>(std::min<std::int64_t>(kWidth, length - step)));
}

/// The steps of a row in memory.
template <class T>
SACCADE_INLINE const Scalar* stored_steps(const T* row) {
  return reinterpret_cast<const Scalar*>(row);
}

/// kWidth steps of a row from `step` on; all must exist.
template <class Row>
SACCADE_INLINE Vec loadu_steps(Row row, std::int64_t step) {
  if constexpr (kPairs && QuantizedNumbers<Row>)
    return loadu_pairs(row + 2 * step);
  else if constexpr (kPairs)
    return loadu(stored_steps(row) + step);
  else
    return loadu(row + step);
}

/// Vectors of steps whose numbers are converted together: those of 16 numbers, or more.
template <class Row>
inline constexpr int kLoadedTogether = kWidth == 1 || (kPairs && !QuantizedNumbers<Row>) ? 1
                                       : kOnlyFloat8                                     ? 4
                                                     : std::max(16 / (kStepNumbers * kWidth), 1);
/// That many vectors of steps of a row from `step` on; all must exist.
template <class Row>
SACCADE_INLINE void load_together(Row row, std::int64_t step, Vec (&x)[kLoadedTogether<Row>]) {
  constexpr int kVectors = kLoadedTogether<Row>;
  if constexpr (kPairs && kVectors == 2 && QuantizedNumbers<Row>) {
    load_16_pairs(row + 2 * step, x);
  } else if constexpr (kVectors == 1) {
    x[0] = loadu_steps(row, step);
  } else if constexpr (kOnlyFloat8) {
    load_64(row + step, x);
  } else {
    load_16(row + step, x);
  }
}

/// Prefetches a cache line of a row, or of one that begins `ahead` bytes later.
template <int kLocality, class T>
SACCADE_INLINE void prefetch_line(const T* row, std::int64_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const char*>(row) + ahead, 0, kLocality);
}
template <int kLocality>
SACCADE_INLINE void prefetch_line(Int4Row row, std::int64_t ahead = 0) {
  prefetch_line<kLocality>(row.bytes + row.at / 2, ahead);
}
using cpu::as_computed;
SACCADE_INLINE Int4Row as_computed(Int4Row row) { return row; }

/// The same for each of `kRows` rows. The packing loops read more rows at once than the hardware prefetchers
/// follow: 1.5% of a forward at seqlen 1024 was spent waiting for them (Zen 4).
template <int kRows, class Row>
SACCADE_INLINE void prefetch_rows(Row row, std::int64_t row_stride) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) prefetch_line<3>(row + i * row_stride);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
