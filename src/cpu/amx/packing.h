// Keys and values as the products of AMX tiles read them, and their statistics: tiles hold finite numbers only.
#pragma once

#include "cpu/amx/bf16_split.h"
#include "cpu/attention/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Pairs of tiles along `dimensions` numbers, 32 to a row of a tile.
inline std::int64_t depth_tiles(std::int64_t dimensions) { return (dimensions + 31) / 32; }

// ---- 32 rows

/// Copies 32 numbers of a row from `begin` on, with zeros beyond its `length`; all zeros for nullptr.
template <class T>
void copy_32(const T* row, std::int64_t begin, std::int64_t length, void* to) {
  const std::int64_t n = row ? std::clamp<std::int64_t>(length - begin, 0, 32) : 0;
  if (n == 32) {  // the usual case, without a call
    std::memcpy(to, row + begin, 32 * sizeof(T));
    return;
  }
  std::memset(to, 0, 32 * sizeof(T));
  if (n > 0) std::memcpy(to, row + begin, static_cast<std::size_t>(n) * sizeof(T));
}

/// Calls f(rows) with the rows of a source: of T, or of a quantized type that is read as T.
template <class T, class F>
void with_rows(const KvSource& source, const F& f) {
  if (is_quantized(source.dtype)) return with_elements(source, f, QuantizedElements{});
  f(KvRows<T>(source));
}

/// A scale as the product of a power of two, with the scale's sign, by which numbers of i8, i4 and e4m3 stay
/// numbers of bf16, and of a rest from 0.5 to 1. Scales that are 0, denormal or not finite have a rest of 1.
struct SplitScale {
  float power, rest = 1;

  explicit SplitScale(float scale) : power(scale) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(scale), exponent = bits & 0x7f800000U;
    if (exponent == 0 || exponent == 0x7f800000U) return;
    power = std::bit_cast<float>((bits & 0xff800000U) + 0x00800000U);  // infinite if the scale is very large
    rest = std::bit_cast<float>((bits & 0x007fffffU) | 0x3f000000U);
  }
};

/// 32 rows of `dim` numbers, to be packed as kParts parts. Quantized rows are times their scales; as bf16, times
/// the powers of two of SplitScale. Some rows may be left out: they are packed as zeros.
template <class T, int kParts = kPartsOf<T>>
class Rows32 {
 public:
  /// `count` rows, `stride` numbers apart.
  Rows32(const T* first, std::int64_t stride, int count, std::int64_t dim)
      : dim_(dim), stride_(stride), in_place_(count == 32), rows_{} {
    for (int i = 0; i < count; ++i) take(i, first + i * stride);
  }
  /// Rows [first, first + 32) of a source, of which only those in `readable` may be read.
  Rows32(const KvSource& source, std::int64_t first, KeyRange readable, std::int64_t dim)
      : dim_(dim), stride_(source.row_stride), in_place_(false), rows_{} {
    const std::int64_t begin = std::max(first, readable.begin), end = std::min(first + 32, readable.end);
    if (is_quantized(source.dtype)) {
      quantized_ = source, first_ = first;
      for (std::int64_t i = begin; i < end; ++i) take(static_cast<int>(i - first), nullptr);
      return;
    }
    const KvRows<T> all(source);
    for (std::int64_t from = begin, to; from < end; from = to) {
      const typename KvRows<T>::Run run = all.run(from);
      to = std::min(end, from + run.count);
      for (std::int64_t i = from; i < to; ++i) take(static_cast<int>(i - first), run.rows[i - from]);
      in_place_ = to - from == 32;
    }
  }

  /// A row that is not quantized; nullptr if it is left out.
  const T* operator[](int i) const { return keeps(i) ? rows_[i] : nullptr; }
  std::int64_t dim() const { return dim_; }
  void leave_out(int i) { kept_ &= ~(std::uint32_t{1} << i), in_place_ = false; }
  /// Leaves out the rows that `fits` rejects. Returns them, one bit each.
  template <class F>
  std::uint32_t keep_if(const F& fits) {
    std::uint32_t bad = 0;
    for (int i = 0; i < 32; ++i) {
      if (!keeps(i) || fits(i)) continue;
      leave_out(i);
      bad |= std::uint32_t{1} << i;
    }
    return bad;
  }

