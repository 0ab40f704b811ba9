// What decode() does with either kind of products, vectors (decode.h) or AMX tiles (amx/decode.h): which scores of
// a split of keys are computed, how they change, and how the splits are merged.
#pragma once

#include "cpu/attention/output.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// The registers of heads whose products hold none between calls: the compiler saves all of them.
struct NoRegisters {
  void configure() {}
};

/// The sum of 32 numbers, added in the same order for every vector width.
inline Scalar sum_of_32(const Vec (&numbers)[32 / kWidth]) {
  alignas(64) Scalar all[32];
  for (int i = 0; i < 32 / kWidth; ++i) store(all + i * kWidth, numbers[i]);
  for (int n = 16; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) all[i] += all[n + i];
  return all[0];
}

// ---- One split -----------------------------------------------------------------------------------------------

/// Size of a row of accumulated output, in numbers.
inline std::int64_t decode_output_stride(const AttentionParams& p) { return round_up(p.head_dim_v, kValueChunk); }

/// Size of a row's state after a split: o, followed by m and l, padded to a cache line.
inline std::int64_t decode_state_size(const AttentionParams& p) {
  return decode_output_stride(p) + 64 / sizeof(Scalar);
}

/// The scores of the rows of one kv head over one split of its keys. `Scratch` has the memory of the scores, rows
/// kScoreStride apart, and of a mask: see DecodeScratch.
template <class Scratch>
class DecodeScores {
 public:
  DecodeScores(const AttentionParams& params, const DecodeRows& rows, std::int64_t kv_head, std::int64_t begin,
               bool masked_safe, Scalar* memory, Scalar* states)
      : p_(params),
        rows_(rows),
        kv_head_(kv_head),
        count_(static_cast<int>(rows.count)),
        masked_safe_(masked_safe),
        visibility_(params, rows.batch),
        begin_(begin),
        readable_(readable_keys(params, rows.batch)),
        dropout_(params),
        unit_(score_unit<kDecodeBlock>(params)),
        scratch_(params, rows.count, memory),
        states_(states) {}

 protected:
  // Row r of the unit is token (first + r) % rows of query head (first + r) / rows of the group.
  std::int64_t head(int r) const {
    return kv_head_ * (p_.num_heads / p_.num_kv_heads) + (rows_.first + r) / p_.rows(rows_.batch);
  }
  std::int64_t token(int r) const { return (rows_.first + r) % p_.rows(rows_.batch); }
  Scalar* scores(int r) const { return scratch_.scores + r * Scratch::kScoreStride; }
  Scalar* state(int r) const { return states_ + r * decode_state_size(p_); }

  template <class T>
  const T* query(int r) const {
    return p_.template row_of<T>(p_.q, rows_.batch, head(r), token(r));
  }

  /// Decides which subtiles to compute.
  void plan() {
    const std::int64_t end = std::min(begin_ + kDecodeSplit, p_.seqlen_k);
    for (int r = 0; r < count_ && p_.saves_scores(); ++r) finisher(r).clear_saved(token(r), begin_, end);
    for (int block = 0; block < kBlocks; ++block) {
      const std::int64_t key = begin_ + block * kDecodeBlock;
      if (takes_all(key)) {
        wanted_[block] = (1u << kBlockSubtiles) - 1u;
      } else if (key < readable_.end && key + kDecodeBlock > readable_.begin) {
        for (int r = 0; r < count_; ++r) wanted_[block] |= plan(r, key).set();
      }
    }
  }

  /// Turns the products into scores: -inf where nothing was computed.
  void finish() {
    for (int block = 0; block < kBlocks; ++block) {
      const std::int64_t key = begin_ + block * kDecodeBlock;
      if (!takes_all(key)) {
        for (int r = 0; r < count_; ++r) finish(r, key, wanted_[block] != 0 ? plan(r, key) : Planned{});
      }
    }
  }

  /// Whether the products of the subtile of a key are computed.
  bool is_wanted(std::int64_t key) const {
    const std::int64_t column = key - begin_;
    return wanted_[column / kDecodeBlock] >> (column % kDecodeBlock / kKeySubtile) & 1u;
  }

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

  const AttentionParams& p_;
  DecodeRows rows_;
  std::int64_t kv_head_;
  int count_;
  bool masked_safe_;  // keeps the values of hidden keys out of every product
  Visibility visibility_;
  std::int64_t begin_;  // the split's first key
  KeyRange readable_;
  Dropout dropout_;
  ScoreUnit unit_;
  Scratch scratch_;
  Scalar* states_;

