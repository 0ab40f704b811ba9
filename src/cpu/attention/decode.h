// Attention of few query rows over many keys, which are read once and not packed. The rows of all query heads that
// share a kv head process their keys together, one split of kDecodeSplit keys at a time:
//
//   for each key                    S = Q K^T     lanes along head_dim
//   for each block of 256 keys      softcap, biases, masks
//   m, P = exp(S - m), l            of the split
//   for each few keys               O += P V      lanes along head_dim_v
//
// and write (O, m, l), which merge_splits() merges in ascending order (decode_shared.h).
#pragma once

#include "cpu/attention/decode_products.h"
#include "cpu/attention/decode_shared.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Scratch memory for one kv head.
class DecodeScratch {
 public:
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return padded(rows) * (query_stride(p) + 2 * kDecodeSplit) + kDecodeMaxRows * decode_output_stride(p) +
           kDecodeBlock + number_of_scales(p);
  }
  static constexpr std::int64_t kScoreStride = kDecodeSplit;
  DecodeScratch(const AttentionParams& p, std::int64_t rows, Scalar* memory) {
    const auto take = [&memory](std::int64_t n) { return std::exchange(memory, memory + n); };
    queries = take(padded(rows) * query_stride(p));
    scores = take(padded(rows) * kDecodeSplit);
    probabilities = take(padded(rows) * kDecodeSplit);
    o = take(kDecodeMaxRows * decode_output_stride(p));
    mask = take(kDecodeBlock);
    scales = take(number_of_scales(p));
  }
  /// Rows, padded for both products, which process up to four at a time.
  static std::int64_t padded(std::int64_t rows) { return round_up(rows, 4); }
  static std::int64_t query_stride(const AttentionParams& p) {
    return round_up(steps_of(p.head_dim), looks_up(p.k.dtype) ? 2 * kWidth : kWidth);
  }

  Scalar* queries;        // [rows][query_stride]
  Scalar* scores;         // [rows][kDecodeSplit]
  Scalar* probabilities;  // the same, for the masked_safe path
  Scalar* o;              // in the order of chunk_offset()
  Scalar* mask;           // [kDecodeBlock]
  Scalar* scales;         // [kDecodeSplit]: of quantized keys or values

 private:
  static std::int64_t number_of_scales(const AttentionParams& p) {
    return is_quantized(p.k.dtype) || is_quantized(p.v.dtype) ? kDecodeSplit : 0;
  }
};

/// The rows of one kv head over one split of its keys: start(), score(), soften(), add_values(), keep_output().
class DecodeHead : public DecodeScores<DecodeScratch> {
 public:
  using Scratch = DecodeScratch;
  using Registers = NoRegisters;
  static constexpr std::int64_t kStep = kDecodeStep;
  using DecodeScores<DecodeScratch>::DecodeScores;

  /// Packs the queries and decides which subtiles to compute.
  void start() {
    const std::int64_t stride = DecodeScratch::query_stride(p_);
    std::fill_n(scratch_.queries, DecodeScratch::padded(count_) * stride, Scalar{0});
    with_input(p_.q.dtype, [&]<class T>(T) {
      for (int r = 0; r < count_; ++r)
        pack_query(query<T>(r), p_.head_dim, unit_.query_factor, scratch_.queries + r * stride);
    });
    if (looks_up(p_.k.dtype)) order_query(scratch_.queries, count_ * stride);
    plan();
    if (is_quantized(p_.k.dtype)) read_scales(p_.key_source(rows_.batch, kv_head_));
  }

  /// Computes the requested products of keys [key, key + count), multiples of kDecodeKeys.
  void score(Registers&, std::int64_t key, std::int64_t count) {
    with_stored_elements(p_.key_source(rows_.batch, kv_head_), [&](const auto& keys) {
      for_each_run(keys, key, key + count, kDecodeKeys,
                   [&](const auto& rows, std::int64_t from, std::int64_t to) { multiply(rows, from, to); });
    });
    if (!is_quantized(p_.k.dtype)) return;
    for (int r = 0; r < count_; ++r) multiply_by_scales(scores(r), key - begin_, count);
  }