  /// Adds a row to `scan`.
  template <class Scan>
  void scan_row(int i, Scan& scan) const {
    if (!quantized_.data) return scan.add_row(rows_[i], dim_);
    alignas(64) T copy[32];
    for (std::int64_t d = 0; d < dim_; d += 32) {
      with_rows<T>(quantized_, [&](const auto& rows) { read_32(rows[first_ + i], d, copy); });
      scan.add_row(copy, std::min<std::int64_t>(32, dim_ - d));
    }
  }

  /// Calls f with 32 numbers of each row at a time, in place where all of them are.
  template <class F>
  SACCADE_INLINE void for_each_32(const F& f) const {
    for (std::int64_t d = 0; d < dim_; d += 32) {
      if (in_place_ && d + 32 <= dim_) {
        f(StridedRows<T>{rows_[0] + d, stride_});
      } else {
        alignas(64) T copy[1024];
        copy_numbers(d, copy);
        f(StridedRows<T>{copy, 32});
      }
    }
  }

 private:
  void take(int i, const T* row) { rows_[i] = row, kept_ |= std::uint32_t{1} << i; }
  bool keeps(int i) const { return (kept_ >> i & 1U) != 0; }

  __attribute__((noinline)) void copy_numbers(std::int64_t d, T* to) const {
    if (!quantized_.data) {
      for (int i = 0; i < 32; ++i) copy_32((*this)[i], d, dim_, to + i * 32);
      return;
    }
    with_rows<T>(quantized_, [&](const auto& rows) {
      for (int i = 0; i < 32; ++i) {
        if (keeps(i))
          read_32(rows[first_ + i], d, to + i * 32);
        else
          std::memset(static_cast<void*>(to + i * 32), 0, 32 * sizeof(T));
      }
    });
  }

  /// 32 numbers of a row, rounded to T, and zeros beyond its end.
  template <class Row>
  SACCADE_INLINE void read_32(Row row, std::int64_t d, T* to) const {
    constexpr bool kIsExact = std::is_same_v<T, bfloat16> && requires { row.scale; };
    if constexpr (kIsExact) row.scale = SplitScale(row.scale).power;
    if (d + 32 <= dim_) {
      Vec x[32 / kWidth];
      SACCADE_UNROLL
      for (int c = 0; c < 32 / kWidth; ++c) x[c] = loadu(row + (d + c * kWidth));
      if constexpr (kIsExact) return store_exact(x, to);
      SACCADE_UNROLL
      for (int c = 0; c < 32 / kWidth; ++c) storeu(to + c * kWidth, x[c]);
    } else {
      for (int c = 0; c < 32; c += kWidth)
        storeu(to + c,
               load_first(row + (d + c), static_cast<int>(std::clamp<std::int64_t>(dim_ - d - c, 0, kWidth))));
    }
  }

  std::int64_t dim_, stride_;
  bool in_place_;           // all 32 rows exist, stride_ apart
  std::uint32_t kept_ = 0;  // a bit for each row
  KvSource quantized_{};    // rows from first_ on, in place of rows_
  std::int64_t first_ = 0;
  const T* rows_[32];
};

template <class T, int kParts = kPartsOf<T>>
using ScoreScan = MagnitudeScan<T, kLeastOfScores<T>, 1, kParts>;
/// Products of bf16 pairs treat denormals as 0.
template <class T>
using ValueScan = MagnitudeScan<T, kLeastOfValues<T>, std::is_same_v<T, bfloat16> ? 0x0080 : 1>;

template <class T, int kParts = kPartsOf<T>>
inline constexpr std::int64_t kWordsOf = kParts* kPartWords;  // of 32 x 32 numbers

/// The left operand of products over the numbers of a row: [32 numbers of each row][part][32 rows][16 words].
template <class T, int kParts, class Scan>
void pack_rows(const Rows32<T, kParts>& rows, float factor, std::uint32_t* to, Scan& scan) {
  Scan found = scan;  // in registers
  rows.for_each_32([&](StridedRows<T> some) {
    put_rows<kParts>(some, factor, to, found);
    to += kWordsOf<T, kParts>;
  });
  scan = found;
}

/// The right operand of the same products: [32 numbers of each row][part][2 tiles][16 words][16 rows].
template <class T, int kParts, class Scan>
void pack_columns(const Rows32<T, kParts>& rows, std::uint32_t* to, Scan& scan) {
  Scan found = scan;
  rows.for_each_32([&](StridedRows<T> some) {
    put_columns<kParts>(some, to, found);
    to += kWordsOf<T, kParts>;
  });
  scan = found;
}

