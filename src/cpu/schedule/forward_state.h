// The state of an attention whose keys arrive in parts: memory for every head.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "core/memory.h"
#include "cpu/kernels.h"

namespace saccade::cpu {

/// The memory of every query head of a call.
class HeadStates {
 public:
  HeadStates(const ForwardKernels& kernels, const AttentionParams& p);

  HeadState of(std::int64_t batch, std::int64_t head) const;
  std::size_t bytes() const { return memory_.bytes() + marks_.size(); }

 private:
  struct Entry {
    std::size_t first_byte, bytes;       // of head 0; of a head
    std::int64_t first_mark, head_rows;  // the same for marks
  };
  std::vector<Entry> entries_;  // [batch]
  Memory memory_;
  mutable std::vector<std::uint8_t> marks_;
};

/// Its functions run the schedules of schedules.h.
class CpuForwardState final : public ForwardState {
 public:
  CpuForwardState(const ForwardKernels& kernels, const AttentionParams& p)
      : kernels_(kernels), states_(kernels, p) {}

  void add(const AttentionParams& p) override;
  void finish(const AttentionParams& p) override;
  std::size_t bytes() const override { return states_.bytes(); }

 private:
  const ForwardKernels& kernels_;
  HeadStates states_;
};

}  // namespace saccade::cpu
