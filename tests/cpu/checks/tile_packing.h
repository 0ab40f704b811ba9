// The packing of rows, queries, keys and values into AMX tiles.
#pragma once

#include "cpu/amx/packing.h"
#include "cpu/checks/tile_words.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

inline constexpr std::int64_t kTileDims[] = {1, 7, 31, 32, 33, 64, 70, 96};
inline constexpr std::int64_t kMostTileDims = 96, kMostDepth = kMostTileDims / 32;

/// 32 rows as they should be packed, with zeros in place of missing numbers.
template <class T>
struct PlainRows {
  T x[32][kMostTileDims] = {};

  void set(int row, const T* from, std::int64_t dim) {
    std::memcpy(x[row], from, static_cast<std::size_t>(dim) * sizeof(T));
  }
  void clear(int row) {
    for (T& number : x[row]) number = T{};
  }
};

/// Compares the words of each 32 columns.
template <int kParts, class T, class HalvesOf>
void compare_packed(Findings& findings, const std::uint32_t* found, const PlainRows<T>& rows, std::int64_t dim,
                    float factor, const HalvesOf& halves_of) {
  constexpr std::int64_t kAllWords = kParts * kPartWords;
  std::uint32_t expected[kAllWords];
  for (std::int64_t d = 0; d < dim; d += 32, found += kAllWords) {
    expect_words<kParts>(&rows.x[0][d], kMostTileDims, factor, halves_of, expected);
    findings.same_bits(found, expected, 4, kAllWords);
  }
}

/// Any order of the rows in a product.
constexpr int shuffled_row(int n) { return n * 11 % 32; }
inline Halves halves_in_shuffled_pairs(int word) {
  const Halves halves = halves_in_pairs(word);
  return {{shuffled_row(halves.rows[0]), shuffled_row(halves.rows[1])}, {halves.columns[0], halves.columns[1]}};
}

/// Words and magnitudes of rows in each layout. The scans have seen a number before.
template <class T, int kParts>
void compare_rows(Findings& findings, const Rows32<T, kParts>& rows, const PlainRows<T>& expected,
                  std::int64_t dim) {
  alignas(64) static std::uint32_t words[kMostDepth * kParts * kPartWords];
  for (const float before : {0.5F, 1000.0F}) {
    const T number(before);
    const auto compare = [&](float factor, const auto& pack, const auto& halves_of) {
      ScoreScan<T, kParts> scan;
      PlainScan<T, kLeastOfScores<T>, 1> expected_scan;
      scan.add_row(&number, 1), expected_scan.add(before);
      for (const auto& row : expected.x)
        for (std::int64_t d = 0; d < dim; ++d)
          expected_scan.add(PlainFloat::mul(factor, static_cast<float>(row[d])));
      pack(factor, scan);
      compare_packed<kParts>(findings, words, expected, dim, factor, halves_of);
      compare_scans(findings, scan, expected_scan);
    };
    compare(
        -1.0F, [&](float factor, auto& scan) { pack_rows(rows, factor, words, scan); }, halves_in_rows<kParts>);
    compare(
        1.0F, [&](float, auto& scan) { pack_columns(rows, words, scan); }, halves_in_columns<kParts>);
    compare(
        1.0F, [&](float, auto& scan) { pack_pairs<shuffled_row>(rows, words, scan); }, halves_in_shuffled_pairs);
  }
}

/// Numbers before a guard, all of them NaN.
template <class T>
T* poisoned(const test::GuardedMemory& memory, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  void* const all = memory.last(bytes);
  std::memset(all, 0xff, bytes);
  return static_cast<T*>(all);
}

