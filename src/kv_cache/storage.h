// How a cache stores its tokens: the base of the two ways, one contiguous block per head or pages of a pool.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ceil_div.h"
#include "core/memory.h"
#include "core/quantized/rows.h"
#include "saccade/kv_cache.h"

namespace saccade {

/// The keys or the values of a cache: planes [blocks, num_kv_heads, rows, bytes of a row] of numbers and, if they
/// are quantized, of scales and multipliers. Not initialized.
class KvStore {
 public:
  struct Layout {
    DType dtype = DType::f32;
    bool rotated = false;  // holds Hadamard transforms
    std::int64_t blocks = 0, heads = 0, rows = 0, dim = 0;
  };
  explicit KvStore(const Layout& layout);

  const Layout& layout() const { return layout_; }
  std::size_t bytes() const;

  TensorView numbers() const;      // [blocks, heads, rows, dim]
  TensorView scales() const;       // [blocks, heads, rows, 1]; empty: none
  TensorView multipliers() const;  // [blocks, heads, rows, groups]; empty: none

  /// A plane as a tensor of a type that files have: rows of i4 are bytes.
  struct NamedPlane {
    std::string_view suffix;  // of its name: "", "_scale" or "_multipliers"
    MutableTensorView rows;   // [blocks, heads, rows, columns]
  };
  std::vector<NamedPlane> planes() const;

  /// Stores tokens [heads, count, dim] in a block, from `row` on. Does not throw.
  void write(std::int64_t block, std::int64_t row, const TensorView& tokens);
  /// Copies `count` rows of all heads; source and target may overlap.
  void copy_rows(std::int64_t from_block, std::int64_t from_row, std::int64_t to_block, std::int64_t to_row,
                 std::int64_t count);
  /// A copy with more blocks or rows.
  KvStore grown(std::int64_t blocks, std::int64_t rows) const;

 private:
  /// Planes of one kind; `row_bytes` 0: there is none.
  struct Plane {
    std::size_t row_bytes;
    Memory memory;
    std::byte* row(const Layout& layout, std::int64_t block, std::int64_t head, std::int64_t index) const {
      const std::int64_t rows = (block * layout.heads + head) * layout.rows + index;
      return static_cast<std::byte*>(memory.data()) + static_cast<std::size_t>(rows) * row_bytes;
    }
  };
  static Plane plane_of(const Layout& layout, std::int64_t row_bytes);
  void write_quantized(std::int64_t block, std::int64_t row, const TensorView& tokens);

  Layout layout_;
  std::array<Plane, 3> planes_;  // numbers, scales, multipliers
  std::vector<float> scratch_;   // two rows
};

/// The new length of a buffer of length `current` when `needed` do not fit: it grows by half, so that growing
/// one by one costs no more than a few copies of everything.
inline std::int64_t grown_length(std::int64_t current, std::int64_t needed) {
  return std::max(needed, current + current / 2);
}

class StateReader;

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
  /// Sets the options of quantized tensors.
  void describe_scales(AttentionOptions& options) const;
  /// Sets kv_lengths, kv_starts and block_table.
  virtual void describe(AttentionOptions& options) const = 0;
  virtual std::int64_t pages_in_use() const = 0;
  std::size_t bytes() const { return stores_[0].bytes() + stores_[1].bytes(); }
  /// The row of a store that holds position first_kept + j of a sequence, or with pages position j.
  struct Place {
    std::int64_t block, row;
  };
  virtual Place place(std::int64_t sequence, std::int64_t j) const = 0;
  /// The rows that place() knows: from the first to the last.
  virtual std::int64_t begin_row(std::int64_t sequence) const = 0;
  virtual std::int64_t end_row(std::int64_t sequence) const = 0;

  /// Adds lengths and rows to a state.
  void write(KvCacheState& state) const;
  /// Takes those of a state into empty sequences. Throws std::invalid_argument if they do not fit together.
  void read(StateReader& state);

