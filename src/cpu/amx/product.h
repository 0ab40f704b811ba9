// Matrix products on AMX tiles, of bf16, of the bf16 parts of f16 or f32, or of f16 as it is (amx/bf16_split.h).
// Each number of c is one chain of products in a fixed order, so its bits depend only on its row of a and its
// column of b.
//
// A block of b, kDepth deep, is packed into panels of 32 columns and stays in the L2 cache; 32 rows of a are
// packed and multiplied by one panel after the other. Rows and columns with numbers that tiles cannot hold are
// left out; the multiply-add kernels compute them.
//
// Few rows of numbers of one part by columns that are contiguous in memory, as the weights of torch.nn.Linear, are
// multiplied with the operands exchanged: tiles read b where it lies, and the packed rows of a are the right
// operand. The even and the odd products of a number have the same order then, and so its bits are the same.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/simd/elements.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The products of the same level by multiply-adds.
const ProductKernels& fallback_products();

/// kParts: of the numbers of a and b.
template <class T, int kParts>
class AmxProduct {
 public:
  using Pairs = PairsOf<T, kParts>;
  static constexpr std::int64_t kWords = kParts * kPartWords;
  /// b's block: 1 MiB, half of the L2 cache of Sapphire Rapids. f32 takes more columns, because packing a takes
  /// longest.
  static constexpr std::int64_t kColumns = kParts == 3 ? 768 : 512 / kParts, kDepth = kParts == 3 ? 192 : 1024;
  /// Rows for which it is slower to pack b than to read it in place for each 32 of them.
  static constexpr std::int64_t kFewRows = 128;
  static constexpr std::int64_t kPackedWords = (kColumns / 32 + 1) * (kDepth / 32) * kWords;
  static constexpr std::int64_t kScratch = kPackedWords + 3 * 1024;  // in floats, without the fallback's

  AmxProduct(const ProductParams& params, const ProductBlock& block, float* scratch)
      : p_(params), block_(block), packed_a_(reinterpret_cast<std::uint32_t*>(scratch)) {
    packed_b_ = packed_a_ + kDepth / 32 * kWords;
    results_ = scratch + kPackedWords;
    transposed_ = results_ + 2 * 1024;
  }

  void run() {
    if (has_few_rows()) return multiply_few_rows();
    for (std::int64_t column = block_.column; column < block_.column_end; column += 32) find_bad_columns(column);
    for (std::int64_t begin = 0; begin == 0 || begin < p_.depth; begin += kDepth) {
      begin_ = begin, end_ = std::min(p_.depth, begin + kDepth);
      for (std::int64_t column = block_.column; column < block_.column_end; column += 32) pack_panel(column);
      for (std::int64_t row = block_.row; row < block_.row_end; row += 32) {
        if (poll_progress()) tiles_.configure();
        multiply_rows(row);
      }
    }
  }
  bool has_fallback_rows() const { return has_fallback_rows_; }

  /// Whether the fallback products must compute this row, or this column, of the block.
  bool is_other_row(std::int64_t row) const { return is_bad(a() + row * p_.a_row_stride, p_.a_depth_stride); }
  bool is_other_column(std::int64_t column) const {
    return bad_columns_[(column - block_.column) / 32] >> (column - block_.column) % 32 & 1U;
  }

 private:
  const T* a() const { return static_cast<const T*>(p_.a); }
  const T* b() const { return static_cast<const T*>(p_.b); }
  std::int64_t steps() const { return (end_ - begin_ + 31) / 32; }
  std::uint32_t* panel(std::int64_t column) {
    return packed_b_ + (column - block_.column) / 32 * (kDepth / 32) * kWords;
  }

  // ---- Numbers that tiles cannot hold

  using Scan = MagnitudeScan<T, kLeastOfProducts<T>, 1, kParts>;

