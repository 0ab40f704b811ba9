#pragma once

#include "backend/backend.h"

namespace saccade::cpu {

/// The back end of this machine's processor.
class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string_view description() const override { return "the processor's vector and tile instructions"; }

  bool try_small_attention(const AttentionOperands& p) const override;
  void attention(const AttentionParams& p) const override;
  std::unique_ptr<ForwardState> attention_state(const AttentionParams& p) const override;
  void decode(const AttentionParams& p) const override;
  void decode_states(const AttentionParams&, const DecodeStates&) const override;
  void merge_decode_states(const AttentionParams&, const DecodeStates&) const override;
  void merge(const MergeParams&) const override;
  void attention_backward(const BackwardParams& p) const override;
  void inspect(const InspectParams& p) const override;
  void product(const ProductParams& p) const override;
  std::unique_ptr<PackedProduct> pack_product(const ProductParams& p) const override;
};

}  // namespace saccade::cpu