 private:
  using Finisher = ScoreFinisherOf<kDecodeBlock>;
  using Planned = SubtilesOf<kDecodeBlock>;
  static constexpr int kBlocks = kDecodeSplit / kDecodeBlock, kBlockSubtiles = kDecodeBlock / kKeySubtile;

  Finisher finisher(int r) const { return Finisher(p_, visibility_, rows_.batch, head(r)); }

  /// Whether nothing is hidden or changed in the block at `key`, as in most blocks of most calls. The full
  /// decision would take a tenth of the time with bf16 keys (Zen 4).
  bool takes_all(std::int64_t key) const { return finisher(0).takes_all(0, p_.rows(rows_.batch), key); }

  Planned plan(int r, std::int64_t key) const { return finisher(r).plan(token(r), 1, key, scratch_.mask); }

  void finish(int r, std::int64_t key, const Planned& subtiles) {
    Scalar* const line = scores(r) + (key - begin_);
    const unsigned computed = subtiles.set();
    for (int g = 0; g < kBlockSubtiles; ++g)
      if ((computed >> g & 1u) == 0) std::fill_n(line + g * kKeySubtile, kKeySubtile, -kInfinity);
    if (subtiles.partial == 0) return;
    alignas(64) Scalar row_max[kTileRows * kWidth] = {};
    finisher(r).finish(token(r), 1, key, subtiles, scratch_.mask, line, row_max);
  }

  unsigned wanted_[kBlocks] = {};  // subtiles of each block
};

/// Whether all of o is finite in the states of `rows` rows.
inline bool are_finite(const AttentionParams& p, const Scalar* states, std::int64_t rows) {
  Vec finite = zero();  // stays 0 unless something is NaN or infinite
  Scalar rest = 0;      // the same
  for (; rows > 0; --rows, states += decode_state_size(p)) {
    const std::int64_t whole = p.head_dim_v / kWidth * kWidth;
    for (std::int64_t d = 0; d < whole; d += kWidth) finite = fma(load(states + d), zero(), finite);
    for (std::int64_t d = whole; d < p.head_dim_v; ++d) rest += states[d] - states[d];
  }
  return !any(is_nan(finite)) && rest == 0;
}

/// The heads of a unit, in scratch memory: [kv_heads] heads, then [kv_heads] times the scratch of one.
template <class Head>
class DecodeHeads {
 public:
  DecodeHeads(const AttentionParams& p, const DecodeRows& rows, std::int64_t first_key, bool masked_safe,
              Scalar* states, Scalar* scratch)
      : heads_(reinterpret_cast<Head*>(scratch)), count_(rows.kv_heads) {
    const std::int64_t size = Head::Scratch::size(p, rows.count);
    for (std::int64_t h = 0; h < count_; ++h)
      new (heads_ + h) Head(p, rows, rows.kv_head + h, first_key, masked_safe, scratch + count_ * kSize + h * size,
                            states + h * rows.count * decode_state_size(p));
  }

  Head* begin() const { return heads_; }
  Head* end() const { return heads_ + count_; }

  /// Numbers of scratch memory for each head.
  static std::int64_t size(const AttentionParams& p, std::int64_t rows) {
    return kSize + Head::Scratch::size(p, rows);
  }

 private:
  static constexpr std::int64_t kSize = (sizeof(Head) + 63) / 64 * 64 / sizeof(Scalar);
  static_assert(alignof(Head) <= 64 && std::is_trivially_destructible_v<Head>);

  Head* heads_;
  std::int64_t count_;
};

/// If `masked_safe`, keeps the values of hidden keys out of every product. Returns whether all of o is finite.
template <class Head>
bool decode_split(const AttentionParams& p, const DecodeRows& rows, std::int64_t split, bool masked_safe,
                  Scalar* states, Scalar* scratch) {
  const std::int64_t begin = split * kDecodeSplit, end = begin + kDecodeSplit;
  const DecodeHeads<Head> heads(p, rows, begin, masked_safe, states, scratch);
  const auto take_turns = [&](const auto& f) {
    typename Head::Registers registers;
    for (std::int64_t key = begin; key < end; key += rows.step)
      for (Head& head : heads) {
        f(head, registers, key, std::min(rows.step, end - key));
        if (poll_progress()) registers.configure();
      }
  };
  for (Head& head : heads) head.start();
  take_turns([](Head& head, auto& registers, std::int64_t key, std::int64_t n) { head.score(registers, key, n); });
  for (Head& head : heads) {
    head.soften();
    poll_progress();
  }
  take_turns(
      [](Head& head, auto& registers, std::int64_t key, std::int64_t n) { head.add_values(registers, key, n); });
  for (Head& head : heads) head.keep_output();
  return are_finite(p, states, rows.kv_heads * rows.count);
}

