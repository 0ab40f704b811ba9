// Keys and values as the products of AMX tiles read them, and what is known about them: tiles hold finite numbers
// only.
#pragma once

#include "cpu/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Tiles along `dimensions` numbers of bf16, 32 of which are a row of a tile.
inline std::int64_t depth_tiles(std::int64_t dimensions) { return (dimensions + 31) / 32; }

/// 32 keys as the products read them: for every 32 dimensions two tiles [16 pairs of dimensions][16 keys], for
/// every 32 columns of values two tiles [16 pairs of keys, in the order of their weights][16 columns].
/// Byte is std::byte or const std::byte.
template <class Byte>
class PackedTile {
 public:
  struct Facts {
    float largest = 0;      // the largest magnitude of a number of a key
    std::uint32_t bad = 0;  // a bit for each key that is packed as zeros: see is_for_tiles()
  };
  template <class T>
  using Same = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  static constexpr std::int64_t kPair = 2 * 16 * 64;  // bytes of two tiles

  static std::int64_t size(const AttentionParams& p) {
    return 64 + (depth_tiles(p.head_dim) + depth_tiles(p.head_dim_v)) * kPair;
  }

  PackedTile(const AttentionParams& p, Byte* memory)
      : facts(reinterpret_cast<Same<Facts>*>(memory)),
        keys(reinterpret_cast<Same<std::uint32_t>*>(memory + 64)),
        values(reinterpret_cast<Same<std::uint32_t>*>(memory + 64 + depth_tiles(p.head_dim) * kPair)) {}

  Same<Facts>* facts;
  Same<std::uint32_t>* keys;
  Same<std::uint32_t>* values;
};

/// The largest bits of the magnitudes of `n` numbers; 0x7f80 or more: one is not finite.
inline unsigned largest_magnitude(const bfloat16* x, std::int64_t n) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max<std::uint16_t>(largest, x[i].bits & 0x7fffU);
  return largest;
}
inline constexpr unsigned kNotFinite = 0x7f80;

/// Whether products with weights of some 2^-30 keep these values: all are finite, and none is so small that the
/// product, which would be a denormal number, counts as 0.
inline bool is_for_tiles(const bfloat16* v, std::int64_t n) {
  constexpr std::uint16_t kSmallest = 0x0080, kLarge = (127 - 80) << 7;  // 2^-126, the least that is not 0; 2^-80
  unsigned small = 0;
  for (std::int64_t i = 0; i < n; ++i)
    small |= static_cast<std::uint16_t>((v[i].bits & 0x7fffU) - kSmallest) < kLarge - kSmallest;
  return small == 0 && largest_magnitude(v, n) < kNotFinite;
}
inline float from_magnitude(unsigned bits) { return std::bit_cast<float>(bits << 16); }

/// Copies 32 numbers of a row from `begin` on, with zeros after its `length` numbers; all zeros for nullptr.
inline void copy_32(const bfloat16* row, std::int64_t begin, std::int64_t length, std::uint32_t* to) {
  if (row && begin + 32 <= length) {
    std::memcpy(to, row + begin, 64);
  } else {
    std::memset(to, 0, 64);
    if (row && begin < length) std::memcpy(to, row + begin, static_cast<std::size_t>(length - begin) * 2);
  }
}

/// Packs keys [first_key, first_key + 32), of which only those in `readable` exist.
inline void pack_tile(const AttentionParams& p, const KeyRows<bfloat16>& k, const KeyRows<bfloat16>& v,
                      std::int64_t first_key, KeyRange readable, PackedTile<std::byte> to) {
  const bfloat16* keys[32];
  const bfloat16* values[32];
  PackedTile<std::byte>::Facts facts;
  unsigned largest = 0;
  for (int j = 0; j < 32; ++j) {
    const std::int64_t key = first_key + j;
    keys[j] = values[j] = nullptr;
    if (key < readable.begin || key >= readable.end) continue;
    const unsigned of_key = largest_magnitude(k[key], p.head_dim);
    if (of_key >= kNotFinite || !is_for_tiles(v[key], p.head_dim_v)) {
      facts.bad |= std::uint32_t{1} << j;
      continue;
    }
    keys[j] = k[key], values[j] = v[key];
    largest = std::max(largest, of_key);
  }
  facts.largest = from_magnitude(largest);
  *to.facts = facts;
  alignas(64) std::uint32_t rows[32 * 16];
  std::uint32_t* out = to.keys;
  for (std::int64_t d = 0; d < p.head_dim; d += 32, out += 512) {
    for (int j = 0; j < 32; ++j) copy_32(keys[j], d, p.head_dim, rows + j * 16);
    transpose_words(rows, out);
    transpose_words(rows + 256, out + 256);
  }
  out = to.values;
  for (std::int64_t d = 0; d < p.head_dim_v; d += 32, out += 512) {
    for (int word = 0; word < 32; word += 2) {
      alignas(64) std::uint32_t even[16], odd[16];
      copy_32(values[key_of_word(word)], d, p.head_dim_v, even);
      copy_32(values[key_of_word(word + 1)], d, p.head_dim_v, odd);
      std::uint32_t pairs[32];
      for (int c = 0; c < 16; ++c) {
        pairs[2 * c] = (even[c] & 0xffffU) | odd[c] << 16;
        pairs[2 * c + 1] = even[c] >> 16 | (odd[c] & 0xffff0000U);
      }
      std::memcpy(out + word / 2 * 16, pairs, 64);
      std::memcpy(out + 256 + word / 2 * 16, pairs + 16, 64);
    }
  }
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
