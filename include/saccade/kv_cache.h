// The keys and values of all tokens so far, kept for the queries of later tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "saccade/attention.h"
#include "saccade/decode.h"
#include "saccade/rope.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How a cache stores keys and values: these options of KvCacheOptions.
struct KvCacheFormat {
  DType dtype = DType::f32;        ///< element type of the keys
  std::optional<DType> dtype_v{};  ///< element type of the values; default: dtype
  std::optional<bool> rotate{};    ///< Hadamard transforms; default: if keys or values are i4
};

/// Options of a KvCache; fill it with designated initializers.
struct KvCacheOptions {
  std::int64_t batch = 1;         ///< sequences, each with its own length
  std::int64_t num_kv_heads = 1;  ///< heads of k and v
  std::int64_t head_dim = 0;      ///< of k; must be given
  std::int64_t head_dim_v = 0;    ///< of v; 0: head_dim
  /// Element type of the cache: f32, bf16, f16 or f64, or quantized (quantize.h), i8, i4 or f8e4m3: keys and
  /// values are then stored with a scale for each token and head, and attention is exact over what is stored.
  DType dtype = DType::f32;
  std::optional<DType> dtype_v{};  ///< element type of the values; default: dtype
  /// Stores Hadamard transforms (quantize.h) of quantized keys, after rope, and of values of i4. Queries and
  /// results are transformed by attention() and decode(). Default: true if keys or values are i4.
  std::optional<bool> rotate{};

  /// Tokens per page. Sequences then share pages of a pool, and a common prefix is stored once. 0: no pages; every
  /// head of every sequence has one contiguous block as large as the longest sequence needs.
  std::int64_t page_size = 0;
  /// The query at position p sees keys p - window to p (AttentionOptions::window_left), so the cache can drop keys
  /// before p - window, where p is the first token of the last append. -1: keeps all keys.
  std::int64_t window = -1;
  /// Queries are the last tokens of their sequence, and each sees the keys up to its own: Causal::bottom_right.
  /// false: options() leaves the choice to the caller (for the keys of an encoder, for example), and rows have the
  /// positions 0, 1, ..., for ALiBi too, unless the caller gives offsets; not allowed with a window.
  bool causal = true;
  /// Rotates keys by their position in the sequence when they are appended. The caller rotates the queries: see
  /// KvCache::positions.
  std::optional<Rope> rope{};
  /// Tokens per sequence to allocate at the start. When the cache is full it grows by half.
  std::int64_t capacity = 0;
};

/// What a KvCache holds, by name: for a file (kv_cache_file.h), another process, or another cache. docs/files.md
/// lists the names.
struct KvCacheState {
  std::map<std::string, Tensor> tensors{};        ///< rows, scales, lengths: what is in use, without spare room
  std::map<std::string, std::string> metadata{};  ///< the options of the cache
};

/// Keys and values of a batch of sequences for one layer of a model.
///
///     KvCache cache({.batch = 1, .num_kv_heads = 8, .head_dim = 128, .dtype = DType::bf16, .page_size = 16});
///     cache.append(k, v);          // of the new tokens
///     decode(q, cache, o);         // q of the same tokens
///
/// A token's position is its index in the sequence, even after the cache has dropped earlier ones. Results equal
/// those of the same call with all keys and values in plain tensors, bit for bit.
///
/// Functions throw std::invalid_argument for wrong arguments and std::bad_alloc if memory runs out, and then leave
/// the cache unchanged. Views are valid until the next call of a non-const function. Several threads may call
/// const functions at once, while no other function runs.
class KvCache {
 public:
  /// Empty sequences. Throws std::invalid_argument when an option is out of its range, or rope is not for
  /// head_dim.
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;

  /// The options it was constructed with, with head_dim_v, dtype_v and rotate filled in.
  const KvCacheOptions& config() const;

  /// Adds n tokens to every sequence: k [batch, num_kv_heads, n, head_dim], v [batch, num_kv_heads, n, head_dim_v]
  /// (`layout` bshd: [batch, n, num_kv_heads, ...]; rank 3 where batch is 1). Any floating-point type, any
  /// strides; numbers are rounded to nearest even where the cache's type is narrower. k and v must not be views of
  /// the cache itself.
  void append(const TensorView& k, const TensorView& v, Layout layout = Layout::bhsd);

  /// Adds n tokens to one sequence: rank 3, [num_kv_heads, n, ...] (bshd: [n, num_kv_heads, ...]).
  void append(std::int64_t sequence, const TensorView& k, const TensorView& v, Layout layout = Layout::bhsd);

  /// The number of tokens that one sequence, or each of them, has seen.
  std::int64_t length(std::int64_t sequence) const;
  std::span<const std::int64_t> lengths() const;

  /// The first position of a sequence whose key is still kept: 0 without a window.
  std::int64_t first_kept(std::int64_t sequence) const;

  /// Hides the keys before position `start` of a sequence from all queries, as AttentionOptions::kv_starts does:
  /// padding on the left of a batch of prompts. 0: none. From 0 to length(sequence); the positions of the other
  /// tokens stay as they are. truncate() and share_prefix() keep it, up to the number of tokens left.
  void set_start(std::int64_t sequence, std::int64_t start);

