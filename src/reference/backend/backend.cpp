// The reference as a back end: computes every number of a program in double precision, with the code that is
// written to be read. One thread, without regard to time and memory.
#include "backend/backend.h"

#include "backend/registry.h"
#include "reference/backend/functions.h"

namespace saccade {
namespace reference {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string_view description() const override { return "double precision, step by step, to check results"; }

  void attention(const AttentionParams& p) const override { run_attention(p); }
  std::unique_ptr<ForwardState> attention_state(const AttentionParams& p) const override {
    return new_attention_state(p);
  }
  void decode(const AttentionParams& p) const override { run_attention(p); }
  void decode_states(const AttentionParams& p, const DecodeStates& states) const override {
    run_decode_states(p, states);
  }
  void merge_decode_states(const AttentionParams& p, const DecodeStates& states) const override {
    run_merge_decode_states(p, states);
  }
  void merge(const MergeParams& p) const override { run_merge(p); }
  void attention_backward(const BackwardParams& p) const override { run_backward(p); }
  void inspect(const InspectParams& p) const override { run_inspect(p); }
  void product(const ProductParams& p) const override { run_product(p); }
  std::unique_ptr<PackedProduct> pack_product(const ProductParams& p) const override {
    return new_packed_product(p);
  }
};

}  // namespace
}  // namespace reference

const Backend& reference_backend() {
  static const reference::ReferenceBackend backend;
  return backend;
}

}  // namespace saccade
