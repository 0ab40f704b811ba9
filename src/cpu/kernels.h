// The only interface to the kernels: function pointers and block sizes of one instruction set. policy/selection.h
// chooses the kernels of a call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/attention_params.h"
#include "backend/layer_kernels.h"
#include "backend/visibility.h"
#include "core/conversions.h"
#include "core/quantized/rows.h"
#include "saccade/runtime.h"

namespace saccade::cpu {

/// How one call is split, in rows, keys and bytes. Depends on the shape of a head and the instruction set.
struct ForwardPlan {
  std::int64_t tile_q = 0;                     // query rows; units of work are multiples of it
  std::int64_t block_q = 0;                    // query rows of the usual unit of work
  std::int64_t block_q_alone = 0;              // ... where a unit packs its own keys
  std::int64_t block_k = 0;                    // keys of one packed block, at absolute multiples of block_k
  std::size_t packed_block = 0;                // bytes of one packed key block
  std::size_t most_packed = 0;                 // bytes; a head with more packs keys as it goes. 0: kPackedBytes
  std::size_t scratch = 0, scratch_alone = 0;  // bytes of one thread
};

/// Rows [row, row + rows) of one query head, as far as they exist.
struct QueryRows {
  std::int64_t batch = 0, head = 0, row = 0, rows = 0;
};

/// Key blocks packed beforehand, from `first_block` on; nullptr: none, the kernel packs them as it goes.
struct PackedKeys {
  const void* blocks = nullptr;
  std::int64_t first_block = 0;
};

/// Memory for the rows of one query head between blocks of keys. Each kernel writes its own rows only.
struct HeadState {
  static constexpr std::uint8_t kRow = 1, kTiles = 2;

  std::byte* memory = nullptr;    // ForwardKernels::state_bytes(), 64-byte aligned, not initialized
  std::uint8_t* marks = nullptr;  // [rows]: what has been written, kRow and kTiles; 0 before the first key
};

/// A row with only some of its keys processed: O = o_factor * o and l are sums of exponentials relative to m, a
/// natural logit. o has runs of `run` columns, run_stride apart.
struct PartialRow {
  double m = 0, l = 0, o_factor = 1;
  const float* o = nullptr;
  std::int64_t run = 0, run_stride = 0;
};

/// Decode: rows [first, first + count) of kv heads [kv_head, kv_head + kv_heads), where the rows of all query
/// heads of a kv head are numbered head by head. The rows of a kv head process their keys together; the kv heads
/// alternate every `step` keys, a divisor of a split.
struct DecodeRows {
  std::int64_t batch = 0, kv_head = 0, kv_heads = 1, first = 0, count = 0, step = 0;
};

/// How decode() is split. Sizes in bytes.
struct DecodePlan {
  std::int64_t rows = 0;       // the maximum of a kv head that read its keys together
  std::int64_t step = 0;       // keys after which kv heads alternate are a multiple of it
  std::int64_t split = 0;      // keys, at absolute multiples
  std::size_t number = 0;      // of a state
  double natural = 1.0;        // a maximum times this is a natural logit
  std::size_t state = 0;       // of one row after a split: o, and somewhere its maximum and sum
  std::size_t statistics = 0;  // where these two are
  std::size_t scratch = 0;     // of one thread and kv head
};

/// How a backward pass is split. Sizes in bytes.
struct BackwardPlan {
  std::int64_t block_q = 0, block_k = 0;  // rows and keys combined at a time, at absolute multiples
  std::size_t statistics = 0;             // of block_q rows: their lse and delta
  std::size_t dq = 0;                     // of block_q rows: their accumulated gradients, if requested,
  std::int64_t tile_q = 0;                // as tiles of this many rows, one after the other
  std::size_t scratch = 0;                // of one block of keys
  std::size_t parked = 0;                 // of what rows() reads of it and a block of rows
};

/// What some rows of a head add to the sums over all its rows. Stored in the scratch memory.
struct InspectSums {
  std::int64_t first_key, end_key;  // the keys that these rows can see
  const void* received;             // [end_key - first_key]; nullptr: not requested
  std::int64_t first_cell_row, cell_rows;
  double* cells;  // [cell_rows, pool_keys]: sums or largest weights; nullptr: not requested
  double distance;
  std::int64_t rows_with_weight;
};

/// Block number `block` of the keys of a kv head.
struct KeyBlock {
  std::int64_t batch = 0, kv_head = 0, block = 0;
};

/// The kernels of a forward pass. Memory passed to kernels is 64-byte aligned.
struct ForwardKernels {
  ForwardPlan (*plan)(const AttentionParams&);
  /// Packs one key block of (batch, kv_head); only the keys in `readable` may be read.
  void (*pack_block)(const AttentionParams&, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                     KeyRange readable, void* packed);
  void (*attend)(const AttentionParams&, const QueryRows&, const PackedKeys&, void* scratch);

