// All steps of attention for one row of q.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "reference/arguments.h"
#include "saccade/random.h"
#include "saccade/reference.h"

namespace saccade::reference {

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

/// Rounds to the nearest number of an element type, if given.
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

/// How ALiBi and mask are added: one after the other, first to each other, or ALiBi by a fused multiply-add.
enum class BiasOrder : std::uint8_t { in_turn, together, fused };

/// How the dot products of queries and keys, and their biases, are computed; all ways are equal except for
/// rounding.
struct DotProduct {
  std::vector<std::size_t> order;  // of the summation
  bool scales_query = false;       // scale before the products instead of scaling their sum
  BiasOrder biases = BiasOrder::in_turn;
};

inline DotProduct usual_dot_product(std::int64_t head_dim) {
  DotProduct usual{.order = std::vector<std::size_t>(static_cast<std::size_t>(head_dim))};
  std::iota(usual.order.begin(), usual.order.end(), std::size_t{0});
  return usual;
}

/// The ways in which naive code computes dot products: first in the usual order, then in random ones. Every other
/// one scales the query first, as PyTorch's unfused code does. (Products of bf16 numbers are exact in f32, and
/// scaling their sum rounds once, so always scaling last would be more precise than usual code.) Most of the error
/// comes from a few rows with close and large logits, however many other rows there are.
inline std::vector<DotProduct> naive_dot_products(std::int64_t head_dim, std::size_t rows,
                                                  std::size_t min_orders = 2) {
  constexpr std::size_t kManyRows = 4096, kFewest = 6, kMost = 24;
  DotProduct next = usual_dot_product(head_dim);
  std::vector<DotProduct> ways{next};
  const std::size_t usual =
      rows >= kManyRows ? 2 : std::clamp(1024 / std::max<std::size_t>(rows, 1), kFewest, kMost);
  const std::size_t count = std::max(usual, min_orders);
  std::mt19937_64 random(1);
  while (ways.size() < count) {
    std::shuffle(next.order.begin(), next.order.end(), random);
    next.scales_query = !next.scales_query;
    next.biases = static_cast<BiasOrder>(ways.size() % 3);
    ways.push_back(next);
  }
  return ways;
}

/// Computes any row of the problem in the arithmetic of T: first at(), then attend(), then its results.
template <class T>
class RowOfAttention {
 public:
  RowOfAttention(const Arguments& arguments, const AttentionOptions& options, const NaiveRounding& rounding)
      : a_(arguments), options_(options), rounding_(rounding) {}

  // The row's results.
  std::vector<T> o, bound;                 // [head_dim_v]
  std::vector<T> score_bound, magnitudes;  // [seqlen_k]
  T lse_bound = 0;
  std::vector<T> raw, softcapped, logits, probabilities, weights;  // [seqlen_k]
  T lse = 0;
  // The results of differentiate(): the gradients of the logits and of the scaled products, and the same with the
  // absolute value of every term.
  std::vector<T> dlogits, dscores, dlogits_bound, dscores_bound;  // [seqlen_k]
  T dsink = 0, dsink_bound = 0, dslope = 0, dslope_bound = 0;

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

  /// Moves to a row.
  void at(const RowIndex& index) {
    const bool is_other_head = index.batch != index_.batch || index.head != index_.head;
    index_ = index;
    sequence_ = &a_.sequences[static_cast<std::size_t>(index.batch)];
    if (is_other_head) load_head();
    load_row();
  }

  /// Computes the row's attention to the keys and values of its head. `known_lse`: use this denominator instead of
  /// the sum over the scores.
  void attend(const DotProduct& dot_product, std::optional<T> known_lse = {}) {
    // 1. How similar are the query and each key? Scaled, and bounded.
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

    // 2. Modified and biased; -inf for hidden keys.
    logits = softcapped;
    modify(keys_of_sequence(logits));
    for (std::size_t j = 0; j < logits.size(); ++j)
      logits[j] = is_visible_[j] ? biased(logits[j], j, dot_product) : kMinusInfinity<T>;

    // 3. The query spreads a total of 1 over the keys.
    T largest = sink_;
    for (const T logit : logits) largest = std::max(largest, logit);
    if (largest == kMinusInfinity<T>) largest = 0;  // avoids exp(-inf + inf): the exponentials are then 0
    T sum = std::exp(sink_ - largest);
    exponentials_.assign(logits.size(), 0);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (logits[j] != kMinusInfinity<T>) exponentials_[j] = std::exp(logits[j] - largest);
      sum += exponentials_[j];
    }
    lse = largest + std::log(sum);
    if (sum == 0) sum = 1;  // a row that sees no key: its weights are 0
    probabilities = exponentials_;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (logits[j] == kMinusInfinity<T>) continue;  // hidden keys have weight 0, even in a row of NaN
      probabilities[j] = known_lse ? std::exp(logits[j] - *known_lse) : probabilities[j] / sum;
    }

