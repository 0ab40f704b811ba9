// Products of 32 x 32 numbers on AMX tiles. Numbers are sums of bf16 parts: bf16 itself is one, f16 is two and f32
// three, of eight bits each. A product of two sums takes the products of their parts, except those below the last
// bits of the largest: six instead of nine for f32. With TDPFP16PS a number of f16 is a single part instead, and a
// product is exact in f32.
//
// Operands lie in pairs of tiles of 16 rows of 16 words, a word being two numbers that are multiplied at the same
// step: a has 32 rows in two tiles, b has 32 columns in two tiles of 16 words. The pairs of tiles of an operand's
// parts are kPartWords apart.
#pragma once

#include "cpu/amx/parts.h"
#include "cpu/policy/block_sizes.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The parts of a and b that are multiplied, for results of f32 and for results that are rounded to the operands'
/// type. All but the last, the product of the largest parts, are small; they come first, because the sum then
/// loses least. Where possible, consecutive pairs share the tiles of one operand.
struct SplitPair {
  int a, b;
  DType type = DType::bf16;  // of both
};
template <int kParts, DType kWhole = DType::bf16>
struct SplitPairs;
template <DType kWhole>
struct SplitPairs<1, kWhole> {
  static constexpr std::array<SplitPair, 1> kExact = {{{0, 0, kWhole}}}, kRounded = kExact;
};
template <>
struct SplitPairs<2> {
  static constexpr std::array<SplitPair, 4> kExact = {{{0, 1}, {1, 1}, {1, 0}, {0, 0}}};
  static constexpr std::array<SplitPair, 3> kRounded = {{{0, 1}, {1, 0}, {0, 0}}};
};
template <>
struct SplitPairs<3> {
  static constexpr std::array<SplitPair, 6> kExact = {{{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}}};
  static constexpr std::array<SplitPair, 6> kRounded = kExact;
};

/// Those of numbers of type T in kParts parts.
template <class T, int kParts = kPartsOf<T>>
using PairsOf = SplitPairs<kParts, kParts == 1 ? dtype_of<T> : DType::bf16>;

/// The number of parts of an operand of these products.
template <std::size_t kCount>
constexpr int parts_of(const std::array<SplitPair, kCount>& pairs) {
  int largest = 0;
  for (const SplitPair& pair : pairs) largest = std::max(largest, pair.a);
  return largest + 1;
}

enum class SplitProducts { small, large, all };

/// A stream of products in tile registers: 0 to 3 are 32 x 32 results, 4 and 5 the tiles of a, 6 and 7 those of b.
/// Earlier results are stored one by one between products, each right before its register is needed again: four
/// stores in a row would take as long as the products. b is read from the L2 cache past the L1 cache, where it
/// would displace scores and weights (bf16, S 4096: 1.10 to 1.165 times as fast; Granite Rapids).
///
/// Use it as a local variable of a function into which all of its users are inlined, so that it stays in
/// registers.
class TileStream {
 public:
  explicit TileStream(Tiles& of_thread) : tiles(of_thread) {}

  /// Stores registers 0 to 3 if they hold results.
  SACCADE_INLINE void leave_all() {
    leave<0>(), leave<1>(), leave<2>(), leave<3>();
    low_ = high_ = nullptr;
  }

  /// Loads results into the registers, whose contents have been stored.
  SACCADE_INLINE void enter_all(float* results) {
    enter<0>(results), enter<1>(results), enter<2>(results), enter<3>(results);
    low_ = results, high_ = results + 512;
  }

  /// Adds the product of 32 rows and 32 columns, 32 deep, to the results; if kNew, to new results that start from
  /// `from` (nullptr: 0) and will be stored to `to`, both [32][32]. Calls overlap(n) after product n, counted from
  /// 0, with n as an integral constant.
  template <const auto& kPairs, SplitProducts kPart, bool kNew, class Overlap>
  SACCADE_INLINE void multiply(const std::uint32_t* a, const std::uint32_t* b, const float* from, float* to,
                               const Overlap& overlap) {
    constexpr int kCount = static_cast<int>(kPairs.size());
    constexpr int kBegin = kPart == SplitProducts::large ? kCount - 1 : 0;
    constexpr int kEnd = kPart == SplitProducts::small ? kCount - 1 : kCount;
    static_assert(kBegin < kEnd);
    multiply_pairs<kPairs, kBegin, kEnd, kNew, true, 0>(a, b, from, overlap);
    if constexpr (kNew) low_ = to, high_ = to + 512;
  }
  template <const auto& kPairs, SplitProducts kPart, bool kNew>
  SACCADE_INLINE void multiply(const std::uint32_t* a, const std::uint32_t* b, const float* from = nullptr,
                               float* to = nullptr) {
    multiply<kPairs, kPart, kNew>(a, b, from, to, [](auto) {});
  }

  Tiles& tiles;

 private:
  static constexpr std::int64_t kResultStride = 128, kOperandStride = 64;  // bytes

  template <int kTile>
  SACCADE_INLINE void leave() {
    if (float* const to = kTile < 2 ? low_ : high_) tiles.store<kTile>(to + kTile % 2 * 16, kResultStride);
  }
  template <int kTile>
  SACCADE_INLINE void enter(const float* from) {
    leave<kTile>();
    if (from)
      tiles.load<kTile>(from + (kTile >> 1) * 512 + (kTile & 1) * 16, kResultStride);
    else
      tiles.clear<kTile>();
  }

