// Attention of few query rows over many keys, read once and where they lie. The rows of all query heads that share
// a kv head go together through one piece of kDecodePiece keys at a time:
//
//   for each block of 256 keys      S = Q K^T     lanes along head_dim, 4 keys for 4 rows, summed at the end
//                                   softcap, biases, masks
//   m, P = exp(S - m), l            of the piece
//   for each few keys               O += P V      lanes along head_dim_v
//
// and leave (O, m, l), which merge_pieces() puts together in ascending order.
#pragma once

#include "cpu/output.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- Products ------------------------------------------------------------------------------------------------

/// The products of kDecodeRows packed queries (`stride` apart, zeros behind their ends) and kDecodeKeys keys,
/// query by query. Each is a sum over kWidth lanes of chains in order of d.
template <class Arithmetic, int kVectors, class T>
SACCADE_INLINE Vec decode_products(const Scalar* queries, std::int64_t stride, const T* const* keys,
                                   std::int64_t head_dim) {
  Vec acc[kWidth];
  SACCADE_UNROLL
  for (int i = 0; i < kWidth; ++i) acc[i] = zero();
  // Key after key, each from end to end: memory delivers interleaved rows at half the rate (Zen 4).
  const std::int64_t whole = head_dim / (Arithmetic::kPairs ? 2 : 1) / kWidth * kWidth;
  const bool has_tail = whole < steps_of<Arithmetic>(head_dim);
  SACCADE_UNROLL
  for (int t = 0; t < kDecodeKeys; ++t) {
    const auto step = [&](std::int64_t at, Vec key) __attribute__((always_inline)) {
      SACCADE_UNROLL
      for (int r = 0; r < kDecodeRows; ++r) {
        Vec& sum = acc[r * kDecodeKeys + t];
        sum = multiply_add<Arithmetic>(load(queries + r * stride + at), key, sum);
      }
    };
    if constexpr (kVectors > 0) {
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; ++c) step(c * kWidth, loadu_steps<Arithmetic>(keys[t], c * kWidth));
      continue;
    }
    for (std::int64_t at = 0; at < whole; at += kWidth) step(at, loadu_steps<Arithmetic>(keys[t], at));
    if (has_tail) step(whole, load_steps<Arithmetic>(keys[t], whole, head_dim));
  }
  return reduce_add_each(acc);
}

/// scores[kDecodeRows][kGranule], rows kDecodePiece apart, for the keys of a granule.
template <class Arithmetic, int kVectors, class T>
SACCADE_INLINE void decode_granule(const Scalar* queries, std::int64_t stride, const T* const* keys,
                                   std::int64_t head_dim, Scalar* scores) {
  for (int j = 0; j < kGranule; j += kDecodeKeys) {
    alignas(64) Scalar products[kWidth];
    store(products, decode_products<Arithmetic, kVectors>(queries, stride, keys + j, head_dim));
    SACCADE_UNROLL
    for (int r = 0; r < kDecodeRows; ++r)
      std::memcpy(scores + r * kDecodePiece + j, products + r * kDecodeKeys, kDecodeKeys * sizeof(Scalar));
  }
}

/// The same as a function of its own, whose registers suffice for bf16 pairs: 0.74 of the bandwidth instead of
/// 0.61 (for f32 it is the reverse, 0.77 instead of 0.87; Zen 4).
template <class Arithmetic, int kVectors, class T>
__attribute__((noinline)) void decode_granule_apart(const Scalar* queries, std::int64_t stride,
                                                    const T* const* keys, std::int64_t head_dim, Scalar* scores) {
  decode_granule<Arithmetic, kVectors>(queries, stride, keys, head_dim, scores);
}