/// All or the first of 32 rows, and some of them left out.
template <class T, int kParts>
void compare_rows_in_memory(Findings& findings, std::int64_t dim, std::int64_t stride, int count) {
  findings.with("bytes and parts of a number, dim, stride, count", sizeof(T) * 10 + kParts, dim, stride, count);
  const test::GuardedMemory memory;
  T* const numbers = poisoned<T>(memory, (count - 1) * stride + dim);
  PlainRows<T> expected;
  for (int i = 0; i < count; ++i) {
    findings.draw_near_one(numbers + i * stride, dim);
    expected.set(i, numbers + i * stride, dim);
  }
  Rows32<T, kParts> rows(numbers, stride, count, dim);
  findings.equal(rows.dim(), dim);
  compare_rows(findings, rows, expected, dim);

  const std::uint32_t drawn = findings.word() & findings.word() & findings.word();
  const std::uint32_t left_out = count < 32 ? drawn & ((1U << count) - 1U) : drawn;
  bool asked_for_missing = false;
  const std::uint32_t bad = rows.keep_if([&](int i) {
    asked_for_missing = asked_for_missing || i >= count;
    return (left_out >> i & 1U) == 0;
  });
  findings.equal(bad, left_out);
  findings.equal(asked_for_missing, false);
  for (int i = 0; i < 32; ++i) {
    if ((left_out >> i & 1U) != 0) expected.clear(i);
    findings.equal(rows[i] == (i < count && (left_out >> i & 1U) == 0 ? numbers + i * stride : nullptr), true);
  }
  compare_rows(findings, rows, expected, dim);
}

inline void check_rows_32(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    using T = decltype(number);
    for (const std::int64_t dim : kTileDims) {
      compare_rows_in_memory<T, parts>(findings, dim, dim, 32);
      compare_rows_in_memory<T, parts>(findings, dim, dim + 5, 32);
      compare_rows_in_memory<T, parts>(findings, dim, dim + 5, 31);
      compare_rows_in_memory<T, parts>(findings, dim, dim, 1 + findings.below(31));
    }
  });
}

/// Rows of keys or values in memory, of which only those in `readable` hold numbers. All others are NaN or, after
/// the last, must not be read, nor may the pages without readable rows: those before have no valid address.
template <class T>
class StoredRows {
 public:
  /// `page_size` 0: contiguous.
  StoredRows(Findings& findings, std::int64_t dim, std::int64_t page_size, KeyRange readable)
      : dim_(dim), page_size_(page_size), stride_(dim + 3 * findings.below(2)) {
    const std::int64_t last = readable.end - 1;
    if (page_size == 0) {
      first_ = poisoned<T>(memory_, last * stride_ + dim);
    } else {
      // In reverse order, but for the last page, which comes last.
      const std::int64_t count = last / page_size, first = readable.begin / page_size;
      const std::int64_t here = (count - first) * page_size + last % page_size;  // of the last row
      first_ = poisoned<T>(memory_, here * stride_ + dim);
      pages_ = static_cast<std::int32_t*>(table_.last(static_cast<std::size_t>(count + 1) * 4));
      for (std::int64_t page = 0; page < count; ++page)
        pages_[page] = page < first ? 1 << 30 : static_cast<std::int32_t>(count - 1 - page);
      pages_[count] = static_cast<std::int32_t>(count - first);
    }
    for (std::int64_t i = readable.begin; i < readable.end; ++i) findings.draw_near_one((*this)[i], dim);
  }

  KvSource source() const {
    return KvSource{.data = first_,
                    .dtype = dtype_of<T>,
                    .row_stride = stride_,
                    .pages = pages_,
                    .page_size = page_size_,
                    .page_stride = page_size_ * stride_};
  }
  T* operator[](std::int64_t i) const {
    if (page_size_ == 0) return first_ + i * stride_;
    return first_ + (pages_[i / page_size_] * page_size_ + i % page_size_) * stride_;
  }

 private:
  test::GuardedMemory memory_, table_;
  std::int64_t dim_, page_size_, stride_;
  T* first_ = nullptr;
  std::int32_t* pages_ = nullptr;
};

/// Calls f(page_size, first, readable) with all, some and one of the 32 rows from `first` on readable, and rows
/// before and after them.
template <class F>
void for_readable(Findings& findings, const F& f) {
  constexpr std::int64_t kFirst = 64;
  for (const std::int64_t page_size : {0, 1, 16, 24, 32, 64, 100}) {
    f(page_size, kFirst, KeyRange{kFirst, kFirst + 32});
    f(page_size, kFirst, KeyRange{kFirst - 10, kFirst + 40});
    f(page_size, kFirst, KeyRange{kFirst - 10, kFirst + 31});
    f(page_size, kFirst, KeyRange{kFirst + 1, kFirst + 40});
    const std::int64_t begin = kFirst + findings.below(32);
    f(page_size, kFirst, KeyRange{begin, begin + 1 + findings.below(static_cast<int>(kFirst + 32 - begin))});
  }
}

