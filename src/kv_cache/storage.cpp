#include "kv_cache/storage.h"

#include <cstring>

namespace saccade {

// ---- KvStore -------------------------------------------------------------------------------------------------

KvStore::Plane KvStore::plane_of(const Layout& layout, std::int64_t row_bytes) {
  const std::int64_t bytes = element_count(Shape{layout.blocks, layout.heads, layout.rows, row_bytes});
  return {static_cast<std::size_t>(row_bytes), Memory(static_cast<std::size_t>(bytes))};
}

KvStore::KvStore(const Layout& layout)
    : layout_(layout),
      planes_{plane_of(layout, bytes_of(layout.dtype, stored_dim(layout.dtype, layout.dim))),
              plane_of(layout, is_quantized(layout.dtype) ? sizeof(float) : 0),
              plane_of(layout, layout.dtype == DType::i4 ? quantized_groups(layout.dim) : 0)},
      scratch_(is_quantized(layout.dtype) && layout.blocks * layout.rows > 0
                   ? static_cast<std::size_t>(2 * layout.dim)
                   : 0) {}

std::size_t KvStore::bytes() const {
  std::size_t bytes = 0;
  for (const Plane& plane : planes_) bytes += plane.memory.bytes();
  return bytes;
}

TensorView KvStore::numbers() const {
  const auto& [dtype, rotated, blocks, heads, rows, dim] = layout_;
  const std::int64_t row = stored_dim(dtype, dim);
  return TensorView(planes_[0].memory.data(), dtype, std::array{blocks, heads, rows, dim},
                    std::array<std::int64_t, 4>{heads * rows * row, rows * row, row, 1});
}

TensorView KvStore::scales() const {
  if (!is_quantized(layout_.dtype)) return {};
  return TensorView(planes_[1].memory.data(), DType::f32,
                    std::array<std::int64_t, 4>{layout_.blocks, layout_.heads, layout_.rows, 1});
}

TensorView KvStore::multipliers() const {
  if (layout_.dtype != DType::i4) return {};
  return TensorView(planes_[2].memory.data(), DType::i8,
                    std::array{layout_.blocks, layout_.heads, layout_.rows, quantized_groups(layout_.dim)});
}

std::vector<KvStore::NamedPlane> KvStore::planes() const {
  const auto& [dtype, rotated, blocks, heads, rows, dim] = layout_;
  const std::int64_t columns[] = {
      bytes_of(dtype, stored_dim(dtype, dim)) / static_cast<std::int64_t>(size_of(dtype)), 1,
      quantized_groups(dim)};
  const DType types[] = {dtype == DType::i4 ? DType::u8 : dtype, DType::f32, DType::i8};
  constexpr std::string_view kSuffixes[] = {"", "_scale", "_multipliers"};
  std::vector<NamedPlane> named;
  for (std::size_t i = 0; i < planes_.size(); ++i)
    if (planes_[i].row_bytes > 0)
      named.push_back({kSuffixes[i], MutableTensorView(planes_[i].memory.data(), types[i],
                                                       std::array{blocks, heads, rows, columns[i]})});
  return named;
}

void KvStore::write(std::int64_t block, std::int64_t row, const TensorView& tokens) {
  if (is_quantized(layout_.dtype)) return write_quantized(block, row, tokens);
  const std::int64_t count = tokens.shape[1], dim = layout_.dim;
  copy(tokens, MutableTensorView(planes_[0].row(layout_, block, 0, row), layout_.dtype,
                                 std::array{layout_.heads, count, dim},
                                 std::array<std::int64_t, 3>{layout_.rows * dim, dim, 1}));
}

void KvStore::write_quantized(std::int64_t block, std::int64_t row, const TensorView& tokens) {
  float* const numbers = scratch_.data();
  const bool is_in_place = tokens.dtype == DType::f32 && tokens.strides[2] == 1;
  for (std::int64_t head = 0; head < layout_.heads; ++head) {
    const TensorView of_head = tokens.select(0, head);
    for (std::int64_t i = 0; i < tokens.shape[1]; ++i) {
      const float* token = numbers;
      if (is_in_place)
        token = static_cast<const float*>(of_head.data) + i * of_head.strides[0];
      else
        copy(of_head.select(0, i), MutableTensorView(numbers, {layout_.dim}));
      const auto at = [&](const Plane& plane) { return plane.row(layout_, block, head, row + i); };
      quantize_row(layout_.dtype, token, layout_.dim, layout_.rotated, numbers + layout_.dim,
                   {.numbers = at(planes_[0]),
                    .scale = reinterpret_cast<float*>(at(planes_[1])),
                    .multipliers = reinterpret_cast<std::int8_t*>(at(planes_[2]))});
    }
  }
}

void KvStore::copy_rows(std::int64_t from_block, std::int64_t from_row, std::int64_t to_block, std::int64_t to_row,
                        std::int64_t count) {
  if (count <= 0) return;
  for (const Plane& plane : planes_)
    for (std::int64_t head = 0; plane.row_bytes > 0 && head < layout_.heads; ++head)
      std::memmove(plane.row(layout_, to_block, head, to_row), plane.row(layout_, from_block, head, from_row),
                   static_cast<std::size_t>(count) * plane.row_bytes);
}

KvStore KvStore::grown(std::int64_t blocks, std::int64_t rows) const {
  Layout layout = layout_;
  layout.blocks = blocks, layout.rows = rows;
  KvStore result(layout);
  const auto row_count = static_cast<std::size_t>(layout_.rows);
  for (std::size_t p = 0; p < planes_.size(); ++p)
    for (std::int64_t block = 0; planes_[p].row_bytes > 0 && row_count > 0 && block < layout_.blocks; ++block)
      for (std::int64_t head = 0; head < layout_.heads; ++head)
        std::memcpy(result.planes_[p].row(layout, block, head, 0), planes_[p].row(layout_, block, head, 0),
                    row_count * planes_[p].row_bytes);
  return result;
}

// ---- Storage -------------------------------------------------------------------------------------------------

namespace {

KvStore::Layout layout_of(const KvCacheOptions& options, bool is_v, std::int64_t blocks, std::int64_t rows) {
  const DType dtype = is_v ? *options.dtype_v : options.dtype;
  return {.dtype = dtype,
          .rotated = *options.rotate && (is_v ? dtype == DType::i4 : is_quantized(dtype)),
          .blocks = blocks,
          .heads = options.num_kv_heads,
          .rows = rows,
          .dim = is_v ? options.head_dim_v : options.head_dim};
}

}  // namespace

KvCache::Storage::Storage(const KvCacheOptions& options, std::int64_t blocks, std::int64_t rows)
    : config_(options),
      lengths_(static_cast<std::size_t>(options.batch)),
      first_kept_(static_cast<std::size_t>(options.batch)),
      starts_(static_cast<std::size_t>(options.batch)),
      stores_{KvStore(layout_of(options, false, blocks, rows)), KvStore(layout_of(options, true, blocks, rows))} {}

std::unique_ptr<KvCache::Storage> KvCache::Storage::make(const KvCacheOptions& options) {
  if (options.page_size > 0) return std::make_unique<Paged>(options);
  return std::make_unique<Contiguous>(options);
}

void KvCache::Storage::grow(std::int64_t blocks, std::int64_t rows) {
  std::array<KvStore, 2> grown{stores_[0].grown(blocks, rows), stores_[1].grown(blocks, rows)};
  stores_ = std::move(grown);
}

void KvCache::Storage::describe_scales(AttentionOptions& options) const {
  options.k_scale = stores_[0].scales();
  options.v_scale = stores_[1].scales();
  options.k_multipliers = stores_[0].multipliers();
  options.v_multipliers = stores_[1].multipliers();
  options.k_rotated = stores_[0].layout().rotated;
  options.v_rotated = stores_[1].layout().rotated;
}

}  // namespace saccade