/// Keys of one visit to the accumulated output, and the rows and vectors of it that are in registers: values in
/// the arithmetic's own type are loaded by every row's instruction, others are converted once for more rows.
template <class Arithmetic, class T>
struct ValueStep {
  static constexpr bool kConverts = !Arithmetic::kPairs && !std::is_same_v<T, Scalar>;
  static constexpr int kKeys = Arithmetic::kPairs || kConverts ? 32 : 4;
  static constexpr int kUnrolled = kKeys == 4 ? 4 : 0;
  static constexpr int kRows = kRegisters == 32 ? (kConverts ? 4 : 2) : (kConverts ? 2 : 1);
  static constexpr int kVectors = kRegisters == 32 ? (kConverts ? 4 : 8) : (kConverts ? 4 : 8);
};

/// Accumulated output of decode: [chunk of kValueChunk columns][kDecodeMostRows][kValueChunk]. A constant stride
/// lets the rows of a step be displacements of one pointer.
inline constexpr int kValueChunk = 8 * kWidth;

inline std::int64_t value_chunks(const AttentionParams& p) {
  return (p.head_dim_v + kValueChunk - 1) / kValueChunk;
}
inline std::int64_t chunk_offset(std::int64_t row, std::int64_t column) {
  return (column / kValueChunk * kDecodeMostRows + row) * kValueChunk + column % kValueChunk;
}

/// o[kRows][kVectors vectors] += p v over `count` keys (kCount, where it is not 0): p kDecodePiece apart, v[key]
/// their rows, of which the first `columns` numbers are read. Of pairs, o's columns stand as interleave_low and
/// -high leave them.
template <class Arithmetic, class T, int kCount, bool kTail>
__attribute__((noinline)) void decode_values(const Scalar* p, const T* const* v, int count, std::int64_t column,
                                             int columns, Scalar* o) {
  constexpr int kRows = ValueStep<Arithmetic, T>::kRows, kVectors = ValueStep<Arithmetic, T>::kVectors;
  Vec acc[kRows][kVectors];
  SACCADE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) acc[r][c] = load(o + r * kValueChunk + c * kWidth);
  }
  const auto add = [&](int j) __attribute__((always_inline)) {
    Vec weight[kRows];
    SACCADE_UNROLL
    for (int r = 0; r < kRows; ++r)
      weight[r] = broadcast_from(p + r * kDecodePiece + j / (Arithmetic::kPairs ? 2 : 1));
    if constexpr (Arithmetic::kPairs) {
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; c += 2) {
        const std::int64_t at = column + c * kWidth;
        const int n = kTail ? std::clamp(columns - c * kWidth, 0, 2 * kWidth) : 2 * kWidth;
        const Vec even =
            kTail ? load_first_pairs(v[j] + at, n) : loadu(reinterpret_cast<const Scalar*>(v[j] + at));
        const Vec odd =
            kTail ? load_first_pairs(v[j + 1] + at, n) : loadu(reinterpret_cast<const Scalar*>(v[j + 1] + at));
        const Vec low = interleave_low(even, odd), high = interleave_high(even, odd);
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          acc[r][c] = multiply_add<Arithmetic>(weight[r], low, acc[r][c]);
          acc[r][c + 1] = multiply_add<Arithmetic>(weight[r], high, acc[r][c + 1]);
        }
      }
    } else {
      SACCADE_UNROLL
      for (int c = 0; c < kVectors; ++c) {
        const T* from = v[j] + column + c * kWidth;
        const Vec value = kTail ? load_first(from, std::clamp(columns - c * kWidth, 0, kWidth)) : loadu(from);
        SACCADE_UNROLL
        for (int r = 0; r < kRows; ++r) acc[r][c] = fma(weight[r], value, acc[r][c]);
      }
    }
  };
  constexpr int kStep = Arithmetic::kPairs ? 2 : 1;
  if constexpr (kCount > 0) {
    SACCADE_UNROLL
    for (int j = 0; j < kCount; j += kStep) add(j);
  } else {
    for (int j = 0; j < count; j += kStep) add(j);
  }
  SACCADE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    SACCADE_UNROLL
    for (int c = 0; c < kVectors; ++c) store(o + r * kValueChunk + c * kWidth, acc[r][c]);
  }
}