/// Attention of the rows over one split; writes their states to `states`. Switches to the next head after every
/// rows.step keys. `Head` is a DecodeScores with the steps start(), score(), soften(), add_values() and
/// keep_output(); `Head::Registers` are the registers that its products hold and the caller's functions may
/// overwrite.
///
/// If something is not finite, a weight of 0 may have met a hidden NaN. The masked-safe path changes no bit of a
/// finite number: it leaves out what adds 0.
template <class Head>
void decode_split(const AttentionParams& p, const DecodeRows& rows, std::int64_t split, void* states,
                  void* scratch) {
  Scalar *const to = static_cast<Scalar*>(states), *const memory = static_cast<Scalar*>(scratch);
  if (!decode_split<Head>(p, rows, split, false, to, memory)) decode_split<Head>(p, rows, split, true, to, memory);
}

// ---- All splits ----------------------------------------------------------------------------------------------

/// Merges the states of `splits` splits in ascending order and writes the rows' results. A split without a key
/// that a row sees leaves the row as it is, and may be left out.
inline void merge_splits(const AttentionParams& p, const DecodeRows& rows, const void* states, std::int64_t first,
                         std::int64_t splits, void* scratch) {
  const ScoreUnit unit = score_unit<kDecodeBlock>(p);
  const std::int64_t size = decode_state_size(p), columns = decode_output_stride(p);
  Scalar* const o = static_cast<Scalar*>(scratch);
  const Visibility visibility(p, rows.batch);
  const Dropout dropout(p);
  for (std::int64_t i = 0; i < rows.kv_heads * rows.count; ++i) {
    poll_progress();
    Scalar m = kNoMaximum, l = 0;
    std::fill_n(o, columns, Scalar{0});
    for (std::int64_t split = 0; split < splits; ++split) {
      const Scalar* state = static_cast<const Scalar*>(states) + (split * rows.kv_heads * rows.count + i) * size;
      if (state[columns] == kNoMaximum && state[columns + 1] == 0) continue;
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
    const ScoreFinisherOf<kDecodeBlock> finisher(p, visibility, rows.batch, head);
    finisher.clear_saved(row % p.rows(rows.batch), 0, std::min(first * kDecodeSplit, p.seqlen_k));
    const std::int64_t end = std::min((first + splits) * kDecodeSplit, p.seqlen_k);
    finisher.clear_saved(row % p.rows(rows.batch), end, p.seqlen_k);
    alignas(64) const Scalar sum[kTileRowsPadded] = {l};
    end_rows(p, finisher, dropout,
             {.batch = rows.batch,
              .head = head,
              .row = row % p.rows(rows.batch),
              .count = 1,
              .m = &m,
              .l = sum,
              .natural = unit.natural,
              .o = o});
  }
}

// ---- The kernels ---------------------------------------------------------------------------------------------

template <class Head>
DecodePlan plan_decode(const AttentionParams& p) {
  const std::int64_t rows = std::min(kDecodeMaxRows, p.seqlen_q * (p.num_heads / p.num_kv_heads));
  return {.rows = kDecodeMaxRows,
          .step = Head::kStep,
          .split = kDecodeSplit,
          .number = sizeof(Scalar),
          .natural = static_cast<double>(score_unit<kDecodeBlock>(p).natural),
          .state = static_cast<std::size_t>(decode_state_size(p)) * sizeof(Scalar),
          .statistics = static_cast<std::size_t>(decode_output_stride(p)) * sizeof(Scalar),
          .scratch = static_cast<std::size_t>(DecodeHeads<Head>::size(p, rows)) * sizeof(Scalar)};
}

/// The kernels whose products are those of `Head`.
template <class Head>
inline constexpr DecodeKernels kDecodeOf{
    .plan = plan_decode<Head>, .split = decode_split<Head>, .merge = merge_splits};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
