// An attention problem whose keys are given in parts.
#pragma once

#include <saccade/attention_state.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cases/attention_case.h"
#include "cases/key_rows.h"

namespace saccade::test {

/// The dimension of keys in k and v.
inline int key_dim(const cases::AttentionCase& c) {
  const int rank = c.k.view().rank;
  if (c.options.cu_seqlens_k || rank == 2) return 0;
  return c.options.layout == Layout::bshd ? rank - 3 : rank - 2;
}

inline std::vector<std::int64_t> integers_of(const TensorView& view) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < view.shape[0]; ++i)
    result.push_back(static_cast<std::int64_t>(value_at(view, std::array{i})));
  return result;
}
inline Tensor tensor_of(const std::vector<std::int64_t>& numbers) {
  Tensor result(DType::i64, {static_cast<std::int64_t>(numbers.size())});
  std::ranges::copy(numbers, result.values<std::int64_t>().begin());
  return result;
}

/// The number of keys of each batch entry or document.
inline std::vector<std::int64_t> numbers_of_keys(const cases::AttentionCase& c) {
  if (c.options.cu_seqlens_k) {
    std::vector<std::int64_t> begins = integers_of(c.options.cu_seqlens_k), result;
    for (std::size_t b = 1; b < begins.size(); ++b) result.push_back(begins[b] - begins[b - 1]);
    return result;
  }
  const TensorView k = c.k.view();
  return std::vector<std::int64_t>(static_cast<std::size_t>(k.rank == 4 ? k.shape[0] : 1),
                                   k.shape[static_cast<std::size_t>(key_dim(c))]);
}

/// bottom_right as offsets, and no weights and scores, so that the keys can be cut.
inline Tensor make_divisible(cases::AttentionCase& c) {
  AttentionOptions& o = c.options;
  o.weights = o.scores = {};
  if (o.causal != Causal::bottom_right || o.query_offset || o.query_offsets) return {};
  std::vector<std::int64_t> offsets = numbers_of_keys(c);
  if (o.kv_lengths) offsets = integers_of(o.kv_lengths);
  const TensorView q = c.q.view();
  const int dim = o.cu_seqlens_q || q.rank == 2 ? 0 : o.layout == Layout::bshd ? q.rank - 3 : q.rank - 2;
  for (std::size_t b = 0; b < offsets.size(); ++b) {
    std::int64_t rows = q.shape[static_cast<std::size_t>(dim)];
    if (o.cu_seqlens_q) {
      const auto begins = integers_of(o.cu_seqlens_q);
      rows = begins[b + 1] - begins[b];
    }
    offsets[b] -= rows;
  }
  Tensor result = tensor_of(offsets);
  o.query_offsets = result;
  return result;
}

/// Keys [begin, end) of every batch entry or document, as far as they exist, in memory of their own.
struct KeyPart {
  KeyPart(const cases::AttentionCase& c, std::int64_t begin, std::int64_t end) : options(c.options) {
    const std::vector<std::int64_t> numbers = numbers_of_keys(c);
    std::vector<std::int64_t> first(numbers.size()), kept(numbers.size()), begins{0};
    std::int64_t longest = 0;
    for (std::size_t b = 0; b < numbers.size(); ++b) {
      first[b] = std::min(begin, numbers[b]);
      kept[b] = std::min(end, numbers[b]) - first[b];
      longest = std::max(longest, kept[b]);
      begins.push_back(begins.back() + kept[b]);
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> runs{{first[0], first[0] + kept[0]}};
    if (options.cu_seqlens_k) {
      runs.clear();
      const auto documents = integers_of(options.cu_seqlens_k);
      for (std::size_t b = 0; b < numbers.size(); ++b)
        runs.emplace_back(documents[b] + first[b], documents[b] + first[b] + kept[b]);
    }
    k = cases::KeyRows(c.k.view(), key_dim(c), runs), v = cases::KeyRows(c.v.view(), key_dim(c), runs);
    scales = cases::ScalesOfRows(options, runs);
    options.origin.key = begin;
    if (options.cu_seqlens_k) options.cu_seqlens_k = cu_seqlens_k = tensor_of(begins);
    const auto limit = [&](TensorView& view, Tensor& own) {
      if (!view) return;
      std::vector<std::int64_t> counts = integers_of(view);
      for (std::size_t b = 0; b < counts.size(); ++b) counts[b] = std::min(counts[b], begin + kept[b]);
      view = own = tensor_of(counts);
    };
    limit(options.kv_lengths, kv_lengths);
    limit(options.kv_starts, kv_starts);
    if (TensorView& mask = options.mask; mask && mask.shape[mask.rank - 1U] > 1) {
      const std::int64_t at = std::min(begin, mask.shape[mask.rank - 1U]);
      mask = mask.slice(mask.rank - 1, at, at + longest);
    }
    if (TensorView& mask = options.block_mask; mask && mask.shape[mask.rank - 1U] > 1) {
      const std::int64_t blocks = (begin + longest + options.block_mask_k - 1) / options.block_mask_k;
      mask = mask.slice(mask.rank - 1, 0, std::min(blocks, mask.shape[mask.rank - 1U]));
    }
  }

  cases::KeyRows k, v;
  cases::ScalesOfRows scales;
  Tensor cu_seqlens_k, kv_lengths, kv_starts;
  AttentionOptions options;
};

/// Computes c.o and c.lse from the keys between neighbours of `cuts`, in the order of `order`.
inline void attend_in_parts(cases::AttentionCase& c, const std::vector<std::int64_t>& cuts,
                            const std::vector<std::size_t>& order) {
  AttentionState state(c.o.view().dtype);
  for (const std::size_t i : order) {
    const KeyPart part(c, cuts[i], cuts[i + 1]);
    state.add(c.q.view(), part.k.view(), part.v.view(), part.options);
  }
  state.finish(c.o.view(), c.options);
}

}  // namespace saccade::test