  /// A bit for each of up to 32 lines, of the whole depth, that has such a number. The numbers of a line are
  /// `stride` apart, adjacent lines `line_stride`.
  std::uint32_t are_bad(const T* x, std::int64_t stride, std::int64_t line_stride, int count) const {
    Scan all;
    if (stride == 1)
      for (int i = 0; i < count; ++i) all.add_row(x + i * line_stride, p_.depth);
    else if (line_stride == 1)
      for (std::int64_t d = 0; d < p_.depth; ++d) all.add_row(x + d * stride, count);
    if ((stride == 1 || line_stride == 1) && all.all_fit()) return 0;
    std::uint32_t bad = 0;
    for (int i = 0; i < count; ++i) bad |= std::uint32_t{is_bad(x + i * line_stride, stride)} << i;
    return bad;
  }
  bool is_bad(const T* line, std::int64_t stride) const {
    Scan scan;
    if (stride == 1)
      scan.add_row(line, p_.depth);
    else
      for (std::int64_t d = 0; d < p_.depth; ++d) scan.add_row(line + d * stride, 1);
    return !scan.all_fit();
  }

  /// Those of the panel that begins at `column`.
  void find_bad_columns(std::int64_t column) {
    std::uint32_t& bad = bad_columns_[(column - block_.column) / 32];
    bad = are_bad(b() + column * p_.b_column_stride, p_.b_depth_stride, p_.b_column_stride, columns_of(column));
    has_fallback_rows_ |= bad != 0;
  }
  int columns_of(std::int64_t column) const {
    return static_cast<int>(std::min<std::int64_t>(32, block_.column_end - column));
  }

  // ---- Packing

  /// The step of depth, of 32, whose number is number n of a row of words.
  static constexpr int step_of(int n) { return kParts == 1 ? n : n / 2 + n % 2 * 16; }

  /// Packs up to 32 lines: lines of a as rows of words, lines of b transposed.
  void pack(const T* x, std::int64_t stride, std::int64_t line_stride, std::uint32_t bad, int count,
            bool transposed, std::uint32_t* to) {
    Scan scan;  // of numbers that have been scanned
    if (stride == 1) {
      Rows32<T, kParts> lines(x + begin_, line_stride, count, end_ - begin_);
      lines.keep_if([&](int i) { return (bad >> i & 1U) == 0; });
      return transposed ? pack_columns(lines, to, scan) : pack_rows(lines, 1, to, scan);
    }
    for (std::int64_t d = begin_; d < end_; d += 32, to += kWords) {
      alignas(64) std::uint32_t words[kWords];
      std::uint32_t* const pairs = transposed ? to : words;
      const auto in_reach = static_cast<int>(std::min<std::int64_t>(32, end_ - d));
      pack_pairs<step_of>(Rows32<T, kParts>(x + d * stride, stride, in_reach, count), pairs, scan);
      for (std::uint32_t rest = bad; rest != 0; rest &= rest - 1) clear_line(pairs, std::countr_zero(rest));
      if (!transposed) transpose_parts<kParts>(words, to);
    }
  }
  /// Sets line i of 16 pairs of steps to 0.
  static void clear_line(std::uint32_t* words, int i) {
    for (int t = 0; t < kParts; ++t)
      for (int w = 0; w < 16; ++w) words[t * kPartWords + i / 16 * 256 + w * 16 + i % 16] = 0;
  }

  void pack_panel(std::int64_t column) {
    pack(b() + column * p_.b_column_stride, p_.b_depth_stride, p_.b_column_stride,
         bad_columns_[(column - block_.column) / 32], columns_of(column), true, panel(column));
  }

  // ---- Products

  /// Packs 32 rows of the block and multiplies them by all of its panels.
  void multiply_rows(std::int64_t row) {
    const auto n = static_cast<int>(std::min<std::int64_t>(32, block_.row_end - row));
    const T* const rows = a() + row * p_.a_row_stride;
    const std::uint32_t bad = are_bad(rows, p_.a_depth_stride, p_.a_row_stride, n);
    has_fallback_rows_ |= bad != 0;
    pack(rows, p_.a_depth_stride, p_.a_row_stride, bad, n, false, packed_a_);
    TileStream tiles(tiles_);
    Place before;
    for (std::int64_t column = block_.column; column < block_.column_end; column += 32) {
      const Place now{
          row, column, n, columns_of(column), bad, results_ + (column - block_.column) / 32 % 2 * 1024};
      multiply_tile(tiles, now, panel(column));
      if (before.results) write(before);
      before = now;
    }
    tiles.leave_all();
    write(before);
  }

  /// A tile of c and its products, which are stored while those of the next tile are computed.
  struct Place {
    std::int64_t row = 0, column = 0;
    int rows = 0, columns = 0;
    std::uint32_t bad_rows = 0;
    float* results = nullptr;
  };

