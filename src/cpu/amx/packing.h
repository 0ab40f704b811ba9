// Keys and values as the products of AMX tiles read them, and their statistics: tiles hold finite numbers only.
#pragma once

#include "cpu/amx/bf16_split.h"
#include "cpu/attention/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Pairs of tiles along `dimensions` numbers, 32 to a row of a tile.
inline std::int64_t depth_tiles(std::int64_t dimensions) { return (dimensions + 31) / 32; }

// ---- Which numbers tiles can hold

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
template <class T>
inline constexpr BitsOf<T> kSignBit = static_cast<BitsOf<T>>(BitsOf<T>{1} << (8 * sizeof(T) - 1));
template <class T>
inline constexpr BitsOf<T> kNotFinite = static_cast<BitsOf<T>>(std::is_same_v<T, float>      ? 0x7f800000U
                                                               : std::is_same_v<T, bfloat16> ? 0x7f80U
                                                                                             : 0x7c00U);

template <class T>
BitsOf<T> magnitude(T x) {
  return std::bit_cast<BitsOf<T>>(x) & static_cast<BitsOf<T>>(~kSignBit<T>);
}
template <class T>
float from_magnitude(BitsOf<T> bits) {
  return static_cast<float>(std::bit_cast<T>(bits));
}

/// The smallest nonzero magnitudes that tiles can hold: products treat denormals as 0, and the last part of f32
/// must not be one. Values meet weights of about 2^-32. All f16 numbers are large enough.
template <class T>
inline constexpr BitsOf<T> kLeastOfScores = static_cast<BitsOf<T>>(std::is_same_v<T, float> ? (127U - 100) << 23
                                                                                            : 1);
template <class T>
inline constexpr BitsOf<T> kLeastOfValues = static_cast<BitsOf<T>>(std::is_same_v<T, float> ? (127U - 64) << 23
                                                                   : std::is_same_v<T, bfloat16> ? (127U - 80) << 7
                                                                                                 : 1);
template <class T>
inline constexpr BitsOf<T> kLeastOfProducts = std::is_same_v<T, bfloat16> ? 0x0080 : kLeastOfScores<T>;

/// Statistics of some numbers.
template <class T>
struct Magnitudes {
  BitsOf<T> largest = 0;
  bool has_small = false;  // a nonzero number below the smallest that tiles can hold

  bool is_for_tiles() const { return largest < kNotFinite<T> && !has_small; }
};

/// Numbers below `smallest` count as 0.
template <class T>
Magnitudes<T> magnitudes(const T* x, std::int64_t n, BitsOf<T> least, BitsOf<T> smallest = 1) {
  BitsOf<T> largest = 0, small = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const BitsOf<T> bits = magnitude(x[i]);
    largest = std::max(largest, bits);
    small |=
        static_cast<BitsOf<T>>(static_cast<BitsOf<T>>(bits - smallest) < static_cast<BitsOf<T>>(least - smallest));
  }
  return {largest, small != 0};
}

// ---- Rows of words

/// Copies 32 numbers of a row from `begin` on, with zeros beyond its `length`; all zeros for nullptr. The second
/// overload converts them, times `factor`.
inline void copy_32(const bfloat16* row, std::int64_t begin, std::int64_t length, std::uint32_t* to) {
  const std::int64_t n = row ? std::clamp<std::int64_t>(length - begin, 0, 32) : 0;
  if (n == 32) {  // the usual case, without a call
    std::memcpy(to, row + begin, 64);
    return;
  }
  std::memset(to, 0, 64);
  if (n > 0) std::memcpy(to, row + begin, static_cast<std::size_t>(n) * 2);
}
template <class T>
void copy_32(const T* row, std::int64_t begin, std::int64_t length, float factor, float* to) {
  const int n = row ? static_cast<int>(std::clamp<std::int64_t>(length - begin, 0, 32)) : 0;
  for (int i = 0; i < 32; i += kWidth)
    store(to + i, i < n ? mul(broadcast(factor), load_first(row + begin + i, std::min(kWidth, n - i))) : zero());
}

