#include <algorithm>

#include "kv_cache/state.h"
#include "kv_cache/storage.h"

namespace saccade {

KvCache::Contiguous::Contiguous(const KvCacheOptions& options)
    : Storage(options, options.batch, options.capacity),
      kept_(static_cast<std::size_t>(options.batch)),
      kept_starts_(static_cast<std::size_t>(options.batch)) {}

void KvCache::Contiguous::set_range(std::int64_t sequence, std::int64_t first_kept, std::int64_t length) {
  const auto at = static_cast<std::size_t>(sequence);
  first_kept_[at] = first_kept;
  lengths_[at] = length;
  kept_[at] = length - first_kept;
  kept_starts_[at] = std::max<std::int64_t>(0, starts_[at] - first_kept);
}

void KvCache::Contiguous::set_start(std::int64_t sequence, std::int64_t start) {
  Storage::set_start(sequence, start);
  set_range(sequence, first_kept(sequence), length(sequence));
}

std::int64_t KvCache::Contiguous::evictable(std::int64_t sequence) const {
  return (first_seen(length(sequence)) - first_kept(sequence)) / kEvicted * kEvicted;
}

void KvCache::Contiguous::reserve(std::int64_t begin, std::int64_t end, std::int64_t count) {
  std::int64_t needed = 0;
  for (std::int64_t b = begin; b < end; ++b) {
    const std::int64_t tokens = length(b) - first_kept(b) + count;
    needed = std::max(needed, tokens <= capacity() ? tokens : tokens - evictable(b));
  }
  if (needed <= capacity()) return;
  std::int64_t length = grown_length(capacity(), needed);
  // With this capacity every move frees room for 4096 tokens.
  if (config_.window >= 0) length = std::min(length, std::max(needed, config_.window + 2 * kEvicted));
  grow(stores_[0].layout().blocks, length);
}

void KvCache::Contiguous::evict(std::int64_t sequence) {
  const std::int64_t gone = evictable(sequence), kept = length(sequence) - first_kept(sequence) - gone;
  for (KvStore& store : stores_) store.copy_rows(sequence, gone, sequence, 0, kept);
  set_range(sequence, first_kept(sequence) + gone, length(sequence));
}

void KvCache::Contiguous::append(std::int64_t sequence, const TensorView& k, const TensorView& v) {
  const std::int64_t count = k.shape[1];
  if (length(sequence) - first_kept(sequence) + count > capacity()) evict(sequence);
  const std::int64_t at = length(sequence) - first_kept(sequence);
  stores_[0].write(sequence, at, k);
  stores_[1].write(sequence, at, v);
  set_range(sequence, first_kept(sequence), length(sequence) + count);
}

void KvCache::Contiguous::truncate(std::int64_t sequence, std::int64_t length) {
  set_range(sequence, length == 0 ? 0 : first_kept(sequence), length);
}

void KvCache::Contiguous::share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) {
  const std::int64_t kept = std::max<std::int64_t>(0, length - first_kept(from));
  for (KvStore& store : stores_) store.copy_rows(from, 0, to, 0, kept);
  set_range(to, length == 0 ? 0 : first_kept(from), length);
}

TensorView KvCache::Contiguous::tokens(std::size_t which) const {
  return stores_[which].numbers().slice(2, 0, *std::max_element(kept_.begin(), kept_.end()));
}

void KvCache::Contiguous::describe(AttentionOptions& options) const {
  options.kv_lengths = TensorView(kept_.data(), {config_.batch});
  options.kv_starts = TensorView(kept_starts_.data(), {config_.batch});
  describe_scales(options);
  const std::int64_t longest = *std::max_element(kept_.begin(), kept_.end());
  for (TensorView* plane : {&options.k_scale, &options.v_scale, &options.k_multipliers, &options.v_multipliers})
    if (*plane) *plane = plane->slice(2, 0, longest);
}

void KvCache::Contiguous::write_rows(KvCacheState& state) const {
  for_planes([&](const std::string& name, const MutableTensorView& rows) {
    for (std::int64_t b = 0; b < config_.batch; ++b)
      state.tensors[std::to_string(b) + "." + name] =
          Tensor::copy_of(rows.select(0, b).slice(1, 0, kept_[static_cast<std::size_t>(b)]));
  });
}

void KvCache::Contiguous::read_rows(StateReader& state) {
  for (std::int64_t b = 0; b < config_.batch; ++b) set_range(b, first_kept(b), length(b));
  const auto for_sequences = [&](const auto& f) {
    for_planes([&](const std::string& name, const MutableTensorView& rows) {
      for (std::int64_t b = 0; b < config_.batch; ++b) {
        const std::int64_t kept = kept_[static_cast<std::size_t>(b)];
        f(b, state.tensor(std::to_string(b) + "." + name, rows.dtype, {rows.shape[1], kept, rows.shape[3]}), rows);
      }
    });
  };
  // Before memory is allocated, the tensors show that they have as many rows as the lengths say.
  for_sequences([](std::int64_t, const Tensor&, const MutableTensorView&) {});
  grow(config_.batch, std::max(capacity(), *std::max_element(kept_.begin(), kept_.end())));
  for_sequences([](std::int64_t b, const Tensor& from, const MutableTensorView& rows) {
    copy(from, rows.select(0, b).slice(1, 0, from.shape(1)));
  });
}

}  // namespace saccade