  /// The value of set_start(); 0 for an empty sequence.
  std::int64_t start(std::int64_t sequence) const;

  /// The positions of the last `count` tokens of each sequence, i64 [batch, count], to rotate their queries with
  /// Rope::rotate. Negative where a sequence has fewer tokens.
  Tensor positions(std::int64_t count) const;

  /// Drops the tokens of a sequence from position `length` on, as if they had never been appended (rejected
  /// guesses of speculative decoding). With a window, throws if keys that the token at `length` would see have
  /// been dropped; this cannot happen back to the start of the last append.
  void truncate(std::int64_t sequence, std::int64_t length);

  /// Empties a sequence.
  void clear(std::int64_t sequence);

  /// Makes sequence `to` a copy of the first `length` tokens of sequence `from` (all of them: length(from)) and
  /// drops the old tokens of `to`. Pages are shared and reference-counted; a sequence that appends to a shared
  /// page copies it first. Without pages the tokens are copied. Throws like truncate.
  void share_prefix(std::int64_t from, std::int64_t to, std::int64_t length);

  /// The keys, and the values, for attention() and decode() with options(): [batch, num_kv_heads, longest, dim]
  /// (`layout` bshd: [batch, longest, num_kv_heads, dim]), where options().kv_lengths gives the valid lengths.
  /// With pages: the pool, [num_pages, num_kv_heads, page_size, dim] (bshd: [num_pages, page_size, num_kv_heads,
  /// dim]).
  TensorView k(Layout layout = Layout::bhsd) const;
  /// See k(): the values, in this layout.
  TensorView v(Layout layout = Layout::bhsd) const;

  /// The keys, and the values, that attention reads, as f32 [batch, num_kv_heads, longest, dim], with or without
  /// pages: dequantized, and transformed back. Index j holds position first_kept + j (with pages: position j).
  /// Zeros where a sequence has no token.
  Tensor dequantize_k() const;
  /// See dequantize_k(): the values.
  Tensor dequantize_v() const;

  /// `rest` plus the cache's options: kv_lengths, kv_starts, block_table, k_scale and the other
  /// options of quantized tensors, causal (bottom_right, if the cache is causal) and window_left (the cache's,
  /// where `rest` has none). Throws std::invalid_argument when `rest` has an option that the cache sets, or
  /// cu_seqlens_k, or, for a causal cache, causal top_left, a query offset or a wider window.
  ///
  /// Without pages, the cache frees keys that have left the window, in multiples of 4096. Index j of a mask, score
  /// modifier, weights or scores then means position first_kept + j. Causal masks, windows and ALiBi depend on
  /// relative positions only, so they stay correct.
  AttentionOptions options(const AttentionOptions& rest = {}) const;

  /// A copy of what the cache holds. Pages that sequences share are in it once.
  KvCacheState state() const;

  /// The cache that `state` was taken of: the same rows, scales, lengths, starts, pages and options, so that all
  /// calls give the same bits. Only the capacity is that of the rows; the cache grows with the next tokens. Throws
  /// std::invalid_argument, with the name of the tensor or option, for a state that no cache has: each is checked
  /// before memory is allocated for it.
  static KvCache from_state(const KvCacheState& state);

  /// Bytes allocated for keys and values and their scales, used or not.
  std::size_t bytes() const;

  /// The number of pages that sequences hold, shared ones counted once; 0 without pages.
  std::int64_t pages_in_use() const;

 private:
  class Storage;
  class Contiguous;
  class Paged;

  /// k and v are [sequences, num_kv_heads, n, dim], for the sequences from `begin` on.
  void append_checked(std::int64_t begin, const TensorView& k, const TensorView& v);
  void check_prefix(std::string_view function, std::int64_t sequence, std::int64_t length) const;
  void truncate_checked(std::int64_t sequence, std::int64_t length);
  [[gnu::visibility("hidden")]] Tensor dequantized(std::size_t which) const;

  std::unique_ptr<Storage> storage_;
};

/// attention() of the last seqlen_q tokens of each sequence over a cache that already holds their keys and values:
/// q [batch, num_heads, seqlen_q, head_dim] (options.layout as usual, for q and o). `options` as for
/// KvCache::options; it need not set causal. Also throws std::invalid_argument when q has more rows than the last
/// append had tokens and the window has dropped keys that they would see.
void attention(const TensorView& q, const KvCache& cache, const MutableTensorView& o,
               const AttentionOptions& options = {});

/// The same, but returns o as a new tensor of q's element type.
Tensor attention(const TensorView& q, const KvCache& cache, const AttentionOptions& options = {});

/// decode() over a cache: like attention() over a cache, as fast as reading the cache once where q has few rows.
void decode(const TensorView& q, const KvCache& cache, const MutableTensorView& o,
            const AttentionOptions& options = {});

/// The same, but returns o as a new tensor of q's element type.
Tensor decode(const TensorView& q, const KvCache& cache, const AttentionOptions& options = {});

}  // namespace saccade
#pragma GCC visibility pop
