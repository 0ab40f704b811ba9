// What decode() of keys and values of i8, i4 and e4m3 does with either kind of products, AMX tiles
// (amx/bytes/decode.h) or vectors (bytes/vector_decode.h). None of the operands is rounded to a type of few bits:
// queries and weights are written as a few digits, or parts, and numbers of keys and values as they are stored.
//
// Scales of keys multiply scores, and those of values the weights. A scale is NaN where a row was not finite, and
// the masked-safe path keeps it from rows that do not see it. A row with weights that no digits hold, infinite
// ones for example, adds its values without them.
#pragma once

#include "cpu/attention/decode_shared.h"
#include "cpu/bytes/rows.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The steps of a head that do not depend on how products are computed. `Format` says what digits are:
///   kHasInt4     whether keys or values may be of i4
///   kHasNan      whether values may be NaN (of tiles)
///   kHasSigns    whether weights may be negative
///   kWeightBits  behind the first bit of the largest weight
///   kMostOfWeights  the largest number that the digits of a weight hold
///   kFetchesNextSplit  whether keys and values of the next split are prefetched
///   kUnitKeys    keys whose weights have a common unit, the value of their last digit: a divisor of a split
/// `Scratch` has query, scores, weights, units, factors, copies and scales: see ByteTileScratch and
/// ByteVectorScratch.
template <class Scratch, class Format>
class ByteDecodeSteps : public DecodeScores<Scratch> {
 public:
  using DecodeScores<Scratch>::DecodeScores;

  void soften() {
    for (int r = 0; r < count_; ++r) {
      if (!std::isfinite(scratch_.factors[r])) multiply_bad_query(r);
    }
    this->finish();
    read_scales(p_.value_source(rows_.batch, kv_head_));
    for (int r = 0; r < count_; ++r) soften(r);
  }

 protected:
  using DecodeScores<Scratch>::p_, DecodeScores<Scratch>::rows_, DecodeScores<Scratch>::kv_head_,
      DecodeScores<Scratch>::count_, DecodeScores<Scratch>::masked_safe_, DecodeScores<Scratch>::begin_,
      DecodeScores<Scratch>::readable_, DecodeScores<Scratch>::dropout_, DecodeScores<Scratch>::unit_,
      DecodeScores<Scratch>::scratch_, DecodeScores<Scratch>::head, DecodeScores<Scratch>::token,
      DecodeScores<Scratch>::scores, DecodeScores<Scratch>::state, DecodeScores<Scratch>::is_wanted,
      DecodeScores<Scratch>::read_scales;

  /// Units of a row.
  static constexpr int kUnits = static_cast<int>(kDecodeSplit) / Format::kUnitKeys;

  Scalar* weights(int r) const { return masked_safe_ ? scratch_.weights + r * Scratch::kScoreStride : scores(r); }
  bool has_digits(int r) const { return scratch_.units[r * kUnits] > 0; }
  Scalar unit(int r, std::int64_t column) const { return scratch_.units[r * kUnits + column / Format::kUnitKeys]; }

