#include "attention/inspect_results.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include "attention/arguments.h"
#include "core/check.h"

namespace saccade {
namespace {

void check_wanted(const InspectOptions& wanted, const AttentionOptions& options, std::int64_t rows,
                  std::int64_t keys) {
  if (wanted.lse && options.lse) refuse(kInspect, "lse was given both as an input and as an output");
  if (wanted.top_k < 0) refuse(kInspect, "top_k must be 0 or more, got ", wanted.top_k);
  if (wanted.top_k > 0 && keys > std::int64_t{1} << 32)
    refuse(kInspect, "top_k finds the best of at most ", std::int64_t{1} << 32, " keys, got ", keys);
  if (wanted.index_dtype != DType::i32 && wanted.index_dtype != DType::i64)
    refuse(kInspect, "index_dtype must be i32 or i64, but it is ", name_of(wanted.index_dtype));
  if (wanted.index_dtype == DType::i32 && keys > std::numeric_limits<std::int32_t>::max())
    refuse(kInspect, "index_dtype must be i64 for ", keys, " keys");
  if (wanted.pool_rows < 0 || wanted.pool_keys < 0 || (wanted.pool_rows == 0) != (wanted.pool_keys == 0))
    refuse(kInspect, "pool_rows and pool_keys must both be 0 or both be above, got ", wanted.pool_rows, " and ",
           wanted.pool_keys);
  constexpr std::int64_t kLargestMap = 1 << 20;
  if (wanted.pool_rows > kLargestMap || wanted.pool_keys > kLargestMap)
    refuse(kInspect, "pool_rows and pool_keys must be at most ", kLargestMap, ", got ", wanted.pool_rows, " and ",
           wanted.pool_keys);
  for (const std::int64_t row : wanted.rows)
    if (row < 0 || row >= rows) refuse(kInspect, "rows contains ", row, " but q has ", rows, " rows");
}

}  // namespace

InspectResults::InspectResults(const TensorView& q, const TensorView& k, const InspectOptions& wanted,
                               const AttentionOptions& options, const AttentionParams& p)
    : wanted_(wanted),
      p_(p),
      rank_(q.rank),
      dtype_(q.dtype == DType::f64 ? DType::f64 : DType::f32),
      rows_of_q_(p.cu_seqlens_q ? q.shape[0] : p.seqlen_q),
      keys_of_k_(p.cu_seqlens_k ? k.shape[0] : p.seqlen_k) {
  check_wanted(wanted, options, rows_of_q_, p.seqlen_k);
  params.attention = p;
  params.attention.v = p.k;  // its element type selects the arithmetic; its numbers are not read
  params.attention.head_dim_v = 0;
  if (wanted.lse) {
    check_per_head(kInspect, "lse", wanted.lse, q, false, p);
    params.lse = matrix_per_head(wanted.lse, wanted.lse.data, q);
  }
  if (!wanted.rows.empty()) add_rows();
  if (wanted.top_k > 0) {
    params.top_k = wanted.top_k;
    params.top_keys = add(inspection.top_keys, wanted.index_dtype, false, rows_of_q_, wanted.top_k);
    params.top_weights = add(inspection.top_weights, dtype_, false, rows_of_q_, wanted.top_k);
  }
  if (wanted.entropy) params.entropy = add(inspection.entropy, dtype_, false, rows_of_q_);
  if (wanted.max_weight) params.max_weight = add(inspection.max_weight, dtype_, false, rows_of_q_);
  if (wanted.distance) {
    params.distance = add(inspection.distance, dtype_, false, rows_of_q_);
    const Shape heads = shape_of(true, {});
    inspection.mean_distance = Tensor(dtype_, heads.empty() ? Shape{1} : heads);
    params.mean_distance = per_head(inspection.mean_distance, 1);
  }
  if (wanted.received) params.received = add(inspection.received, dtype_, !p.cu_seqlens_k, keys_of_k_);
  params.pool_rows = wanted.pool_rows;
  params.pool_keys = wanted.pool_keys;
  params.pool_max = wanted.pooling == Pooling::max;
  if (wanted.pool_rows > 0) {
    inspection.pooled = Tensor(dtype_, shape_of(true, {wanted.pool_rows, wanted.pool_keys}));
    params.pooled = per_head(inspection.pooled, wanted.pool_rows * wanted.pool_keys);
  }
}

Shape InspectResults::shape_of(bool per_document, std::initializer_list<std::int64_t> lengths) const {
  Shape shape;
  if (has_batch(per_document)) shape.push_back(p_.batch);
  if (rank_ > 2) shape.push_back(p_.num_heads);
  shape.insert(shape.end(), lengths);
  return shape;
}

StridedHeads<void> InspectResults::add(Tensor& tensor, DType dtype, bool per_document, std::int64_t rows,
                                       std::int64_t row_length) const {
  tensor =
      Tensor(dtype, row_length > 0 ? shape_of(per_document, {rows, row_length}) : shape_of(per_document, {rows}));
  const std::int64_t length = std::max<std::int64_t>(row_length, 1);
  return {tensor.data(), dtype, has_batch(per_document) ? p_.num_heads * rows * length : 0, rows * length, length};
}

StridedHeads<void> InspectResults::per_head(Tensor& tensor, std::int64_t count) const {
  return {tensor.data(), dtype_, p_.num_heads * count, count, count};
}

void InspectResults::add_rows() {
  places_.resize(wanted_.rows.size());
  std::iota(places_.begin(), places_.end(), std::int64_t{0});
  const auto row_at = [this](std::int64_t place) { return wanted_.rows[static_cast<std::size_t>(place)]; };
  std::ranges::sort(places_, {}, row_at);
  std::ranges::transform(places_, std::back_inserter(rows_), row_at);
  const auto twice = std::ranges::adjacent_find(rows_);
  if (twice != rows_.end()) refuse(kInspect, "rows contains ", *twice, " twice");
  params.rows = rows_.data();
  params.row_places = places_.data();
  params.row_count = static_cast<std::int64_t>(rows_.size());
  inspection.rows = Tensor(dtype_, shape_of(false, {params.row_count, p_.seqlen_k}));
  const std::int64_t head = params.row_count * p_.seqlen_k;
  params.row_weights = {inspection.rows.data(), dtype_, has_batch(false) ? p_.num_heads * head : 0, head,
                        p_.seqlen_k};
}

}  // namespace saccade
