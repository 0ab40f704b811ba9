// The only door to the kernels: function pointers and block sizes of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "params.h"
#include "saccade/cpu.h"

namespace saccade::cpu {

/// How one call is cut up. Depends on the shapes of a head and on the instruction set alone, never on
/// batch, seqlen_q or threads, so that a row's bits do not either.
struct ForwardPlan {
  std::int64_t block_q = 0;             // query rows of one unit of work
  std::int64_t block_k = 0;             // keys of one packed block, at absolute multiples of block_k
  std::size_t packed_block_floats = 0;  // of one packed key block
  std::size_t scratch_floats = 0;       // of one thread
};

struct KernelSet {
  Isa isa = Isa::scalar;

  ForwardPlan (*plan_forward)(const AttentionParams&);
  /// Packs key block `block` of (batch, kv_head) into `packed`, 64-byte aligned.
  void (*pack_keys)(const AttentionParams&, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                    float* packed);
  /// Attention of query rows [row, row + block_q) of one head. `packed_keys` holds all key blocks of the kv head,
  /// or is nullptr: then the blocks are packed on the way, into the scratch.
  void (*forward)(const AttentionParams&, std::int64_t batch, std::int64_t head, std::int64_t row,
                  const float* packed_keys, float* scratch);
  /// A path for heads of a few keys and dimensions: no packing, no scratch, no threads.
  bool (*is_small)(const AttentionParams&);
  void (*forward_small)(const AttentionParams&, std::int64_t batch, std::int64_t head);

  /// Rows [row, row_end) of a projection, and linear_block_columns columns from `column` on. The scratch holds
  /// d_in * linear_block_columns floats.
  void (*linear)(const LinearParams&, std::int64_t row, std::int64_t row_end, std::int64_t column, float* scratch);
  std::int64_t linear_block_columns = 0;
  /// A projection of few outputs without packing, scratch or threads.
  bool (*is_small_linear)(const LinearParams&);
  void (*linear_small)(const LinearParams&);

  /// Yardsticks: `steps` times chain_flops floating-point operations on registers; and reading `floats` floats, a
  /// multiple of 1024, in order. The results only keep the compiler from leaving the work out.
  float (*multiply_add_chains)(std::int64_t steps);
  std::int64_t chain_flops = 0;
  float (*read_all)(const float* data, std::int64_t floats);
};

/// The kernels that calls use now. Throws std::invalid_argument when SACCADE_ISA asks for what is not there.
const KernelSet& active_kernels();

/// Every level of this build, slowest first.
std::span<const KernelSet* const> all_kernels();

extern const KernelSet kScalarKernels;
#ifdef SACCADE_X86
extern const KernelSet kAvx2Kernels;
extern const KernelSet kAvx512Kernels;
#endif

}  // namespace saccade::cpu