inline void check_rows_32_of_keys(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    using T = decltype(number);
    for (const std::int64_t dim : {31, 32, 70}) {
      for_readable(findings, [&](std::int64_t page_size, std::int64_t first, KeyRange readable) {
        findings.with("dim, page_size, begin, end", dim, page_size, readable.begin, readable.end);
        const StoredRows<T> stored(findings, dim, page_size, readable);
        const Rows32<T, parts> rows(stored.source(), first, readable, dim);
        PlainRows<T> expected;
        for (int i = 0; i < 32; ++i) {
          const bool is_there = first + i >= readable.begin && first + i < readable.end;
          findings.equal(rows[i] == (is_there ? stored[first + i] : nullptr), true);
          if (is_there) expected.set(i, stored[first + i], dim);
        }
        compare_rows(findings, rows, expected, dim);
      });
    }
  });
}

/// Overwrites a number of a row: too small, infinite, NaN, denormal or large.
template <class T>
void draw_special(Findings& findings, T* row, std::int64_t dim) {
  using Case = ScanCase<T, kPartsOf<T>, kLeastOfValues<T>, std::is_same_v<T, bfloat16> ? 0x0080 : 1>;
  row[findings.below(static_cast<int>(dim))] = Case::special(findings.below(Case::kSpecials));
}

/// The pairs of rows that are multiplied with weights n and n + 1.
template <class T>
Halves halves_in_values(int word) {
  const Halves halves = halves_in_pairs(word);
  const auto key = [](int n) { return std::is_same_v<T, bfloat16> ? key_of_word(n) : n / 2 + n % 2 * 16; };
  return {{key(halves.rows[0]), key(halves.rows[1])}, {halves.columns[0], halves.columns[1]}};
}

template <class T, int kKeyParts>
void compare_pack_tile(Findings& findings, std::int64_t dim, std::int64_t dim_v, std::int64_t page_size,
                       std::int64_t first, KeyRange readable, int specials) {
  constexpr std::int64_t kKeyBytes = kKeyParts * kPartWords * 4, kValueBytes = kPartsOf<T> * kPartWords * 4;
  alignas(64) static std::byte memory[64 + kMostDepth * (kKeyBytes + kValueBytes)];
  AttentionParams p{};
  p.head_dim = dim, p.head_dim_v = dim_v;
  const StoredRows<T> k(findings, dim, page_size, readable), v(findings, dim_v, page_size, readable);
  PlainRows<T> keys, values;
  std::uint32_t bad = 0;
  float largest = 0;
  for (int j = 0; j < 32; ++j) {
    const std::int64_t key = first + j;
    if (key < readable.begin || key >= readable.end) continue;
    if (findings.below(32) < specials) draw_special(findings, k[key], dim);
    if (findings.below(32) < specials) draw_special(findings, v[key], dim_v);
    PlainScan<T, kLeastOfScores<T>, 1> of_key;
    PlainScan<T, kLeastOfValues<T>, std::is_same_v<T, bfloat16> ? 0x0080 : 1> of_value;
    for (std::int64_t d = 0; d < dim; ++d) of_key.add(static_cast<float>(k[key][d]));
    for (std::int64_t d = 0; d < dim_v; ++d) of_value.add(static_cast<float>(v[key][d]));
    if (of_key.all_fit() && of_value.all_fit()) {
      keys.set(j, k[key], dim), values.set(j, v[key], dim_v);
      largest = PlainFloat::max(largest, of_key.largest());
    } else {
      bad |= 1U << j;
    }
  }
  std::memset(memory, 0x55, sizeof memory);
  const PackedTile<T, std::byte, kKeyParts> to(p, memory);
  pack_tile(p, k.source(), v.source(), first, readable, to);
  findings.equal(to.size(p), 64 + (dim + 31) / 32 * kKeyBytes + (dim_v + 31) / 32 * kValueBytes);
  findings.equal(to.stats->bad, bad);
  findings.equal(&to.stats->largest, &largest, 1);
  compare_packed<kKeyParts>(findings, to.keys, keys, dim, 1.0F, halves_in_columns<kKeyParts>);
  compare_packed<kPartsOf<T>>(findings, to.values, values, dim_v, 1.0F, halves_in_values<T>);
}

