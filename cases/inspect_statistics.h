// The statistics of inspect() by their definitions, computed from given weights.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "saccade/inspect.h"

namespace saccade::cases {

/// Lengths and positions of a call, as attention.h defines them.
struct Sequences {
  std::int64_t batch = 1, num_heads = 1, seqlen_q = 0, seqlen_k = 0, total_q = 0, total_k = 0;
  bool packed_q = false, packed_k = false;
  std::vector<std::int64_t> rows, keys, first_row, first_key, position;  // of each batch entry

  /// `weights`: the reference's, [batch, num_heads, seqlen_q, seqlen_k] without the axes that q does not have.
  Sequences(const TensorView& q, const TensorView& k, const TensorView& weights, const AttentionOptions& options)
      : seqlen_k(weights.shape[weights.rank - 1U]),
        packed_q(options.cu_seqlens_q),
        packed_k(options.cu_seqlens_k) {
    total_q = seqlen_q = weights.shape[weights.rank - 2U];
    total_k = packed_k ? k.shape[0] : seqlen_k;
    if (q.rank > 2) num_heads = weights.shape[weights.rank - 3U];
    if (q.rank > 3) batch = weights.shape[0];
    if (packed_q) batch = options.cu_seqlens_q.shape[0] - 1;
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto entry = [](const TensorView& view, std::int64_t i) {
        return static_cast<std::int64_t>(value_at(view, std::array{i}));
      };
      first_row.push_back(packed_q ? entry(options.cu_seqlens_q, b) : 0);
      first_key.push_back(packed_k ? entry(options.cu_seqlens_k, b) : 0);
      rows.push_back(packed_q ? entry(options.cu_seqlens_q, b + 1) - first_row.back() : seqlen_q);
      keys.push_back(packed_k ? entry(options.cu_seqlens_k, b + 1) - first_key.back() : seqlen_k);
      const std::int64_t length = options.kv_lengths ? entry(options.kv_lengths, b) : keys.back();
      position.push_back(options.query_offset                     ? *options.query_offset
                         : options.query_offsets                  ? entry(options.query_offsets, b)
                         : options.causal == Causal::bottom_right ? length - rows.back()
                                                                  : 0);
    }
  }

  /// How many rows results have, those of all heads.
  std::int64_t number_of_rows() const { return (packed_q ? 1 : batch) * num_heads * total_q; }

  /// The index of row i, or of key j, in a result with one number for each.
  std::int64_t row_at(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return (packed_q ? h : b * num_heads + h) * total_q + first_row[static_cast<std::size_t>(b)] + i;
  }
  std::int64_t key_at(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return (packed_k ? h : b * num_heads + h) * total_k + first_key[static_cast<std::size_t>(b)] + j;
  }
};

/// `T` is the type of the arithmetic: long double for the reference, the kernels' type for naive code.
template <class T>
class Statistics {
 public:
  Tensor rows, top_weights, entropy, max_weight, received, distance, pooled;  // f64

