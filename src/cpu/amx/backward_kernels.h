// The kernels of the backward pass on AMX tiles (amx/backward.h).
#pragma once

#include "cpu/amx/backward.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

template <class T>
BackwardPlan plan_backward(const BackwardParams& params) {
  const std::int64_t dq = kRowGroupsOf<T> * depth_tiles(params.attention.head_dim) * 1024;
  const AmxBackwardScratch<T> scratch(params, nullptr);
  return {.block_q = 32 * kRowGroupsOf<T>,
          .block_k = kKeysOfAmx,
          .statistics = 2 * 32 * kRowGroupsOf<T> * sizeof(float),
          .dq = static_cast<std::size_t>(dq) * sizeof(float),
          .tile_q = 32,
          .scratch = scratch.bytes(),
          .parked = scratch.parked};
}

template <class T>
double backward_statistics(const BackwardParams& params, const QueryRows& work, void* statistics) {
  return write_statistics(params, work, 32 * kRowGroupsOf<T>, statistics);
}

template <class T>
void backward_begin(const BackwardParams& params, const KeyBlock& keys, void* scratch) {
  AmxBackwardBlock<T>(params, keys, QueryRows{.batch = keys.batch}, scratch).begin();
}

template <class T>
bool backward_logits(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows,
                     const void* statistics, void* scratch, double& dslope) {
  return AmxBackwardBlock<T>(params, keys, rows, scratch)
      .find_logits(static_cast<const float*>(statistics), dslope);
}

template <class T>
void backward_mask(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, void* scratch) {
  AmxBackwardBlock<T>(params, keys, rows, scratch).add_to_mask();
}

template <class T>
void backward_keys(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, bool,
                   void* scratch) {
  AmxBackwardBlock<T>(params, keys, rows, scratch).add_to_keys();
}

template <class T>
void backward_rows(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, bool, void* scratch,
                   void* dq) {
  AmxBackwardBlock<T>(params, keys, rows, scratch).add_to_rows(static_cast<float*>(dq));
}

template <class T>
bool backward_park(const BackwardParams& params, const KeyBlock& keys, const QueryRows& rows, void* scratch,
                   void* to) {
  return AmxBackwardBlock<T>(params, keys, rows, scratch).park(to);
}

/// Never requests a second, masked-safe computation: nothing hidden enters a product.
template <class T>
bool backward_end(const BackwardParams& params, const KeyBlock& keys, void* scratch) {
  const AmxBackwardScratch<T> memory(params, scratch);
  const AttentionParams& p = params.attention;
  write_keys(p, keys, params.dk, memory.dk, p.head_dim, p.scale, memory.written);
  write_keys(p, keys, params.dv, memory.dv, p.head_dim_v, 1.0 / (1.0 - p.dropout_p), memory.written);
  return true;
}

template <class T>
bool backward_write(const BackwardParams& params, const QueryRows& rows, const void* dq) {
  write_rows(params, rows, static_cast<const float*>(dq));
  return true;
}

/// The kernels for tensors of type T.
template <class T>
inline constexpr BackwardKernels kAmxBackwardOf{.plan = plan_backward<T>,
                                                .statistics = backward_statistics<T>,
                                                .begin = backward_begin<T>,
                                                .logits = backward_logits<T>,
                                                .mask = backward_mask<T>,
                                                .keys = backward_keys<T>,
                                                .rows = backward_rows<T>,
                                                .park = backward_park<T>,
                                                .end = backward_end<T>,
                                                .write = backward_write<T>};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
