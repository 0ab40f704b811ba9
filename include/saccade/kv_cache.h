// The keys and values of the tokens seen so far, kept for the queries of the tokens to come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "saccade/attention.h"
#include "saccade/decode.h"
#include "saccade/rope.h"
#include "saccade/tensor.h"

namespace saccade {

/// What a KvCache is for; fill it with designated initialisers.
struct KvCacheOptions {
  std::int64_t batch = 1;         ///< sequences, each with a length of its own
  std::int64_t num_kv_heads = 1;  ///< heads of k and v
  std::int64_t head_dim = 0;      ///< of k; must be given
  std::int64_t head_dim_v = 0;    ///< of v; 0: head_dim
  DType dtype = DType::f32;       ///< of the numbers kept: f32, bf16, f16 or f64

  /// Tokens of a page. Sequences then share pages of a pool, and a common prefix is stored once. 0: every head of
  /// every sequence is one run of memory, room for the longest sequence.
  std::int64_t page_size = 0;
  /// The query at position p will see keys p - window to p (AttentionOptions::window_left), so that keys before
  /// p - window, with p the first token of the last append, need not be kept. -1: all are kept.
  std::int64_t window = -1;
  /// Queries are the last tokens of their sequence, and each sees the keys up to its own: Causal::bottom_right.
  /// false: options() leaves to the caller who sees what (keys of an encoder, say); excludes a window.
  bool causal = true;
  /// Turns the keys by their position in the sequence as they come in. Queries are the caller's to turn: see
  /// KvCache::positions.
  std::optional<Rope> rope{};
  /// Tokens to make room for at once, in each sequence. More are taken as they come, with half as much again.
  std::int64_t capacity = 0;
};

/// Keys and values of a batch of sequences for one layer of a model.
///
///     KvCache cache({.batch = 1, .num_kv_heads = 8, .head_dim = 128, .dtype = DType::bf16, .page_size = 16});
///     cache.append(k, v);          // of the new tokens
///     decode(q, cache, o);         // q of the same tokens
///
/// A token's position is its index in the sequence, whatever the cache has forgotten since. Results are those of
/// the same call with all keys and values in plain tensors, bit by bit.
///
/// Functions throw std::invalid_argument for wrong arguments and std::bad_alloc without memory, and then leave the
/// cache as it was. Views are valid until the next call of a function that is not const. Const functions may be
/// called from several threads at once, as long as no other function runs.
class KvCache {
 public:
  /// Empty sequences. Throws std::invalid_argument when an option is out of its range, or rope is not for
  /// head_dim.
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;

  /// What it was made with, head_dim_v filled in.
  const KvCacheOptions& config() const;

  /// Adds n tokens to every sequence: k [batch, num_kv_heads, n, head_dim], v [batch, num_kv_heads, n, head_dim_v]
  /// (Layout::blhd: [batch, n, num_kv_heads, ...]; rank 3 where batch is 1). Any floating-point type, any strides;
  /// numbers are rounded to nearest even where the cache's type is narrower. They must not be the cache's own.
  void append(const TensorView& k, const TensorView& v, Layout layout = Layout::bhld);

  /// Adds n tokens to one sequence: rank 3, [num_kv_heads, n, ...] (blhd: [n, num_kv_heads, ...]).
  void append(std::int64_t sequence, const TensorView& k, const TensorView& v, Layout layout = Layout::bhld);

  /// Tokens that a sequence, or each of them, has seen.
  std::int64_t length(std::int64_t sequence) const;
  std::span<const std::int64_t> lengths() const;

  /// The first position whose key is still kept: 0 without a window.
  std::int64_t first_kept(std::int64_t sequence) const;

  /// The positions of the last `count` tokens of each sequence, i64 [batch, count]: for Rope::rotate of their
  /// queries. Negative where a sequence has fewer.
  Tensor positions(std::int64_t count) const;

  /// Forgets the tokens from position `length` on, as if they had never come (rejected guesses of speculative
  /// decoding). With a window, throws when keys that the token at `length` would see are gone; as far back as the
  /// last append they are not.
  void truncate(std::int64_t sequence, std::int64_t length);

  /// Empties a sequence.
  void clear(std::int64_t sequence);

  /// Makes sequence `to` a copy of the first `length` tokens of sequence `from` (all of them: length(from)); what
  /// `to` held is forgotten. Pages are shared and counted, and a sequence that adds to a page that others
  /// read too takes a copy first; without pages the tokens are copied. Throws like truncate.
  void share_prefix(std::int64_t from, std::int64_t to, std::int64_t length);

  /// Keys and values for attention() and decode() with options(): [batch, num_kv_heads, longest, dim] (blhd:
  /// [batch, longest, num_kv_heads, dim]), of which options().kv_lengths says how many count; with pages the pool,
  /// [num_pages, num_kv_heads, page_size, dim] (blhd: [num_pages, page_size, num_kv_heads, dim]).
  TensorView k(Layout layout = Layout::bhld) const;
  TensorView v(Layout layout = Layout::bhld) const;

  /// `rest` with what the cache adds: kv_lengths, block_table, causal (bottom_right, if the cache is causal) and
  /// window_left (the cache's, where `rest` has none). Throws std::invalid_argument when `rest` has set
  /// kv_lengths, block_table or cu_seqlens_k, or, for a causal cache, causal top_left, a query offset or a wider
  /// window.
  ///
  /// Without pages, keys that a window has left behind make room in multiples of 4096; index j is then position
  /// first_kept + j, for a mask, score modifier, weights or scores too. Positions are relative in the same way, so
  /// that causal, window and ALiBi agree.
  AttentionOptions options(const AttentionOptions& rest = {}) const;

  /// Bytes taken for keys and values, used or not.
  std::size_t bytes() const;

  /// Pages that some sequence holds, shared ones counted once; 0 without pages.
  std::int64_t pages_in_use() const;

 private:
  class Storage;
  class Contiguous;
  class Paged;

  /// k and v are [sequences, num_kv_heads, n, dim], for the sequences from `begin` on.
  void append_checked(std::int64_t begin, const TensorView& k, const TensorView& v);
  void check_prefix(std::string_view function, std::int64_t sequence, std::int64_t length) const;

  std::unique_ptr<Storage> storage_;
};

/// attention() of the last seqlen_q tokens of each sequence over a cache: q [batch, num_heads, seqlen_q, head_dim]
/// (options.layout as usual, for q and o), whose keys and values are in the cache already. `options` as for
/// KvCache::options; it need not mention causal. Throws std::invalid_argument also when q has more rows than the
/// last append had tokens and a window has forgotten keys that they would see.
void attention(const TensorView& q, const KvCache& cache, const MutableTensorView& o,
               const AttentionOptions& options = {});

/// The same, returning o in a tensor of its own, of q's element type.
Tensor attention(const TensorView& q, const KvCache& cache, const AttentionOptions& options = {});

/// decode() over a cache: as attention() over a cache, at the speed of reading it once where q has few rows.
void decode(const TensorView& q, const KvCache& cache, const MutableTensorView& o,
            const AttentionOptions& options = {});

/// The same, returning o in a tensor of its own, of q's element type.
Tensor decode(const TensorView& q, const KvCache& cache, const AttentionOptions& options = {});

}  // namespace saccade
