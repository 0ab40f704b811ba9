// Keys and values as kernels read them: the rows of a KvSource in the type of their elements, and the functions
// that load their numbers, widened to the type of the products. A kernel calls with_elements() once for some keys,
// outside its inner loops. Queries are loaded by the same functions.
//
// What kernels need of a row:
//   row + d                                           the row from number d on
//   loadu(row), load_first(row, n)                    kWidth numbers, or the first n of them and zeros
//   loadu_steps(row, step), load_steps(row, step, n)  the same in steps of the product
//   stored_steps(row)                                 the steps in memory, where KvRows::kStoredAsSteps
//   prefetch_line<kLocality>(row, ahead)              prefetches the cache line `ahead` bytes further on
// and where pairs are multiplied load_first_pairs() and interleave_first(). The row of a plain element type is a
// pointer; simd/ has loadu() and load_first() for each type. A format with scales specializes KvRows and
// StridedRows: its row is a pointer and a scale, with these functions.
#pragma once

#include "cpu/policy/block_sizes.h"
#include "cpu/simd/math.h"

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

/// The rows of a source whose elements are T.
template <class T>
class KvRows {
 public:
  using Row = const T*;
  /// Whether memory holds the steps of a product as the product takes them.
  static constexpr bool kStoredAsSteps = kPairs || std::is_same_v<T, Scalar>;

  explicit KvRows(const KvSource& source)
      : data_(static_cast<const T*>(source.data)),
        row_stride_(source.row_stride),
        pages_(source.pages),
        page_size_(source.page_size),
        page_stride_(source.page_stride) {}

  Row operator[](std::int64_t key) const { return run(key).rows[0]; }

  /// Rows a constant distance apart, beginning with a row that may be read, and their number.
  struct Run {
    StridedRows<T> rows;
    std::int64_t count;
  };
  Run run(std::int64_t key) const {
    if (!pages_) return {{data_ + key * row_stride_, row_stride_}, std::int64_t{1} << 62};
    const std::int64_t page = key / page_size_, row = key % page_size_;
    return {{data_ + pages_[page] * page_stride_ + row * row_stride_, row_stride_}, page_size_ - row};
  }
  std::int64_t row_stride() const { return row_stride_; }

 private:
  const T* data_;
  std::int64_t row_stride_;
  const std::int32_t* pages_;
  std::int64_t page_size_, page_stride_;
};

/// Whether these kernels load rows of T: kernels for f64 load only f64, kernels for pairs only bf16.
template <class T>
inline constexpr bool kLoads = kIsDouble ? std::is_same_v<T, double>
                               : kPairs  ? std::is_same_v<T, bfloat16>
                                         : !std::is_same_v<T, double>;

/// Calls f(rows) with the KvRows of a source's element type, which these kernels must be able to load.
template <class F, class First, class... Others>
void with_elements(const KvSource& source, const F& f, TypeList<First, Others...>) {
  if constexpr (kLoads<First>)
    if (source.dtype == dtype_of<First>) return f(KvRows<First>(source));
  if constexpr (sizeof...(Others) > 0)
    with_elements(source, f, TypeList<Others...>{});
  else
    __builtin_trap();  // refused before: see is_kv_type()
}
template <class F>
void with_elements(const KvSource& source, const F& f) {
  with_elements(source, f, KvElements{});
}

/// Whether multiply-adds can read the numbers of a source in place, in rows a constant distance apart.
inline bool is_in_place(const KvSource& source) { return source.dtype == dtype_of<Scalar> && !source.pages; }
/// A row of such a source.
inline const Scalar* row_in_place(const KvSource& source, std::int64_t key) {
  return static_cast<const Scalar*>(source.data) + key * source.row_stride;
}

// ---- Loads ---------------------------------------------------------------------------------------------------

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
  if constexpr (kPairs)
    return loadu(stored_steps(row) + step);
  else
    return loadu(row + step);
}

/// Prefetches a cache line of a row, or of one that begins `ahead` bytes later.
template <int kLocality, class T>
SACCADE_INLINE void prefetch_line(const T* row, std::int64_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const char*>(row) + ahead, 0, kLocality);
}

/// The same for each of `kRows` rows. The packing loops read more rows at once than the hardware prefetchers
/// follow: 1.5% of a forward at seqlen 1024 was spent waiting for them (Zen 4).
template <int kRows, class Row>
SACCADE_INLINE void prefetch_rows(Row row, std::int64_t row_stride) {
  SACCADE_UNROLL
  for (int i = 0; i < kRows; ++i) prefetch_line<3>(row + i * row_stride);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
