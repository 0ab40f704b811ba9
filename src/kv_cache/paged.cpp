#include <algorithm>
#include <functional>
#include <limits>
#include <new>

#include "core/check.h"
#include "kv_cache/state.h"
#include "kv_cache/storage.h"

namespace saccade {

KvCache::Paged::Paged(const KvCacheOptions& options) : Storage(options, 0, options.page_size) {
  const std::int64_t pages = pages_for(options.capacity);
  add_pages(element_count(Shape{options.batch, pages}));
  widen_table(pages);
}

// ---- Pages ---------------------------------------------------------------------------------------------------

void KvCache::Paged::add_pages(std::int64_t pages) {
  const std::int64_t before = stores_[0].layout().blocks;
  if (pages <= before) return;
  if (pages > std::numeric_limits<std::int32_t>::max()) throw std::bad_alloc();
  free_.reserve(static_cast<std::size_t>(pages));  // all of them, so that freeing a page never allocates
  references_.reserve(static_cast<std::size_t>(pages));
  grow(pages, config_.page_size);
  references_.resize(static_cast<std::size_t>(pages));
  for (std::int64_t page = before; page < pages; ++page) free_.push_back(static_cast<std::int32_t>(page));
  std::sort(free_.begin(), free_.end(), std::greater<>());  // runs of adjacent pages are faster to read
}

void KvCache::Paged::widen_table(std::int64_t width) {
  if (width <= table_width_) return;
  std::vector<std::int32_t> wider(static_cast<std::size_t>(config_.batch * width), -1);
  for (std::int64_t b = 0; b < config_.batch; ++b) std::copy_n(row(b), table_width_, wider.data() + b * width);
  table_ = std::move(wider);
  table_width_ = width;
}

std::int32_t KvCache::Paged::take_page() {
  const std::int32_t page = free_.back();
  free_.pop_back();
  references(page) = 1;
  return page;
}

void KvCache::Paged::release(std::int32_t& entry) {
  if (entry >= 0 && --references(entry) == 0) free_.push_back(entry);
  entry = -1;
}

void KvCache::Paged::release_from(std::int64_t sequence, std::int64_t page) {
  for (const std::int64_t end = pages_for(length(sequence)); page < end; ++page) release(row(sequence)[page]);
}

std::int64_t KvCache::Paged::pages_in_use() const {
  return static_cast<std::int64_t>(references_.size() - free_.size());
}

// ---- Tokens --------------------------------------------------------------------------------------------------

void KvCache::Paged::reserve(std::int64_t begin, std::int64_t end, std::int64_t count) {
  std::int64_t needed = 0, width = 0;
  for (std::int64_t b = begin; b < end; ++b) {
    width = std::max(width, pages_for(length(b) + count));
    needed += pages_for(length(b) + count) - pages_for(length(b)) + (shares_last_page(b) ? 1 : 0);
  }
  const auto missing = needed - static_cast<std::int64_t>(free_.size());
  if (missing > 0) add_pages(grown_length(stores_[0].layout().blocks, stores_[0].layout().blocks + missing));
  if (width > table_width_) widen_table(grown_length(table_width_, width));
}

/// Returns pages that no later token sees to the pool.
void KvCache::Paged::evict(std::int64_t sequence) {
  const std::int64_t first = first_seen(length(sequence)) / config_.page_size * config_.page_size;
  std::int64_t& kept = first_kept_[static_cast<std::size_t>(sequence)];
  for (; kept < first; kept += config_.page_size) release(row(sequence)[kept / config_.page_size]);
}

/// Whether the next token goes into a page that other sequences share.
bool KvCache::Paged::shares_last_page(std::int64_t sequence) {
  const std::int64_t length = this->length(sequence);
  return length % config_.page_size != 0 && references(row(sequence)[length / config_.page_size]) > 1;
}

/// Copies the last page if other sequences share it, before a token is added.
void KvCache::Paged::own_last_page(std::int64_t sequence) {
  if (!shares_last_page(sequence)) return;
  const std::int64_t rows = length(sequence) % config_.page_size;
  std::int32_t& entry = row(sequence)[length(sequence) / config_.page_size];
  const std::int32_t shared = entry;
  release(entry);
  entry = take_page();
  for (KvStore& store : stores_) store.copy_rows(shared, 0, entry, 0, rows);
}

void KvCache::Paged::append(std::int64_t sequence, const TensorView& k, const TensorView& v) {
  const std::int64_t count = k.shape[1], page_size = config_.page_size;
  if (count == 0) return;
  evict(sequence);
  own_last_page(sequence);
  std::int64_t& length = lengths_[static_cast<std::size_t>(sequence)];
  for (std::int64_t i = 0, rows; i < count; i += rows, length += rows) {
    const std::int64_t at = length % page_size;
    rows = std::min(page_size - at, count - i);
    std::int32_t& page = row(sequence)[length / page_size];
    if (at == 0) page = take_page();
    stores_[0].write(page, at, k.slice(1, i, i + rows));
    stores_[1].write(page, at, v.slice(1, i, i + rows));
  }
}

KvCache::Storage::Place KvCache::Paged::place(std::int64_t sequence, std::int64_t j) const {
  const std::int64_t page = table_[static_cast<std::size_t>(sequence * table_width_ + j / config_.page_size)];
  return {page, j % config_.page_size};
}

void KvCache::Paged::truncate(std::int64_t sequence, std::int64_t length) {
  release_from(sequence, pages_for(length));
  lengths_[static_cast<std::size_t>(sequence)] = length;
  if (length == 0) first_kept_[static_cast<std::size_t>(sequence)] = 0;
}

void KvCache::Paged::share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) {
  truncate(to, 0);
  const std::int64_t first = length == 0 ? 0 : first_kept(from);
  for (std::int64_t page = first / config_.page_size; page < pages_for(length); ++page) {
    row(to)[page] = row(from)[page];
    ++references(row(to)[page]);
  }
  lengths_[static_cast<std::size_t>(to)] = length;
  first_kept_[static_cast<std::size_t>(to)] = first;
}

