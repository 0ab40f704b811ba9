// The two products of decode: few rows times keys and values that are read in place.
// docs/performance/optimizations.md lists the gain of each detail.
#pragma once

#include "cpu/attention/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Sums the products of a key, a quarter at a time, while the next key is multiplied. All at once, the sums would
/// take a fifth of the time (Zen 4).
class KeySums {
 public:
  SACCADE_INLINE KeySums() {
    SACCADE_UNROLL
    for (Vec& x : last) x = zero();
    SACCADE_UNROLL
    for (Vec& x : folded_) x = zero();
  }
  SACCADE_INLINE void fold(int quarter, int key) {
    if constexpr (kDecodeRows == 4) {
      if (quarter < 2) halves_[quarter] = add_lanes(last[2 * quarter], last[2 * quarter + 1]);
      if (quarter == 2) folded_[key] = add_lanes(halves_[0], halves_[1]);
    } else if (quarter == 2) {
      folded_[key] = kDecodeRows == 2 ? add_lanes(last[0], last[kDecodeRows - 1]) : last[0];
    }
  }
  /// Writes the scores of kDecodeKeys keys to rows kDecodeSplit apart.
  SACCADE_INLINE void keep(Scalar* scores) const {
    alignas(64) Scalar products[kWidth];
    store(products, sum_within_lanes(folded_));
    SACCADE_UNROLL
    for (int r = 0; r < kDecodeRows; ++r)
      std::memcpy(scores + r * kDecodeSplit, products + r * kDecodeKeys, kDecodeKeys * sizeof(Scalar));
  }

  Vec last[kDecodeRows];  // products of one key with each query, not yet summed

 private:
  Vec halves_[2], folded_[kDecodeKeys];
};

/// Whether the numbers of rows are looked up as pairs of bf16, 64 at a time (simd/avx512_bf16.h).
template <class Row>
inline constexpr bool kLooksUp = kLooksUpPairs &&
                                 (std::same_as<Row, const std::int8_t*> || std::same_as<Row, const float8_e4m3*>);
inline bool looks_up(DType dtype) { return kLooksUpPairs && (dtype == DType::i8 || dtype == DType::f8e4m3); }

/// Puts a packed query of `steps` steps into the order in which the numbers of keys are looked up.
inline void order_query(Scalar* query, std::int64_t steps) {
  Scalar given[32];
  for (; steps > 0; steps -= 32, query += 32) {
    std::copy_n(query, 32, given);
    for (int i = 0; i < 8; ++i) std::copy_n(given + i * 4, 4, query + i % 2 * 16 + i / 2 * 4);
  }
}
/// Puts 64 columns in the order of look_up_columns() into ascending order.
inline void order_looked_up(const Scalar* o, Scalar* columns) {
  for (int i = 0; i < 16; ++i) std::copy_n(o + i * 4, 4, columns + i % 4 * 16 + i / 4 * 4);
}

/// Ends the chains of multiply-adds of one score each before step `at`, where a vector is one number: adds their
/// sums to those of earlier chains. Each lane of a wider vector is a chain, and shorter. (kOneScoreChain says
/// why.)
template <int kCount>
SACCADE_INLINE void end_chains_before(std::int64_t at, Vec (&sums)[kCount], Vec (&ended)[kCount]) {
  if constexpr (kWidth == 1) {
    if (at == 0 || at % kScoreChain != 0) return;
    for (int i = 0; i < kCount; ++i) {
      ended[i] = add(ended[i], sums[i]);
      sums[i] = zero();
    }
  }
}
/// The sums of all chains.
SACCADE_INLINE Vec sum_of_chains(Vec last, Vec ended) {
  if constexpr (kWidth == 1) return add(ended, last);
  return last;
}

