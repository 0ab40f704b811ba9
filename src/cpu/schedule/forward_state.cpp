#include "cpu/schedule/forward_state.h"

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {

HeadStates::HeadStates(const ForwardKernels& kernels, const AttentionParams& p) {
  std::size_t bytes = 0;
  std::int64_t marks = 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::size_t of_head = (kernels.state_bytes(p, p.rows(b)) + 63) / 64 * 64;
    entries_.push_back({bytes, of_head, marks, p.rows(b)});
    bytes += of_head * static_cast<std::size_t>(p.num_heads);
    marks += p.rows(b) * p.num_heads;
  }
  memory_ = Memory(bytes);
  marks_.resize(static_cast<std::size_t>(marks));
}

HeadState HeadStates::of(std::int64_t batch, std::int64_t head) const {
  const Entry& entry = entries_[static_cast<std::size_t>(batch)];
  return {memory_.data() + entry.first_byte + entry.bytes * static_cast<std::size_t>(head),
          marks_.data() + entry.first_mark + entry.head_rows * head};
}

void CpuForwardState::add(const AttentionParams& p) { run_resume(kernels_, p, states_); }

void CpuForwardState::finish(const AttentionParams& p) {
  const ForwardPlan plan = kernels_.plan(p);
  std::vector<QueryRows> blocks;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t head = 0; head < p.num_heads; ++head)
      for (std::int64_t row = 0; row < p.rows(b); row += plan.block_q)
        blocks.push_back({b, head, row, plan.block_q});
  const auto count = static_cast<std::int64_t>(blocks.size());
  const std::int64_t numbers = p.batch * p.num_heads * p.seqlen_q * p.head_dim_v;
  parallel_for(threads_for_numbers(count, numbers), count, plan.scratch,
               [&](std::int64_t item, std::byte* scratch) {
                 const QueryRows& work = blocks[static_cast<std::size_t>(item)];
                 kernels_.finish(p, work, states_.of(work.batch, work.head), scratch);
               });
}

}  // namespace saccade::cpu