  /// Turns the products into scores, and the scores into weights relative to the split's maximum.
  void soften() {
    finish();
    if (is_quantized(p_.v.dtype)) read_scales(p_.value_source(rows_.batch, kv_head_));
    with_scaling(unit_.exp_factor, [&](auto scaled) {
      for (int r = 0; r < count_; ++r) soften<decltype(scaled)::value>(r);
    });
    std::fill_n(scratch_.o, kDecodeMaxRows * decode_output_stride(p_), Scalar{0});
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(Registers&, std::int64_t key, std::int64_t count) {
    const std::int64_t begin = std::max(key, readable_.begin / kStepNumbers * kStepNumbers);
    const std::int64_t end = std::min(key + count, round_up(readable_.end, kStepNumbers));
    with_stored_elements(p_.value_source(rows_.batch, kv_head_), [&]<class V>(const KvRows<V>& values) {
      for_each_run(values, begin, end, kStepNumbers, [&](const auto& rows, std::int64_t from, std::int64_t to) {
        const std::int64_t column = from - begin_;
        if (masked_safe_) return add_visible(rows, column, static_cast<int>(to - from));
        using Rows = std::remove_cvref_t<decltype(rows)>;
        const auto f = count_ <= 2 ? decode_values<V, 2, Rows> : decode_values<V, 4, Rows>;
        f(probabilities(0) + column / kStepNumbers, rows, static_cast<int>(to - from), count_, p_.head_dim_v,
          scratch_.o);
      });
    });
  }

  /// Writes o, m and l of each row.
  void keep_output() {
    for (int r = 0; r < count_; ++r) {
      if (looks_up(p_.v.dtype)) {
        for (std::int64_t d = 0; d < decode_output_stride(p_); d += 64)
          order_looked_up(scratch_.o + chunk_offset(r, d), state(r) + d);
        continue;
      }
      for (std::int64_t d = 0; d < decode_output_stride(p_); d += 2 * kWidth) {
        const Scalar* const o = scratch_.o + chunk_offset(r, d);
        Vec low = load(o), high = load(o + kWidth);
        if constexpr (kPairs) order_columns(low, high);
        store(state(r) + d, low);
        store(state(r) + d + kWidth, high);
      }
    }
  }

 private:
  Scalar* probabilities(int r) const {
    return masked_safe_ ? scratch_.probabilities + r * kDecodeSplit : scores(r);
  }

  /// Calls f(rows, begin, end) for runs of keys [key, end) of `all` in requested subtiles, in multiples of `unit`.
  template <class Rows, class F>
  void for_each_run(const Rows& all, std::int64_t key, std::int64_t end, int unit, const F& f) const {
    while (key < end) {
      std::int64_t to = key;
      while (to < end && is_wanted(to)) to = std::min(end, to - (to - begin_) % kKeySubtile + kKeySubtile);
      for (; key < to;) key = call_with_rows(all, key, to, unit, f);
      key = std::min(end, key - (key - begin_) % kKeySubtile + kKeySubtile);
    }
  }

  /// Calls f for the first keys of [key, end). Returns the end of those keys.
  template <class Rows, class F>
  std::int64_t call_with_rows(const Rows& all, std::int64_t key, std::int64_t end, int unit, const F& f) const {
    const std::int64_t readable = key < readable_.begin ? 0 : std::min(end, readable_.end) - key;
    if (readable >= unit) {
      const auto run = all.run(key);
      const std::int64_t strided = std::min(readable, run.count) / unit * unit;
      if (strided > 0) {
        f(run.rows, key, key + strided);
        return key + strided;
      }
    }
    // The unit spans several pages or has keys that must not be read; any other row may replace those keys.
    typename Rows::Row list[kDecodeKeys > 2 ? kDecodeKeys : 2];
    for (int i = 0; i < unit; ++i) list[i] = all[std::clamp(key + i, readable_.begin, readable_.end - 1)];
    f(static_cast<const typename Rows::Row*>(list), key, key + unit);
    return key + unit;
  }

  template <class Rows>
  void multiply(const Rows& rows, std::int64_t key, std::int64_t end) {
    const auto f = p_.head_dim == 128  ? decode_scores<fixed(128 / kStepNumbers), Rows>
                   : p_.head_dim == 64 ? decode_scores<fixed(64 / kStepNumbers), Rows>
                                       : decode_scores<0, Rows>;
    const std::int64_t stride = DecodeScratch::query_stride(p_);
    int r = 0;
    if constexpr (kWidth > 1 && kDecodeRows < 4) {
      for (; r + kDecodeRows < count_; r += 4)
        decode_scores_of_four(scratch_.queries + r * stride, stride, rows, static_cast<int>(end - key),
                              p_.head_dim, scores(r) + (key - begin_));
    }
    for (; r < count_; r += kDecodeRows)
      f(scratch_.queries + r * stride, stride, rows, static_cast<int>(end - key), p_.head_dim,
        scores(r) + (key - begin_));
  }
  /// The vectors of a row if a function for that number is worthwhile, else 0.
  static constexpr int fixed(int steps) { return kWidth > 1 && steps / kWidth <= 8 ? steps / kWidth : 0; }

  template <bool kScaled>
  void soften(int r) {
    const Scalar* line = scores(r);
    Scalar* p = probabilities(r);
    Vec largest = broadcast(kNoMaximum);
    for (int j = 0; j < kDecodeSplit; j += kWidth) largest = max(largest, load(line + j));
    const Scalar m = reduce_max(largest);
    const bool scales_pairs =
        kPairs && is_quantized(p_.v.dtype);  // their weights are scaled before they are rounded
    Vec sum[2] = {zero(), zero()};
    for (int j = 0; j < kDecodeSplit; j += 2 * kWidth) {
      Vec weight[2];
      SACCADE_UNROLL
      for (int i = 0; i < 2; ++i) {
        Vec x = canonical_nan(sub(load(line + j + i * kWidth), broadcast(m)));
        if constexpr (kScaled) x = mul(x, broadcast(unit_.exp_factor));
        weight[i] = exp2(x);
        sum[i] = add(sum[i], weight[i]);
        if (scales_pairs) weight[i] = mul(weight[i], load(scratch_.scales + j + i * kWidth));
      }
      if constexpr (kPairs) {
        store(p + j / 2, round_to_pairs(weight[0], weight[1]));
      } else {
        store(p + j, weight[0]);
        store(p + j + kWidth, weight[1]);
      }
    }
    state(r)[decode_output_stride(p_)] = m;
    state(r)[decode_output_stride(p_) + 1] = reduce_add(add(sum[0], sum[1]));
    if (p_.dropout_p > 0.0) drop(r);
    if (!kPairs && is_quantized(p_.v.dtype)) multiply_by_scales(probabilities(r), 0, kDecodeSplit);
  }

  void multiply_by_scales(Scalar* numbers, std::int64_t column, std::int64_t count) const {
    for (std::int64_t j = column; j < column + count; j += kWidth)
      store(numbers + j, mul(load(numbers + j), load(scratch_.scales + j)));
  }

  void drop(int r) {
    dropout_.apply(reinterpret_cast<Weight*>(probabilities(r)), 0, kDecodeSplit,
                   p_.dropout_head(rows_.batch, head(r)), p_.dropout_row(token(r)), begin_);
  }

  /// decode_values() without the values of keys whose score is -inf. This changes no bit: they would add 0.
  template <class Rows>
  void add_visible(const Rows& rows, std::int64_t column, int count) {
    for (int r = 0; r < count_; ++r) {
      const Scalar* line = scores(r) + column;
      for (int j = 0; j < count; ++j) {
        if (line[j] == -kInfinity) continue;
        if constexpr (kPairs)
          add_pair(r, rows, line, probabilities(r) + column / 2, j);
        else
          add_row(r, rows[j], probabilities(r) + column + j);
      }
    }
  }

  template <class Row>
  void add_row(int r, Row row, const Scalar* weight) {
    for (std::int64_t d = 0; d < p_.head_dim_v; d += kWidth) {
      const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim_v - d));
      Scalar* const o = scratch_.o + chunk_offset(r, d);
      store(o, fma_broadcast(weight, load_first(row + d, n), load(o)));
    }
  }

  /// Handles key j together with its neighbor, once.
  template <class Rows>
  void add_pair(int r, const Rows& rows, const Scalar* line, const Scalar* weights, int j) {
    const int first = j / 2 * 2;
    if (j != first && line[first] != -kInfinity) return;
    const bool even = line[first] != -kInfinity, odd = line[first + 1] != -kInfinity;
    alignas(64) Scalar kept[kWidth];  // the weight of a hidden key is NaN if its value's scale is
    store(kept, keep_of_pairs(broadcast(weights[first / 2]), even, odd));
    if constexpr (kLooksUp<std::remove_cvref_t<decltype(rows[0])>>) {
      for (std::int64_t d = 0; d < p_.head_dim_v; d += 64) {
        const int n = static_cast<int>(std::min<std::int64_t>(64, p_.head_dim_v - d));
        Vec x[4];
        look_up_columns(rows[first] + d, even ? n : 0, rows[first + 1] + d, odd ? n : 0, x);
        Scalar* const o = scratch_.o + chunk_offset(r, d);
        for (int c = 0; c < 4; ++c) store(o + c * kWidth, multiply_add(kept, x[c], load(o + c * kWidth)));
      }
      return;
    }
    for (std::int64_t d = 0; d < p_.head_dim_v; d += 2 * kWidth) {
      Scalar* const o = scratch_.o + chunk_offset(r, d);
      const int n = static_cast<int>(std::min<std::int64_t>(2 * kWidth, p_.head_dim_v - d));
      const Vec x = even ? load_first_pairs(rows[first] + d, n) : zero();
      const Vec y = odd ? load_first_pairs(rows[first + 1] + d, n) : zero();
      store(o, multiply_add(kept, interleave_low(x, y), load(o)));
      store(o + kWidth, multiply_add(kept, interleave_high(x, y), load(o + kWidth)));
    }
  }
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