  const KvStore& store(std::size_t which) const { return stores_[which]; }

  /// The first key that the token at `position` sees.
  std::int64_t first_seen(std::int64_t position) const {
    return config_.window < 0 ? 0 : std::max<std::int64_t>(0, position - config_.window);
  }

 protected:
  /// `blocks` times `rows` tokens.
  Storage(const KvCacheOptions& options, std::int64_t blocks, std::int64_t rows);

  /// Makes room for more blocks, or more rows of each.
  void grow(std::int64_t blocks, std::int64_t rows);

  virtual void write_rows(KvCacheState& state) const = 0;
  virtual void read_rows(StateReader& state) = 0;
  /// Keys are dropped in multiples of this.
  virtual std::int64_t dropped_together() const = 0;
  /// Calls f(name, rows) for each plane of keys and values: "k", "k_scale" and so on.
  template <class F>
  void for_planes(const F& f) const {
    for (const std::size_t which : {0U, 1U})
      for (const KvStore::NamedPlane& plane : stores_[which].planes())
        f((which == 0 ? "k" : "v") + std::string(plane.suffix), plane.rows);
  }

  KvCacheOptions config_;
  std::vector<std::int64_t> lengths_, first_kept_, starts_;  // [batch]
  std::array<KvStore, 2> stores_;                            // of k and of v
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
  Place place(std::int64_t sequence, std::int64_t j) const override { return {sequence, j}; }
  std::int64_t begin_row(std::int64_t) const override { return 0; }
  std::int64_t end_row(std::int64_t sequence) const override { return length(sequence) - first_kept(sequence); }
  void describe(AttentionOptions& options) const override;
  std::int64_t pages_in_use() const override { return 0; }

 private:
  std::int64_t capacity() const { return stores_[0].layout().rows; }
  std::int64_t evictable(std::int64_t sequence) const;
  void evict(std::int64_t sequence);
  void set_range(std::int64_t sequence, std::int64_t first_kept, std::int64_t length);
  TensorView tokens(std::size_t which) const;
  void write_rows(KvCacheState& state) const override;
  void read_rows(StateReader& state) override;
  std::int64_t dropped_together() const override { return kEvicted; }

  /// Keys are dropped in multiples of this, so that index and position are equal modulo every block size of the
  /// kernels: the last bits depend on where blocks begin.
  static constexpr std::int64_t kEvicted = 4096;

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
  TensorView keys() const override { return stores_[0].numbers(); }
  TensorView values() const override { return stores_[1].numbers(); }
  Place place(std::int64_t sequence, std::int64_t j) const override;
  std::int64_t begin_row(std::int64_t sequence) const override { return first_kept(sequence); }
  std::int64_t end_row(std::int64_t sequence) const override { return length(sequence); }
  void describe(AttentionOptions& options) const override;
  std::int64_t pages_in_use() const override;

 private:
  std::int64_t pages_for(std::int64_t tokens) const { return ceil_div(tokens, config_.page_size); }
  std::int32_t* row(std::int64_t sequence) { return table_.data() + sequence * table_width_; }
  const std::int32_t* row(std::int64_t sequence) const { return table_.data() + sequence * table_width_; }
  std::int32_t& references(std::int32_t page) { return references_[static_cast<std::size_t>(page)]; }
  void add_pages(std::int64_t pages);
  void widen_table(std::int64_t width);
  std::int32_t take_page();
  void release(std::int32_t& entry);
  void release_from(std::int64_t sequence, std::int64_t page);
  void evict(std::int64_t sequence);
  bool shares_last_page(std::int64_t sequence);
  void own_last_page(std::int64_t sequence);
  void write_rows(KvCacheState& state) const override;
  void read_rows(StateReader& state) override;
  std::int64_t dropped_together() const override { return config_.page_size; }
  void take_table(const TensorView& table, std::int64_t pages);

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