// ---- One piece -----------------------------------------------------------------------------------------------

/// Numbers of a row of accumulated output.
inline std::int64_t decode_output_stride(const AttentionParams& p) { return value_chunks(p) * kValueChunk; }

/// What a piece leaves of a row: o, and behind it m and l, padded to a cache line.
inline std::int64_t decode_state_size(const AttentionParams& p) {
  return decode_output_stride(p) + 64 / sizeof(Scalar);
}

template <class Arithmetic>
class DecodeScratch {
 public:
  static std::int64_t size(const AttentionParams& p) {
    return kDecodeMostRows * (query_stride(p) + 2 * kDecodePiece + decode_output_stride(p)) + kBlockK;
  }
  DecodeScratch(const AttentionParams& p, Scalar* memory) {
    const auto take = [&memory](std::int64_t n) { return std::exchange(memory, memory + n); };
    queries = take(kDecodeMostRows * query_stride(p));
    scores = take(kDecodeMostRows * kDecodePiece);
    probabilities = take(kDecodeMostRows * kDecodePiece);
    o = take(kDecodeMostRows * decode_output_stride(p));
    mask = take(kBlockK);
  }
  static std::int64_t query_stride(const AttentionParams& p) {
    return round_up(steps_of<Arithmetic>(p.head_dim), kWidth);
  }

  Scalar* queries;        // [rows][query_stride]
  Scalar* scores;         // [rows][kDecodePiece]
  Scalar* probabilities;  // the same, for the careful path
  Scalar* o;              // [rows][decode_output_stride]
  Scalar* mask;           // [kBlockK]
};

/// `kCareful` keeps the values of hidden keys out of every product.
template <class Arithmetic, class K, class V, bool kCareful>
class DecodePiece {
 public:
  DecodePiece(const AttentionParams& params, const DecodeRows& rows, std::int64_t piece, Scalar* memory)
      : p_(params),
        rows_(rows),
        count_(static_cast<int>(rows.count)),
        padded_(static_cast<int>(round_up(rows.count, kDecodeRows < 4 ? 4 : kDecodeRows))),
        visibility_(params, rows.batch),
        begin_(piece * kDecodePiece),
        readable_(params.readable_keys(rows.batch)),
        dropout_(params),
        unit_(score_unit(params, Arithmetic::kPairs)),
        scratch_(params, memory) {}

  /// Leaves the state of each row in `states`.
  void run(Scalar* states) {
    pack_rows();
    const std::int64_t end = std::min(begin_ + kDecodePiece, p_.seqlen_k);
    for (int r = 0; r < count_ && p_.saves_scores(); ++r) finisher(r).clear_saved(token(r), begin_, end);
    for (std::int64_t key = begin_; key < begin_ + kDecodePiece; key += kBlockK) score_block(key);
    for (int r = 0; r < count_; ++r) soften(r, states + r * decode_state_size(p_));
    std::fill_n(scratch_.o, kDecodeMostRows * decode_output_stride(p_), Scalar{0});
    for (std::int64_t key = begin_; key < begin_ + kDecodePiece; key += kBlockK) add_values(key);
    for (int r = 0; r < count_; ++r) keep_output(r, states + r * decode_state_size(p_));
  }

 private:
  // Row r of the unit is token (first + r) % rows of query head (first + r) / rows of the group.
  std::int64_t head(int r) const {
    return rows_.kv_head * (p_.num_heads / p_.num_kv_heads) + (rows_.first + r) / p_.rows(rows_.batch);
  }
  std::int64_t token(int r) const { return (rows_.first + r) % p_.rows(rows_.batch); }
  Scalar* scores(int r) const { return scratch_.scores + r * kDecodePiece; }
  Scalar* probabilities(int r) const { return kCareful ? scratch_.probabilities + r * kDecodePiece : scores(r); }