/// The right operand of products over rows: [32 numbers of each row][part][2 tiles][16 pairs of rows][16 columns].
/// Number n of the 32 that a product adds up is row kRowOf(n); numbers 2 i and 2 i + 1 are a pair.
template <auto kRowOf, class T, int kParts, class Scan>
void pack_pairs(const Rows32<T, kParts>& rows, std::uint32_t* to, Scan& scan) {
  Scan found = scan;
  rows.for_each_32([&](StridedRows<T> some) {
    SACCADE_UNROLL
    for (int pair = 0; pair < 16; ++pair)
      put_pair<kParts>(some[kRowOf(2 * pair)], some[kRowOf(2 * pair + 1)], to + pair * 16, found);
    to += kWordsOf<T, kParts>;
  });
  scan = found;
}

// ---- Queries

/// The factor that queries are packed with: the whole factor for f32; for other types, which would need another
/// part, only its sign.
template <class T>
float factor_of_queries(float factor) {
  return std::is_same_v<T, float> ? factor : std::copysign(1.0F, factor);
}

struct QueryTileStats {
  float largest = 0;      // the largest magnitude of a number of a query
  std::uint32_t bad = 0;  // a bit for each query that is packed as zeros: see Magnitudes::is_for_tiles()
};

/// Packs up to 32 rows of q as pack_rows() does; missing rows are zeros.
template <class T, int kParts = kPartsOf<T>>
QueryTileStats pack_query_tile(const AttentionParams& p, const QueryRows& rows, float factor, std::uint32_t* to) {
  Rows32<T, kParts> queries(p.template row_of<T>(p.q, rows.batch, rows.head, rows.row), p.q.row_stride,
                            static_cast<int>(rows.rows), p.head_dim);
  ScoreScan<T, kParts> scan;
  pack_rows(queries, factor, to, scan);
  if (scan.all_fit()) [[likely]]
    return {.largest = scan.largest(), .bad = 0};
  QueryTileStats stats;
  stats.bad = queries.keep_if([&](int i) {
    ScoreScan<T, kParts> of_row;
    of_row.add_row(queries[i], p.head_dim, factor);
    if (of_row.all_fit()) stats.largest = std::max(stats.largest, of_row.largest());
    return of_row.all_fit();
  });
  pack_rows(queries, std::isfinite(factor) ? factor : 1, to, scan);  // 0 times infinity would be NaN
  return stats;
}

// ---- Keys and values

/// Transposes the pair of tiles of each part, from 32 rows of words to tiles of words of pairs.
template <int kParts>
void transpose_parts(const std::uint32_t* rows, std::uint32_t* to) {
  for (int t = 0; t < kParts; ++t) {
    transpose_words(rows + t * kPartWords, to + t * kPartWords);
    transpose_words(rows + t * kPartWords + 256, to + t * kPartWords + 256);
  }
}

/// What remains of the scales of 32 keys and values that are packed as bf16. Scores are multiplied by `keys`.
/// Weights are multiplied by those of values as they are computed, by shifts of their binary logarithms, and sums
/// of weights divided by them: the first column of `sums`, a tile, has their reciprocals, and the second what bf16
/// lacks of these.
struct ScalesOfTile {
  alignas(64) float keys[32];
  float shifts[32];  // 256 log2, as Weights adds them
  std::uint32_t sums[256];
};

/// 32 keys as the products read them: for every 32 dimensions two tiles [16 pairs of dimensions][16 keys] of each
/// part, for every 32 columns of values two tiles [16 pairs of keys, in the order of their weights][16 columns];
/// then their scales, if has_scales(). Byte is std::byte or const std::byte. kKeyParts: the parts of keys.
template <class T, class Byte, int kKeyParts = kPartsOf<T>>
class PackedTile {
 public:
  struct Facts {
    float largest = 0;      // the largest magnitude of a number of a key
    std::uint32_t bad = 0;  // a bit for each key that is packed as zeros: see Magnitudes::is_for_tiles()
  };
  template <class U>
  using Same = std::conditional_t<std::is_const_v<Byte>, const U, U>;