/// scores[r][j], rows kDecodeSplit apart: the products of kDecodeRows packed queries (`stride` apart, padded with
/// zeros) and `count` keys, a multiple of kDecodeKeys. kVectors: vectors of a row, 0 for any number. Reads keys
/// one after the other, from end to end, because interleaving rows halves the bandwidth. Keeps as many queries in
/// registers as fit, because loads of queries would take places in the load queue from loads of keys (37 GB/s
/// instead of 27 in bf16, Zen 4).
template <int kVectors, class Rows>
__attribute__((noinline)) void decode_scores(const Scalar* queries, std::int64_t stride, Rows keys, int count,
                                             std::int64_t head_dim, Scalar* scores) {
  using Row = std::remove_cvref_t<decltype(keys[0])>;
  constexpr int kHeld = std::min(kVectors, kRegisters / (kPairs && QuantizedNumbers<Row> ? 16 : 8));
  constexpr int kTogether = kLooksUp<Row> ? 2 : kVectors > 0 ? kLoadedTogether<Row> : 1;
  constexpr int kEvery = kHeld > 0 ? kVectors / kHeld : 1;
  const std::int64_t q_stride = kVectors > 0 ? kVectors * kWidth : stride;
  const std::int64_t whole = head_dim / kStepNumbers / kWidth * kWidth;
  Vec held[kDecodeRows][std::max(kHeld, 1)];
  SACCADE_UNROLL
  for (int r = 0; r < kDecodeRows; ++r) {
    SACCADE_UNROLL
    for (int c = 0; c < kHeld; ++c) held[r][c] = in_register(load(queries + r * q_stride + c * kEvery * kWidth));
  }
  KeySums before;
  for (int j = 0; j < count; j += kDecodeKeys) {
    SACCADE_UNROLL
    for (int t = 0; t < kDecodeKeys; ++t) {
      Vec sums[kDecodeRows], ended[kDecodeRows];
      SACCADE_UNROLL
      for (int r = 0; r < kDecodeRows; ++r) sums[r] = ended[r] = zero();
      const auto key = as_computed(keys[j + t]);
      const Scalar* const first = as_computed(queries);
      const auto step = [&](std::int64_t at, Vec x) __attribute__((always_inline)) {
        end_chains_before(at, sums, ended);
        SACCADE_UNROLL
        for (int r = 0; r < kDecodeRows; ++r) sums[r] = multiply_add_from(first + r * q_stride + at, x, sums[r]);
      };
      const auto fold = [&](int quarter) __attribute__((always_inline)) {
        before.fold(quarter, (t + kDecodeKeys - 1) % kDecodeKeys);
        if (quarter == 3 && t == 0 && j > 0) before.keep(scores + j - kDecodeKeys);
      };
      const auto multiply = [&](int c, Vec x) __attribute__((always_inline)) {
        if (kHeld == 0 || c % kEvery != 0) return step(c * kWidth, x);
        end_chains_before(c * kWidth, sums, ended);
        SACCADE_UNROLL
        for (int r = 0; r < kDecodeRows; ++r) sums[r] = multiply_add(held[r][c / kEvery], x, sums[r]);
      };
      if constexpr (kVectors > 0) {
        SACCADE_UNROLL
        for (int c = 0; c < kVectors; c += kTogether) {
          Vec x[kTogether];
          if constexpr (kLooksUp<Row>)
            look_up_pairs(key + c * 2 * kWidth, 64, x);
          else
            load_together(key, c * kWidth, x);
          SACCADE_UNROLL
          for (int i = 0; i < kTogether; ++i) multiply(c + i, x[i]);
          SACCADE_UNROLL
          for (int quarter = 4 * c / kVectors; quarter < 4 * (c + kTogether) / kVectors; ++quarter) fold(quarter);
        }
      } else {
        if constexpr (kLooksUp<Row>) {
          for (std::int64_t d = 0; d < head_dim; d += 64) {
            Vec x[2];
            look_up_pairs(key + d, static_cast<int>(std::min<std::int64_t>(head_dim - d, 64)), x);
            step(d / 2, x[0]), step(d / 2 + kWidth, x[1]);
          }
        } else {
          constexpr int kLoaded = kLoadedTogether<Row>;
          std::int64_t at = 0;
          for (; at + kLoaded * kWidth <= whole; at += kLoaded * kWidth) {
            Vec x[kLoaded];
            load_together(key, at, x);
            SACCADE_UNROLL
            for (int i = 0; i < kLoaded; ++i) step(at + i * kWidth, x[i]);
          }
          for (; at < steps_of(head_dim); at += kWidth) step(at, load_steps(key, at, head_dim));
        }
        SACCADE_UNROLL
        for (int quarter = 0; quarter < 4; ++quarter) fold(quarter);
      }
      SACCADE_UNROLL
      for (int r = 0; r < kDecodeRows; ++r) before.last[r] = sum_of_chains(sums[r], ended[r]);
    }
  }
  SACCADE_UNROLL
  for (int quarter = 0; quarter < 4; ++quarter) before.fold(quarter, kDecodeKeys - 1);
  before.keep(scores + count - kDecodeKeys);
}