/// Writes 32 numbers of a row, times `factor`, as 16 words of each part. Word i holds numbers i and 16 + i; bf16
/// keeps its own order and is multiplied only by the sign of the factor.
template <class T>
void write_words(const T* row, std::int64_t begin, std::int64_t length, float factor, std::uint32_t* to) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    copy_32(row, begin, length, to);
    if (factor < 0)
      for (int w = 0; w < 16; ++w) to[w] ^= 0x80008000U;
  } else {
    alignas(64) float numbers[32];
    copy_32(row, begin, length, factor, numbers);
    Bf16Split<kPartsOf<T>>{}.split(numbers, numbers + 16, to, kPartWords);
  }
}

/// The magnitudes of a query as write_words() packs it.
template <class T>
Magnitudes<T> packed_magnitudes(const T* row, std::int64_t length, float) {
  return magnitudes(row, length, kLeastOfScores<T>);
}
inline Magnitudes<float> packed_magnitudes(const float* row, std::int64_t length, float factor) {
  Magnitudes<float> all;
  for (std::int64_t begin = 0; begin < length; begin += 32) {
    alignas(64) float scaled[32];
    copy_32(row, begin, length, factor, scaled);
    const Magnitudes<float> some = magnitudes(scaled, 32, kLeastOfScores<float>);
    all = {std::max(all.largest, some.largest), all.has_small || some.has_small};
  }
  return all;
}

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

/// Packs up to 32 rows of q as [32 dimensions][part][32 rows][16 words]; missing rows are zeros.
template <class T>
QueryTileStats pack_query_tile(const AttentionParams& p, const QueryRows& rows, float factor, std::uint32_t* to) {
  constexpr std::int64_t kNext = kPartsOf<T> * kPartWords;
  QueryTileStats stats;
  for (int i = 0; i < 32; ++i) {
    const T* row = i < rows.rows ? p.template row_of<T>(p.q, rows.batch, rows.head, rows.row + i) : nullptr;
    if (row) {
      const Magnitudes<T> of_row = packed_magnitudes(row, p.head_dim, factor);
      if (of_row.is_for_tiles()) {
        stats.largest = std::max(stats.largest, from_magnitude<T>(of_row.largest));
      } else {
        stats.bad |= std::uint32_t{1} << i;
        row = nullptr;
      }
    }
    for (std::int64_t d = 0; d < depth_tiles(p.head_dim); ++d)
      write_words(row, d * 32, p.head_dim, factor, to + d * kNext + i * 16);
  }
  return stats;
}

/// Writes two rows of 32 numbers as words of both: two rows of tiles [.. 16 columns], 256 words apart, of each
/// part.
template <class T>
void write_row_pair(const T* even, const T* odd, std::int64_t begin, std::int64_t length, std::uint32_t* to) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    alignas(64) std::uint32_t words[2][16], pairs[32];
    copy_32(even, begin, length, words[0]);
    copy_32(odd, begin, length, words[1]);
    for (int w = 0; w < 16; ++w) {
      pairs[2 * w] = (words[0][w] & 0xffffU) | words[1][w] << 16;
      pairs[2 * w + 1] = words[0][w] >> 16 | (words[1][w] & 0xffff0000U);
    }
    std::memcpy(to, pairs, 64);
    std::memcpy(to + 256, pairs + 16, 64);
  } else {
    alignas(64) float numbers[2][32];
    copy_32(even, begin, length, 1, numbers[0]);
    copy_32(odd, begin, length, 1, numbers[1]);
    const Bf16Split<kPartsOf<T>> parts;
    parts.split(numbers[0], numbers[1], to, kPartWords);
    parts.split(numbers[0] + 16, numbers[1] + 16, to + 256, kPartWords);
  }
}

/// Transposes the pair of tiles of each part, from 32 rows of words to tiles of words of pairs.
template <int kParts>
void transpose_parts(const std::uint32_t* rows, std::uint32_t* to) {
  for (int t = 0; t < kParts; ++t) {
    transpose_words(rows + t * kPartWords, to + t * kPartWords);
    transpose_words(rows + t * kPartWords + 256, to + t * kPartWords + 256);
  }
}