  void pack_rows() {
    const std::int64_t stride = scratch_.query_stride(p_);
    std::fill_n(scratch_.queries, padded_ * stride, Scalar{0});
    with_storage(p_.q.dtype, [&](auto type) {
      using T = decltype(type);
      if constexpr (!Arithmetic::kPairs || std::is_same_v<T, bfloat16>) {
        for (int r = 0; r < count_; ++r)
          pack_query<Arithmetic>(p_.row_of<T>(p_.q, rows_.batch, head(r), token(r)), p_.head_dim,
                                 unit_.query_factor, scratch_.queries + r * stride);
      }
    });
  }

  /// Pointers to the rows of the block at `key`; those that must not be read point to one that may.
  template <class T>
  void find_rows(const KeyRows<T>& all, std::int64_t key, const T* (&rows)[kBlockK]) const {
    const std::int64_t begin = std::max(readable_.begin, key);
    const std::int64_t end = std::min<std::int64_t>(readable_.end, key + kBlockK);
    const T* const first = all[begin];
    for (std::int64_t j = key; j < begin; ++j) rows[j - key] = first;
    for (std::int64_t j = begin; j < end;) {
      const T* row = all[j];
      for (const std::int64_t stop = std::min(end, j + all.run(j)); j < stop; ++j, row += all.row_stride)
        rows[j - key] = row;
    }
    for (std::int64_t j = end; j < key + kBlockK; ++j) rows[j - key] = first;
  }

  bool is_outside(std::int64_t key) const { return key >= readable_.end || key + kBlockK <= readable_.begin; }

  /// The finished scores of all rows for the block at `key`; -inf where nothing was computed.
  void score_block(std::int64_t key) {
    const std::int64_t column = key - begin_;
    Granules granules[kDecodeMostRows];
    // Most blocks of most calls: what is there to decide would take a tenth of the time of bf16 keys (Zen 4).
    const bool takes_all =
        ScoreFinisher(p_, visibility_, rows_.batch, head(0), false).takes_all(0, p_.rows(rows_.batch), key);
    unsigned wanted = takes_all ? (1u << kGranules) - 1u : 0u;  // granules, of any row
    for (int r = 0; r < count_ && !takes_all && !is_outside(key); ++r) {
      granules[r] = finisher(r).plan(token(r), 1, key, scratch_.mask);
      wanted |= granules[r].set();
    }
    wanted_[column / kBlockK] = wanted;
    if (wanted == 0) {
      for (int r = 0; r < count_; ++r) std::fill_n(scores(r) + column, kBlockK, -kInfinity);
      return;
    }
    const K* rows[kBlockK];
    find_rows(p_.key_rows<K>(p_.k, rows_.batch, rows_.kv_head), key, rows);
    for (int g = 0; g < kGranules; ++g)
      if (wanted >> g & 1u) multiply(rows, g * kGranule, column);
    for (int r = 0; r < count_ && !takes_all; ++r) finish(r, key, granules[r]);
  }

  void multiply(const K* const (&rows)[kBlockK], int granule, std::int64_t column) {
    constexpr int kElements = Arithmetic::kPairs ? 2 : 1;
    if (p_.head_dim == 128 && 128 / kElements / kWidth <= 8)
      multiply_of<128 / kElements / kWidth>(rows, granule, column);
    else if (p_.head_dim == 64 && 64 / kElements / kWidth <= 8)
      multiply_of<64 / kElements / kWidth>(rows, granule, column);
    else
      multiply_of<0>(rows, granule, column);
  }

  template <int kVectors>
  void multiply_of(const K* const (&rows)[kBlockK], int granule, std::int64_t column) {
    const std::int64_t stride = scratch_.query_stride(p_);
    for (int r = 0; r < count_; r += kDecodeRows) {
      const Scalar* const queries = scratch_.queries + r * stride;
      Scalar* const out = scores(r) + column + granule;
      if constexpr (Arithmetic::kPairs)
        decode_granule_apart<Arithmetic, kVectors>(queries, stride, rows + granule, p_.head_dim, out);
      else
        decode_granule<Arithmetic, kVectors>(queries, stride, rows + granule, p_.head_dim, out);
    }
  }

