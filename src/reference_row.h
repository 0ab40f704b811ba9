// All steps of attention together, for one row of q.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "reference_arguments.h"
#include "saccade/random.h"
#include "saccade/reference.h"

namespace saccade::reference {

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

/// To the nearest number of an element type, if one is given.
template <class T>
T rounded(T number, std::optional<DType> dtype) {
  if (dtype == DType::f32) return static_cast<float>(number);
  if (dtype == DType::f16) return static_cast<float>(float16(static_cast<float>(number)));
  if (dtype == DType::bf16) return static_cast<float>(bfloat16(static_cast<float>(number)));
  return number;
}

/// The rows of one head, or its columns, in the arithmetic's type.
template <class T>
struct Matrix {
  std::vector<T> numbers;
  std::size_t columns = 0;

  Matrix() = default;
  explicit Matrix(const TensorView& view) : columns(static_cast<std::size_t>(view.shape[1])) {
    const Tensor wide = Tensor::copy_of(view, DType::f64);
    numbers.assign(wide.values<double>().begin(), wide.values<double>().end());
  }
  std::span<const T> row(std::size_t index) const { return std::span(numbers).subspan(index * columns, columns); }
};

/// How the dot products of queries and keys are computed; all ways are equal but for rounding.
struct DotProduct {
  std::vector<std::size_t> order;  // in which the products are summed
  bool scales_query = false;       // before the products are taken, not their sum
};

/// Computes any row of the problem in the arithmetic of T: first at(), then attend(), then its results.
template <class T>
class RowOfAttention {
 public:
  RowOfAttention(const Arguments& arguments, const AttentionOptions& options, const NaiveRounding& rounding)
      : a_(arguments), options_(options), rounding_(rounding) {}

  // The row's results.
  std::vector<T> o, bound;                                         // [head_dim_v]
  std::vector<T> raw, softcapped, logits, probabilities, weights;  // [seqlen_k]
  T lse = 0;

  const std::vector<T>& scores() const {
    switch (options_.score_stage) {
      case ScoreStage::raw:
        return raw;
      case ScoreStage::softcapped:
        return softcapped;
      case ScoreStage::biased:
        return logits;
      case ScoreStage::probabilities:
        return probabilities;
    }
    return raw;
  }

  /// Goes to a row.
  void at(const RowIndex& index) {
    const bool is_other_head = index.batch != index_.batch || index.head != index_.head;
    index_ = index;
    sequence_ = &a_.sequences[static_cast<std::size_t>(index.batch)];
    if (is_other_head) load_head();
    load_row();
  }

  /// What the row takes from the keys and values of its head.
  void attend(const DotProduct& dot_product) {
    // 1. How alike are the query and each key? Scaled, and bounded.
    raw.assign(columns(a_.seqlen_k), kMinusInfinity<T>);
    const std::span<T> products = keys_of_sequence(raw);
    std::ranges::fill(products, T(0));
    const T scale = static_cast<T>(a_.scale);
    for (const std::size_t d : dot_product.order) {
      const T factor = dot_product.scales_query ? query_[d] * scale : query_[d];
      const std::span<const T> key = keys_.row(d);
      for (std::size_t j = 0; j < products.size(); ++j) products[j] += factor * key[j];
    }
    if (!dot_product.scales_query) {
      for (T& product : products) product *= scale;
    }
    softcapped = raw;
    if (options_.softcap > 0) {
      const T softcap = static_cast<T>(options_.softcap);
      for (T& score : keys_of_sequence(softcapped)) score = softcap * std::tanh(score / softcap);
    }

    // 2. Modified and biased; -inf for what the query must not see.
    logits = softcapped;
    modify(keys_of_sequence(logits));
    for (std::size_t j = 0; j < logits.size(); ++j)
      logits[j] = is_visible_[j] ? biased(logits[j], j) : kMinusInfinity<T>;

    // 3. The query spreads a total of 1 over the keys.
    T largest = sink_;
    for (const T logit : logits) largest = std::max(largest, logit);
    if (largest == kMinusInfinity<T>) largest = 0;  // the exponentials are then 0 instead of exp(-inf + inf)
    T sum = std::exp(sink_ - largest);
    exponentials_.assign(logits.size(), 0);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (logits[j] != kMinusInfinity<T>) exponentials_[j] = std::exp(logits[j] - largest);
      sum += exponentials_[j];
    }
    lse = largest + std::log(sum);
    if (sum == 0) sum = 1;  // a row that sees nothing: its weights are 0
    probabilities = exponentials_;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (logits[j] != kMinusInfinity<T>) probabilities[j] /= sum;  // hidden keys have 0 of a NaN, too
    }