/// decode_scores for four queries where a vector does not hold the sums of as many: each query has its own
/// vectors, so that keys are read and converted once for all four, and queries once for several keys if these are
/// converted. The order of additions is the same.
template <class Rows>
__attribute__((noinline)) void decode_scores_of_four(const Scalar* queries, std::int64_t stride, Rows keys,
                                                     int count, std::int64_t head_dim, Scalar* scores) {
  using Row = std::remove_cvref_t<decltype(keys[0])>;
  constexpr bool kStored = std::same_as<Row, const Scalar*> || (kPairs && std::same_as<Row, const bfloat16*>);
  constexpr int kRows = 4, kTogether = kStored ? 1 : kRegisters / 8, kVectors = kLoadedTogether<Row>;
  const std::int64_t whole = head_dim / kStepNumbers / kWidth * kWidth, steps = steps_of(head_dim);
  const std::int64_t whole_groups = whole / (kVectors * kWidth) * (kVectors * kWidth);
  for (int j = 0; j < count; j += kDecodeKeys) {
    Vec products[kRows][kDecodeKeys];
    SACCADE_UNROLL
    for (int t = 0; t < kDecodeKeys; t += kTogether) {
      Vec sums[kRows][kTogether], ended[kRows][kTogether];
      SACCADE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) sums[r][i] = ended[r][i] = zero();
      }
      Vec x[kTogether][kVectors];
      const auto add = [&](std::int64_t at, int c) __attribute__((always_inline)) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Vec q = in_register(load(queries + r * stride + at + c * kWidth));
          end_chains_before(at + c * kWidth, sums[r], ended[r]);
          SACCADE_UNROLL
          for (int i = 0; i < kTogether; ++i) sums[r][i] = multiply_add(q, x[i][c], sums[r][i]);
        }
      };
      std::int64_t at = 0;
      for (; at < whole_groups; at += kVectors * kWidth) {
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) load_together(keys[j + t + i], at, x[i]);
        SACCADE_UNROLL
        for (int c = 0; c < kVectors; ++c) add(at, c);
      }
      for (; at < steps; at += kWidth) {
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) x[i][0] = load_steps(keys[j + t + i], at, head_dim);
        add(at, 0);
      }
      SACCADE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) products[r][t + i] = sum_of_chains(sums[r][i], ended[r][i]);
      }
    }
    alignas(64) Scalar sums[kWidth];
    SACCADE_UNROLL
    for (int r = 0; r < kRows; r += kDecodeRows) {
      Vec folded[kDecodeKeys];
      SACCADE_UNROLL
      for (int t = 0; t < kDecodeKeys; ++t)
        folded[t] =
            kDecodeRows == 1 ? products[r][t] : add_lanes(products[r][t], products[r + kDecodeRows - 1][t]);
      store(sums, sum_within_lanes(folded));
      SACCADE_UNROLL
      for (int i = 0; i < kDecodeRows; ++i)
        std::memcpy(scores + (r + i) * kDecodeSplit + j, sums + i * kDecodeKeys, kDecodeKeys * sizeof(Scalar));
    }
  }
}

/// Keys added in one pass over the accumulated output, and how many rows and vectors of it are in registers.
/// Values that memory holds as the product takes them are loaded for each row; others are converted once for
/// several rows, up to kMostRows. Looked up 32 keys at a time, pages of 16 took 1.25 times as long (Zen 4).
template <class T, int kMostRows>
struct ValueStep {
  static constexpr bool kConverts = !KvRows<T>::kStoredAsSteps;
  static constexpr int kKeys = kLooksUp<const T*> ? 16 : kConverts ? 32 : (kPairs ? 8 : 4);
  static constexpr int kRows = kConverts ? kMostRows : kRegisters == 32 ? 2 : 1;
  static constexpr int kVectors = kLooksUp<const T*> ? 4
                                  : kConverts        ? std::max(kRegisters / 2 / kRows, kLoadedTogether<const T*>)
                                                     : 8;
  static constexpr int kColumns = kVectors * kWidth;
  static constexpr int kColumnsOfLine = std::max(kColumns, 64 / static_cast<int>(sizeof(T)));
};

/// Accumulated output of decode: [chunk of kValueChunk columns][kDecodeMaxRows][kValueChunk]. The stride is
/// constant, so that the rows of a step are at fixed offsets from one pointer.
inline std::int64_t chunk_offset(std::int64_t row, std::int64_t column) {
  return (column / kValueChunk * kDecodeMaxRows + row) * kValueChunk + column % kValueChunk;
}

/// How far ahead values are prefetched, in bytes.
inline constexpr std::int64_t kValuesAhead = 16384;

