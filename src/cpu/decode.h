// Attention of few query rows over many keys, which are read once and not packed. The rows of all query heads that
// share a kv head process one piece of kDecodePiece keys at a time together:
//
//   for each key                    S = Q K^T     lanes along head_dim
//   for each block of 256 keys      softcap, biases, masks
//   m, P = exp(S - m), l            of the piece
//   for each few keys               O += P V      lanes along head_dim_v
//
// and write (O, m, l), which merge_pieces() merges in ascending order.
#pragma once

#include "cpu/decode_products.h"
#include "cpu/output.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

// ---- One piece -----------------------------------------------------------------------------------------------

/// Size of a row of accumulated output, in numbers.
inline std::int64_t decode_output_stride(const AttentionParams& p) { return value_chunks(p) * kValueChunk; }

/// Size of a row's state after a piece: o, followed by m and l, padded to a cache line.
inline std::int64_t decode_state_size(const AttentionParams& p) {
  return decode_output_stride(p) + 64 / sizeof(Scalar);
}

/// Scratch memory for one kv head.
class DecodeScratch {
 public:
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return padded(rows) * (query_stride(p) + 2 * kDecodePiece) + kDecodeMostRows * decode_output_stride(p) +
           kBlockK;
  }
  DecodeScratch(const AttentionParams& p, std::int64_t rows, Scalar* memory) {
    const auto take = [&memory](std::int64_t n) { return std::exchange(memory, memory + n); };
    queries = take(padded(rows) * query_stride(p));
    scores = take(padded(rows) * kDecodePiece);
    probabilities = take(padded(rows) * kDecodePiece);
    o = take(kDecodeMostRows * decode_output_stride(p));
    mask = take(kBlockK);
  }
  /// Rows padded as both products need it: they process at most four at a time.
  static std::int64_t padded(std::int64_t rows) { return round_up(rows, 4); }
  static std::int64_t query_stride(const AttentionParams& p) { return round_up(steps_of(p.head_dim), kWidth); }

  Scalar* queries;        // [rows][query_stride]
  Scalar* scores;         // [rows][kDecodePiece]
  Scalar* probabilities;  // the same, for the careful path
  Scalar* o;              // in the order of chunk_offset()
  Scalar* mask;           // [kBlockK]
};

/// The rows of one kv head over one piece of its keys: start(), score(), soften(), add_values(), keep_output().
/// `careful` keeps the values of hidden keys out of every product.
class DecodeHead {
 public:
  DecodeHead(const AttentionParams& params, const DecodeRows& rows, std::int64_t kv_head, std::int64_t begin,
             bool careful, Scalar* memory, Scalar* states)
      : p_(params),
        rows_(rows),
        kv_head_(kv_head),
        count_(static_cast<int>(rows.count)),
        careful_(careful),
        visibility_(params, rows.batch),
        begin_(begin),
        readable_(readable_keys(params, rows.batch)),
        dropout_(params),
        unit_(score_unit(params)),
        scratch_(params, rows.count, memory),
        states_(states) {}

  /// Packs the queries and decides what has to be computed.
  void start() {
    const std::int64_t stride = DecodeScratch::query_stride(p_);
    std::fill_n(scratch_.queries, DecodeScratch::padded(count_) * stride, Scalar{0});
    with_input(p_.q.dtype, [&]<class T>(T) {
      for (int r = 0; r < count_; ++r)
        pack_query(p_.row_of<T>(p_.q, rows_.batch, head(r), token(r)), p_.head_dim, unit_.query_factor,
                   scratch_.queries + r * stride);
    });
    const std::int64_t end = std::min(begin_ + kDecodePiece, p_.seqlen_k);
    for (int r = 0; r < count_ && p_.saves_scores(); ++r) finisher(r).clear_saved(token(r), begin_, end);
    plan();
  }

  /// Computes the wanted products of keys [key, key + count), multiples of kDecodeKeys.
  void score(std::int64_t key, std::int64_t count) {
    with_input(p_.k.dtype, [&]<class K>(K) {
      for_each_run(p_.key_rows<K>(p_.k, rows_.batch, kv_head_), key, key + count, kDecodeKeys,
                   [&](const auto& rows, std::int64_t from, std::int64_t to) { multiply(rows, from, to); });
    });
  }