    // 4. Dropout removes some weights and scales up the others, so that their expected sum is the same.
    weights = probabilities;
    const T growth = static_cast<T>(1 / (1 - options_.dropout_p));
    if (options_.dropout_p > 0) {
      for (std::size_t j = 0; j < weights.size(); ++j) weights[j] = is_kept_[j] ? weights[j] * growth : 0;
    }

    // 5. The output is the mixture of the values. Hidden ones are skipped: multiplying NaN by 0 gives NaN.
    if (rounding_.exponentials) {
      mix(o, values_,
          [&](std::size_t j) { return is_kept_[j] ? rounded(exponentials_[j], rounding_.exponentials) : 0; });
      for (T& number : o) number = number / sum * growth;
    } else if (rounding_.weight_bits) {
      const std::vector<T> rounded = rounded_weights(*rounding_.weight_bits);
      mix(o, values_, [&](std::size_t j) { return rounded[j]; });
    } else {
      mix(o, values_, [&](std::size_t j) { return weights[j]; });
    }
    for (T& number : o) number = rounded(number, rounding_.o);
  }

  /// What rounding errors of o, of the scores, of the logits and of lse are proportional to, after attend().
  void find_bounds() {
    score_bound.assign(logits.size(), 0);
    const std::span<T> products = keys_of_sequence(score_bound);
    for (std::size_t d = 0; d < query_.size(); ++d)
      for (std::size_t j = 0; j < products.size(); ++j) products[j] += std::abs(query_[d] * keys_.row(d)[j]);
    for (T& product : products) product *= std::abs(static_cast<T>(a_.scale));
    mix(bound, value_magnitudes_, [&](std::size_t j) { return weights[j]; });
    magnitudes.assign(logits.size(), 0);
    lse_bound = lse == kMinusInfinity<T> ? T(0) : std::abs(lse);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (!has_part(j)) continue;
      const T distance = static_cast<T>(std::abs(position_ - static_cast<std::int64_t>(j)));
      const bool is_added = a_.mask && a_.mask.dtype != DType::boolean;
      // Where the softcap is not saturated, errors of products reach the logit, however small it is.
      const T product = options_.softcap > 0 ? softcap_derivative(j) * score_bound[j] : T(0);
      magnitudes[j] = std::max({std::abs(softcapped[j]), std::abs(logits[j]), product}) +
                      std::abs(slope_) * distance + (is_added ? std::abs(mask_[j]) : T(0));
      lse_bound += probabilities[j] * magnitudes[j];
    }
  }

  /// Backpropagates from the gradients of o and lse, after attend(). `rounded_o`: the o for computing delta;
  /// empty: use delta's definition.
  void differentiate(std::span<const T> dout, T dlse, std::span<const T> rounded_o = {}) {
    const auto begin = columns(sequence_->begin_key);
    const T growth = static_cast<T>(1 / (1 - options_.dropout_p));
    std::vector<T> dprobabilities(logits.size(), 0), bounds(logits.size(), 0);
    T delta = 0, delta_bound = 0;  // the sum of the probabilities times their gradients
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (!has_part(j) || !is_kept_[j]) continue;
      const std::span<const T> value = values_.row(j - begin);
      for (std::size_t d = 0; d < dout.size(); ++d) {
        dprobabilities[j] += dout[d] * value[d];
        bounds[j] += std::abs(dout[d] * value[d]);
      }
      dprobabilities[j] *= growth;
      bounds[j] *= growth;
      delta += probabilities[j] * dprobabilities[j];
      delta_bound += probabilities[j] * bounds[j];
    }
    if (!rounded_o.empty()) delta = std::inner_product(dout.begin(), dout.end(), rounded_o.begin(), T(0));
    delta -= dlse;
    delta_bound += std::abs(dlse);

    dlogits.assign(logits.size(), 0);
    dlogits_bound = dlogits;
    dslope = dslope_bound = 0;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (!has_part(j)) continue;
      dlogits[j] = probabilities[j] * (dprobabilities[j] - delta);
      dlogits_bound[j] = weight_bound(probabilities[j]) * (bounds[j] + delta_bound);
      const T distance = static_cast<T>(std::abs(position_ - static_cast<std::int64_t>(j)));
      dslope -= distance * dlogits[j];
      dslope_bound += distance * dlogits_bound[j];
    }
    const T sink_weight = sink_ == kMinusInfinity<T> ? T(0) : std::exp(sink_ - lse);
    dsink = -sink_weight * delta;
    dsink_bound = weight_bound(sink_weight) * delta_bound;

    dscores = dlogits;
    dscores_bound = dlogits_bound;
    modify_backward(keys_of_sequence(dscores));
    modify_backward(keys_of_sequence(dscores_bound));
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (!has_part(j)) continue;
      dscores[j] *= softcap_derivative(j);
      dscores_bound[j] = std::abs(dscores_bound[j]) * softcap_derivative(j);
    }
  }

  /// What a weight adds to the bounds of gradients, of which kGradient allows 16 eps: lse was rounded, to half an
  /// eps, which changes every weight by as much of itself, and a weight below the smallest normal number may be 0.
  /// This is of the precision that is checked: that of float if T is double, else that of double.
  T weight_bound(T weight) const {
    using Checked = std::conditional_t<std::is_same_v<T, double>, float, double>;
    using Limits = std::numeric_limits<Checked>;
    const T growth = lse == kMinusInfinity<T> ? 1 : 1 + std::abs(lse) / 32;
    return weight * growth + T(Limits::min()) / (16 * T(Limits::epsilon()));
  }

  /// Of softcap * tanh(x / softcap); 1 without a softcap.
  T softcap_derivative(std::size_t key) const {
    const T bounded = options_.softcap > 0 ? softcapped[key] / static_cast<T>(options_.softcap) : T(0);
    return 1 - bounded * bounded;
  }

  /// Whether the row sees a key.
  bool has_part(std::size_t key) const { return logits[key] != kMinusInfinity<T>; }
  const Sequence& sequence() const { return *sequence_; }
  std::span<const T> query() const { return query_; }
  const Matrix<T>& keys() const { return keys_; }  // [head_dim, existing keys]

 private:
  static std::size_t columns(std::int64_t count) { return static_cast<std::size_t>(count); }

  /// The part of a row [seqlen_k] whose keys exist.
  std::span<T> keys_of_sequence(std::vector<T>& row) const {
    return std::span(row).subspan(columns(sequence_->begin_key),
                                  columns(sequence_->end_key - sequence_->begin_key));
  }

  void load_head() {
    const std::int64_t kv_head = index_.head / (a_.num_heads / a_.num_kv_heads);
    queries_ = Matrix<T>(a_.q.select(0, sequence_->index_in_q).select(0, index_.head));
    if (rounding_.query_bits)
      for (std::span<T> rest = queries_.numbers; !rest.empty(); rest = rest.subspan(queries_.columns))
        round_together(rest.first(queries_.columns), *rounding_.query_bits);
    if (rounding_.weight_bits && a_.value_scales)
      value_scales_ = Matrix<T>(keys_of(a_, a_.value_scales->view(), index_.batch, kv_head));
    keys_ = Matrix<T>(keys_of(a_, a_.k, index_.batch, kv_head).view().transposed(0, 1));
    values_ = Matrix<T>(keys_of(a_, a_.v, index_.batch, kv_head));
    load_value_magnitudes();
    if (a_.alibi_slopes) slope_ = static_cast<T>(value_at(a_.alibi_slopes, std::array{index_.batch, index_.head}));
    if (const auto sink = a_.sink(index_.head)) sink_ = static_cast<T>(*sink);
  }

  /// Rounds to so many bits, counted from the first one of the largest number.
  static void round_together(std::span<T> numbers, int bits) {
    T largest = 0;
    for (const T number : numbers) largest = std::max(largest, std::abs(number));
    if (largest == 0 || !std::isfinite(largest)) return;
    const int shift = bits - 1 - std::ilogb(largest);
    for (T& number : numbers) number = std::ldexp(std::nearbyint(std::ldexp(number, shift)), -shift);
  }

  /// The weights, rounded as products with the scales of their values.
  std::vector<T> rounded_weights(int bits) const {
    std::vector<T> rounded = weights;
    const auto begin = columns(sequence_->begin_key);
    const auto scale = [&](std::size_t key) {
      return value_scales_.numbers.empty() ? T(1) : value_scales_.row(key)[0];
    };
    const std::span<T> numbers = keys_of_sequence(rounded);
    for (std::size_t j = 0; j < numbers.size(); ++j) numbers[j] *= scale(j);
    round_together(numbers, bits);
    for (std::size_t j = 0; j < numbers.size(); ++j)
      numbers[j] = scale(j) == 0 ? weights[begin + j] : numbers[j] / scale(j);
    return rounded;
  }

  /// Of a rotated value, every number is a sum over a block of the stored ones. Divided by the square root of its
  /// length, the sum of their absolute values is at most the block's Euclidean norm.
  void load_value_magnitudes() {
    value_magnitudes_ = values_;
    const std::int64_t block = options_.v_rotated ? a_.head_dim_v & -a_.head_dim_v : 1;
    const auto norm = [](std::span<T> numbers) {
      return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), T(0)));
    };
    for (std::span<T> rest = value_magnitudes_.numbers; !rest.empty(); rest = rest.subspan(columns(block))) {
      const std::span<T> numbers = rest.first(columns(block));
      std::ranges::fill(numbers, block > 1 ? norm(numbers) : std::abs(numbers.front()));
    }
  }

  void load_row() {
    query_ = queries_.row(columns(sequence_->first_row + index_.row));
    position_ = sequence_->first_position + index_.row;
    const auto row_of = [&](const TensorView& view, std::int64_t row) {
      return Matrix<T>(view.select(0, index_.batch).slice(0, index_.head, index_.head + 1).select(1, row)).numbers;
    };
    if (a_.mask) mask_ = row_of(a_.mask, index_.row);
    if (a_.block_mask)
      block_mask_ = row_of(a_.block_mask, (index_.row + options_.origin.row) / options_.block_mask_q);
    is_visible_.resize(columns(a_.seqlen_k));
    is_kept_.assign(columns(a_.seqlen_k), 1);
    for (std::size_t j = 0; j < is_visible_.size(); ++j) is_visible_[j] = is_visible(static_cast<std::int64_t>(j));
    if (options_.dropout_p > 0) draw_dropout();
  }

  bool is_visible(std::int64_t key) const {
    const std::int64_t ahead = key - position_;
    if (key < std::max(sequence_->begin_key, sequence_->kv_start) || key >= sequence_->kv_length) return false;
    if (options_.causal != Causal::none && ahead > 0) return false;
    if (options_.window_left >= 0 && -ahead > options_.window_left) return false;
    if (options_.window_right >= 0 && ahead > options_.window_right) return false;
    if (a_.block_mask && block_mask_[columns((key + options_.origin.key) / options_.block_mask_k)] == 0)
      return false;
    if (!a_.mask) return true;
    const T mask = mask_[columns(key)];
    return a_.mask.dtype == DType::boolean ? mask != 0 : mask != kMinusInfinity<T>;
  }

  void draw_dropout() {
    const Origin& origin = options_.origin;
    const std::int64_t num_heads = origin.num_heads > 0 ? origin.num_heads : origin.head + a_.num_heads;
    const auto batch_head =
        static_cast<std::uint32_t>((index_.batch + origin.batch) * num_heads + index_.head + origin.head);
    const auto row = static_cast<std::uint32_t>(index_.row + origin.row);
    for (std::size_t j = 0; j < is_kept_.size(); ++j) {
      if (!is_visible_[j]) continue;
      is_kept_[j] =
          dropout_keeps(options_.dropout_seed, options_.dropout_offset, batch_head, row,
                        static_cast<std::uint32_t>(static_cast<std::int64_t>(j) + origin.key), options_.dropout_p);
    }
  }

  /// Calls f(number) with the element type of the tiles that the caller's functions get.
  template <class F>
  void in_tile_type(const F& f) const {
    if (std::is_same_v<T, float> || a_.tiles == DType::f32)
      f(0.0F);
    else
      f(0.0);
  }

  /// The row in the form of the caller's functions.
  template <class Number>
  ScoreTile tile_of(std::vector<Number>& numbers) const {
    ScoreTile tile;
    const Origin& origin = options_.origin;
    tile.batch = index_.batch + origin.batch;
    tile.head = index_.head + origin.head;
    tile.first_row = index_.row + origin.row;
    tile.first_key = sequence_->begin_key + origin.key;
    tile.rows = 1;
    tile.keys = static_cast<std::int64_t>(numbers.size());
    tile.offset = sequence_->first_position - origin.row + origin.key;
    tile.scores = numbers.data();
    tile.dtype = dtype_of<Number>;
    tile.stride = tile.keys;
    return tile;
  }

  void modify(std::span<T> scores) const {
    if (options_.score_modifier == nullptr || scores.empty()) return;
    in_tile_type([&]<class Number>(Number) {
      std::vector<Number> changed(scores.begin(), scores.end());
      options_.score_modifier(options_.score_context, tile_of(changed));
      std::ranges::copy(changed, scores.begin());
    });
  }

  /// Converts gradients after the caller's modifier into those before it.
  void modify_backward(std::span<T> gradients) {
    if (options_.score_modifier == nullptr || options_.score_modifier_backward == nullptr || gradients.empty())
      return;
    in_tile_type([&]<class Number>(Number) {
      const std::span<T> before = keys_of_sequence(softcapped);
      std::vector<Number> scores(before.begin(), before.end()), changed(gradients.begin(), gradients.end());
      options_.score_modifier_backward(options_.score_context, tile_of(scores), tile_of(changed));
      for (std::size_t j = 0; j < gradients.size(); ++j) {
        if (has_part(columns(sequence_->begin_key) + j)) gradients[j] = static_cast<T>(changed[j]);
      }
    });
  }

  T biased(T score, std::size_t key, const DotProduct& way) const {
    const T distance = static_cast<T>(std::abs(position_ - static_cast<std::int64_t>(key)));
    const bool is_added = a_.mask && a_.mask.dtype != DType::boolean;
    if (way.biases == BiasOrder::together) return score + ((is_added ? mask_[key] : T(0)) - slope_ * distance);
    if (a_.alibi_slopes)
      score = way.biases == BiasOrder::fused ? std::fma(-slope_, distance, score) : score - slope_ * distance;
    return is_added ? score + mask_[key] : score;
  }

  /// The sum of weight(j) times value j over the keys that the row sees.
  template <class Weight>
  void mix(std::vector<T>& sum, const Matrix<T>& values, const Weight& weight) const {
    sum.assign(columns(a_.head_dim_v), 0);
    const auto begin = columns(sequence_->begin_key), end = columns(sequence_->end_key);
    for (std::size_t j = begin; j < end; ++j) {
      if (logits[j] == kMinusInfinity<T>) continue;
      const T factor = weight(j);
      const std::span<const T> value = values.row(j - begin);
      for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += factor * value[d];
    }
  }

  const Arguments& a_;
  const AttentionOptions& options_;
  const NaiveRounding& rounding_;

  RowIndex index_{-1, -1, -1};  // the current row
  const Sequence* sequence_ = nullptr;
  std::int64_t position_ = 0;   // the position of that row
  Matrix<T> queries_;           // [rows, head_dim] of that batch entry and head
  Matrix<T> keys_;              // [head_dim, existing keys]
  Matrix<T> values_;            // [existing keys, head_dim_v]
  Matrix<T> value_scales_;      // the same, of quantized values
  Matrix<T> value_magnitudes_;  // the same: what rounding errors of a value are proportional to
  T slope_ = 0;
  T sink_ = kMinusInfinity<T>;
  std::span<const T> query_;                // [head_dim] of that row
  std::vector<T> mask_, block_mask_;        // of that row; a bool as 0 or 1
  std::vector<char> is_visible_, is_kept_;  // [seqlen_k] of that row
  std::vector<T> exponentials_;             // [seqlen_k]
};

}  // namespace saccade::reference