  SACCADE_INLINE void multiply_tile(TileStream& tiles, const Place& place, const std::uint32_t* b) {
    constexpr const auto& kOfProduct = Pairs::kExact;
    constexpr SplitProducts kFirst = kParts == 1 ? SplitProducts::all : SplitProducts::small;
    const float* const from = start(place);
    tiles.template multiply<kOfProduct, kFirst, true>(packed_a_, b, from, place.results);
    for (std::int64_t s = 1; s < steps(); ++s)
      tiles.template multiply<kOfProduct, kFirst, false>(packed_a_ + s * kWords, b + s * kWords);
    if constexpr (kParts > 1)
      for (std::int64_t s = 0; s < steps(); ++s)
        tiles.template multiply<kOfProduct, SplitProducts::large, false>(packed_a_ + s * kWords, b + s * kWords);
  }

  /// The numbers that the chains of a tile start from: those in c, the bias, or zeros (nullptr).
  const float* start(const Place& place) {
    const bool adds = p_.adds || begin_ > 0;
    if (!adds && !p_.bias) return nullptr;
    for (int i = 0; i < place.rows; ++i) {
      const float* const from =
          adds ? static_cast<const float*>(p_.c) + (place.row + i) * p_.c_stride + place.column
               : p_.bias + place.column;
      std::copy_n(from, place.columns, place.results + i * 32);
    }
    return place.results;
  }

  // ---- Few rows

  bool has_few_rows() const {
    return kParts == 1 && p_.a_depth_stride == 1 && p_.b_depth_stride == 1 &&
           block_.row_end - block_.row <= kFewRows;
  }

  void multiply_few_rows() {
    std::uint32_t bad_rows[kFewRows / 32];
    for (std::int64_t begin = 0; begin == 0 || begin < p_.depth; begin += kDepth) {
      begin_ = begin, end_ = std::min(p_.depth, begin + kDepth);
      for (std::int64_t row = block_.row, g = 0; row < block_.row_end; row += 32, ++g)
        pack_right_rows(row, begin == 0, bad_rows[g]);
      for (std::int64_t column = block_.column; column < block_.column_end; column += 32) {
        if (begin == 0) find_bad_columns(column);
        if (poll_progress()) tiles_.configure();
        multiply_columns(column, bad_rows);
      }
    }
  }

  int rows_of(std::int64_t row) const {
    return static_cast<int>(std::min<std::int64_t>(32, block_.row_end - row));
  }
  std::uint32_t* right_rows(std::int64_t row) {
    return packed_b_ + (row - block_.row) / 32 * (kDepth / 32) * kWords;
  }

  /// Packs up to 32 rows of a as the right operand.
  void pack_right_rows(std::int64_t row, bool is_new, std::uint32_t& bad) {
    const T* const lines = a() + row * p_.a_row_stride;
    if (is_new) bad = are_bad(lines, 1, p_.a_row_stride, rows_of(row));
    has_fallback_rows_ |= bad != 0;
    pack(lines, 1, p_.a_row_stride, bad, rows_of(row), true, right_rows(row));
  }

  /// The products of up to 32 columns and all rows of the block. Steps of columns are read in place up to
  /// `in_place`; the last numbers of a column may end within a step, and columns that tiles cannot hold count as
  /// zeros.
  void multiply_columns(std::int64_t column, const std::uint32_t* bad_rows) {
    const T* const lines = b() + column * p_.b_column_stride;
    const std::uint32_t bad = bad_columns_[(column - block_.column) / 32];
    const std::int64_t in_place = columns_of(column) == 32 && bad == 0 ? (end_ - begin_) / 32 : 0, first = begin_;
    if (in_place < steps()) {
      begin_ += 32 * in_place;
      pack(lines, 1, p_.b_column_stride, bad, columns_of(column), false, packed_a_ + in_place * kWords);
      begin_ = first;
    }
    Place before;  // its products are transposed while those of the next rows are computed
    for (std::int64_t row = block_.row, g = 0; row < block_.row_end; row += 32, ++g) {
      const Place now{row, column, rows_of(row), columns_of(column), bad_rows[g], results_ + g % 2 * 1024};
      now.rows > 16 ? multiply_transposed<true>(now, lines + begin_, in_place)
                    : multiply_transposed<false>(now, lines + begin_, in_place);
      if (before.results) write_transposed(before);
      before = now;
    }
    write_transposed(before);
  }

