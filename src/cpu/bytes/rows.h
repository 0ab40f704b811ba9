// Rows of keys or values of i8, i4 and e4m3 as the products of decode() read them, 16 at a time and in whole cache
// lines: in place, or copied. put_int4_row(), which unpacks a row of i4, is defined next to the products.
#pragma once

#include "cpu/attention/packing.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Rows of q that are multiplied together.
inline constexpr int kDigitRows = 4;
/// Bytes of 16 rows of 64 numbers.
inline constexpr std::int64_t kTileBytes = 1024;

inline bool is_nan_of_float8(std::int8_t byte) { return (byte & 127) == 127; }

/// 16 rows, `stride` bytes apart, each of whole cache lines.
struct RowTile {
  const std::int8_t* first = nullptr;
  std::int64_t stride = 0;
  SACCADE_INLINE const std::int8_t* at(std::int64_t row, std::int64_t d) const {
    return first + row * stride + d * 64;
  }
};

/// The rows of a source of bytes (T is int8_t) or of i4 (int4), in kTiles (0: `tiles`) times 64 numbers.
template <class T, int kTiles>
class ByteRows {
 public:
  /// `copies` has space for four times 16 rows. Keys from `end` on are not prefetched. `drops_nan`: NaN of e4m3
  /// reads as 0.
  ByteRows(const KvSource& source, KeyRange readable, std::int64_t end, std::int64_t tiles, std::int8_t* copies,
           bool drops_nan)
      : source_(source), readable_(readable), end_(end), tiles_(tiles), copies_(copies), drops_nan_(drops_nan) {}

  SACCADE_INLINE std::int64_t tiles() const { return kTiles > 0 ? kTiles : tiles_; }

  /// The 16 rows at `key`; rows that may not be read are zeros. A copy is kept until the next call with this
  /// `place`, 0 to 3.
  SACCADE_INLINE RowTile tile(std::int64_t key, int place) const {
    const RowTile rows = stored(key);
    if (!rows.first) return copy(key, place);
    if constexpr (kIsInt4) return unpack(key, place);
    return source_.dim == tiles() * 64 && !drops_nan_ ? rows : copy(key, place);
  }

  /// What to prefetch of the 16 rows at `key`, in memory.
  SACCADE_INLINE RowTile next(std::int64_t key) const { return key < end_ ? stored(key) : RowTile{}; }

  /// Rows, in whole tiles, of at least so many bytes.
  std::int64_t rows_of(std::int64_t bytes) const {
    return round_up(bytes / std::max<std::int64_t>(bytes_of(source_.dtype, source_.row_stride), 16), 16);
  }

  /// Prefetches rows [row, row + kCount) of such a tile.
  template <int kCount, int kHint>
  SACCADE_INLINE void fetch(const RowTile& rows, int row) const {
    if (!rows.first) return;
    SACCADE_UNROLL
    for (int i = 0; i < kCount; ++i)
      for (std::int64_t d = 0; d < lines(); ++d) __builtin_prefetch(rows.at(row + i, d), 0, kHint);
  }

 private:
  static constexpr bool kIsInt4 = std::is_same_v<T, int4>;

  /// Cache lines of a row.
  SACCADE_INLINE std::int64_t lines() const { return kIsInt4 ? (tiles() + 1) / 2 : tiles(); }

  /// Where the 16 rows at `key` lie in memory, whatever their type; nullptr if they are not one after the other,
  /// or not all may be read.
  SACCADE_INLINE RowTile stored(std::int64_t key) const {
    if (key < readable_.begin || key + 16 > readable_.end) return {};
    std::int64_t at = key * source_.row_stride;
    if (source_.pages) {
      const std::int64_t row = key % source_.page_size;
      if (row + 16 > source_.page_size) return {};
      at = source_.pages[key / source_.page_size] * source_.page_stride + row * source_.row_stride;
    }
    return {static_cast<const std::int8_t*>(source_.data) + (kIsInt4 ? at / 2 : at),
            kIsInt4 ? source_.row_stride / 2 : source_.row_stride};
  }

  std::int8_t* place_of_copy(int place) const { return copies_ + place * tiles() * kTileBytes; }

  SACCADE_INLINE RowTile unpack(std::int64_t key, int place) const {
    std::int8_t* const to = place_of_copy(place);
    const auto rows = KvRows<int4>(source_).run(key).rows;
    for (int i = 0; i < 16; ++i) put_int4_row(rows[i], tiles(), to + i * tiles() * 64);
    return {to, tiles() * 64};
  }
  __attribute__((noinline)) RowTile copy(std::int64_t key, int place) const {
    std::int8_t* const all = place_of_copy(place);
    for (std::int64_t i = 0; i < 16; ++i) {
      std::int8_t* const to = all + i * tiles() * 64;
      if (key + i < readable_.begin || key + i >= readable_.end) {
        std::memset(to, 0, static_cast<std::size_t>(tiles() * 64));
      } else if constexpr (kIsInt4) {
        put_int4_row(KvRows<int4>(source_)[key + i], tiles(), to);
      } else {
        std::memcpy(to, KvRows<std::int8_t>(source_)[key + i], static_cast<std::size_t>(source_.dim));
        std::memset(to + source_.dim, 0, static_cast<std::size_t>(tiles() * 64 - source_.dim));
        if (drops_nan_) std::replace_if(to, to + source_.dim, is_nan_of_float8, std::int8_t{0});
      }
    }
    return {all, tiles() * 64};
  }

  KvSource source_;
  KeyRange readable_;
  std::int64_t end_, tiles_;
  std::int8_t* copies_;
  bool drops_nan_;
};

/// Calls f(ByteRows). kHasInt4: the source may be of i4.
template <bool kHasInt4, class F>
void call_with_byte_rows(const KvSource& source, KeyRange readable, std::int64_t end, std::int64_t tiles,
                         std::int8_t* copies, bool drops_nan, const F& f) {
  const auto call = [&]<class T>(T) {
    if (tiles == 1) return f(ByteRows<T, 1>(source, readable, end, tiles, copies, drops_nan));
    if (tiles == 2) return f(ByteRows<T, 2>(source, readable, end, tiles, copies, drops_nan));
    return f(ByteRows<T, 0>(source, readable, end, tiles, copies, drops_nan));
  };
  if constexpr (kHasInt4)
    if (source.dtype == DType::i4) return call(int4{});
  call(std::int8_t{});
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
