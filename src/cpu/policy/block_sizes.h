// All tile and block sizes, with the measurements behind them. They depend on the instruction set, the head
// dimensions and seqlen_k, never on batch, seqlen_q or threads: a row's bits must not depend on those.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Query rows of a tile (mr), and vectors of keys, or of head_dim_v in the P V product (nr / width): the
/// accumulators leave registers for the operands only, 12 x 2 of 32 registers, 6 x 2 of 16. For P V, 12 x 2 reads
/// V once for a tile of queries and 6 x 4 twice: 0.917 of peak instead of 0.900 at seqlen 1024, head_dim 128, and
/// no difference at 4096 (Zen 4).
#ifdef SACCADE_AMX  // four tiles of 16 x 16 accumulators
inline constexpr bool kAmx = true;
inline constexpr int kTileRows = 32;
#else
inline constexpr bool kAmx = false;
inline constexpr int kTileRows = kRegisters == 32 ? 12 : (kWidth == 1 ? 4 : 6);
#endif
inline constexpr int kTileVectors = kAmx ? 32 / kWidth : 2;
inline constexpr int kTileColumns = kTileVectors * kWidth;

/// Whether these kernels multiply bf16 pairs: queries, keys and values unchanged, weights rounded to bf16. A step
/// is then two dimensions, or two keys in P V; scores are scaled after the product. The file that compiles them
/// includes their functions first (simd/avx512_bf16.h, which describes them).
#ifdef SACCADE_BF16_PRODUCT
inline constexpr bool kPairs = true;
#else
inline constexpr bool kPairs = kAmx;
#endif

/// Whether these kernels take keys and values of e4m3 only, which they load 64 at a time (simd/avx512_vbmi.h).
#ifdef SACCADE_ONLY_FLOAT8
inline constexpr bool kOnlyFloat8 = true;
#else
inline constexpr bool kOnlyFloat8 = false;
#endif

/// Dimensions of a step, or keys in P V.
inline constexpr int kStepNumbers = kPairs ? 2 : 1;

/// Depth and columns of the block of b that a matrix product packs: 576 KiB, for an L2 cache of 1 MiB. With 512
/// columns a is read more often: 0.89 instead of 0.92 of the peak at 4096 x 768 x 768; a depth of 384 or 512 gains
/// nothing (Zen 4). The depth is also the length of a chain: with 192 the error is that of MKL's products.
inline constexpr int kProductDepth = 192, kProductColumns = 768;
static_assert(kProductDepth % kWidth == 0 && kProductColumns % kTileColumns == 0);

/// Rows of a and columns of b that are packed at a time, so that memory is read in long runs for transposed
/// operands too: packing a single tile at a time took 20 clocks for each step of the depth, 4 to 15% of the
/// gradient of a weight (Zen 4).
inline constexpr int kPackedRows = 48, kPackedColumns = 128;

/// Columns of c computed at a time where c has a single row: enough chains to cover the latency of a multiply-add,
/// and b is read in long runs.
inline constexpr int kRowColumns = 8 * kWidth;
static_assert(kRowColumns >= kTileColumns);
static_assert(kAmx || (kPackedRows % kTileRows == 0 && kPackedColumns % kTileColumns == 0));

/// Keys of a block. 256 keeps a tile's scores and probabilities (12 KiB each at 12 rows) close to the L1 cache.
/// For AMX it is what four accumulators hold: a larger block of scores leaves the L1 cache (see amx/forward.h).
inline constexpr int kBlockK = kAmx ? 32 : 256;
static_assert(kBlockK % kTileColumns == 0);

/// Keys whose weights inspection folds into its statistics at a time. With 128 on AMX, 32 KiB of scores and
/// weights instead of 64, more steps of a row have one of its best keys: the best eight took 1.04 to 1.19 times as
/// long (Granite Rapids).
inline constexpr int kFoldColumns = 256;
static_assert(kFoldColumns % kBlockK == 0);

/// Inspection keeps the scores of a block of rows, up to these bytes, instead of computing them twice: 0.60 to
/// 0.86 of the time of all statistics, from the third-level cache too, which more bytes would leave. With fewer
/// rows to a block the packed keys are read more often (32,768 keys, 32 rows: 0.85, 64: 0.80; Granite Rapids).
inline constexpr std::int64_t kKeptScores = std::int64_t{4} << 20, kFewestKeptRows = 24;

/// Up to this many dimensions, the product of a query and a key is one chain of multiply-adds; beyond, it is a sum
/// of chains of up to kScoreChain dimensions. Ending chains took 0.7% of a forward and 1.2% of a backward at
/// head_dim 128 (Zen 5). Plain code rounds twice at each step, and has no speed to lose.
inline constexpr int kOneScoreChain = kWidth == 1 ? 64 : 128, kScoreChain = 64;

/// Keys of a chain of P V and of dS K: a block has two.
inline constexpr int kValueChain = kBlockK / 2;

/// Query rows of a unit of work: 128 rows are one unit, 1024 rows eight.
inline constexpr int kBlockQ = kAmx ? 256 : 132;
static_assert(kBlockQ % kTileRows == 0);

/// Backward: query rows of a chain of P^T dO and dS^T Q. Four chains per block instead of two cost 0.3% of a
/// backward (head_dim 64, Zen 5) and reduce the largest error of dv over 113 causal rows to 0.86 of what it was.
inline constexpr int kRowChain = kBlockQ / 4;

/// Query rows of a unit of work that packs its own keys: more rows share the packed keys. With seven blocks,
/// packing takes some 2% of the time, with one block 13% (head_dim 64, Zen 4).
inline constexpr std::int64_t kBlockQAlone = kAmx ? 1024 : 7 * kBlockQ;

/// The maximum number of tiles of one query block.
inline constexpr int kMaxTiles = 1024 / kTileRows;
static_assert(kBlockQAlone <= kMaxTiles * kTileRows);

/// Decode: keys of a split, for which one thread computes scores and then adds values, at absolute multiples.
/// States that leave these kernels have the same splits. Memory is fastest at long runs of one tensor.
inline constexpr std::int64_t kDecodeSplit = kDecodeSplitKeys;

/// Decode: keys for which one decision is taken, whether to compute them and how their scores change.
inline constexpr int kDecodeBlock = 256;
static_assert(kDecodeSplit % kDecodeBlock == 0);

/// Decode: the maximum number of rows of a kv head that read its keys together (their scores, 1 MiB for 64 rows,
/// should stay in the L2 cache); and the unit of the keys after which kv heads alternate. On tiles, with pages of
/// 16, 32 keys take 1.1 times as long as 128 in bf16, and 1.4 times in i8 (Granite Rapids).
inline constexpr std::int64_t kDecodeMaxRows = kAmx ? 64 : 16;
inline constexpr std::int64_t kDecodeStep = kAmx ? 128 : 16;
static_assert(kDecodeSplit % kDecodeStep == 0);

/// Decode: accumulated output is padded to a multiple of this many columns.
inline constexpr int kValueChunk = kAmx ? kTileColumns : 8 * kWidth;

/// Query rows and keys of one step of decode's scores. The sums fill one vector: each 128-bit lane is a row.
inline constexpr int kDecodeKeys = kWidth == 1 ? 1 : 16 / static_cast<int>(sizeof(Scalar));
inline constexpr int kDecodeRows = kWidth / kDecodeKeys;

/// Columns of a key block that are computed or skipped together, a multiple of every tile's.
inline constexpr int kKeySubtile = 32;
inline constexpr int kKeySubtiles = kBlockK / kKeySubtile;
static_assert(kKeySubtile % kTileColumns == 0);

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