  /// place.results, [32 columns][32 rows]. kWide: more than 16 rows.
  template <bool kWide>
  void multiply_transposed(const Place& place, const T* lines, std::int64_t in_place) {
    if (start_transposed(place)) {
      load_sums<kWide>(place.results);
    } else {
      tiles_.template clear<0>(), tiles_.template clear<1>();
      if constexpr (kWide) tiles_.template clear<2>(), tiles_.template clear<3>();
    }
    const std::uint32_t* const rows = right_rows(place.row);
    // The next columns, in the order of memory.
    const bool is_dense = p_.b_column_stride == p_.depth && p_.depth <= kDepth && place.row == block_.row;
    const T* const ahead = is_dense ? lines + 32 * p_.depth : nullptr;
    const std::int64_t stride = p_.b_column_stride * static_cast<std::int64_t>(sizeof(T));
    add_steps<kWide>(lines, stride, 64, in_place, rows, reinterpret_cast<const std::byte*>(ahead));
    add_steps<kWide>(packed_a_ + in_place * kWords, 64, kWords * 4, steps() - in_place, rows + in_place * kWords,
                     nullptr);
    store_sums<kWide>(place.results);
  }

  /// As start(), transposed. Returns whether there are such numbers.
  bool start_transposed(const Place& place) {
    if (p_.adds || begin_ > 0) {
      const float* const from = start({.row = place.row,
                                       .column = place.column,
                                       .rows = place.rows,
                                       .columns = place.columns,
                                       .bad_rows = 0,
                                       .results = transposed_});
      transpose_32(from, place.results);
      return true;
    }
    if (!p_.bias) return false;
    for (int i = 0; i < place.columns; ++i)
      for (int j = 0; j < 32; j += kWidth) store(place.results + i * 32 + j, broadcast(p_.bias[place.column + i]));
    return true;
  }

  void write_transposed(const Place& place) {
    transpose_32(place.results, transposed_);
    Place result = place;
    result.results = transposed_;
    write(result);
  }

  /// Adds the products of `count` steps of packed rows of a and of 32 lines of b, `stride` bytes apart, whose
  /// steps are `step` bytes apart. Prefetches 2 KiB a step from `ahead` on, if given.
  template <bool kWide>
  SACCADE_INLINE void add_steps(const void* lines, std::int64_t stride, std::int64_t step, std::int64_t count,
                                const std::uint32_t* rows, const std::byte* ahead) {
    constexpr DType kType = Pairs::kExact[0].type;
    const auto* from = static_cast<const std::byte*>(lines);
    for (std::int64_t s = 0; s < count; ++s, from += step, rows += kWords) {
      tiles_.template load<6>(rows, 64);
      tiles_.template load_streamed<4>(from, stride);
      tiles_.template multiply<0, 4, 6, kType>();
      tiles_.template load_streamed<5>(from + 16 * stride, stride);
      tiles_.template multiply<1, 5, 6, kType>();
      if constexpr (kWide) {
        tiles_.template load<7>(rows + 256, 64);
        tiles_.template multiply<2, 4, 7, kType>();
        tiles_.template multiply<3, 5, 7, kType>();
      }
      for (int i = 0; ahead && i < 32; ++i) __builtin_prefetch(ahead + s * 2048 + i * 64, 0, 2);
    }
  }

  static constexpr std::int64_t kRowOfSums = 32 * sizeof(float);
  template <bool kWide>
  SACCADE_INLINE void load_sums(const float* sums) {
    tiles_.template load<0>(sums, kRowOfSums), tiles_.template load<1>(sums + 512, kRowOfSums);
    if constexpr (kWide)
      tiles_.template load<2>(sums + 16, kRowOfSums), tiles_.template load<3>(sums + 528, kRowOfSums);
  }
  template <bool kWide>
  SACCADE_INLINE void store_sums(float* sums) {
    tiles_.template store<0>(sums, kRowOfSums), tiles_.template store<1>(sums + 512, kRowOfSums);
    if constexpr (kWide)
      tiles_.template store<2>(sums + 16, kRowOfSums), tiles_.template store<3>(sums + 528, kRowOfSums);
  }
  static void transpose_32(const float* from, float* to) {
    for (int i = 0; i < 32; i += kWidth)
      for (int j = 0; j < 32; j += kWidth) transpose_tile(from + i * 32 + j, 32, to + j * 32 + i, 32);
  }

