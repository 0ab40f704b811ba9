// The kernels of the processor's instruction set, and their schedules.
#include "cpu/cpu_backend.h"

#include "cpu/schedules.h"

namespace saccade::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  bool attention_at_once(const AttentionOperands& p) const override { return run_small(active_kernels(), p); }
  void attention(const AttentionParams& p) const override { run_forward(active_kernels().forward(p), p); }
  void decode(const AttentionParams& p) const override { run_decode(kernels_for(p), p); }
  void attention_backward(const BackwardParams& p) const override {
    run_backward(active_kernels().backward(p.attention), p);
  }
  void inspect(const InspectParams& p) const override { run_inspect(kernels_for(p.attention), p); }
  void product(const ProductParams& p) const override { run_product(active_kernels(), p); }

 private:
  static const AttentionKernels& kernels_for(const AttentionParams& p) { return active_kernels().attention(p); }
};

constexpr CpuBackend kCpuBackend;

}  // namespace

const Backend& cpu_backend() { return kCpuBackend; }

}  // namespace saccade::cpu
