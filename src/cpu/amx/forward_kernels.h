// The kernels of the forward pass on AMX tiles (amx/forward.h): blocks of rows, and their fallback rows, which
// other kernels compute.
#pragma once

#include "cpu/amx/forward.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Calls f with each run of rows of group g that are set in `rows`, one bit each, as a unit of work.
template <class F>
void for_each_run(const QueryRows& work, int g, std::uint32_t rows, const F& f) {
  while (rows != 0) {
    const int first = std::countr_zero(rows), count = std::countr_one(rows >> first);
    f(QueryRows{work.batch, work.head, work.row + g * 32 + first, count});
    rows = static_cast<std::uint32_t>(std::uint64_t{rows} >> (first + count) << (first + count));
  }
}

/// The same, row by row: the states of neighboring rows may hold different keys.
template <class F>
void for_each_row(const QueryRows& work, int g, std::uint32_t rows, const F& f) {
  for (; rows != 0; rows &= rows - 1)
    f(QueryRows{work.batch, work.head, work.row + g * 32 + std::countr_zero(rows), 1});
}

/// Bytes of a row of o, in whole cache lines.
inline std::size_t row_bytes(const AttentionParams& p) {
  return static_cast<std::size_t>(round_up(p.head_dim_v * static_cast<std::int64_t>(sizeof(double)), 64));
}

/// Computes the lse of some rows by other kernels, which write every o to the beginning of `scratch`.
inline void write_lse(const AttentionParams& params, const QueryRows& rows, void* scratch) {
  AttentionParams of_lse = params;
  of_lse.o.data = scratch;
  of_lse.o.batch_stride = of_lse.o.head_stride = of_lse.o.row_stride = 0;
  of_lse.weights = of_lse.scores = {};
  fallback_kernels().attend(of_lse, rows, {}, static_cast<std::byte*>(scratch) + row_bytes(params));
}

template <class T, int kScoreParts>
void forward(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed, void* scratch) {
  AmxBlock<T, kScoreParts> block(params, work, packed, scratch);
  block.run();
  for (int g = 0; g < block.groups(); ++g) {
    for_each_run(work, g, block.fallback_rows(g),
                 [&](const QueryRows& rows) { fallback_kernels().attend(params, rows, {}, scratch); });
    for_each_run(work, g, block.rows_of_lse(g), [&](const QueryRows& rows) { write_lse(params, rows, scratch); });
  }
}

template <class T, int kScoreParts>
void resume_forward(const AttentionParams& params, const QueryRows& work, const PackedKeys& packed,
                    const HeadState& head, void* scratch) {
  const AmxStates states(params, params.rows(work.batch), head);
  AmxBlock<T, kScoreParts> block(params, work, packed, scratch, states);
  if (!block.sees_keys()) return;
  block.run();
  for (int g = 0; g < block.groups(); ++g)
    for_each_row(work, g, block.also_fallback_rows(g), [&](const QueryRows& rows) {
      fallback_kernels().resume(params, rows, {}, states.fallback_rows(), scratch);
    });
}

template <class T, int kScoreParts>
void finish_forward(const AttentionParams& params, const QueryRows& work, const HeadState& head, void* scratch) {
  const AmxStates states(params, params.rows(work.batch), head);
  AmxBlock<T, kScoreParts> block(params, work, {}, scratch, states);
  block.finish();
  for (int g = 0; g < block.groups(); ++g)
    for_each_row(work, g, block.fallback_rows(g), [&](const QueryRows& rows) {
      fallback_kernels().finish(params, rows, states.fallback_rows(), scratch);
    });
}

template <class T, int kScoreParts>
void pack_block(const AttentionParams& p, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                KeyRange readable, void* packed) {
  const KvSource k = p.key_source(batch, kv_head), v = p.value_source(batch, kv_head);
  pack_tile<T, kScoreParts>(p, k, v, block * 32, readable, {p, static_cast<std::byte*>(packed)});
}

/// With a narrow window, a block of rows packs little more than the keys that are its own, and finds them in the
/// second-level cache. A long head of f32 packed in advance is written to memory, 768 bytes a key, and read back:
/// a window of 257 keys took 1.05 times as long, 1.16 beside a program that used the memory too (Granite Rapids).
/// The packed keys of other types are a third of that, and gain nothing.
template <class T>
std::size_t most_packed(const AttentionParams& p) {
  constexpr std::size_t kInCache = std::size_t{2} << 20;
  const std::int64_t ahead = p.causal ? 0 : p.window_right;
  const bool is_narrow = p.window_left >= 0 && ahead >= 0 && p.window_left + ahead <= kBlockQAlone / 2;
  const bool is_needed_once = p.num_heads == p.num_kv_heads && !p.saves_hidden();
  return kPartsOf<T> == 3 && is_narrow && is_needed_once ? kInCache : 0;
}

template <class T, int kScoreParts>
ForwardPlan plan_forward(const AttentionParams& p) {
  const std::size_t of_fallback = fallback_kernels().plan(p).scratch + row_bytes(p);
  const auto scratch = [&](std::int64_t rows) {
    return std::max(of_fallback, AmxScratch<T, kScoreParts>(p, rows / 32, nullptr).bytes());
  };
  return {.tile_q = kTileRows,
          .block_q = kBlockQ,
          .block_q_alone = kBlockQAlone,
          .block_k = kBlockK,
          .packed_block = static_cast<std::size_t>(PackedTile<T, std::byte, kScoreParts>::size(p)),
          .most_packed = most_packed<T>(p),
          .scratch = scratch(kBlockQ),
          .scratch_alone = scratch(kBlockQAlone)};
}

/// The kernels for q, k and v of type T, with kScoreParts parts of q and k.
template <class T, int kScoreParts>
inline constexpr ForwardKernels kAmxForwardOf{.plan = plan_forward<T, kScoreParts>,
                                              .pack_block = pack_block<T, kScoreParts>,
                                              .attend = forward<T, kScoreParts>,
                                              .state_bytes = AmxStates::bytes,
                                              .resume = resume_forward<T, kScoreParts>,
                                              .finish = finish_forward<T, kScoreParts>};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
