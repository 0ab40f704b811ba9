// decode() of keys and values of i8 and i4 on AMX tiles of integers. Like amx/decode.h, with
//
//   for each 16 keys         S = K Q^T      K as it lies in memory, Q as four digits of 7 bits
//   for each 64 keys         O += P V       P as four digits of 8 bits, V interleaved
//
// Sums of integers are exact, so a digit costs no accuracy, and none of the operands is rounded: four digits of a
// query hold its 24 bits down to 2^-4 of the row's largest number, and those of a weight 32 bits below the largest
// of the row. They fill the 16 columns of a tile with 4 rows of q, whose three digits would take 12 columns at the
// same cost. Rows of i4 are read as rows of i8, by a table.
//
// A word of a tile of values has one column of four keys, interleaved for 64 keys at a time.
//
// Scales of keys multiply scores, and those of values the weights. A scale is NaN where a row was not finite, and
// the masked-safe path keeps it from rows that do not see it. Digits of weights have no sign: a row with a
// negative or an infinite weight, or NaN, adds its values without tiles. Scales of quantize() make no negative
// ones.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/attention/decode_shared.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Rows of q whose digits share a tile, and digits of a number of q or a weight.
inline constexpr int kDigitRows = 4, kDigits = 4;

/// Scratch memory for one kv head.
class IntDecodeScratch : public ScratchSlices {
 public:
  static constexpr std::int64_t kScoreStride = kDecodeSplit + 16;
  static constexpr std::int64_t kTileBytes = 1024;

  IntDecodeScratch(const AttentionParams& p, std::int64_t rows, void* memory) : ScratchSlices(memory) {
    depth = tiles_of(p.k.dtype, p.head_dim), width = tiles_of(p.v.dtype, p.head_dim_v);
    groups = (rows + kDigitRows - 1) / kDigitRows;
    queries = take<std::int8_t>(groups * depth * kTileBytes);
    factors = take<Scalar>(groups * kDigitRows);
    copies = take<std::int8_t>(4 * std::max(depth, width) * kTileBytes);
    products = take<std::int32_t>(kTileBytes / 4);
    scores = take<Scalar>(groups * kDigitRows * kScoreStride);
    weights = take<Scalar>(rows * kScoreStride);
    digits = take<std::uint8_t>(groups * kTileBytes);
    values = take<std::int8_t>(width * 4 * kTileBytes);
    zeros = take<std::int8_t>(width * 64);
    outputs = take<std::int32_t>(groups * width * kTileBytes);
    units = take<Scalar>(rows);
    scales = take<Scalar>(kDecodeSplit);
    mask = take<Scalar>(kDecodeBlock);
  }
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::int64_t>(IntDecodeScratch(p, rows, nullptr).bytes() / sizeof(Scalar));
  }
  static std::int64_t tiles_of(DType dtype, std::int64_t dim) { return (stored_dim(dtype, dim) + 63) / 64; }

  std::int64_t depth, width;  // in 64 numbers
  std::int64_t groups;        // of kDigitRows rows
  std::int8_t* queries;       // [group][depth][16 times 4 dimensions][digit][row][4 dimensions]
  Scalar* factors;            // [rows]: the value of the last digit
  std::int8_t* copies;        // [64 keys][depth or width][64]: of rows not read in place
  std::int32_t* products;     // [16 keys][digit][row]
  Scalar* scores;             // [rows][kScoreStride], rows a multiple of 4
  Scalar* weights;            // the same, for the masked_safe path, which needs the scores
  std::uint8_t* digits;       // [group][row][digit][64 keys]
  std::int8_t* values;        // [width][4 tiles][16 times 4 keys][16 columns][4 keys]
  std::int8_t* zeros;         // a row of zeros
  std::int32_t* outputs;      // [group][width][4 tiles][row][digit][16 columns]
  Scalar* units;              // [rows]: the value of the last digit of a weight; 0: the row has no digits
  Scalar* scales;             // [kDecodeSplit]
  Scalar* mask;               // [kDecodeBlock]
};