  static int exponent_of(float x) { return static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23) - 127; }
  static double power_of_2(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  }

  /// A query, which is of f32 or bf16.
  const float* query_of(int r) const {
    if (p_.q.dtype == DType::f32) return this->template query<float>(r);
    const auto* const row = this->template query<bfloat16>(r);
    for (std::int64_t d = 0; d < p_.head_dim; d += kWidth)
      store(scratch_.query + d,
            load_first(row + d, static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim - d))));
    return scratch_.query;
  }

  /// Calls put(exponent, d, n) for each 16 numbers [d, d + n) of a query, which become digits of which the last is
  /// worth 2^exponent; `exponent_for` gives it for the largest number. Sets the row's factor, that of the last
  /// digit times the unit of scores; NaN if that is denormal or a number is not finite.
  template <class ExponentFor, class Put>
  void put_query(int r, const ExponentFor& exponent_for, const Put& put) {
    const float* const row = query_of(r);
    Vec most = zero(), finite = zero();
    for (std::int64_t d = 0; d < p_.head_dim; d += kWidth) {
      const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim - d));
      const Vec x = load_first(row + d, n);
      most = max(most, abs(x));
      finite = fma(x, zero(), finite);
    }
    const Scalar largest = reduce_max(most);
    if (any(is_nan(finite))) {
      scratch_.factors[r] = std::numeric_limits<float>::quiet_NaN();
      return;
    }
    if (largest == 0) return;
    const int exponent = std::max(exponent_for(largest), -149);
    const auto factor = static_cast<float>(power_of_2(exponent) * unit_.query_factor);
    if (factor != 0 && std::abs(factor) < std::numeric_limits<float>::min()) {
      scratch_.factors[r] = std::numeric_limits<float>::quiet_NaN();
      return;
    }
    scratch_.factors[r] = factor;
    for (std::int64_t d = 0; d < p_.head_dim; d += 16)
      put(row + d, exponent, d, static_cast<int>(std::min<std::int64_t>(16, p_.head_dim - d)));
  }

  template <class F>
  void with_rows(const KvSource& source, std::int64_t tiles, const F& f, bool drops_nan = false) const {
    const std::int64_t end = Format::kFetchesNextSplit ? readable_.end : begin_ + kDecodeSplit;
    call_with_byte_rows<Format::kHasInt4>(source, readable_, end, tiles, scratch_.copies, drops_nan, f);
  }

  /// The scores of a query that digits do not hold, as multiply-adds would give them.
  __attribute__((noinline)) void multiply_bad_query(int r) {
    with_elements(
        unscaled(p_.key_source(rows_.batch, kv_head_)),
        [&](const auto& keys) {
          const float* const row = query_of(r);
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
    for (int j = 0; j < kDecodeSplit; j += kWidth)
      store(scores(r) + j, mul(load(scores(r) + j), load(scratch_.scales + j)));
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
            if (!is_wanted(key) || (masked_safe_ && scores(r)[key - begin_] == -kInfinity)) continue;
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
  /// Adds NaN where values of e4m3 that the row sees were left out.
  __attribute__((noinline)) void add_dropped_nan(int r) {
    const KvRows<std::int8_t> values(p_.value_source(rows_.batch, kv_head_));
    const std::int64_t end = std::min(begin_ + kDecodeSplit, readable_.end);
    for (std::int64_t key = std::max(begin_, readable_.begin); key < end; ++key) {
      if (!is_wanted(key) || scores(r)[key - begin_] == -kInfinity) continue;
      for (std::int64_t d = 0; d < p_.head_dim_v; ++d)
        if (is_nan_of_float8(values[key][d])) state(r)[d] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  static KvSource unscaled(KvSource source) {
    source.scales = nullptr;
    return source;
  }

 private:
  // ---- P = exp(S - m), times the scales of values

  static constexpr int kLeastExponent = -126;  // of normal numbers, as a unit and its reciprocal are
  static constexpr int kDrawn = 128;           // columns that dropout draws at a time
  static constexpr int kScaled = 32;           // columns that are wanted or not

  void soften(int r) {
    const Scalar* const line = scores(r);
    Vec largest = broadcast(kNoMaximum);
    for (int j = 0; j < kDecodeSplit; j += kWidth) largest = max(largest, load(line + j));
    const Scalar m = reduce_max(largest);
    Vec sums[32 / kWidth];
    SACCADE_UNROLL
    for (Vec& x : sums) x = zero();
    Scalar* const units = scratch_.units + r * kUnits;
    Vec most = zero(), least = zero(), finite = zero();
    Scalar most_of_all = 0;
    for (int column = 0; column < kDecodeSplit; column += kDrawn) {
      weigh(r, column, m, sums);
      if (p_.dropout_p > 0.0) drop(r, column);
      for (int j = column; j < column + kDrawn; j += kScaled) {
        scale_weights(r, j, most, least, finite);
        if ((j + kScaled) % Format::kUnitKeys != 0) continue;
        const Scalar most_of_unit = reduce_max(most);
        units[j / Format::kUnitKeys] = unit_for(most_of_unit);
        most_of_all = std::max(most_of_all, most_of_unit);
        most = zero();
      }
    }
    state(r)[decode_output_stride(p_)] = m;
    state(r)[decode_output_stride(p_) + 1] = sum_of_32(sums);
    const bool has_all_bits = most_of_all == 0 || exponent_of(most_of_all) - Format::kWeightBits >= kLeastExponent;
    const bool fits = has_all_bits && !any(is_nan(finite)) && (Format::kHasSigns || !any(less(least, zero())));
    if (!fits) std::fill_n(units, kUnits, Scalar{0});
  }

  /// The weights of kDrawn keys; adds to the sums over keys modulo 32. A function, so that the constants of exp2()
  /// stay in registers.
  __attribute__((noinline)) void weigh(int r, int column, Scalar m, Vec (&sums)[32 / kWidth]) {
    const Vec factor = broadcast(unit_.exp_factor), largest = broadcast(m);
    const Scalar* const from = scores(r);
    Scalar* const to = weights(r);
    for (int j = column; j < column + kDrawn; j += 32) {
      if (!is_wanted(begin_ + j)) {
        std::fill_n(to + j, 32, Scalar{0});
        continue;
      }
      SACCADE_UNROLL
      for (int i = 0; i < 32 / kWidth; ++i) {
        const Vec w = exp2(mul(canonical_nan(sub(load(from + j + i * kWidth), largest)), factor));
        sums[i] = add(sums[i], w);
        store(to + j + i * kWidth, w);
      }
    }
  }

  void drop(int r, int column) {
    dropout_.apply(weights(r) + column, 0, kDrawn, p_.dropout_head(rows_.batch, head(r)), p_.dropout_row(token(r)),
                   begin_ + column);
  }

  /// Multiplies kScaled weights by the scales of their values; finds the largest and the least product, and
  /// whether all are finite.
  SACCADE_INLINE void scale_weights(int r, int column, Vec& most, Vec& least, Vec& finite) {
    const bool wanted = is_wanted(begin_ + column);
    Scalar* const to = weights(r) + column;
    SACCADE_UNROLL
    for (int j = 0; j < kScaled; j += kWidth) {
      Vec w = mul(load(to + j), load(scratch_.scales + column + j));
      if (!wanted) w = zero();  // a scale of what the row does not see may be NaN
      if (masked_safe_) w = select(equal(load(scores(r) + column + j), broadcast(-kInfinity)), zero(), w);
      most = max(most, abs(w)), least = min(least, w);
      finite = fma(w, zero(), finite);
      store(to + j, w);
    }
  }

  /// The power of two of which the largest weight has Format::kWeightBits bits and one more, if digits hold them.
  static Scalar unit_for(Scalar largest) {
    constexpr int kMostExponent = std::min(126, 128 - Format::kWeightBits);  // its reciprocal is normal too
    int exponent = exponent_of(largest) - Format::kWeightBits;
    if (largest * power_of_2(-exponent) > Format::kMostOfWeights) ++exponent;
    return static_cast<Scalar>(power_of_2(std::clamp(exponent, kLeastExponent, kMostExponent)));
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
