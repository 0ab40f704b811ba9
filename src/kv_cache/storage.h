// How a cache stores its tokens: the base of the two ways, one contiguous block per head or pages of a pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/ceil_div.h"
#include "core/memory.h"
#include "saccade/kv_cache.h"

namespace saccade {

/// An uninitialized buffer [blocks, num_kv_heads, rows, dim] that owns its memory.
class KvBuffer {
 public:
  KvBuffer(DType dtype, const Shape& shape);

  MutableTensorView view() const { return {memory_.data(), dtype_, shape_}; }
  std::int64_t shape(std::size_t dim) const { return shape_[dim]; }
  std::size_t bytes() const { return memory_.bytes(); }

  /// The [rows, dim] of one head in one block.
  MutableTensorView head(std::int64_t block, std::int64_t head) const {
    return view().select(0, block).select(0, head);
  }

  /// A copy with one dimension longer.
  KvBuffer grown(std::size_t dim, std::int64_t length) const;

 private:
  DType dtype_;
  Shape shape_;
  Memory memory_;
};

/// The new length of a buffer of length `current` when `needed` do not fit: it grows by half, so that growing
/// one by one costs no more than a few copies of everything.
inline std::int64_t grown_length(std::int64_t current, std::int64_t needed) {
  return std::max(needed, current + current / 2);
}

/// KvCache checks state and arguments. Functions that throw leave everything unchanged; the others do not throw.
class KvCache::Storage {
 public:
  static std::unique_ptr<Storage> make(const KvCacheOptions& options);
  virtual ~Storage() = default;

  const KvCacheOptions& config() const { return config_; }
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  std::int64_t length(std::int64_t sequence) const { return lengths_[static_cast<std::size_t>(sequence)]; }
  std::int64_t first_kept(std::int64_t sequence) const { return first_kept_[static_cast<std::size_t>(sequence)]; }

  std::int64_t start(std::int64_t sequence) const { return starts_[static_cast<std::size_t>(sequence)]; }

  /// Allocates room for `count` more tokens in each of sequences [begin, end). Throws std::bad_alloc.
  virtual void reserve(std::int64_t begin, std::int64_t end, std::int64_t count) = 0;
  /// Adds tokens, for which there is room: k [num_kv_heads, count, head_dim], v alike.
  virtual void append(std::int64_t sequence, const TensorView& k, const TensorView& v) = 0;
  virtual void truncate(std::int64_t sequence, std::int64_t length) = 0;
  virtual void share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) = 0;

  virtual void set_start(std::int64_t sequence, std::int64_t start) {
    starts_[static_cast<std::size_t>(sequence)] = start;
  }

  virtual TensorView keys() const = 0;
  virtual TensorView values() const = 0;
  /// Sets kv_lengths, kv_starts and block_table.
  virtual void describe(AttentionOptions& options) const = 0;
  virtual std::int64_t pages_in_use() const = 0;
  std::size_t bytes() const { return numbers_[0].bytes() + numbers_[1].bytes(); }

  /// The first key that the token at `position` sees.
  std::int64_t first_seen(std::int64_t position) const {
    return config_.window < 0 ? 0 : std::max<std::int64_t>(0, position - config_.window);
  }

 protected:
  /// `blocks` times `rows` tokens.
  Storage(const KvCacheOptions& options, std::int64_t blocks, std::int64_t rows);

  /// Makes one dimension of numbers_ longer.
  void grow(std::size_t dim, std::int64_t length);

  KvCacheOptions config_;
  std::vector<std::int64_t> lengths_, first_kept_, starts_;  // [batch]
  std::array<KvBuffer, 2> numbers_;                          // of k and of v
};

/// One contiguous block for each head of each sequence: index j holds position first_kept + j.
class KvCache::Contiguous final : public Storage {
 public:
  explicit Contiguous(const KvCacheOptions& options);

  void reserve(std::int64_t begin, std::int64_t end, std::int64_t count) override;
  void append(std::int64_t sequence, const TensorView& k, const TensorView& v) override;
  void truncate(std::int64_t sequence, std::int64_t length) override;
  void share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) override;
  void set_start(std::int64_t sequence, std::int64_t start) override;
  TensorView keys() const override { return tokens(0); }
  TensorView values() const override { return tokens(1); }
  void describe(AttentionOptions& options) const override;
  std::int64_t pages_in_use() const override { return 0; }

 private:
  std::int64_t capacity() const { return numbers_[0].shape(2); }
  std::int64_t evictable(std::int64_t sequence) const;
  void evict(std::int64_t sequence);
  void set_range(std::int64_t sequence, std::int64_t first_kept, std::int64_t length);
  TensorView tokens(std::size_t which) const;

  std::vector<std::int64_t> kept_, kept_starts_;  // [batch], tokens in memory and the first that is not hidden
};

/// Pages of a pool, with a table of pages for each sequence and a reference count for each page. The token at
/// position p is in row p % page_size of page p / page_size of its sequence.
class KvCache::Paged final : public Storage {
 public:
  explicit Paged(const KvCacheOptions& options);

  void reserve(std::int64_t begin, std::int64_t end, std::int64_t count) override;
  void append(std::int64_t sequence, const TensorView& k, const TensorView& v) override;
  void truncate(std::int64_t sequence, std::int64_t length) override;
  void share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) override;
  TensorView keys() const override { return numbers_[0].view(); }
  TensorView values() const override { return numbers_[1].view(); }
  void describe(AttentionOptions& options) const override;
  std::int64_t pages_in_use() const override;

 private:
  std::int64_t pages_for(std::int64_t tokens) const { return ceil_div(tokens, config_.page_size); }
  std::int32_t* row(std::int64_t sequence) { return table_.data() + sequence * table_width_; }
  std::int32_t& references(std::int32_t page) { return references_[static_cast<std::size_t>(page)]; }
  void add_pages(std::int64_t pages);
  void widen_table(std::int64_t width);
  std::int32_t take_page();
  void release(std::int32_t& entry);
  void release_from(std::int64_t sequence, std::int64_t page);
  void evict(std::int64_t sequence);
  bool shares_last_page(std::int64_t sequence);
  void own_last_page(std::int64_t sequence);

  std::vector<std::int32_t> table_;  // [batch, table_width_], -1 where there is no page
  std::int64_t table_width_ = 0;
  std::vector<std::int32_t> references_;  // [num_pages]
  std::vector<std::int32_t> free_;        // unreferenced pages; the last one is used next
};

/// The options for a call over a cache: KvCache::options, after a check that the cache still has the keys of q's
/// first row.
AttentionOptions options_over(std::string_view function, const TensorView& q, const KvCache& cache,
                              const AttentionOptions& options);

}  // namespace saccade