  /// The same in parts: resume() adds keys to the state of the rows' head, and finish() writes the results.
  /// Together they do what attend() would do with the keys of all calls of resume(), in order.
  std::size_t (*state_bytes)(const AttentionParams&, std::int64_t rows);
  void (*resume)(const AttentionParams&, const QueryRows&, const PackedKeys&, const HeadState&, void* scratch);
  void (*finish)(const AttentionParams&, const QueryRows&, const HeadState&, void* scratch);
  /// Sets the state of a row; nullptr if no other kernels hand over rows.
  void (*put)(const AttentionParams&, std::int64_t row, const PartialRow&, const HeadState&) = nullptr;
};

/// The kernels of decode().
struct DecodeKernels {
  DecodePlan (*plan)(const AttentionParams&) = nullptr;
  /// Attention of the rows over one split of keys.
  void (*split)(const AttentionParams&, const DecodeRows&, std::int64_t split, void* states,
                void* scratch) = nullptr;
  /// Merges the states of splits [first, first + splits), [splits][kv_heads][rows], and writes the rows' results.
  void (*merge)(const AttentionParams&, const DecodeRows&, const void* states, std::int64_t first,
                std::int64_t splits, void* scratch) = nullptr;
};

/// The kernels of merge_states().
struct MergeKernels {
  std::size_t (*scratch)(const MergeParams&) = nullptr;
  /// Rows [row, row_end), counted over batch entries and heads.
  void (*rows)(const MergeParams&, std::int64_t row, std::int64_t row_end, void* scratch) = nullptr;
};

/// The kernels of a backward pass. The first computes the statistics of every block of rows, and returns what the
/// rows add to the gradient of their head's sink.
struct BackwardKernels {
  BackwardPlan (*plan)(const BackwardParams&) = nullptr;
  double (*statistics)(const BackwardParams&, const QueryRows&, void* statistics) = nullptr;
  /// Then for every block of keys: begin; then for each block of rows that may see them: the gradients of the
  /// logits (returns whether there are any, and adds to the gradient of the head's slope), of the mask, of keys
  /// and values, and of the rows (cleared for their first block); then end, which writes dk and dv and returns
  /// false if they are not finite and must be computed again. `masked_safe` keeps hidden keys and rows out of
  /// every product. Without dk and dv, keys only finishes the gradients of the scores, which rows reads; without
  /// dq, rows and write are not called.
  void (*begin)(const BackwardParams&, const KeyBlock&, void* scratch) = nullptr;
  bool (*logits)(const BackwardParams&, const KeyBlock&, const QueryRows&, const void* statistics, void* scratch,
                 double& dslope) = nullptr;
  void (*mask)(const BackwardParams&, const KeyBlock&, const QueryRows&, void* scratch) = nullptr;
  void (*keys)(const BackwardParams&, const KeyBlock&, const QueryRows&, bool masked_safe,
               void* scratch) = nullptr;
  void (*rows)(const BackwardParams&, const KeyBlock&, const QueryRows&, bool masked_safe, void* scratch,
               void* dq) = nullptr;
  /// Copies what rows() reads to plan.parked bytes at `to`, which rows() takes instead of `scratch` later, when
  /// that is in use for other blocks. Returns false if rows() would read more. Not for `masked_safe`.
  bool (*park)(const BackwardParams&, const KeyBlock&, const QueryRows&, void* scratch, void* to) = nullptr;
  bool (*end)(const BackwardParams&, const KeyBlock&, void* scratch) = nullptr;
  /// Writes the gradients of a block of rows, zeros where `dq` is nullptr. Returns what end() returns.
  bool (*write)(const BackwardParams&, const QueryRows&, const void* dq) = nullptr;
};

/// The kernels of inspection.
struct InspectKernels {
  /// Blocks of rows and keys, and the packing of keys, as those of a forward pass.
  ForwardPlan (*plan)(const AttentionParams&);
  void (*pack_block)(const AttentionParams&, std::int64_t batch, std::int64_t kv_head, std::int64_t block,
                     KeyRange readable, void* packed);
  /// Statistics of the weights of some rows, and the bytes of scratch memory for blocks of `rows` rows.
  InspectSums (*inspect)(const InspectParams&, const QueryRows&, const PackedKeys&, void* scratch);
  std::size_t (*scratch)(const InspectParams&, std::int64_t rows);
};

/// The kernels of one type of arithmetic. For products of bf16 pairs, those of merging and of the backward pass
/// are nullptr.
struct AttentionKernels {
  ForwardKernels forward;
  DecodeKernels decode;
  MergeKernels merge = {};
  BackwardKernels backward = {};
  InspectKernels inspect;
};

/// The largest sizes that the paths for small problems accept.
inline constexpr std::int64_t kSmallKeys = 16, kSmallHeadDim = 64, kSmallDepth = 16;

/// The kernels of a level that multiplies bf16 pairs.
struct PairKernels {
  AttentionKernels attention;           // of bf16 q, k and v
  float (*chains)(std::int64_t steps);  // as KernelSet::multiply_add_chains
  std::int64_t chain_flops = 0;
};

/// Matrix products, a block of up to `columns` columns at a time, with `scratch` floats of memory.
struct ProductKernels {
  void (*block)(const ProductParams&, const ProductBlock&, float* scratch);
  std::int64_t rows = 0, columns = 0;  // rows of a tile
  std::int64_t scratch = 0;
  std::int64_t panel = 0;         // columns of a tile
  std::int64_t narrow_depth = 0;  // the maximum depth at which c may have another type than f32
};

/// Products of f32 rows and a packed b, whose panels are as wide as those of ProductKernels.
struct PackedProductKernels {
  /// Packs columns [column, column_end) of the whole depth, where `column` is a multiple of a tile's.
  void (*pack)(const ProductParams&, std::int64_t column, std::int64_t column_end, void* packed, float* scratch);
  /// Restores the numbers of a packed b, [depth, columns].
  void (*unpack)(const ProductParams&, float* to);
  void (*block)(const ProductParams&, const ProductBlock&, float* scratch);
  std::int64_t rows = 0;  // that share a panel
  std::int64_t scratch = 0;
};

/// The kernels of AMX tiles for q, k and v of one type.
struct AmxAttention {
  /// Rows that see at most this many keys by their position get the bits of multiply-adds from `forward`; the
  /// second number is that of calls with causal masks or windows.
  std::int64_t short_row = 0, short_causal_row = 0;
  ForwardKernels forward;
  BackwardKernels backward;
  InspectKernels inspect;
};

/// The kernels of AMX tiles, or of their twin, by the type of q, k and v.
struct AmxKernels {
  const AmxAttention *bf16 = nullptr, *f16 = nullptr, *f32 = nullptr;
  DecodeKernels decode_bf16;
  ProductKernels product_bf16, product_f16, product_f32;
  float (*chains)(std::int64_t steps);  // as KernelSet::multiply_add_chains
  std::int64_t chain_flops = 0;
};

/// The kernels of decode() over k and v of i8 or i4 that multiply them as they are stored.
struct ByteKernels {
  DecodeKernels integers;
  DecodeKernels integers_for_bf16;  // the same, as precise as products of bf16
  bool has_faster_pairs = false;    // whether products of bf16 are faster for i8 and queries of bf16
};

struct KernelSet {
  Isa isa = Isa::scalar;

