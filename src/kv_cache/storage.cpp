#include "kv_cache/storage.h"

namespace saccade {

KvBuffer::KvBuffer(DType dtype, const Shape& shape)
    : dtype_(dtype),
      shape_(shape),
      memory_(static_cast<std::size_t>(element_count(shape, size_of(dtype))) * size_of(dtype)) {}

KvBuffer KvBuffer::grown(std::size_t dim, std::int64_t length) const {
  Shape shape = shape_;
  shape[dim] = length;
  KvBuffer result(dtype_, shape);
  for (std::int64_t block = 0; block < shape_[0]; ++block)
    for (std::int64_t head = 0; head < shape_[1]; ++head)
      copy(this->head(block, head), result.head(block, head).slice(0, 0, shape_[2]));
  return result;
}

KvCache::Storage::Storage(const KvCacheOptions& options, std::int64_t blocks, std::int64_t rows)
    : config_(options),
      lengths_(static_cast<std::size_t>(options.batch)),
      first_kept_(static_cast<std::size_t>(options.batch)),
      starts_(static_cast<std::size_t>(options.batch)),
      numbers_{KvBuffer(options.dtype, {blocks, options.num_kv_heads, rows, options.head_dim}),
               KvBuffer(options.dtype, {blocks, options.num_kv_heads, rows, options.head_dim_v})} {}

std::unique_ptr<KvCache::Storage> KvCache::Storage::make(const KvCacheOptions& options) {
  if (options.page_size > 0) return std::make_unique<Paged>(options);
  return std::make_unique<Contiguous>(options);
}

void KvCache::Storage::grow(std::size_t dim, std::int64_t length) {
  std::array<KvBuffer, 2> grown{numbers_[0].grown(dim, length), numbers_[1].grown(dim, length)};
  numbers_ = std::move(grown);
}

}  // namespace saccade