    // 4. Some weights are dropped at random; the others grow, so that their sum stays the same on average.
    weights = probabilities;
    const T growth = static_cast<T>(1 / (1 - options_.dropout_p));
    if (options_.dropout_p > 0) {
      for (std::size_t j = 0; j < weights.size(); ++j) weights[j] = is_kept_[j] ? weights[j] * growth : 0;
    }

    // 5. It takes that mixture of the values. Hidden ones are left out: times 0 would not do, 0 * NaN is NaN.
    if (rounding_.exponentials) {
      mix(o, values_,
          [&](std::size_t j) { return is_kept_[j] ? rounded(exponentials_[j], rounding_.exponentials) : 0; });
      for (T& number : o) number = number / sum * growth;
    } else {
      mix(o, values_, [&](std::size_t j) { return weights[j]; });
    }
    for (T& number : o) number = rounded(number, rounding_.o);
  }

  /// The mixture of the magnitudes of the values, after attend().
  void find_bound() {
    mix(
        bound, values_, [&](std::size_t j) { return weights[j]; }, [](T value) { return std::abs(value); });
  }

 private:
  static std::size_t columns(std::int64_t count) { return static_cast<std::size_t>(count); }

  /// The part of a row [seqlen_k] whose keys are there.
  std::span<T> keys_of_sequence(std::vector<T>& row) const {
    return std::span(row).subspan(columns(sequence_->begin_key),
                                  columns(sequence_->end_key - sequence_->begin_key));
  }

  void load_head() {
    const std::int64_t kv_head = index_.head / (a_.num_heads / a_.num_kv_heads);
    queries_ = Matrix<T>(a_.q.select(0, sequence_->index_in_q).select(0, index_.head));
    keys_ = Matrix<T>(keys_of(a_, a_.k, index_.batch, kv_head).view().transposed(0, 1));
    values_ = Matrix<T>(keys_of(a_, a_.v, index_.batch, kv_head));
    if (a_.alibi_slopes) slope_ = static_cast<T>(value_at(a_.alibi_slopes, std::array{index_.batch, index_.head}));
    if (a_.sinks) sink_ = static_cast<T>(value_at(a_.sinks, std::array{index_.head}));
  }

  void load_row() {
    query_ = queries_.row(columns(sequence_->first_row + index_.row));
    position_ = sequence_->first_position + index_.row;
    const auto row_of = [&](const TensorView& view, std::int64_t row) {
      return Matrix<T>(view.select(0, index_.batch).slice(0, index_.head, index_.head + 1).select(1, row)).numbers;
    };
    if (a_.mask) mask_ = row_of(a_.mask, index_.row);
    if (a_.block_mask) block_mask_ = row_of(a_.block_mask, index_.row / options_.block_mask_q);
    is_visible_.resize(columns(a_.seqlen_k));
    is_kept_.assign(columns(a_.seqlen_k), 1);
    for (std::size_t j = 0; j < is_visible_.size(); ++j) is_visible_[j] = is_visible(static_cast<std::int64_t>(j));
    if (options_.dropout_p > 0) draw_dropout();
  }

  bool is_visible(std::int64_t key) const {
    const std::int64_t ahead = key - position_;
    if (key < sequence_->begin_key || key >= sequence_->kv_length) return false;
    if (options_.causal != Causal::none && ahead > 0) return false;
    if (options_.window_left >= 0 && -ahead > options_.window_left) return false;
    if (options_.window_right >= 0 && ahead > options_.window_right) return false;
    if (a_.block_mask && block_mask_[columns(key / options_.block_mask_k)] == 0) return false;
    if (!a_.mask) return true;
    const T mask = mask_[columns(key)];
    return a_.mask.dtype == DType::boolean ? mask != 0 : mask != kMinusInfinity<T>;
  }

  void draw_dropout() {
    const auto batch_head = static_cast<std::uint32_t>(index_.batch * a_.num_heads + index_.head);
    const auto row = static_cast<std::uint32_t>(index_.row);
    for (std::size_t j = 0; j < is_kept_.size(); ++j) {
      if (!is_visible_[j]) continue;
      is_kept_[j] = dropout_keeps(options_.dropout_seed, options_.dropout_offset, batch_head, row,
                                  static_cast<std::uint32_t>(j), options_.dropout_p);
    }
  }

  /// Hands the scores of the row to the caller's modifier, as float or double.
  void modify(std::span<T> scores) const {
    if (options_.score_modifier == nullptr || scores.empty()) return;
    using Passed = std::conditional_t<std::is_same_v<T, float>, float, double>;
    std::vector<Passed> passed(scores.begin(), scores.end());
    ScoreTile tile;
    tile.batch = index_.batch;
    tile.head = index_.head;
    tile.first_row = index_.row;
    tile.first_key = sequence_->begin_key;
    tile.rows = 1;
    tile.keys = static_cast<std::int64_t>(passed.size());
    tile.offset = sequence_->first_position;
    tile.scores = passed.data();
    tile.dtype = dtype_of<Passed>;
    tile.stride = tile.keys;
    options_.score_modifier(options_.score_context, tile);
    std::ranges::copy(passed, scores.begin());
  }

  T biased(T score, std::size_t key) const {
    if (a_.alibi_slopes) score -= slope_ * static_cast<T>(std::abs(position_ - static_cast<std::int64_t>(key)));
    if (a_.mask && a_.mask.dtype != DType::boolean) score += mask_[key];
    return score;
  }

  /// The sum of weight(j) times part(value j) over the keys that the row sees.
  template <class Weight, class Part = std::identity>
  void mix(std::vector<T>& sum, const Matrix<T>& values, const Weight& weight, const Part& part = {}) const {
    sum.assign(columns(a_.head_dim_v), 0);
    const auto begin = columns(sequence_->begin_key), end = columns(sequence_->end_key);
    for (std::size_t j = begin; j < end; ++j) {
      if (logits[j] == kMinusInfinity<T>) continue;
      const T factor = weight(j);
      const std::span<const T> value = values.row(j - begin);
      for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += factor * part(value[d]);
    }
  }

  const Arguments& a_;
  const AttentionOptions& options_;
  const NaiveRounding& rounding_;

  RowIndex index_{-1, -1, -1};  // what is being computed
  const Sequence* sequence_ = nullptr;
  std::int64_t position_ = 0;  // where that row stands
  Matrix<T> queries_;          // [rows, head_dim] of that batch entry and head
  Matrix<T> keys_;             // [head_dim, keys that are there]
  Matrix<T> values_;           // [keys that are there, head_dim_v]
  T slope_ = 0;
  T sink_ = kMinusInfinity<T>;
  std::span<const T> query_;                // [head_dim] of that row
  std::vector<T> mask_, block_mask_;        // of that row, a bool as 0 or 1
  std::vector<char> is_visible_, is_kept_;  // [seqlen_k] of that row
  std::vector<T> exponentials_;             // [seqlen_k]
};

}  // namespace saccade::reference