/// The steps of DecodeHead.
class IntDecodeHead : public DecodeScores<IntDecodeScratch> {
 public:
  using Scratch = IntDecodeScratch;
  using Registers = Tiles;
  using DecodeScores<IntDecodeScratch>::DecodeScores;

  void start() {
    std::memset(scratch_.queries, 0, static_cast<std::size_t>(scratch_.groups * scratch_.depth * kTileBytes));
    std::memset(scratch_.zeros, 0, static_cast<std::size_t>(scratch_.width * 64));
    std::fill_n(scratch_.factors, scratch_.groups * kDigitRows, Scalar{0});
    for (int r = 0; r < count_; ++r) put_query(r, query<float>(r));
    plan();
  }

  /// Computes the requested products of keys [key, key + count), multiples of 32.
  void score(Tiles& tiles, std::int64_t key, std::int64_t count) {
    const KvSource source = p_.key_source(rows_.batch, kv_head_);
    const Step step{key, key + count};
    for (; key < step.end; key += 16) {
      if (!is_wanted(key)) continue;
      const RowTile keys = tile_of(source, key, scratch_.depth, 0);
      const RowTile next = next_tile(source, step, key);
      for (std::int64_t g = 0; g < scratch_.groups; ++g)
        multiply_keys(tiles, keys, next, lines_of(source), g, key - begin_);
    }
  }