  ScoreFinisher finisher(int r) const {
    return ScoreFinisher(p_, visibility_, rows_.batch, head(r), Arithmetic::kPairs);
  }

  void finish(int r, std::int64_t key, const Granules& granules) {
    Scalar* const line = scores(r) + (key - begin_);
    const unsigned computed = granules.set();
    for (int g = 0; g < kGranules; ++g)
      if ((computed >> g & 1u) == 0) std::fill_n(line + g * kGranule, kGranule, -kInfinity);
    if (granules.partial == 0) return;
    alignas(64) Scalar row_max[kTileRows * kWidth] = {};
    if (p_.mask.type != MaskType::none) finisher(r).plan(token(r), 1, key, scratch_.mask);
    finisher(r).finish(token(r), 1, key, granules, scratch_.mask, line, row_max);
  }

  /// Scores become weights in relation to the piece's maximum.
  void soften(int r, Scalar* state) {
    const Scalar* line = scores(r);
    Scalar* p = probabilities(r);
    Vec largest = broadcast(kNoMaximum);
    for (int j = 0; j < kDecodePiece; j += kWidth) largest = max(largest, load(line + j));
    const Scalar m = reduce_max(largest);
    Vec sum[2] = {zero(), zero()};
    for (int j = 0; j < kDecodePiece; j += 2 * kWidth) {
      Vec weight[2];
      SACCADE_UNROLL
      for (int i = 0; i < 2; ++i) {
        Vec x = canonical_nan(sub(load(line + j + i * kWidth), broadcast(m)));
        if constexpr (Arithmetic::kScaledExp) x = mul(x, broadcast(unit_.exp_factor));
        weight[i] = exp2(x);
        sum[i] = add(sum[i], weight[i]);
      }
      if constexpr (Arithmetic::kPairs) {
        store(p + j / 2, round_to_pairs(weight[0], weight[1]));
      } else {
        store(p + j, weight[0]);
        store(p + j + kWidth, weight[1]);
      }
    }
    state[decode_output_stride(p_)] = m;
    state[decode_output_stride(p_) + 1] = reduce_add(add(sum[0], sum[1]));
    if (p_.dropout_p > 0.0) drop(r);
  }

  void drop(int r) {
    const auto batch_head = static_cast<std::uint32_t>(rows_.batch * p_.num_heads + head(r));
    const auto row = static_cast<std::uint32_t>(token(r));
    if constexpr (Arithmetic::kPairs)
      dropout_.apply(reinterpret_cast<bfloat16*>(probabilities(r)), 0, kDecodePiece, batch_head, row, begin_);
    else
      dropout_.apply(probabilities(r), 0, kDecodePiece, batch_head, row, begin_);
  }

  void add_values(std::int64_t key) {
    const std::int64_t column = key - begin_;
    const unsigned wanted = wanted_[column / kBlockK];
    if (wanted == 0) return;
    const V* rows[kBlockK];
    find_rows(p_.key_rows<V>(p_.v, rows_.batch, rows_.kv_head), key, rows);
    const int first = static_cast<int>(std::clamp<std::int64_t>(readable_.begin - key, 0, kBlockK));
    const int last = static_cast<int>(std::clamp<std::int64_t>(readable_.end - key, 0, kBlockK));
    for (int g = 0; g < kGranules; ++g) {
      const int begin = std::max(first, g * kGranule), end = std::min(last, (g + 1) * kGranule);
      if ((wanted >> g & 1u) == 0 || begin >= end) continue;
      if constexpr (kCareful)
        add_visible(rows, column, begin, end);
      else
        add_all(rows, column, begin, end);
    }
  }

