// The kernels of the processor's instruction set, and their schedules.
#include "cpu/cpu_backend.h"

#include "backend/registry.h"
#include "cpu/policy/selection.h"
#include "cpu/schedule/forward_state.h"
#include "cpu/schedule/product.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {

bool CpuBackend::try_small_attention(const AttentionOperands& p) const { return run_small(active_kernels(), p); }
void CpuBackend::attention(const AttentionParams& p) const {
  run_forward(forward_kernels(active_kernels(), p), p);
}
std::unique_ptr<ForwardState> CpuBackend::attention_state(const AttentionParams& p) const {
  return std::make_unique<CpuForwardState>(state_kernels(active_kernels(), p), p);
}
void CpuBackend::decode(const AttentionParams& p) const { run_decode(decode_kernels(active_kernels(), p), p); }
void CpuBackend::decode_states(const AttentionParams& p, const DecodeStates& states) const {
  run_decode_states(decode_kernels(active_kernels(), p), p, states);
}
void CpuBackend::merge_decode_states(const AttentionParams& p, const DecodeStates& states) const {
  run_merge_decode_states(decode_kernels(active_kernels(), p), p, states);
}
void CpuBackend::merge(const MergeParams& p) const { run_merge(merge_kernels(active_kernels(), p), p); }
void CpuBackend::attention_backward(const BackwardParams& p) const {
  run_backward(backward_kernels(active_kernels(), p), p);
}
void CpuBackend::inspect(const InspectParams& p) const {
  run_inspect(inspect_kernels(active_kernels(), p.attention), p);
}
void CpuBackend::product(const ProductParams& p) const { run_product(active_kernels(), p); }
std::unique_ptr<PackedProduct> CpuBackend::pack_product(const ProductParams& p) const {
  return std::make_unique<CpuPackedProduct>(active_kernels(), p);
}

}  // namespace saccade::cpu

namespace saccade {

const Backend& cpu_backend() {
  static constinit const cpu::CpuBackend backend;
  return backend;
}

}  // namespace saccade