  /// Multiplies pairs [kPair, kEnd) of parts, four products each, the first of which is number kFirst. Does not
  /// reload tiles that the previous pair loaded.
  template <const auto& kPairs, int kPair, int kEnd, bool kNew, bool kLoads, int kFirst, class Overlap>
  SACCADE_INLINE void multiply_pairs(const std::uint32_t* const all_a, const std::uint32_t* const all_b,
                                     const float* from, const Overlap& overlap) {
    constexpr SplitPair kPartsNow = kPairs[kPair];
    constexpr SplitPair kBefore = kPairs[kPair > 0 ? kPair - 1 : 0];
    constexpr bool kLoadsA = kLoads || kPartsNow.a != kBefore.a, kLoadsB = kLoads || kPartsNow.b != kBefore.b;
    const std::uint32_t* const a = all_a + kPartsNow.a * kPartWords;
    const std::uint32_t* const b = all_b + kPartsNow.b * kPartWords;
    if constexpr (kNew) enter<0>(from);
    if constexpr (kLoadsB) tiles.load_streamed<6>(b, kOperandStride);
    if constexpr (kLoadsA) tiles.load<4>(a, kOperandStride);
    tiles.multiply<0, 4, 6, kPartsNow.type>();
    overlap(std::integral_constant<int, kFirst>{});
    if constexpr (kNew) enter<2>(from);
    if constexpr (kLoadsA) tiles.load<5>(a + 256, kOperandStride);
    tiles.multiply<2, 5, 6, kPartsNow.type>();
    overlap(std::integral_constant<int, kFirst + 1>{});
    if constexpr (kNew) enter<1>(from);
    if constexpr (kLoadsB) tiles.load_streamed<7>(b + 256, kOperandStride);
    tiles.multiply<1, 4, 7, kPartsNow.type>();
    overlap(std::integral_constant<int, kFirst + 2>{});
    if constexpr (kNew) enter<3>(from);
    tiles.multiply<3, 5, 7, kPartsNow.type>();
    overlap(std::integral_constant<int, kFirst + 3>{});
    if constexpr (kPair + 1 < kEnd)
      multiply_pairs<kPairs, kPair + 1, kEnd, false, false, kFirst + 4>(all_a, all_b, nullptr, overlap);
  }

  float* low_ = nullptr;   // where registers 0 and 1 belong; nullptr: nowhere
  float* high_ = nullptr;  // registers 2 and 3
};

/// Work that multiply_rows() overlaps with its products: f(i) for 16 items. Here nothing.
struct NoOverlap {
  SACCADE_INLINE void operator()(int) const {}
};

/// The products of 32 numbers of each row, with kCount of the items of work spread over them.
template <const auto& kPairs, SplitProducts kPart, bool kNew, int kFirst, int kCount, class Overlap>
SACCADE_INLINE void multiply_overlapped(TileStream& stream, const std::uint32_t* a, const std::uint32_t* b,
                                        float* to, const Overlap& overlap) {
  constexpr int kAll = static_cast<int>(kPairs.size());
  constexpr int kProducts = 4 * (kPart == SplitProducts::all     ? kAll
                                 : kPart == SplitProducts::small ? kAll - 1
                                                                 : 1);
  stream.multiply<kPairs, kPart, kNew>(
      a, b, nullptr, to, [&](auto n) __attribute__((always_inline)) {
        constexpr int kBegin = decltype(n)::value * kCount / kProducts;
        constexpr int kEnd = (decltype(n)::value + 1) * kCount / kProducts;
        SACCADE_UNROLL
        for (int i = kBegin; i < kEnd; ++i) overlap(kFirst + i);
      });
}

/// Writes to `to` [32][32] the products of 32 rows and 32 columns of `depth` times 32 numbers. The small parts of
/// all numbers come before the large ones: they lose least while the sum is small.
template <const auto& kPairs, class Overlap>
SACCADE_INLINE void multiply_rows(TileStream& stream, const std::uint32_t* a, const std::uint32_t* b,
                                  std::int64_t depth, float* to, const Overlap& overlap) {
  constexpr bool kIsOne = kPairs.size() == 1;
  constexpr SplitProducts kPart = kIsOne ? SplitProducts::all : SplitProducts::small;
  constexpr std::int64_t kNext = kPartWords * parts_of(kPairs);
  std::int64_t d = 1;
  if (depth == 1) {
    multiply_overlapped<kPairs, kPart, true, 0, 16>(stream, a, b, to, overlap);
  } else if (depth < 4) {
    multiply_overlapped<kPairs, kPart, true, 0, 8>(stream, a, b, to, overlap);
    multiply_overlapped<kPairs, kPart, false, 8, 8>(stream, a + kNext, b + kNext, nullptr, overlap);
    d = 2;
  } else {
    multiply_overlapped<kPairs, kPart, true, 0, 4>(stream, a, b, to, overlap);
    multiply_overlapped<kPairs, kPart, false, 4, 4>(stream, a + kNext, b + kNext, nullptr, overlap);
    multiply_overlapped<kPairs, kPart, false, 8, 4>(stream, a + 2 * kNext, b + 2 * kNext, nullptr, overlap);
    multiply_overlapped<kPairs, kPart, false, 12, 4>(stream, a + 3 * kNext, b + 3 * kNext, nullptr, overlap);
    d = 4;
  }
  for (; d < depth; ++d) stream.multiply<kPairs, kPart, false>(a + d * kNext, b + d * kNext);
  if constexpr (!kIsOne)
    for (d = 0; d < depth; ++d) stream.multiply<kPairs, SplitProducts::large, false>(a + d * kNext, b + d * kNext);
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