  void add_all(const V* const (&rows)[kBlockK], std::int64_t column, int begin, int end) {
    using Step = ValueStep<Arithmetic, V>;
    constexpr int kColumns = Step::kVectors * kWidth;
    constexpr int kKeysOfAStep = Arithmetic::kPairs ? 2 : 1;
    for (int from = begin / kKeysOfAStep * kKeysOfAStep; from < end; from += Step::kKeys) {
      const int count = std::min(end - from, Step::kKeys);
      for (std::int64_t c = 0; c < p_.head_dim_v; c += kColumns) {
        const int columns = static_cast<int>(std::min<std::int64_t>(kColumns, p_.head_dim_v - c));
        for (int r = 0; r < count_; r += Step::kRows) {
          const Scalar* p = probabilities(r) + (column + from) / kKeysOfAStep;
          Scalar* o = scratch_.o + chunk_offset(r, c);
          if (columns < kColumns)
            decode_values<Arithmetic, V, 0, true>(p, rows + from, count, c, columns, o);
          else if (count == Step::kUnrolled)
            decode_values<Arithmetic, V, Step::kUnrolled, false>(p, rows + from, count, c, columns, o);
          else
            decode_values<Arithmetic, V, 0, false>(p, rows + from, count, c, columns, o);
        }
      }
    }
  }

  /// The same with the values of keys whose score is -inf left out, which changes no bit: they would add 0.
  void add_visible(const V* const (&rows)[kBlockK], std::int64_t column, int begin, int end) {
    for (int r = 0; r < count_; ++r) {
      const Scalar* line = scores(r) + column;
      for (int j = begin; j < end; ++j) {
        if (line[j] == -kInfinity) continue;
        if constexpr (Arithmetic::kPairs)
          add_pair(r, rows, line, probabilities(r) + column / 2, j);
        else
          add_row(r, rows[j], probabilities(r) + column + j);
      }
    }
  }

  void add_row(int r, const V* row, const Scalar* weight) {
    for (std::int64_t d = 0; d < p_.head_dim_v; d += kWidth) {
      const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim_v - d));
      Scalar* const o = scratch_.o + chunk_offset(r, d);
      store(o, fma_broadcast(weight, load_first(row + d, n), load(o)));
    }
  }

  /// Key j together with its neighbour, once.
  void add_pair(int r, const V* const (&rows)[kBlockK], const Scalar* line, const Scalar* weights, int j) {
    const int first = j / 2 * 2;
    if (j != first && line[first] != -kInfinity) return;
    const bool even = line[first] != -kInfinity, odd = line[first + 1] != -kInfinity;
    for (std::int64_t d = 0; d < p_.head_dim_v; d += 2 * kWidth) {
      Scalar* const o = scratch_.o + chunk_offset(r, d);
      const int n = static_cast<int>(std::min<std::int64_t>(2 * kWidth, p_.head_dim_v - d));
      const Vec x = even ? load_first_pairs(rows[first] + d, n) : zero();
      const Vec y = odd ? load_first_pairs(rows[first + 1] + d, n) : zero();
      store(o, multiply_add<Arithmetic>(weights + first / 2, interleave_low(x, y), load(o)));
      store(o + kWidth, multiply_add<Arithmetic>(weights + first / 2, interleave_high(x, y), load(o + kWidth)));
    }
  }

  void keep_output(int r, Scalar* state) {
    for (std::int64_t d = 0; d < decode_output_stride(p_); d += 2 * kWidth) {
      const Scalar* const o = scratch_.o + chunk_offset(r, d);
      Vec low = load(o), high = load(o + kWidth);
      if constexpr (Arithmetic::kPairs) order_columns(low, high);
      store(state + d, low);
      store(state + d + kWidth, high);
    }
  }

  const AttentionParams& p_;
  DecodeRows rows_;
  int count_, padded_;
  Visibility visibility_;
  std::int64_t begin_;  // the piece's first key
  KeyRange readable_;
  Dropout dropout_;
  ScoreUnit unit_;
  DecodeScratch<Arithmetic> scratch_;
  unsigned wanted_[kDecodePiece / kBlockK] = {};  // granules of each block
};