/// o[kRows][kVectors vectors] += p v over `count` keys (where kCount is 1 to 8, as many): rows of p are
/// kDecodeSplit apart, and the first `columns` numbers of v[key] are read. For pairs, o's columns are in the order
/// of interleave_low and interleave_high. kFetches: prefetches the values of a later step.
template <class T, class Step, int kCount, bool kTail, bool kFetches, class Rows>
SACCADE_INLINE void add_step(const Scalar* p, const Rows& v, int count, std::int64_t column, int columns,
                             Scalar* o) {
  constexpr int kRows = Step::kRows, kVectors = Step::kVectors;
  Vec acc[kRows][kVectors];
  SACCADE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) acc[r][c] = load(o + r * kValueChunk + c * kWidth);
  }
  const auto add = [&](int j) __attribute__((always_inline)) {
    const auto row = as_computed(v[j] + column);
    const auto next = kPairs ? as_computed(v[j + 1] + column) : row;
    if constexpr (kFetches) {
      SACCADE_UNROLL
      for (int i = 0; i < Step::kColumns; i += 64 / static_cast<int>(sizeof(T))) {
        prefetch_line<2>(row + i, kValuesAhead);
        if (kPairs) prefetch_line<2>(next + i, kValuesAhead);
      }
    }
    Vec weight[kRows];
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r) weight[r] = broadcast_from(p + r * kDecodeSplit + j / kStepNumbers);
    if constexpr (kLooksUp<const T*>) {
      Vec x[4];
      const int n = kTail ? columns : 64;
      look_up_columns(row, n, next, n, x);
      SACCADE_UNROLL
      for (int c = 0; c < 4; ++c) {
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) acc[r][c] = multiply_add(weight[r], x[c], acc[r][c]);
      }
    } else if constexpr (kPairs) {
      constexpr int kTogether = kTail ? 1 : kLoadedTogether<std::remove_cvref_t<decltype(v[0])>>;
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; c += 2 * kTogether) {
        const int at = c * kWidth;
        Vec even[kTogether], odd[kTogether];
        if constexpr (kTail) {
          const int n = std::clamp(columns - at, 0, 2 * kWidth);
          even[0] = load_first_pairs(row + at, n), odd[0] = load_first_pairs(next + at, n);
        } else {
          load_together(row, at / 2, even), load_together(next, at / 2, odd);
        }
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          const Vec low = interleave_low(even[i], odd[i]), high = interleave_high(even[i], odd[i]);
          SACCADE_UNROLL
          for (int r = 0; r < kRows; ++r) {
            Vec* const sums = acc[r] + c + 2 * i;
            sums[0] = multiply_add(weight[r], low, sums[0]), sums[1] = multiply_add(weight[r], high, sums[1]);
          }
        }
      }
    } else {
      constexpr int kTogether = kTail ? 1 : kLoadedTogether<std::remove_cvref_t<decltype(v[0])>>;
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; c += kTogether) {
        Vec x[kTogether];
        if constexpr (kTail)
          x[0] = load_first(row + c * kWidth, std::clamp(columns - c * kWidth, 0, kWidth));
        else
          load_together(row, c * kWidth, x);
        SACCADE_UNROLL
        for (int i = 0; i < kTogether; ++i) {
          SACCADE_UNROLL
          for (int r = 0; r < kRows; ++r) acc[r][c + i] = fma(weight[r], x[i], acc[r][c + i]);
        }
      }
    }
  };
  if constexpr (kCount > 0 && kCount <= 8) {
    SACCADE_UNROLL
    for (int j = 0; j < kCount; j += kStepNumbers) add(j);
  } else {
    for (int j = 0; j < count; j += kStepNumbers) add(j);
  }
  SACCADE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) store(o + r * kValueChunk + c * kWidth, acc[r][c]);
  }
}

/// The same for all of `rows` rows and `dim` columns. The last rows of a step prefetch the values of a later one.
/// Where several steps read the same values, they find them in the L1 cache: 0.98 of the bandwidth instead of 0.8
/// (Zen 4).
template <class T, int kMostRows, class Rows>
__attribute__((noinline)) void decode_values(const Scalar* p, Rows v, int count, int rows, std::int64_t dim,
                                             Scalar* o) {
  using Step = ValueStep<T, kMostRows>;
  for (int from = 0; from < count; from += Step::kKeys) {
    const int n = std::min(count - from, Step::kKeys);
    for (std::int64_t c = 0; c < dim; c += Step::kColumns) {
      const int columns = static_cast<int>(std::min<std::int64_t>(Step::kColumns, dim - c));
      for (int r = 0; r < rows; r += Step::kRows) {
        const Scalar* const weights = p + r * kDecodeSplit + from / kStepNumbers;
        Scalar* const out = o + chunk_offset(r, c);
        if (columns < Step::kColumns)
          add_step<T, Step, 0, true, false>(weights, v + from, n, c, columns, out);
        else if (n < Step::kKeys && !Step::kConverts)
          add_step<T, Step, 0, false, false>(weights, v + from, n, c, columns, out);
        else if (r + Step::kRows >= rows && (r > 0 || Step::kConverts) && c % Step::kColumnsOfLine == 0)
          add_step<T, Step, Step::kKeys, false, true>(weights, v + from, n, c, columns, out);
        else
          add_step<T, Step, Step::kKeys, false, false>(weights, v + from, n, c, columns, out);
      }
    }
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