  static bool has_scales(const AttentionParams& p) {
    return std::is_same_v<T, bfloat16> && (is_quantized(p.k.dtype) || is_quantized(p.v.dtype));
  }
  static std::int64_t size(const AttentionParams& p) {
    return size_without_scales(p) + (has_scales(p) ? static_cast<std::int64_t>(sizeof(ScalesOfTile)) : 0);
  }

  PackedTile(const AttentionParams& p, Byte* memory)
      : stats(reinterpret_cast<Same<Facts>*>(memory)),
        keys(reinterpret_cast<Same<std::uint32_t>*>(memory + 64)),
        values(reinterpret_cast<Same<std::uint32_t>*>(memory + 64 +
                                                      depth_tiles(p.head_dim) * kWordsOf<T, kKeyParts> * 4)),
        scales(has_scales(p) ? reinterpret_cast<Same<ScalesOfTile>*>(memory + size_without_scales(p)) : nullptr) {}

  Same<Facts>* stats;
  Same<std::uint32_t>* keys;
  Same<std::uint32_t>* values;
  Same<ScalesOfTile>* scales;  // nullptr: none

 private:
  static std::int64_t size_without_scales(const AttentionParams& p) {
    return 64 + (depth_tiles(p.head_dim) * kKeyParts + depth_tiles(p.head_dim_v) * kPartsOf<T>)*kPartWords * 4;
  }
};

/// The key, of 32, whose weight is number n of a row of weights.
template <class T>
constexpr int key_of_weight(int n) {
  return std::is_same_v<T, bfloat16> ? key_of_word(n) : n / 2 + n % 2 * 16;
}

/// What remains of the scale of a row.
inline float rest_of_scale(const KvSource& source, std::int64_t key) {
  return is_quantized(source.dtype) ? SplitScale(scale_of(source, key)).rest : 1;
}

/// The scales of keys [first_key, first_key + 32); of those not in `readable`, 1.
inline void pack_scales(const KvSource& k, const KvSource& v, std::int64_t first_key, KeyRange readable,
                        ScalesOfTile& to) {
  std::memset(to.sums, 0, sizeof to.sums);
  for (int w = 0; w < 32; ++w) {
    const int i = key_of_weight<bfloat16>(w);
    const std::int64_t key = first_key + i;
    const bool is_there = key >= readable.begin && key < readable.end;
    to.keys[i] = is_there ? rest_of_scale(k, key) : 1;
    const float of_value = is_there ? rest_of_scale(v, key) : 1, inverse = 1 / of_value;
    to.shifts[i] = 256 * std::log2(of_value);
    const bfloat16 large(inverse), small(inverse - static_cast<float>(large));
    std::uint32_t* const pair = to.sums + w / 2 * 16;
    pair[0] |= static_cast<std::uint32_t>(large.bits) << w % 2 * 16;
    pair[1] |= static_cast<std::uint32_t>(small.bits) << w % 2 * 16;
  }
}

/// Packs keys [first_key, first_key + 32), of which only those in `readable` may be read.
template <class T, int kKeyParts = kPartsOf<T>>
void pack_tile(const AttentionParams& p, const KvSource& k, const KvSource& v, std::int64_t first_key,
               KeyRange readable, PackedTile<T, std::byte, kKeyParts> to) {
  Rows32<T, kKeyParts> keys(k, first_key, readable, p.head_dim);
  Rows32<T> values(v, first_key, readable, p.head_dim_v);
  if (to.scales) pack_scales(k, v, first_key, readable, *to.scales);
  ScoreScan<T, kKeyParts> of_keys;
  ValueScan<T> of_values;
  const auto pack = [&] {
    pack_columns(keys, to.keys, of_keys);
    pack_pairs<key_of_weight<T>>(values, to.values, of_values);
  };
  pack();
  *to.stats = {.largest = of_keys.largest(), .bad = 0};
  if (of_keys.all_fit() && of_values.all_fit()) [[likely]]
    return;
  to.stats->largest = 0;
  to.stats->bad = keys.keep_if([&](int j) {
    ScoreScan<T, kKeyParts> of_key;
    ValueScan<T> of_value;
    keys.scan_row(j, of_key), values.scan_row(j, of_value);
    if (!of_key.all_fit() || !of_value.all_fit()) return false;
    to.stats->largest = std::max(to.stats->largest, of_key.largest());
    return true;
  });
  values.keep_if([&](int j) { return (to.stats->bad >> j & 1U) == 0; });
  pack();
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