/// Attention of the rows over one piece: their states go to `states`.
inline void decode_piece(const AttentionParams& p, const DecodeRows& rows, std::int64_t piece, bool careful,
                         void* states, void* scratch) {
  with_arithmetic(p, [&]<class Arithmetic>(Arithmetic) {
    with_storage(p.k.dtype, [&]<class K>(K) {
      with_storage(p.v.dtype, [&]<class V>(V) {
        constexpr bool kAllBfloat = std::is_same_v<K, bfloat16> && std::is_same_v<V, bfloat16>;
        if constexpr (!Arithmetic::kPairs || kAllBfloat) {
          Scalar* const memory = static_cast<Scalar*>(scratch);
          Scalar* const out = static_cast<Scalar*>(states);
          if (careful)
            DecodePiece<Arithmetic, K, V, true>(p, rows, piece, memory).run(out);
          else
            DecodePiece<Arithmetic, K, V, false>(p, rows, piece, memory).run(out);
        }
      });
    });
  });
}

// ---- All pieces ----------------------------------------------------------------------------------------------

/// Puts the states of `pieces` pieces together in ascending order and writes the rows' results. Returns whether
/// all of o is finite.
inline bool merge_pieces(const AttentionParams& p, const DecodeRows& rows, const void* states, std::int64_t first,
                         std::int64_t pieces, void* scratch) {
  const bool pairs = with_arithmetic(p, [](auto arithmetic) { return decltype(arithmetic)::kPairs; });
  const ScoreUnit unit = score_unit(p, pairs);
  const std::int64_t size = decode_state_size(p), columns = decode_output_stride(p);
  Scalar* const o = static_cast<Scalar*>(scratch);
  const Visibility visibility(p, rows.batch);
  const Dropout dropout(p);
  bool finite = true;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    Scalar m = kNoMaximum, l = 0;
    std::fill_n(o, columns, Scalar{0});
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const Scalar* state = static_cast<const Scalar*>(states) + (piece * rows.count + r) * size;
      const Scalar top = std::max(m, state[columns]);
      alignas(64) Scalar factors[kWidth == 1 ? 2 : kWidth] = {m - top, state[columns] - top};
      for (int i = 0; i < 2; i += kWidth)
        store(factors + i, exp2(mul(load(factors + i), broadcast(unit.exp_factor))));
      l = l * factors[0] + state[columns + 1] * factors[1];
      const Vec before = broadcast(factors[0]), here = broadcast(factors[1]);
      for (std::int64_t d = 0; d < columns; d += kWidth)
        store(o + d, fma(here, load(state + d), mul(before, load(o + d))));
      m = top;
    }
    const std::int64_t row = rows.first + r;
    const std::int64_t head = rows.kv_head * (p.num_heads / p.num_kv_heads) + row / p.rows(rows.batch);
    const ScoreFinisher finisher(p, visibility, rows.batch, head, pairs);
    finisher.clear_saved(row % p.rows(rows.batch), 0, std::min(first * kDecodePiece, p.seqlen_k));
    const std::int64_t end = std::min((first + pieces) * kDecodePiece, p.seqlen_k);
    finisher.clear_saved(row % p.rows(rows.batch), end, p.seqlen_k);
    alignas(64) const Scalar sum[kTileRowsPadded] = {l};
    finite &= end_rows(p, finisher, dropout,
                       {.batch = rows.batch,
                        .head = head,
                        .row = row % p.rows(rows.batch),
                        .count = 1,
                        .m = &m,
                        .l = sum,
                        .natural = unit.natural,
                        .o = o}) == 0;
  }
  return finite;
}

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