  /// Turns the products into scores, and these into weights relative to the piece's maximum.
  void soften() {
    finish();
    with_scaling(unit_.exp_factor, [&](auto scaled) {
      for (int r = 0; r < count_; ++r) soften<decltype(scaled)::value>(r);
    });
    std::fill_n(scratch_.o, kDecodeMostRows * decode_output_stride(p_), Scalar{0});
  }

  /// Adds the values of keys [key, key + count), weighted.
  void add_values(std::int64_t key, std::int64_t count) {
    const std::int64_t begin = std::max(key, readable_.begin / kStepNumbers * kStepNumbers);
    const std::int64_t end = std::min(key + count, round_up(readable_.end, kStepNumbers));
    with_input(p_.v.dtype, [&]<class V>(V) {
      for_each_run(p_.key_rows<V>(p_.v, rows_.batch, kv_head_), begin, end, kStepNumbers,
                   [&](const auto& rows, std::int64_t from, std::int64_t to) {
                     const std::int64_t column = from - begin_;
                     if (careful_)
                       add_visible(rows, column, static_cast<int>(to - from));
                     else
                       decode_values<V>(probabilities(0) + column / kStepNumbers, rows,
                                        static_cast<int>(to - from), count_, p_.head_dim_v, scratch_.o);
                   });
    });
  }