/// 32 keys as the products read them: for every 32 dimensions two tiles [16 pairs of dimensions][16 keys] of each
/// part, for every 32 columns of values two tiles [16 pairs of keys, in the order of their weights][16 columns].
/// Byte is std::byte or const std::byte.
template <class T, class Byte>
class PackedTile {
 public:
  struct Facts {
    float largest = 0;      // the largest magnitude of a number of a key
    std::uint32_t bad = 0;  // a bit for each key that is packed as zeros: see Magnitudes::is_for_tiles()
  };
  template <class U>
  using Same = std::conditional_t<std::is_const_v<Byte>, const U, U>;
  static constexpr std::int64_t kRowWords = kPartsOf<T> * kPartWords;  // of 32 dimensions or columns

  static std::int64_t size(const AttentionParams& p) {
    return 64 + (depth_tiles(p.head_dim) + depth_tiles(p.head_dim_v)) * kRowWords * 4;
  }

  PackedTile(const AttentionParams& p, Byte* memory)
      : stats(reinterpret_cast<Same<Facts>*>(memory)),
        keys(reinterpret_cast<Same<std::uint32_t>*>(memory + 64)),
        values(reinterpret_cast<Same<std::uint32_t>*>(memory + 64 + depth_tiles(p.head_dim) * kRowWords * 4)) {}

  Same<Facts>* stats;
  Same<std::uint32_t>* keys;
  Same<std::uint32_t>* values;
};

/// The key, of 32, whose weight is number n of a row of weights.
template <class T>
constexpr int key_of_weight(int n) {
  return std::is_same_v<T, bfloat16> ? key_of_word(n) : n / 2 + n % 2 * 16;
}

/// Packs keys [first_key, first_key + 32), of which only those in `readable` may be read.
template <class T>
void pack_tile(const AttentionParams& p, const KvRows<T>& k, const KvRows<T>& v, std::int64_t first_key,
               KeyRange readable, PackedTile<T, std::byte> to) {
  // Products of bf16 pairs treat denormals as 0.
  constexpr BitsOf<T> kSmallestOfValues = std::is_same_v<T, bfloat16> ? 0x0080 : 1;
  const T* keys[32];
  const T* values[32];
  typename PackedTile<T, std::byte>::Facts stats;
  BitsOf<T> largest = 0;
  for (int j = 0; j < 32; ++j) {
    const std::int64_t key = first_key + j;
    keys[j] = values[j] = nullptr;
    if (key < readable.begin || key >= readable.end) continue;
    const Magnitudes<T> of_key = magnitudes(k[key], p.head_dim, kLeastOfScores<T>);
    const Magnitudes<T> of_value = magnitudes(v[key], p.head_dim_v, kLeastOfValues<T>, kSmallestOfValues);
    if (!of_key.is_for_tiles() || !of_value.is_for_tiles()) {
      stats.bad |= std::uint32_t{1} << j;
      continue;
    }
    keys[j] = k[key], values[j] = v[key];
    largest = std::max(largest, of_key.largest);
  }
  stats.largest = from_magnitude<T>(largest);
  *to.stats = stats;
  constexpr std::int64_t kRow = PackedTile<T, std::byte>::kRowWords;
  alignas(64) std::uint32_t rows[kRow];
  std::uint32_t* out = to.keys;
  for (std::int64_t d = 0; d < p.head_dim; d += 32, out += kRow) {
    for (int j = 0; j < 32; ++j) write_words(keys[j], d, p.head_dim, 1, rows + j * 16);
    transpose_parts<kPartsOf<T>>(rows, out);
  }
  out = to.values;
  for (std::int64_t d = 0; d < p.head_dim_v; d += 32, out += kRow)
    for (int pair = 0; pair < 16; ++pair)
      write_row_pair(values[key_of_weight<T>(2 * pair)], values[key_of_weight<T>(2 * pair + 1)], d, p.head_dim_v,
                     out + pair * 16);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