/// Keys of every kind; those with a number that tiles cannot hold, in a key or its value, are zeros.
inline void check_pack_tile(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    using T = decltype(number);
    for_readable(findings, [&](std::int64_t page_size, std::int64_t first, KeyRange readable) {
      for (const int specials : {0, 1, 8}) {
        const std::int64_t dim = kTileDims[findings.below(std::size(kTileDims))];
        const std::int64_t dim_v = kTileDims[findings.below(std::size(kTileDims))];
        findings.with("dim, dim_v, begin, end", dim, dim_v, readable.begin, readable.end);
        compare_pack_tile<T, parts>(findings, dim, dim_v, page_size, first, readable, specials);
      }
    });
  });
}

/// Powers of two and rests of scales.
inline void check_split_scales(Findings& findings) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float scale : {1.0F, -3.0F, 0x1.fffffep-30F, 0x1p-126F, -0x1.8p126F, 1e-40F, 0.0F, -kInfinite}) {
    const SplitScale parts(scale);
    const float product = parts.power * parts.rest;
    findings.equal(&product, &scale, 1);
    findings.equal(parts.rest >= 0.5F && parts.rest <= 1.0F, true);
  }
  findings.equal(std::isinf(SplitScale(0x1.8p127F).power), true);
  findings.equal(std::isnan(SplitScale(std::numeric_limits<float>::quiet_NaN()).power), true);
}

/// Rows of queries times `factor`; those of which a product does not fit are zeros, as are missing rows.
template <class T, int kParts>
void compare_pack_query_tile(Findings& findings, std::int64_t dim, int rows, float factor, int specials) {
  constexpr std::int64_t kBatch = 2, kHead = 3, kRow = 5;
  alignas(64) static std::uint32_t words[kMostDepth * kParts * kPartWords];
  const test::GuardedMemory memory;
  AttentionParams p{};
  p.head_dim = dim;
  p.q = {nullptr, dtype_of<T>, 40 * (dim + 1), 11 * (dim + 1), dim + 1};
  const std::int64_t begin = kBatch * p.q.batch_stride + kHead * p.q.head_stride + kRow * p.q.row_stride;
  T* const all = poisoned<T>(memory, begin + (rows - 1) * p.q.row_stride + dim);
  p.q.data = all;
  PlainRows<T> expected;
  std::uint32_t bad = 0;
  float largest = 0;
  for (int i = 0; i < rows; ++i) {
    T* const row = all + begin + i * p.q.row_stride;
    findings.draw_near_one(row, dim);
    if (findings.below(32) < specials) draw_special(findings, row, dim);
    PlainScan<T, kLeastOfScores<T>, 1> scan;
    for (std::int64_t d = 0; d < dim; ++d) scan.add(PlainFloat::mul(factor, static_cast<float>(row[d])));
    if (!scan.all_fit()) {
      bad |= 1U << i;
      continue;
    }
    expected.set(i, row, dim);
    largest = PlainFloat::max(largest, scan.largest());
  }
  std::memset(words, 0x55, sizeof words);
  const QueryTileStats stats = pack_query_tile<T, kParts>(p, {kBatch, kHead, kRow, rows}, factor, words);
  findings.equal(stats.bad, bad);
  findings.equal(&stats.largest, &largest, 1);
  compare_packed<kParts>(findings, words, expected, dim, PlainFloat::abs(factor) < kInfinity ? factor : 1.0F,
                         halves_in_rows<kParts>);
}

inline void check_pack_query_tile(Findings& findings) {
  for_tile_types([&](auto number, auto parts) {
    using T = decltype(number);
    constexpr bool kScales = std::is_same_v<T, float>;
    for (const std::int64_t dim : kTileDims) {
      for (const float factor : {0.3F, -1.0F, -1e-8F, 3e38F, kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        const float sign = factor < 0 ? -1.0F : 1.0F, packed = kScales ? factor : sign,
                    found = factor_of_queries<T>(factor);
        if (kScales || !PlainFloat::is_nan(factor)) findings.equal(&found, &packed, 1);
        for (const int rows : {32, 1 + findings.below(32)}) {
          for (const int specials : {0, 1, 8}) {
            findings.with("bytes and parts of a number, dim, rows, specials", sizeof(T) * 10 + parts, dim, rows,
                          specials);
            compare_pack_query_tile<T, parts>(findings, dim, rows, packed, specials);
          }
        }
      }
    }
  });
}

inline constexpr test::Check kTilePackingChecks[] = {{"rows_32", check_rows_32},
                                                     {"rows_32_of_keys", check_rows_32_of_keys},
                                                     {"pack_tile", check_pack_tile},
                                                     {"split_scales", check_split_scales},
                                                     {"pack_query_tile", check_pack_query_tile}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