  void soften() {
    read_scales(p_.key_source(rows_.batch, kv_head_));
    for (int r = 0; r < count_; ++r) {
      if (!std::isfinite(scratch_.factors[r])) multiply_bad_query(r);
      multiply_by_scales(scores(r), scores(r));
    }
    finish();
    read_scales(p_.value_source(rows_.batch, kv_head_));
    for (int r = 0; r < count_; ++r) soften(r);
    std::memset(scratch_.outputs, 0, static_cast<std::size_t>(scratch_.groups * scratch_.width * 4 * kTileBytes));
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(Tiles& tiles, std::int64_t key, std::int64_t count) {
    const KvSource source = p_.value_source(rows_.batch, kv_head_);
    const Step step{key / 64 * 64, key + count};
    for (std::int64_t first = step.begin; first < step.end; first += 64) {
      const std::int64_t begin = std::max(first, key), end = std::min(first + 64, step.end);
      if (!is_wanted(first) && !is_wanted(first + 32)) continue;
      interleave(source, step, first, begin, end);
      put_weights(first, begin, end);
      for (std::int64_t g = 0; g < scratch_.groups; ++g)
        for (std::int64_t w = 0; w < scratch_.width; ++w) multiply_values(tiles, g, w);
    }
  }

  void keep_output() {
    for (int r = 0; r < count_; ++r) {
      for (std::int64_t w = 0; w < scratch_.width; ++w) {
        alignas(64) Scalar columns[64];
        const std::int32_t* const tile = outputs(r / kDigitRows, w) + r % kDigitRows * kDigits * 16;
        for (int t = 0; t < 4; ++t) join_columns(tile + t * (kTileBytes / 4), scratch_.units[r], t, columns);
        const std::int64_t n = std::min<std::int64_t>(64, p_.head_dim_v - w * 64);
        std::copy_n(columns, n, state(r) + w * 64);
      }
      if (!has_digits(r)) add_values_without_digits(r);
      std::fill(state(r) + p_.head_dim_v, state(r) + decode_output_stride(p_), Scalar{0});
    }
  }

 private:
  static constexpr std::int64_t kTileBytes = IntDecodeScratch::kTileBytes;

  std::int8_t* queries(std::int64_t group) const { return scratch_.queries + group * scratch_.depth * kTileBytes; }
  Scalar* weights(int r) const {
    return masked_safe_ ? scratch_.weights + r * IntDecodeScratch::kScoreStride : scores(r);
  }
  bool has_digits(int r) const { return scratch_.units[r] > 0; }
  std::int32_t* outputs(std::int64_t group, std::int64_t w) const {
    return scratch_.outputs + (group * scratch_.width + w) * kTileBytes;
  }

  // ---- Queries

  /// A number is s (2^21 a + 2^14 b + 2^7 c + d), with digits from -64 to 64 and a power of two s.
  void put_query(int r, const float* row) {
    float largest = 0;
    bool is_finite = true;
    for (std::int64_t d = 0; d < p_.head_dim; ++d) {
      const float x = std::abs(row[d] * unit_.query_factor);
      largest = x > largest ? x : largest;
      is_finite = is_finite && x <= std::numeric_limits<float>::max();
    }
    if (!is_finite) {
      scratch_.factors[r] = std::numeric_limits<float>::quiet_NaN();
      return;
    }
    if (largest == 0) return;
    constexpr int kBits = 26;  // of the largest number
    const int exponent =
        std::max(static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - 127 - kBits, -149);
    const double reciprocal = power(-exponent);
    scratch_.factors[r] = static_cast<float>(power(exponent));
    std::int8_t* const tile = queries(r / kDigitRows) + r % kDigitRows * 4;
    for (std::int64_t d = 0; d < p_.head_dim; ++d) {
      const double x = double{row[d] * unit_.query_factor} * reciprocal;
      auto rest = static_cast<std::int32_t>(x < 0 ? x - 0.5 : x + 0.5);
      std::int8_t* const to = tile + d / 64 * kTileBytes + d % 64 / 4 * 64 + d % 4;
      for (int i = kDigits; i-- > 0;) {
        const std::int32_t digit = i == 0 ? rest : ((rest + 64) & 127) - 64;
        to[i * kDigitRows * 4] = static_cast<std::int8_t>(digit);
        rest = (rest - digit) >> 7;
      }
    }
  }
  static double power(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  }

  /// The scores of a query with a NaN or an infinity, as multiply-adds would give them.
  __attribute__((noinline)) void multiply_bad_query(int r) {
    with_elements(
        unscaled(p_.key_source(rows_.batch, kv_head_)),
        [&](const auto& keys) {
          const float* const row = query<float>(r);
          const std::int64_t end = std::min(begin_ + kDecodeSplit, readable_.end);
          for (std::int64_t key = std::max(begin_, readable_.begin); key < end; ++key) {
            float sum = 0;
            for (std::int64_t d = 0; d < p_.head_dim; d += kWidth) {
              const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim - d));
              alignas(64) float numbers[kWidth];
              store(numbers, load_first(keys[key] + d, n));
              for (int i = 0; i < n; ++i) sum += row[d + i] * unit_.query_factor * numbers[i];
            }
            scores(r)[key - begin_] = sum;
          }
        },
        QuantizedElements{});
  }
  /// Adds the values to a row with weights that no digits hold.
  __attribute__((noinline)) void add_values_without_digits(int r) {
    Scalar* const sums = state(r);
    std::fill_n(sums, p_.head_dim_v, Scalar{0});
    with_elements(
        unscaled(p_.value_source(rows_.batch, kv_head_)),
        [&](const auto& values) {
          const std::int64_t end = std::min(begin_ + kDecodeSplit, readable_.end);
          for (std::int64_t key = std::max(begin_, readable_.begin); key < end; ++key) {
            if (!is_wanted(key)) continue;
            const Vec w = broadcast(weights(r)[key - begin_]);
            for (std::int64_t d = 0; d < p_.head_dim_v; d += kWidth) {
              const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim_v - d));
              alignas(64) Scalar some[kWidth] = {};
              std::copy_n(sums + d, n, some);
              store(some, fma(w, load_first(values[key] + d, n), load(some)));
              std::copy_n(some, n, sums + d);
            }
          }
        },
        QuantizedElements{});
  }
  static KvSource unscaled(KvSource source) {
    source.scales = nullptr;
    return source;
  }

  // ---- Rows of keys and values

  /// 16 rows, `stride` bytes apart, as whole tiles.
  struct RowTile {
    const std::int8_t* first = nullptr;
    std::int64_t stride = 0;
    SACCADE_INLINE const std::int8_t* at(std::int64_t row, std::int64_t d) const {
      return first + row * stride + d * 64;
    }
  };
  /// Keys that this head reads before the next head reads the same.
  struct Step {
    std::int64_t begin, end;
  };

  /// Where 16 rows lie in memory, whatever their type; nullptr if they are not one after the other, or not all may
  /// be read.
  SACCADE_INLINE RowTile stored_tile(const KvSource& source, std::int64_t key) const {
    if (key < readable_.begin || key + 16 > readable_.end) return {};
    const bool is_i4 = source.dtype == DType::i4;
    std::int64_t at = key * source.row_stride;
    if (source.pages) {
      const std::int64_t row = key % source.page_size;
      if (row + 16 > source.page_size) return {};
      at = source.pages[key / source.page_size] * source.page_stride + row * source.row_stride;
    }
    return {static_cast<const std::int8_t*>(source.data) + (is_i4 ? at / 2 : at),
            is_i4 ? source.row_stride / 2 : source.row_stride};
  }
  SACCADE_INLINE RowTile tile_of(const KvSource& source, std::int64_t key, std::int64_t tiles, int place) const {
    if (source.dtype == DType::i8 && source.dim % 64 == 0)
      if (const RowTile tile = stored_tile(source, key); tile.first) return tile;
    return copy_tile(source, key, tiles, place);
  }
  __attribute__((noinline)) RowTile copy_tile(const KvSource& source, std::int64_t key, std::int64_t tiles,
                                              int place) const {
    std::int8_t* const copy = scratch_.copies + place * tiles * kTileBytes;
    for (std::int64_t i = 0; i < 16; ++i) {
      std::int8_t* const to = copy + i * tiles * 64;
      if (key + i < readable_.begin || key + i >= readable_.end)
        std::memset(to, 0, static_cast<std::size_t>(tiles * 64));
      else if (source.dtype == DType::i4)
        put_int4_row(KvRows<int4>(source)[key + i], tiles, to);
      else
        put_int8_row(KvRows<std::int8_t>(source)[key + i], source.dim, tiles, to);
    }
    return {copy, tiles * 64};
  }
  static void put_int8_row(const std::int8_t* row, std::int64_t dim, std::int64_t tiles, std::int8_t* to) {
    std::memcpy(to, row, static_cast<std::size_t>(dim));
    std::memset(to + dim, 0, static_cast<std::size_t>(tiles * 64 - dim));
  }

  /// Bytes from the rows that are multiplied to those that are prefetched: 4096 took 1.08 times as long (Granite
  /// Rapids).
  static constexpr std::int64_t kAhead = 2048;
  /// The rows to prefetch while those at `key` are multiplied.
  RowTile next_tile(const KvSource& source, const Step& step, std::int64_t key) const {
    const std::int64_t row_bytes = std::max<std::int64_t>(bytes_of(source.dtype, source.row_stride), 16);
    const std::int64_t ahead = key + round_up(kAhead / row_bytes, 16);
    return ahead < step.end ? stored_tile(source, ahead) : RowTile{};
  }
  /// Prefetches quarter n of the rows' cache lines.
  SACCADE_INLINE void fetch(const RowTile& tile, std::int64_t lines, std::int64_t n) const {
    if (!tile.first) return;
    for (std::int64_t i = 4 * n; i < 4 * n + 4; ++i)
      for (std::int64_t d = 0; d < lines; ++d) __builtin_prefetch(tile.at(i, d), 0, 2);
  }
  static std::int64_t lines_of(const KvSource& source) {
    return (bytes_of(source.dtype, stored_dim(source.dtype, source.dim)) + 63) / 64;
  }

  // ---- Scales

  /// Reads the scales of the split's keys.
  void read_scales(const KvSource& source) {
    const std::int64_t begin = std::max(readable_.begin, begin_),
                       end = std::min(readable_.end, begin_ + kDecodeSplit);
    if (begin > begin_ || end < begin_ + kDecodeSplit) std::fill_n(scratch_.scales, kDecodeSplit, Scalar{1});
    for (std::int64_t key = begin, to; key < end; key = to) {
      to = source.pages ? std::min(end, (key / source.page_size + 1) * source.page_size) : end;
      const float* const from = scale_address(source, key);
      Scalar* const out = scratch_.scales + (key - begin_);
      if (!from)
        std::fill_n(out, to - key, Scalar{1});
      else if (source.scale_stride == 1)
        std::copy_n(from, to - key, out);
      else
        for (std::int64_t i = 0; i < to - key; ++i) out[i] = from[i * source.scale_stride];
    }
  }
  void multiply_by_scales(const Scalar* from, Scalar* to) const {
    for (int j = 0; j < kDecodeSplit; j += kWidth) store(to + j, mul(load(from + j), load(scratch_.scales + j)));
  }

  // ---- S = Q K^T

  void multiply_keys(Tiles& tiles, const RowTile& keys, const RowTile& next, std::int64_t lines,
                     std::int64_t group, std::int64_t column) {
    const std::int8_t* const q = queries(group);
    tiles.clear<0>();
    for (std::int64_t d = 0; d < scratch_.depth; ++d) {
      if (group == 0)
        for (std::int64_t n = d; n < 4; n += scratch_.depth) fetch(next, lines, n);
      tiles.load<2>(q + d * kTileBytes, 64);
      tiles.load_streamed<1>(keys.at(0, d), keys.stride);
      tiles.multiply<0, 1, 2, DType::i8>();
    }
    tiles.store<0>(scratch_.products, 64);
    join_digits(scratch_.products, scratch_.factors + group * kDigitRows,
                scores(static_cast<int>(group) * kDigitRows) + column, IntDecodeScratch::kScoreStride);
  }

  // ---- P = exp(S - m), times the scales of values

  static constexpr int kDrawn = 128;  // columns that dropout draws at a time

  void soften(int r) {
    const Scalar* const line = scores(r);
    Vec largest = broadcast(kNoMaximum);
    for (int j = 0; j < kDecodeSplit; j += kWidth) largest = max(largest, load(line + j));
    const Scalar m = reduce_max(largest);
    Vec sums[32 / kWidth];
    SACCADE_UNROLL
    for (Vec& x : sums) x = zero();
    Vec most = zero(), least = zero(), finite = zero();
    for (int column = 0; column < kDecodeSplit; column += kDrawn) {
      for (int j = column; j < column + kDrawn; j += 32) weigh(r, j, m, sums);
      if (p_.dropout_p > 0.0) drop(r, column);
      for (int j = column; j < column + kDrawn; j += kWidth) scale_weights(r, j, most, least, finite);
    }
    state(r)[decode_output_stride(p_)] = m;
    state(r)[decode_output_stride(p_) + 1] = sum_of(sums);
    const bool fits = !any(is_nan(finite)) && !any(less(least, zero()));
    scratch_.units[r] = fits ? unit_for(reduce_max(most)) : Scalar{0};
  }

  /// The weights of 32 keys; adds to the sums over keys modulo 32.
  SACCADE_INLINE void weigh(int r, int column, Scalar m, Vec (&sums)[32 / kWidth]) {
    Scalar* const to = weights(r) + column;
    if (!is_wanted(begin_ + column)) {
      std::fill_n(to, 32, Scalar{0});
      return;
    }
    SACCADE_UNROLL
    for (int i = 0; i < 32 / kWidth; ++i) {
      const Vec s = load(scores(r) + column + i * kWidth);
      const Vec w = exp2(mul(canonical_nan(sub(s, broadcast(m))), broadcast(unit_.exp_factor)));
      sums[i] = add(sums[i], w);
      store(to + i * kWidth, w);
    }
  }

  void drop(int r, int column) {
    dropout_.apply(weights(r) + column, 0, kDrawn, p_.dropout_head(rows_.batch, head(r)), p_.dropout_row(token(r)),
                   begin_ + column);
  }

  /// Multiplies weights by the scales of their values; finds the largest and the least product, and whether all
  /// are finite.
  SACCADE_INLINE void scale_weights(int r, int column, Vec& most, Vec& least, Vec& finite) {
    Scalar* const to = weights(r) + column;
    Vec w = mul(load(to), load(scratch_.scales + column));
    if (masked_safe_) w = select(equal(load(scores(r) + column), broadcast(-kInfinity)), zero(), w);
    most = max(most, w), least = min(least, w);
    finite = fma(w, zero(), finite);
    store(to, w);
  }

  /// The power of two of which the largest weight has 32 bits.
  static Scalar unit_for(Scalar largest) {
    constexpr int kBits = 31;
    const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - 127 - kBits;
    return static_cast<Scalar>(power(std::clamp(exponent, -126, 96)));
  }

  /// Adds in the same order for every vector width.
  static Scalar sum_of(const Vec (&sums)[32 / kWidth]) {
    alignas(64) Scalar all[32];
    for (int i = 0; i < 32 / kWidth; ++i) store(all + i * kWidth, sums[i]);
    for (int n = 16; n > 0; n /= 2)
      for (int i = 0; i < n; ++i) all[i] += all[n + i];
    return all[0];
  }

  // ---- O += P V

  /// The values of keys [first, first + 64), of which those of [begin, end) are taken.
  void interleave(const KvSource& source, const Step& step, std::int64_t first, std::int64_t begin,
                  std::int64_t end) {
    const std::int64_t lines = lines_of(source);
    for (int t = 0; t < 4; ++t) {
      const std::int64_t key = first + t * 16;
      RowTile rows{scratch_.zeros, 0};
      if (key >= begin && key < end && is_wanted(key)) rows = tile_of(source, key, scratch_.width, t);
      const RowTile next = next_tile(source, step, key);
      for (std::int64_t i = 0; i < 16; i += 4) {
        fetch(next, lines, i / 4);
        for (std::int64_t w = 0; w < scratch_.width; ++w)
          interleave_rows(rows.at(i, w), rows.stride, scratch_.values + w * 4 * kTileBytes + (t * 4 + i / 4) * 64);
      }
    }
  }
  void put_weights(std::int64_t first, std::int64_t begin, std::int64_t end) {
    const std::int64_t column = first - begin_;
    for (int r = 0; r < count_; ++r) {
      const Scalar unit = scratch_.units[r];
      const Scalar* from = weights(r) + column;
      alignas(64) Scalar some[64];
      if (begin > first || end < first + 64 || !has_digits(r)) {
        for (std::int64_t j = 0; j < 64; ++j)
          some[j] = has_digits(r) && first + j >= begin && first + j < end ? from[j] : 0;
        from = some;
      }
      put_digits(from, has_digits(r) ? 1 / unit : 0,
                 scratch_.digits + r / kDigitRows * kTileBytes + r % kDigitRows * kDigits * 64);
    }
  }

  void multiply_values(Tiles& tiles, std::int64_t g, std::int64_t w) {
    std::int32_t* const o = outputs(g, w);
    constexpr std::int64_t kTile = kTileBytes / 4;
    tiles.load<0>(o, 64), tiles.load<1>(o + kTile, 64);
    tiles.load<2>(o + 2 * kTile, 64), tiles.load<3>(o + 3 * kTile, 64);
    const std::int8_t* const v = scratch_.values + w * 4 * kTileBytes;
    tiles.load<4>(scratch_.digits + g * kTileBytes, 64);
    tiles.load<6>(v, 64);
    tiles.multiply<0, 4, 6, DType::u8>();
    tiles.load<7>(v + kTileBytes, 64);
    tiles.multiply<1, 4, 7, DType::u8>();
    tiles.load<6>(v + 2 * kTileBytes, 64);
    tiles.multiply<2, 4, 6, DType::u8>();
    tiles.load<7>(v + 3 * kTileBytes, 64);
    tiles.multiply<3, 4, 7, DType::u8>();
    tiles.store<0>(o, 64), tiles.store<1>(o + kTile, 64);
    tiles.store<2>(o + 2 * kTile, 64), tiles.store<3>(o + 3 * kTile, 64);
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