  // ---- Results

  void write(const Place& place) const {
    const std::uint32_t bad = bad_columns_[(place.column - block_.column) / 32];
    for (int i = 0; i < place.rows; ++i) {
      if (place.bad_rows >> i & 1U) continue;
      const std::int64_t at = (place.row + i) * p_.c_stride + place.column;
      with_type(p_.c_dtype, [&](auto type) {
        auto* const to = static_cast<decltype(type)*>(p_.c) + at;
        write_row(place.results + i * 32, place.columns, bad, to);
      });
    }
  }
  template <class To>
  static void write_row(const float* from, int columns, std::uint32_t bad, To* to) {
    if (bad == 0) {
      for (int j = 0; j < columns; j += kWidth) store_part(to + j, columns - j, load(from + j));
      return;
    }
    for (int j = 0; j < columns; ++j)
      if ((bad >> j & 1U) == 0) to[j] = To(from[j]);
  }
  template <class F>
  static void with_type(DType dtype, const F& f) {
    if (dtype == DType::f32)
      f(float{});
    else if constexpr (!std::is_same_v<T, float>)
      f(T{});
  }

  const ProductParams& p_;
  ProductBlock block_;
  std::int64_t begin_ = 0, end_ = 0;   // steps of depth that are packed
  std::uint32_t* packed_a_;            // [step][part] pairs of tiles
  std::uint32_t* packed_b_ = nullptr;  // [panel][kDepth / 32][part] pairs of tiles
  float* results_ = nullptr;           // [2][32][32]
  float* transposed_ = nullptr;        // [32][32]
  std::uint32_t bad_columns_[kColumns / 32] = {};
  bool has_fallback_rows_ = false;
  Tiles tiles_;
};

/// Columns [column, column + columns) of a row of c by multiply-adds.
template <class T, int kParts>
void fallback_product(const ProductParams& p, std::int64_t row, std::int64_t column, std::int64_t columns,
                      float* scratch) {
  alignas(64) float exact[AmxProduct<T, kParts>::kColumns];
  const std::int64_t at = row * p.c_stride + column;
  if (p.adds) std::copy_n(static_cast<const float*>(p.c) + at, columns, exact);
  ProductParams part = p;
  part.rows = 1, part.columns = columns;
  part.a = static_cast<const T*>(p.a) + row * p.a_row_stride;
  part.b = static_cast<const T*>(p.b) + column * p.b_column_stride;
  if (p.bias) part.bias = p.bias + column;
  part.c = exact, part.c_stride = columns, part.c_dtype = DType::f32;
  fallback_products().block(part, {0, 1, 0, columns}, scratch);
  for (std::int64_t j = 0; j < columns; ++j) {
    if (p.c_dtype == DType::f32)
      static_cast<float*>(p.c)[at + j] = exact[j];
    else
      static_cast<T*>(p.c)[at + j] = T(exact[j]);
  }
}

template <class T, int kParts>
void product(const ProductParams& p, const ProductBlock& block, float* scratch) {
  AmxProduct<T, kParts> tiles(p, block, scratch);
  tiles.run();
  if (!tiles.has_fallback_rows()) return;
  for (std::int64_t row = block.row; row < block.row_end; ++row) {
    if (tiles.is_other_row(row)) {
      fallback_product<T, kParts>(p, row, block.column, block.column_end - block.column, scratch);
      continue;
    }
    for (std::int64_t column = block.column; column < block.column_end; ++column)
      if (tiles.is_other_column(column)) fallback_product<T, kParts>(p, row, column, 1, scratch);
  }
}

template <class T, int kParts = kPartsOf<T>>
inline constexpr ProductKernels kAmxProductOf{.block = product<T, kParts>,
                                              .rows = 32,
                                              .columns = AmxProduct<T, kParts>::kColumns,
                                              .scratch = AmxProduct<T, kParts>::kScratch,
                                              .panel = 32,
                                              .narrow_depth = kParts == 3 ? 0 : AmxProduct<T, kParts>::kDepth};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
