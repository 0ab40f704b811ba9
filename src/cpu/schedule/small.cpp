#include <algorithm>
#include <atomic>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "cpu/policy/selection.h"
#include "cpu/policy/threads.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {
namespace {

/// Whether run_small() handles a problem. It leaves out problems that get other bits on tiles with more keys.
bool is_small(const KernelSet& kernels, const AttentionOperands& p) {
  if (p.seqlen_k <= 0 || p.seqlen_k > kSmallKeys || p.head_dim > kSmallHeadDim || p.head_dim_v > kSmallHeadDim)
    return false;
  if (kernels.amx && p.seqlen_k > kernels.amx->f32->short_row && tiles_take_f32(p)) return false;
  return p.q.dtype == DType::f32 && p.k.dtype == DType::f32 && p.v.dtype == DType::f32 && p.o.dtype == DType::f32;
}

}  // namespace

bool run_small(const KernelSet& kernels, const AttentionOperands& p) {
  if (!is_small(kernels, p)) return false;
  const std::int64_t heads = p.batch * p.num_heads, pieces = ceil_div(p.seqlen_q, kSmallRows);
  const std::int64_t pieces_of_a_thread = small_pieces_of_a_thread(p);
  if (heads * pieces <= pieces_of_a_thread) {
    bool finite = true;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.num_heads; ++h) finite &= kernels.forward_small(p, {b, h, 0, p.seqlen_q});
    }
    return finite;
  }
  const std::int64_t items = ceil_div(heads * pieces, pieces_of_a_thread);
  std::atomic<bool> finite = true;
  parallel_for(threads_for(items), items, 0, [&](std::int64_t item, std::byte*) {
    const std::int64_t end = std::min(heads * pieces, (item + 1) * pieces_of_a_thread);
    for (std::int64_t i = item * pieces_of_a_thread; i < end; ++i) {
      const std::int64_t head = i / pieces;
      if (!kernels.forward_small(p, {head / p.num_heads, head % p.num_heads, i % pieces * kSmallRows, kSmallRows}))
        finite = false;
    }
  });
  return finite;
}

}  // namespace saccade::cpu
