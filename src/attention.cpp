#include "saccade/attention.h"

#include <algorithm>

#include "attention_arguments.h"
#include "check.h"
#include "cpu/kernels.h"
#include "parallel.h"

namespace saccade {
namespace {

/// Packed keys may take this many floats at a time (16 MiB: half of the last-level cache of the machines
/// measured). A head with more of them packs its keys block by block, again for each query block.
constexpr std::size_t kPackedFloats = std::size_t{4} << 20;

/// One call's work as the threads see it: kv heads numbered over batch and head, each with the query blocks of its
/// group.
struct Schedule {
  const cpu::KernelSet& kernels;
  const AttentionParams& p;
  cpu::ForwardPlan plan = kernels.plan_forward(p);
  std::int64_t kv_heads = p.batch * p.num_kv_heads;
  std::int64_t group = p.num_heads / p.num_kv_heads;
  std::int64_t query_blocks = (p.seqlen_q + plan.block_q - 1) / plan.block_q;
  std::int64_t key_blocks = (p.seqlen_k + plan.block_k - 1) / plan.block_k;
  std::size_t head_floats = plan.packed_block_floats * static_cast<std::size_t>(key_blocks);

  void pack(std::int64_t kv_head, std::int64_t block, float* packed_head) const {
    kernels.pack_keys(p, kv_head / p.num_kv_heads, kv_head % p.num_kv_heads, block,
                      packed_head + static_cast<std::size_t>(block) * plan.packed_block_floats);
  }

  /// `block` counts over the group's query blocks. The last ones of a head come first: under a causal mask they
  /// are the longest.
  void run(std::int64_t kv_head, std::int64_t block, const float* packed_head, float* scratch) const {
    const std::int64_t row = (query_blocks - 1 - block % query_blocks) * plan.block_q;
    const std::int64_t head = kv_head % p.num_kv_heads * group + block / query_blocks;
    kernels.forward(p, kv_head / p.num_kv_heads, head, row, packed_head, scratch);
  }

  /// No keys packed ahead: nothing would share them, or they are too many.
  void run_blocks(int requested) const {
    const std::int64_t blocks = group * query_blocks;
    parallel_for(threads_for(requested, kv_heads * blocks), kv_heads * blocks, plan.scratch_floats,
                 [&](std::int64_t item, float* scratch) { run(item / blocks, item % blocks, nullptr, scratch); });
  }

  /// The first `heads` kv heads, each whole by one thread: its keys stay in that core's cache.
  void run_heads(int threads, std::int64_t heads) const {
    parallel_for(threads, heads, head_floats + plan.scratch_floats, [&](std::int64_t head, float* scratch) {
      for (std::int64_t block = 0; block < key_blocks; ++block) pack(head, block, scratch);
      for (std::int64_t block = 0; block < group * query_blocks; ++block)
        run(head, block, scratch, scratch + head_floats);
    });
  }

  /// The kv heads from `begin` on: as many as fit are packed by all threads, which then share their query blocks.
  void run_shared(int requested, std::int64_t begin) const {
    const std::int64_t together =
        std::min(kv_heads - begin, static_cast<std::int64_t>(kPackedFloats / head_floats));
    const Workspace packed(head_floats * static_cast<std::size_t>(together));
    for (std::int64_t first = begin; first < kv_heads; first += together) {
      const std::int64_t heads = std::min(together, kv_heads - first), blocks = group * query_blocks;
      const int threads = threads_for(requested, heads * blocks);
      const auto packed_head = [&](std::int64_t head) {
        return packed.data() + static_cast<std::size_t>(head) * head_floats;
      };
      parallel_for(threads, heads * key_blocks, 0, [&](std::int64_t item, float*) {
        pack(first + item / key_blocks, item % key_blocks, packed_head(item / key_blocks));
      });
      parallel_for(threads, heads * blocks, plan.scratch_floats, [&](std::int64_t item, float* scratch) {
        run(first + item / blocks, item % blocks, packed_head(item / blocks), scratch);
      });
    }
  }
};

/// Below some 20 microseconds of work a second thread costs more than it does.
bool is_worth_threads(const AttentionParams& p) {
  const double rows = static_cast<double>(p.batch * p.num_heads) * static_cast<double>(p.seqlen_q);
  return rows * static_cast<double>(p.seqlen_k) * static_cast<double>(p.head_dim + p.head_dim_v) > 1 << 20;
}

void run_tiled(const cpu::KernelSet& kernels, const AttentionParams& p, int requested) {
  const Schedule schedule{kernels, p};
  if (!is_worth_threads(p)) requested = 1;
  const bool shares_keys = schedule.group * schedule.query_blocks > 1;
  if (!shares_keys || schedule.head_floats == 0 || schedule.head_floats > kPackedFloats)
    return schedule.run_blocks(requested);
  // Whole heads as long as there is one for every thread; the rest is shared, so that no thread waits for
  // another's last head. Where lengths make heads unequal that takes many heads to even out.
  const int threads = threads_for(requested, schedule.kv_heads * schedule.query_blocks);
  const std::int64_t rounds = schedule.kv_heads / threads;
  const std::int64_t whole = rounds >= (p.kv_lengths ? 8 : 1) ? rounds * threads : 0;
  if (whole > 0) schedule.run_heads(threads, whole);
  if (whole < schedule.kv_heads) schedule.run_shared(requested, whole);
}

void run_small(const cpu::KernelSet& kernels, const AttentionParams& p, int requested) {
  const std::int64_t heads = p.batch * p.num_heads;
  constexpr std::int64_t kHeadsOfAThread = 256;  // some 15 microseconds: what waking a thread costs
  if (heads * p.seqlen_q <= 16 * kHeadsOfAThread) {
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.num_heads; ++h) kernels.forward_small(p, b, h);
    }
    return;
  }
  const std::int64_t pieces = (heads + kHeadsOfAThread - 1) / kHeadsOfAThread;
  parallel_for(threads_for(requested, pieces), pieces, 0, [&](std::int64_t piece, float*) {
    for (std::int64_t i = piece * kHeadsOfAThread; i < std::min(heads, (piece + 1) * kHeadsOfAThread); ++i)
      kernels.forward_small(p, i / p.num_heads, i % p.num_heads);
  });
}

}  // namespace

void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
               const AttentionOptions& options) {
  const AttentionArguments arguments(q, k, v, o, options);
  const AttentionParams& p = arguments.params;
  const cpu::KernelSet& kernels = cpu::active_kernels();
  if (p.batch == 0 || p.num_heads == 0 || p.seqlen_q == 0) return;
  if (kernels.is_small(p)) return run_small(kernels, p, options.num_threads);
  run_tiled(kernels, p, options.num_threads);
}

Tensor attention(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  if (q.rank < 2 || q.rank > 4 || v.rank != q.rank)
    refuse("attention", "q, k and v must have the same rank, 2, 3 or 4, but they have shapes ",
           to_string(q.dims()), ", ", to_string(k.dims()), " and ", to_string(v.dims()));
  Shape shape(q.dims().begin(), q.dims().end());
  shape.back() = v.shape[v.rank - 1];
  Tensor o(DType::f32, shape);
  attention(q, k, v, o, options);
  return o;
}

}  // namespace saccade
