// AMX: eight tile registers of 16 rows of 64 bytes, and the AVX-512 (F, BW, VBMI) functions of the kernels that
// use them. amx/twin.h has the same in plain C++, with the same bits.
//
// In assembly, because GCC 12's intrinsics are wrong: _tile_loadd does not declare that it reads memory, nor
// _tile_loadconfig that it reads more than 8 bytes.
#pragma once

#include "cpu/amx/tables.h"
#include "cpu/simd/avx512.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The third and the fifth byte of TDPFP16PS of tiles c, a and b, VEX.128.F2.0F38.W0 5C /r: assemblers before
/// binutils 2.40 and LLVM 16 do not know it.
constexpr int vex_of_tdpfp16ps(int b) { return (15 - b) << 3 | 3; }
constexpr int modrm_of_tdpfp16ps(int c, int a) { return 0xc0 | c << 3 | a; }
static_assert(vex_of_tdpfp16ps(5) == 0x53 && modrm_of_tdpfp16ps(3, 4) == 0xdc,
              "c4 e2 53 5c dc is tdpfp16ps %tmm5,%tmm4,%tmm3");

/// The tile registers of this thread, configured while the object lives. Releases them afterwards: other code may
/// use them too, and a context switch saves all 8 KiB.
class Tiles {
 public:
  Tiles() { configure(); }
  ~Tiles() { asm volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  /// Clears all registers. Call it again after code that may have used tiles, and so released them.
  void configure() {
    struct alignas(64) Configuration {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Configuration kConfiguration;
    asm volatile("ldtilecfg %0" ::"m"(kConfiguration));
  }

  /// 16 rows of 64 bytes, `stride` bytes apart.
  template <int kTile>
  SACCADE_INLINE void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1),%%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  /// The same for rows that are read once, or not again soon: they do not displace others in the L1 cache.
  template <int kTile>
  SACCADE_INLINE void load_streamed(const void* from, std::int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1),%%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  SACCADE_INLINE void store(void* to, std::int64_t stride) const {
    asm volatile("tilestored %%tmm%c2,(%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  SACCADE_INLINE void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  /// Tile c (16 x 16 floats) += tile a (16 rows of 16 pairs of bf16 or f16) * tile b (16 pairs of rows, 16
  /// columns). f16 needs AMX-FP16. kType i8 or u8: c has 32-bit integers, a 16 rows of 16 times four signed or
  /// unsigned bytes, and b fours of signed ones.
  template <int kC, int kA, int kB, DType kType = DType::bf16>
  SACCADE_INLINE void multiply() {
    if constexpr (kType == DType::f16)
      asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1" ::"i"(vex_of_tdpfp16ps(kB)),
                   "i"(modrm_of_tdpfp16ps(kC, kA)));
    else if constexpr (kType == DType::i8)
      asm volatile("tdpbssd %%tmm%c2,%%tmm%c1,%%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
    else if constexpr (kType == DType::u8)
      asm volatile("tdpbusd %%tmm%c2,%%tmm%c1,%%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
    else
      asm volatile("tdpbf16ps %%tmm%c2,%%tmm%c1,%%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

/// What the scores of 32 keys are multiplied by, and what is added to the offsets of their rounded weights, in
/// registers.
class KeyScales {
 public:
  KeyScales() : scales_{zero(), zero()}, shifts_{zero(), zero()} {}
  KeyScales(const float* scales, const float* shifts)
      : scales_{load(scales), load(scales + 16)}, shifts_{load(shifts), load(shifts + 16)} {}

  SACCADE_INLINE Vec score(int half, Vec x) const { return mul(x, scales_[half]); }
  SACCADE_INLINE Vec offset(int half, Vec x) const { return add(x, shifts_[half]); }

 private:
  Vec scales_[2], shifts_[2];
};
struct NoKeyScales {
  static SACCADE_INLINE Vec score(int, Vec x) { return x; }
  static SACCADE_INLINE Vec offset(int, Vec x) { return x; }
};

/// Turns rows of 32 scores into weights rounded to bf16. Next to tile products, the shuffle port executes only
/// additions and logic, 4 instructions, and the other port everything else, 5 instructions.
class Weights {
 public:
  explicit Weights(float factor)
      : factor_(_mm512_set1_ps(factor)),
        fraction_(_mm512_load_si512(kWeightTables.fraction)),
        correction_(_mm512_load_si512(kWeightTables.correction)) {}

  /// Whether a weight since reset() was too large for its offset.
  SACCADE_INLINE bool overflowed() const { return _mm512_movepi16_mask(all_) != 0; }
  SACCADE_INLINE void reset() { all_ = _mm512_setzero_si512(); }

  /// The weights of 32 scores, in the order of key_of_word().
  template <class Keys = NoKeyScales>
  SACCADE_INLINE void of_row(const float* scores, float offset, std::uint32_t* to, const Keys& keys = {}) {
    const Vec b = broadcast(offset);
    put(_mm512_cvtps_epi32(_mm512_fmadd_ps(keys.score(0, load(scores)), factor_, keys.offset(0, b))),
        _mm512_cvtps_epi32(_mm512_fmadd_ps(keys.score(1, load(scores + 16)), factor_, keys.offset(1, b))), to);
  }
  /// The same for the scores, times `scale` if kScales, of which `visible` has a bit; the weights of others are
  /// those of -inf.
  template <bool kScales>
  SACCADE_INLINE void of_visible(const float* scores, float scale, std::uint32_t visible, float offset,
                                 std::uint32_t* to) {
    const Vec b = broadcast(offset);
    const auto scaled = [scale](Vec x) { return kScales ? mul(x, broadcast(scale)) : x; };
    const auto low = static_cast<__mmask16>(visible), high = static_cast<__mmask16>(visible >> 16);
    put(_mm512_maskz_cvtps_epi32(low, _mm512_fmadd_ps(scaled(load(scores)), factor_, b)),
        _mm512_maskz_cvtps_epi32(high, _mm512_fmadd_ps(scaled(load(scores + 16)), factor_, b)), to);
  }

  /// The sums over keys modulo 16 of the unrounded weights 2^(score * factor / 256 + exponent). The two ports that
  /// remain beside products execute five instructions each for 16 scores. A score of -inf, or an exponent of -inf,
  /// adds 0.
  template <class Keys = NoKeyScales>
  SACCADE_INLINE void sums_of_row(const float* scores, float exponent, float* sums, const Keys& keys = {}) const {
    const Vec factor = mul(factor_, broadcast(1.0F / 256)), e = broadcast(exponent);
    store(sums, add(power_of_2(fma(keys.score(0, load(scores)), factor, e)),
                    power_of_2(fma(keys.score(1, load(scores + 16)), factor, e))));
  }

 private:
  SACCADE_INLINE void put(__m512i low, __m512i high, std::uint32_t* to) {
    const __m512i y = _mm512_packus_epi32(low, high);
    all_ = _mm512_or_si512(all_, y);
    const __m512i index = _mm512_multishift_epi64_epi8(fraction_, y);
    const __m512i correction = _mm512_maskz_permutexvar_epi8(0x5555555555555555, index, correction_);
    _mm512_store_si512(to, _mm512_avg_epu16(y, correction));
  }
  static SACCADE_INLINE Vec power_of_2(Vec x) {
    const Vec rounded = add(x, broadcast(PowersOf32nds::kRound)),
              n = sub(rounded, broadcast(PowersOf32nds::kRound));
    const Vec f = sub(x, n);
    const Vec p =
        fma(f, fma(f, broadcast(PowersOf32nds::kSquare), broadcast(PowersOf32nds::kLinear)), broadcast(1));
    return _mm512_scalef_ps(mul(p, lookup_32nds(kPowersOf32nds.power, rounded)), n);
  }

  Vec factor_;
  __m512i fraction_, correction_, all_ = _mm512_setzero_si512();
};

/// Bits whose upper halves are x rounded to bf16, to nearest even; the lower halves are of no use. Not for NaN.
SACCADE_INLINE __m512i rounded_bits(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), even);
}

/// The bf16 parts of 2 x 16 numbers, as words of a row of tiles: part t of low[i] and of high[i] are the halves of
/// word i of to[t * stride]. A single part is the number rounded to nearest even; several are its leading bits,
/// eight at a time; three have all bits of a float.
template <int kParts>
class Bf16Split {
 public:
  // Not default initializers: GCC 12 compiles those for the instructions of the program.
  Bf16Split()
      : upper_halves_(_mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302)),
        digits_(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(0xffff0000)))) {}

  SACCADE_INLINE void split(Vec low, Vec high, std::uint32_t* to, std::int64_t stride) const {
    if constexpr (kParts == 1) low = rounded(low), high = rounded(high);
    SACCADE_UNROLL
    for (int t = 0; t < kParts; ++t) {
      put(low, high, to + t * stride);
      low = rest(low), high = rest(high);
    }
  }
  SACCADE_INLINE void split(const float* low, const float* high, std::uint32_t* to, std::int64_t stride) const {
    split(load(low), load(high), to, stride);
  }

  /// The same for two rows of 32 numbers: as words of a row's numbers i and 16 + i, 16 words of each row, and as
  /// words of both rows' numbers i, in two rows that are 256 words apart.
  SACCADE_INLINE void split_rows(const float* even, const float* odd, std::uint32_t* rows, std::uint32_t* pairs,
                                 std::int64_t stride) const {
    Vec x[4] = {load(even), load(even + 16), load(odd), load(odd + 16)};
    SACCADE_UNROLL
    for (int i = 0; i < 4; ++i)
      if constexpr (kParts == 1) x[i] = rounded(x[i]);
    SACCADE_UNROLL
    for (int t = 0; t < kParts; ++t) {
      put(x[0], x[1], rows + t * stride);
      put(x[2], x[3], rows + t * stride + 16);
      put(x[0], x[2], pairs + t * stride);
      put(x[1], x[3], pairs + t * stride + 256);
      SACCADE_UNROLL
      for (int i = 0; i < 4; ++i) x[i] = rest(x[i]);
    }
  }

 private:
  SACCADE_INLINE void put(Vec low, Vec high, std::uint32_t* to) const {
    _mm512_store_si512(to, _mm512_mask_shuffle_epi8(_mm512_castps_si512(high), 0x3333333333333333,
                                                    _mm512_castps_si512(low), upper_halves_));
  }
  SACCADE_INLINE Vec rest(Vec x) const { return _mm512_sub_ps(x, _mm512_and_ps(x, digits_)); }
  static SACCADE_INLINE Vec rounded(Vec x) { return _mm512_castsi512_ps(rounded_bits(x)); }

  __m512i upper_halves_;
  Vec digits_;
};

/// Turns rows of 32 scores into weights of several parts.
template <int kParts>
class SplitWeights {
 public:
  explicit SplitWeights(float factor) : factor_(_mm512_set1_ps(factor)), all_(_mm512_setzero_si512()) {}

  SACCADE_INLINE bool overflowed() const {
    return _mm512_test_epi32_mask(all_, _mm512_set1_epi32(kSplitOverflow)) != 0;
  }
  SACCADE_INLINE void reset() { all_ = _mm512_setzero_si512(); }

  /// The weights of 32 scores, as words of (key i, key 16 + i); `sums` receives their sums over keys modulo 16.
  SACCADE_INLINE void of_row(const float* scores, float offset, std::uint32_t* to, std::int64_t stride,
                             float* sums) {
    const Vec low = weights(load(scores), broadcast(offset)), high = weights(load(scores + 16), broadcast(offset));
    store(sums, add(low, high));
    parts_.split(low, high, to, stride);
  }

 private:
  SACCADE_INLINE Vec weights(Vec scores, Vec offset) {
    const Vec x = max(broadcast(kSplitLowest), fma(scores, factor_, offset));
    const Vec rounded = add(x, broadcast(kSplitMagic));
    const Vec f = sub(x, sub(rounded, broadcast(kSplitMagic)));
    all_ = _mm512_or_si512(all_, _mm512_castps_si512(rounded));
    Vec p = broadcast(Exp2Polynomial<float>::kCoefficients[0]);
    SACCADE_UNROLL
    for (int i = 1; i <= Exp2Polynomial<float>::kDegree; ++i)
      p = fma(p, f, broadcast(Exp2Polynomial<float>::kCoefficients[i]));
    return scale_by_exponent(p, rounded);
  }

  Vec factor_;
  Bf16Split<kParts> parts_;
  __m512i all_;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
