// The back end of this machine's processor: the kernels of its instruction set, and their schedules.
#include "backend.h"
#include "cpu/schedules.h"

namespace saccade {
namespace {

class CpuBackend final : public Backend {
 public:
  bool attention_at_once(const AttentionOperands& p) const override {
    return cpu::run_small(cpu::active_kernels(), p);
  }
  void attention(const AttentionParams& p) const override { cpu::run_forward(kernels_for(p), p); }
  void decode(const AttentionParams& p) const override { cpu::run_decode(kernels_for(p), p); }
  void attention_backward(const BackwardParams& p) const override {
    cpu::run_backward(cpu::active_kernels().backward(p.attention), p);
  }
  void inspect(const InspectParams& p) const override { cpu::run_inspect(kernels_for(p.attention), p); }
  void product(const ProductParams& p) const override { cpu::run_product(cpu::active_kernels(), p); }

 private:
  static const cpu::AttentionKernels& kernels_for(const AttentionParams& p) {
    return cpu::active_kernels().attention(p);
  }
};

constexpr CpuBackend kCpuBackend;

}  // namespace

const Backend& active_backend() { return kCpuBackend; }

}  // namespace saccade