  AttentionKernels f32;  // f32, bf16, f16
  const AttentionKernels* f64 = nullptr;
  const PairKernels* pairs = nullptr;     // nullptr where the level has none
  const AmxKernels* amx = nullptr;        // the same
  const ByteKernels* bytes = nullptr;     // the same
  const DecodeKernels* float8 = nullptr;  // of decode() over k and v of e4m3; the same

  /// A path for f32 heads of up to kSmallKeys keys of kSmallHeadDim numbers, without options: no packing, no
  /// scratch, no threads. Returns whether o is finite: where a score of -inf hides a key, the weight of 0 may have
  /// met a NaN.
  bool (*forward_small)(const AttentionOperands&, const QueryRows&);

  ProductKernels product;
  PackedProductKernels packed_product;
  /// A small product without packing, scratch or threads: at most kSmallDepth deep and small_product_columns wide.
  void (*product_small)(const ProductParams&);
  std::int64_t small_product_columns = 0;

  LayerKernels layers;

  Conversions conversions;
  QuantizeKernels quantize;

  /// Peak measurements: `steps` times chain_flops floating-point operations on registers, and reading `floats`
  /// floats (a multiple of 1024) in order. The results only keep the compiler from removing the work.
  float (*multiply_add_chains)(std::int64_t steps);
  std::int64_t chain_flops = 0;
  float (*read_all)(const float* data, std::int64_t floats);
};

/// The kernels that calls use now; nullptr before the first one.
extern std::atomic<const KernelSet*> active;
/// Chooses them. Throws std::invalid_argument when SACCADE_ISA names a level that this build or machine lacks.
const KernelSet& choose_kernels();

inline const KernelSet& active_kernels() {
  const KernelSet* const kernels = active.load(std::memory_order_acquire);
  return kernels ? *kernels : choose_kernels();
}

/// Every level of this build, slowest first.
std::span<const KernelSet* const> all_kernels();

extern const KernelSet kScalarKernels;
extern const AttentionKernels kScalarKernelsF64;
#ifdef SACCADE_X86
extern const KernelSet kAvx2Kernels;
extern const AttentionKernels kAvx2KernelsF64;
extern const KernelSet kAvx512Kernels;
extern const AttentionKernels kAvx512KernelsF64;
extern const KernelSet kAvx512Bf16Kernels;
extern const PairKernels kAvx512PairKernels;
extern const KernelSet kAvx512AmxKernels;
extern const KernelSet kAvx512AmxFp16Kernels;  // the same level on a processor with AMX-FP16
// Level avx512 on a processor with VNNI, or VNNI and VBMI, that lacks level avx512bf16.
extern const KernelSet kAvx512VnniKernels, kAvx512VbmiKernels;
extern const ByteKernels kAvx512ByteKernels;
extern const DecodeKernels kAvx512Float8Kernels;
extern const AmxKernels kAmxKernels, kAmxFp16Kernels;
extern const AmxAttention kAmxF32, kAmxF16, kAmxFp16;  // of these; kAmxFp16 multiplies f16 as it is
extern const ByteKernels kAmxByteKernels, kAmxTwinByteKernels;
extern const DecodeKernels kAmxFloat8Kernels, kAmxTwinFloat8Kernels;
extern const AmxKernels kAmxTwinKernels, kAmxFp16TwinKernels;  // the same in software, for a machine with AVX2
/// The best kernels of this machine with those of the twin: level avx512amx on a machine without AMX.
const KernelSet& emulated_amx_kernels();
#endif
#ifdef SACCADE_ARM64
extern const KernelSet kNeonKernels;
extern const AttentionKernels kNeonKernelsF64;
#endif
#ifdef SACCADE_NEON_PRODUCTS
extern const KernelSet kNeonBf16Kernels;
extern const PairKernels kNeonPairKernels;
extern const KernelSet kNeonDotKernels;  // level neon on a processor with SDOT and without products of bf16
extern const ByteKernels kNeonDotByteKernels, kNeonMatrixByteKernels;
#endif
#ifdef SACCADE_WASM
extern const KernelSet kWasm128Kernels;
#endif

}  // namespace saccade::cpu