  /// `weights` as for Sequences; the results get the shapes of those in the inspection.
  Statistics(const TensorView& weights, const Sequences& sequences, const InspectOptions& wanted,
             const Inspection& found)
      : s_(sequences),
        wanted_(wanted),
        weights_(Tensor::copy_of(weights, DType::f64)),
        distances_(static_cast<std::size_t>(sequences.number_of_rows())) {
    rows = like(found.rows);
    top_weights = like(found.top_weights);
    entropy = like(found.entropy);
    max_weight = like(found.max_weight);
    received = like(found.received);
    distance = like(found.distance);
    pooled = like(found.pooled);
    received_.resize(static_cast<std::size_t>(received.size()));
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t h = 0; h < s_.num_heads; ++h) {
        for (std::int64_t i = 0; i < s_.rows[static_cast<std::size_t>(b)]; ++i) add_row(b, h, i);
        if (wanted_.pool_rows > 0) pool(b, h);
      }
    for (std::size_t i = 0; i < received_.size(); ++i)
      received.values<double>()[i] = static_cast<double>(received_[i]);
  }

  /// The mean over the rows that have a weight above 0, as `max_weight` of the inspection says.
  Tensor mean_distance(const Inspection& found) const {
    Tensor means = like(found.mean_distance);
    const Tensor largest = Tensor::copy_of(found.max_weight, DType::f64);
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t h = 0; h < s_.num_heads; ++h) {
        T sum = 0;
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < s_.rows[static_cast<std::size_t>(b)]; ++i) {
          const auto row = static_cast<std::size_t>(s_.row_at(b, h, i));
          if (largest.values<double>()[row] == 0) continue;
          sum += distances_[row];
          ++count;
        }
        set(means, b * s_.num_heads + h, count == 0 ? T{0} : sum / static_cast<T>(count));
      }
    return means;
  }

  /// The weight of key j in a row, given the row's index in a result.
  T weight(std::int64_t row_at, std::int64_t j) const {
    return static_cast<T>(weights_.values<double>()[static_cast<std::size_t>(row_at * s_.seqlen_k + j)]);
  }

 private:
  static Tensor like(const Tensor& found) {
    return found.rank() == 0 ? Tensor() : Tensor(DType::f64, found.shape());
  }
  static void set(Tensor& tensor, std::int64_t at, T number) {
    if (tensor.size() > 0) tensor.values<double>()[static_cast<std::size_t>(at)] = static_cast<double>(number);
  }

  void add_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t row = s_.row_at(b, h, i), position = s_.position[static_cast<std::size_t>(b)] + i;
    T entropy_sum = 0, distance_sum = 0;
    std::vector<T> sorted;
    for (std::int64_t j = 0; j < s_.keys[static_cast<std::size_t>(b)]; ++j) {
      const T w = weight(row, j);
      if (w != 0) entropy_sum -= w * std::log(w);
      distance_sum += w * static_cast<T>(std::abs(position - j));
      if (!received_.empty()) received_[static_cast<std::size_t>(s_.key_at(b, h, j))] += w;
      sorted.push_back(w);
    }
    const bool is_nan = std::isnan(entropy_sum);
    if (!is_nan) std::ranges::sort(sorted, std::greater<>());
    const T largest = is_nan ? entropy_sum : sorted.empty() ? T{0} : sorted.front();
    set(entropy, row, entropy_sum);
    set(distance, row, distance_sum);
    distances_[static_cast<std::size_t>(row)] = distance_sum;
    set(max_weight, row, largest);
    sorted.resize(static_cast<std::size_t>(wanted_.top_k));
    for (std::int64_t n = 0; n < wanted_.top_k; ++n)
      set(top_weights, row * wanted_.top_k + n, is_nan ? entropy_sum : sorted[static_cast<std::size_t>(n)]);
    save_row(b, h, i);
  }

  void save_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    const auto found = std::ranges::find(wanted_.rows, s_.first_row[static_cast<std::size_t>(b)] + i);
    if (found == wanted_.rows.end()) return;
    const auto count = static_cast<std::int64_t>(wanted_.rows.size());
    const std::int64_t place = (s_.packed_q ? h : b * s_.num_heads + h) * count + (found - wanted_.rows.begin());
    for (std::int64_t j = 0; j < s_.seqlen_k; ++j)
      set(rows, place * s_.seqlen_k + j, weight(s_.row_at(b, h, i), j));
  }

  void pool(std::int64_t b, std::int64_t h) {
    const std::int64_t cells = wanted_.pool_rows * wanted_.pool_keys;
    const std::int64_t seqlen_q = s_.rows[static_cast<std::size_t>(b)],
                       keys = s_.keys[static_cast<std::size_t>(b)];
    std::vector<T> sums(static_cast<std::size_t>(cells)), largest(sums);
    std::vector<std::int64_t> counts(sums.size());
    for (std::int64_t i = 0; i < seqlen_q; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t cell_row = i * wanted_.pool_rows / seqlen_q, cell_key = j * wanted_.pool_keys / keys;
        const auto cell = static_cast<std::size_t>(cell_row * wanted_.pool_keys + cell_key);
        const T w = weight(s_.row_at(b, h, i), j);
        sums[cell] += w;
        largest[cell] = std::max(w, largest[cell]);
        ++counts[cell];
      }
    }
    for (std::size_t cell = 0; cell < sums.size(); ++cell) {
      const T mean = counts[cell] == 0 ? T{0} : sums[cell] / static_cast<T>(counts[cell]);
      const bool is_max = wanted_.pooling == Pooling::max && !std::isnan(mean);
      set(pooled, (b * s_.num_heads + h) * cells + static_cast<std::int64_t>(cell), is_max ? largest[cell] : mean);
    }
  }

  const Sequences& s_;
  const InspectOptions& wanted_;
  Tensor weights_;
  std::vector<T> received_, distances_;  // of each key; of each row
};

}  // namespace saccade::cases