  /// Writes o, m and l of each row.
  void keep_output() {
    for (int r = 0; r < count_; ++r) {
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
  // Row r of the unit is token (first + r) % rows of query head (first + r) / rows of the group.
  std::int64_t head(int r) const {
    return kv_head_ * (p_.num_heads / p_.num_kv_heads) + (rows_.first + r) / p_.rows(rows_.batch);
  }
  std::int64_t token(int r) const { return (rows_.first + r) % p_.rows(rows_.batch); }
  Scalar* scores(int r) const { return scratch_.scores + r * kDecodePiece; }
  Scalar* probabilities(int r) const { return careful_ ? scratch_.probabilities + r * kDecodePiece : scores(r); }
  Scalar* state(int r) const { return states_ + r * decode_state_size(p_); }
  ScoreFinisher finisher(int r) const { return ScoreFinisher(p_, visibility_, rows_.batch, head(r)); }

  static constexpr int kBlocks = kDecodePiece / kBlockK;

  /// Whether nothing is hidden or changed in the block at `key`, as in most blocks of most calls. The full
  /// decision would take a tenth of the time with bf16 keys (Zen 4).
  bool takes_all(std::int64_t key) const { return finisher(0).takes_all(0, p_.rows(rows_.batch), key); }

  /// Decides what has to be computed.
  void plan() {
    for (int block = 0; block < kBlocks; ++block) {
      const std::int64_t key = begin_ + block * kBlockK;
      if (takes_all(key)) {
        wanted_[block] = (1u << kGranules) - 1u;
      } else if (key < readable_.end && key + kBlockK > readable_.begin) {
        for (int r = 0; r < count_; ++r) wanted_[block] |= plan(r, key).set();
      }
    }
  }

  Granules plan(int r, std::int64_t key) const { return finisher(r).plan(token(r), 1, key, scratch_.mask); }

  /// Turns the products into scores: -inf where nothing was computed.
  void finish() {
    for (int block = 0; block < kBlocks; ++block) {
      const std::int64_t key = begin_ + block * kBlockK;
      if (!takes_all(key)) {
        for (int r = 0; r < count_; ++r) finish(r, key, wanted_[block] != 0 ? plan(r, key) : Granules{});
      }
    }
  }

  void finish(int r, std::int64_t key, const Granules& granules) {
    Scalar* const line = scores(r) + (key - begin_);
    const unsigned computed = granules.set();
    for (int g = 0; g < kGranules; ++g)
      if ((computed >> g & 1u) == 0) std::fill_n(line + g * kGranule, kGranule, -kInfinity);
    if (granules.partial == 0) return;
    alignas(64) Scalar row_max[kTileRows * kWidth] = {};
    finisher(r).finish(token(r), 1, key, granules, scratch_.mask, line, row_max);
  }

  bool is_wanted(std::int64_t key) const {
    const std::int64_t column = key - begin_;
    return wanted_[column / kBlockK] >> (column % kBlockK / kGranule) & 1u;
  }

  /// Calls f(rows, begin, end) for runs of keys [key, end) of `all` that are in wanted granules, in multiples of
  /// `unit`.
  template <class T, class F>
  void for_each_run(const KeyRows<T>& all, std::int64_t key, std::int64_t end, int unit, const F& f) const {
    while (key < end) {
      std::int64_t to = key;
      while (to < end && is_wanted(to)) to = std::min(end, to - (to - begin_) % kGranule + kGranule);
      for (; key < to;) key = call_with_rows(all, key, to, unit, f);
      key = std::min(end, key - (key - begin_) % kGranule + kGranule);
    }
  }

  /// Calls f for the first keys of [key, end). Returns where they end.
  template <class T, class F>
  std::int64_t call_with_rows(const KeyRows<T>& all, std::int64_t key, std::int64_t end, int unit,
                              const F& f) const {
    const std::int64_t readable = key < readable_.begin ? 0 : std::min(end, readable_.end) - key;
    const std::int64_t strided = std::min(readable, all.run(key)) / unit * unit;
    if (strided > 0) {
      f(StridedRows<T>{all[key], all.row_stride}, key, key + strided);
      return key + strided;
    }
    // The unit spans several pages or has keys that must not be read: any other row may replace those.
    const T* list[kDecodeKeys > 2 ? kDecodeKeys : 2];
    for (int i = 0; i < unit; ++i) list[i] = all[std::clamp(key + i, readable_.begin, readable_.end - 1)];
    f(static_cast<const T* const*>(list), key, key + unit);
    return key + unit;
  }

  template <class Rows>
  void multiply(const Rows& rows, std::int64_t key, std::int64_t end) {
    const auto f = p_.head_dim == 128  ? decode_scores<fixed(128 / kStepNumbers), Rows>
                   : p_.head_dim == 64 ? decode_scores<fixed(64 / kStepNumbers), Rows>
                                       : decode_scores<0, Rows>;
    const std::int64_t stride = DecodeScratch::query_stride(p_);
    int r = 0;
    if constexpr (kWidth > 1 && kDecodeRows == 1) {
      for (; r + 1 < count_; r += 4)
        decode_scores_of_four(scratch_.queries + r * stride, stride, rows, static_cast<int>(end - key),
                              p_.head_dim, scores(r) + (key - begin_));
    }
    for (; r < count_; r += kDecodeRows)
      f(scratch_.queries + r * stride, stride, rows, static_cast<int>(end - key), p_.head_dim,
        scores(r) + (key - begin_));
  }
  /// The vectors of a row where a function for that number is worthwhile, else 0.
  static constexpr int fixed(int steps) { return kWidth > 1 && steps / kWidth <= 8 ? steps / kWidth : 0; }

  template <bool kScaled>
  void soften(int r) {
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
        if constexpr (kScaled) x = mul(x, broadcast(unit_.exp_factor));
        weight[i] = exp2(x);
        sum[i] = add(sum[i], weight[i]);
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
  }

  void drop(int r) {
    const auto batch_head = static_cast<std::uint32_t>(rows_.batch * p_.num_heads + head(r));
    dropout_.apply(reinterpret_cast<Weight*>(probabilities(r)), 0, kDecodePiece, batch_head,
                   static_cast<std::uint32_t>(token(r)), begin_);
  }

  /// decode_values without the values of keys whose score is -inf. This changes no bit: they would add 0.
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

  template <class V>
  void add_row(int r, const V* row, const Scalar* weight) {
    for (std::int64_t d = 0; d < p_.head_dim_v; d += kWidth) {
      const int n = static_cast<int>(std::min<std::int64_t>(kWidth, p_.head_dim_v - d));
      Scalar* const o = scratch_.o + chunk_offset(r, d);
      store(o, fma_broadcast(weight, load_first(row + d, n), load(o)));
    }
  }

  /// Handles key j together with its neighbour, once.
  template <class Rows>
  void add_pair(int r, const Rows& rows, const Scalar* line, const Scalar* weights, int j) {
    const int first = j / 2 * 2;
    if (j != first && line[first] != -kInfinity) return;
    const bool even = line[first] != -kInfinity, odd = line[first + 1] != -kInfinity;
    for (std::int64_t d = 0; d < p_.head_dim_v; d += 2 * kWidth) {
      Scalar* const o = scratch_.o + chunk_offset(r, d);
      const int n = static_cast<int>(std::min<std::int64_t>(2 * kWidth, p_.head_dim_v - d));
      const Vec x = even ? load_first_pairs(rows[first] + d, n) : zero();
      const Vec y = odd ? load_first_pairs(rows[first + 1] + d, n) : zero();
      store(o, multiply_add(weights + first / 2, interleave_low(x, y), load(o)));
      store(o + kWidth, multiply_add(weights + first / 2, interleave_high(x, y), load(o + kWidth)));
    }
  }

  const AttentionParams& p_;
  DecodeRows rows_;
  std::int64_t kv_head_;
  int count_;
  bool careful_;
  Visibility visibility_;
  std::int64_t begin_;  // the piece's first key
  KeyRange readable_;
  Dropout dropout_;
  ScoreUnit unit_;
  DecodeScratch scratch_;
  Scalar* states_;
  unsigned wanted_[kBlocks] = {};  // granules of each block
};

/// Attention of the rows over one piece; writes their states to `states`. Switches to the next head after every
/// rows.turn keys.
inline void decode_piece(const AttentionParams& p, const DecodeRows& rows, std::int64_t piece, bool careful,
                         void* states, void* scratch) {
  const std::int64_t begin = piece * kDecodePiece, end = begin + kDecodePiece;
  std::vector<DecodeHead> heads;
  heads.reserve(static_cast<std::size_t>(rows.kv_heads));
  for (std::int64_t h = 0; h < rows.kv_heads; ++h)
    heads.emplace_back(p, rows, rows.kv_head + h, begin, careful,
                       static_cast<Scalar*>(scratch) + h * DecodeScratch::size(p, rows.count),
                       static_cast<Scalar*>(states) + h * rows.count * decode_state_size(p));
  const auto take_turns = [&](const auto& f) {
    for (std::int64_t key = begin; key < end; key += rows.turn)
      for (DecodeHead& head : heads) f(head, key, std::min(rows.turn, end - key));
  };
  for (DecodeHead& head : heads) head.start();
  take_turns([](DecodeHead& head, std::int64_t key, std::int64_t count) { head.score(key, count); });
  for (DecodeHead& head : heads) head.soften();
  take_turns([](DecodeHead& head, std::int64_t key, std::int64_t count) { head.add_values(key, count); });
  for (DecodeHead& head : heads) head.keep_output();
}

// ---- All pieces ----------------------------------------------------------------------------------------------

/// Merges the states of `pieces` pieces in ascending order and writes the rows' results. Returns whether all of o
/// is finite.
inline bool merge_pieces(const AttentionParams& p, const DecodeRows& rows, const void* states, std::int64_t first,
                         std::int64_t pieces, void* scratch) {
  const ScoreUnit unit = score_unit(p);
  const std::int64_t size = decode_state_size(p), columns = decode_output_stride(p);
  Scalar* const o = static_cast<Scalar*>(scratch);
  const Visibility visibility(p, rows.batch);
  const Dropout dropout(p);
  bool finite = true;
  for (std::int64_t i = 0; i < rows.kv_heads * rows.count; ++i) {
    Scalar m = kNoMaximum, l = 0;
    std::fill_n(o, columns, Scalar{0});
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const Scalar* state = static_cast<const Scalar*>(states) + (piece * rows.kv_heads * rows.count + i) * size;
      const Scalar top = std::max(m, state[columns]);
      alignas(64) Scalar factors[kWidth == 1 ? 2 : kWidth] = {m - top, state[columns] - top};
      for (int f = 0; f < 2; f += kWidth)
        store(factors + f, exp2(mul(load(factors + f), broadcast(unit.exp_factor))));
      l = l * factors[0] + state[columns + 1] * factors[1];
      const Vec before = broadcast(factors[0]), here = broadcast(factors[1]);
      for (std::int64_t d = 0; d < columns; d += kWidth)
        store(o + d, fma(here, load(state + d), mul(before, load(o + d))));
      m = top;
    }
    const std::int64_t kv_head = rows.kv_head + i / rows.count, row = rows.first + i % rows.count;
    const std::int64_t head = kv_head * (p.num_heads / p.num_kv_heads) + row / p.rows(rows.batch);
    const ScoreFinisher finisher(p, visibility, rows.batch, head);
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
