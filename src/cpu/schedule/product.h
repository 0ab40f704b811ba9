// A matrix packed for products by the kernels that were active at the time.
#pragma once

#include "backend/backend.h"
#include "core/memory.h"
#include "cpu/kernels.h"

namespace saccade::cpu {

class CpuPackedProduct final : public PackedProduct {
 public:
  CpuPackedProduct(const KernelSet& kernels, const ProductParams& p);
  void run(const ProductParams& p) const override;
  void unpack(float* to) const override;
  std::size_t bytes() const override { return b_.bytes(); }

 private:
  const KernelSet& kernels_;
  std::int64_t depth_, columns_;
  DType dtype_;
  Memory b_;
};

}  // namespace saccade::cpu