void KvCache::Paged::describe(AttentionOptions& options) const {
  options.kv_lengths = TensorView(lengths_.data(), {config_.batch});
  options.kv_starts = TensorView(starts_.data(), {config_.batch});
  const std::int64_t pages = pages_for(*std::max_element(lengths_.begin(), lengths_.end()));
  options.block_table = TensorView(table_.data(), {config_.batch, pages}, {table_width_, 1});
  describe_scales(options);
}

// ---- State ---------------------------------------------------------------------------------------------------

void KvCache::Paged::write_rows(KvCacheState& state) const {
  const std::int64_t page_size = config_.page_size, width = pages_for(*std::ranges::max_element(lengths_));
  Tensor table(DType::i32, {config_.batch, width});
  std::ranges::fill(table.values<std::int32_t>(), -1);
  // Pages in the order in which sequences come to them, with the rows that the longest of these uses.
  std::vector<std::int32_t> numbers(references_.size(), -1), pages;
  std::vector<std::int64_t> used;
  for (std::int64_t b = 0; b < config_.batch; ++b) {
    for (std::int64_t i = first_kept(b) / page_size; i < pages_for(length(b)); ++i) {
      const std::int32_t page = row(b)[i];
      std::int32_t& number = numbers[static_cast<std::size_t>(page)];
      if (number < 0) {
        number = static_cast<std::int32_t>(pages.size());
        pages.push_back(page);
        used.push_back(0);
      }
      std::int64_t& rows = used[static_cast<std::size_t>(number)];
      rows = std::max(rows, std::min(page_size, length(b) - i * page_size));
      table.at<std::int32_t>(b, i) = number;
    }
  }
  state.tensors["block_table"] = std::move(table);
  for_planes([&](const std::string& name, const MutableTensorView& rows) {
    Tensor kept(rows.dtype, {static_cast<std::int64_t>(pages.size()), rows.shape[1], page_size, rows.shape[3]});
    for (std::size_t i = 0; i < pages.size(); ++i)
      copy(rows.select(0, pages[i]).slice(1, 0, used[i]),
           kept.mutable_view().select(0, static_cast<std::int64_t>(i)).slice(1, 0, used[i]));
    state.tensors[name] = std::move(kept);
  });
}

void KvCache::Paged::read_rows(StateReader& state) {
  const Tensor& table = state.tensor("block_table", DType::i32, {config_.batch, std::nullopt});
  if (const std::int64_t width = pages_for(*std::ranges::max_element(lengths_)); table.shape(1) < width)
    refuse(kFromState, "block_table has shape ", to_string(table.shape()), ", but the longest sequence has ",
           width, " pages");
  std::int64_t pages = 0;
  for_planes([&](const std::string& name, const MutableTensorView& rows) {
    const auto wanted = name == "k" ? std::nullopt : std::optional(pages);
    pages = state.tensor(name, rows.dtype, {wanted, rows.shape[1], config_.page_size, rows.shape[3]}).shape(0);
  });
  widen_table(table.shape(1));
  add_pages(pages);
  take_table(table, pages);
  for_planes([&](const std::string& name, const MutableTensorView& rows) {
    copy(state.tensor(name, rows.dtype, {pages, rows.shape[1], config_.page_size, rows.shape[3]}),
         rows.slice(0, 0, pages));
  });
}

/// Copies a state's table, in which each page has a place.
void KvCache::Paged::take_table(const TensorView& table, std::int64_t pages) {
  const auto* from = table.as<std::int32_t>();
  for (std::int64_t b = 0; b < config_.batch; ++b) {
    for (std::int64_t i = 0; i < table.shape[1]; ++i, ++from) {
      const bool holds = i >= first_kept(b) / config_.page_size && i < pages_for(length(b));
      if (holds ? *from < 0 || *from >= pages : *from != -1)
        refuse(kFromState, "block_table[", b, ", ", i, "] must be ",
               holds ? "a page from 0 to " + std::to_string(pages - 1) : "-1", ", but it is ", *from);
      row(b)[i] = *from;
      if (holds) ++references(*from);
    }
  }
  for (std::int64_t page = 0; page < pages; ++page)
    if (references(static_cast<std::int32_t>(page)) == 0)
      refuse(kFromState, "page ", page, " of k belongs to no sequence in block_table");
  std::erase_if(free_, [&](std::int32_t page) { return page < pages; });
}

}  // namespace saccade
