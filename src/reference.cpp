#include "saccade/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reference_arguments.h"
#include "saccade/random.h"

namespace saccade::reference {
namespace {

// ---- The arithmetic, written once for double and for float ---------------------------------------------------

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

template <class T>
T dot_product(std::span<const T> a, std::span<const T> b) {
  T sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Replaces a line of numbers by its softmax and returns the logarithm of the denominator. `sink` is one more
/// number that takes part in the denominator only.
template <class T>
T softmax_in_place(std::span<T> line, T sink = kMinusInfinity<T>) {
  T largest = sink;
  for (const T x : line) largest = std::max(largest, x);
  if (largest == kMinusInfinity<T>) largest = 0;  // the exponentials are then 0 instead of exp(-inf + inf)
  T sum = std::exp(sink - largest);
  for (T& x : line) {
    x = std::exp(x - largest);
    sum += x;
  }
  if (sum != 0) {
    for (T& x : line) x /= sum;
  }
  return largest + std::log(sum);
}

// ---- What the steps share ------------------------------------------------------------------------------------

[[noreturn]] void refuse(const char* function, const std::string& what) {
  throw std::invalid_argument("[reference::" + std::string(function) + "] " + what);
}

/// A copy in f64, if it has the rank that `function` wants.
Tensor checked_copy(const TensorView& view, int rank, const char* function, const char* name) {
  if (view.rank != rank) {
    refuse(function,
           std::string(name) + " has shape " + to_string(view.dims()) + ", not rank " + std::to_string(rank));
  }
  return Tensor::copy_of(view, DType::f64);
}

/// A row of an f64 matrix.
template <class MaybeConstTensor>
auto row_of(MaybeConstTensor& matrix, std::int64_t index) {
  const auto columns = static_cast<std::size_t>(matrix.shape(1));
  return matrix.template values<double>().subspan(static_cast<std::size_t>(index) * columns, columns);
}

void check_head_dim(const Tensor& query, const Tensor& keys, const char* function) {
  if (query.shape(-1) == keys.shape(1)) return;
  refuse(function, "keys has shape " + to_string(keys.shape()) + " but the queries have shape " +
                       to_string(query.shape()) + ": they differ in head_dim");
}

/// A copy in f64 of which every line along `dim` was handed to `change`.
template <class Change>
Tensor with_lines_changed(const TensorView& x, int dim, const char* function, const Change& change) {
  if (dim < -x.rank || dim >= x.rank) {
    refuse(function, "dimension " + std::to_string(dim) + " does not exist in shape " + to_string(x.dims()));
  }
  // The lines of the last dimension lie one after the other; so bring the wanted one there and back.
  Tensor lines = Tensor::copy_of(x.transposed(dim, -1), DType::f64);
  const auto length = static_cast<std::size_t>(lines.shape(-1));
  const std::span<double> numbers = lines.values<double>();
  for (std::size_t first = 0; first < numbers.size(); first += length) change(numbers.subspan(first, length));
  return Tensor::copy_of(lines.view().transposed(dim, -1));
}

}  // namespace

// ---- The steps by themselves ---------------------------------------------------------------------------------

double dot(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) {
    refuse("dot", "a has " + std::to_string(a.size()) + " numbers but b has " + std::to_string(b.size()));
  }
  return dot_product<double>(a, b);
}

Tensor matmul(const TensorView& a, const TensorView& b) {
  const Tensor left = checked_copy(a, 2, "matmul", "a");
  const Tensor right = checked_copy(b, 2, "matmul", "b");
  if (left.shape(1) != right.shape(0)) {
    refuse("matmul", "a has shape " + to_string(left.shape()) + " and b has shape " + to_string(right.shape()) +
                         ": the columns of a must be as many as the rows of b");
  }
  Tensor product(DType::f64, {left.shape(0), right.shape(1)});
  for (std::int64_t i = 0; i < left.shape(0); ++i) {
    const std::span<double> sums = row_of(product, i);
    for (std::int64_t k = 0; k < left.shape(1); ++k) {
      const double factor = left.at<double>(i, k);
      const std::span<const double> row = row_of(right, k);
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += factor * row[j];
    }
  }
  return product;
}

Tensor transpose(const TensorView& a) {
  return Tensor::copy_of(checked_copy(a, 2, "transpose", "a").view().transposed(0, 1));
}

Tensor scores_of_query(const TensorView& query, const TensorView& keys) {
  const Tensor one = checked_copy(query, 1, "scores_of_query", "query");
  const Tensor many = checked_copy(keys, 2, "scores_of_query", "keys");
  check_head_dim(one, many, "scores_of_query");
  Tensor result(DType::f64, {many.shape(0)});
  for (std::int64_t j = 0; j < many.shape(0); ++j) {
    result.at<double>(j) = dot(one.values<double>(), row_of(many, j));
  }
  return result;
}

Tensor scores_by_loop(const TensorView& queries, const TensorView& keys) {
  const Tensor left = checked_copy(queries, 2, "scores_by_loop", "queries");
  const Tensor right = checked_copy(keys, 2, "scores_by_loop", "keys");
  check_head_dim(left, right, "scores_by_loop");
  Tensor result(DType::f64, {left.shape(0), right.shape(0)});
  for (std::int64_t i = 0; i < left.shape(0); ++i) {
    for (std::int64_t j = 0; j < right.shape(0); ++j) {
      result.at<double>(i, j) = dot(row_of(left, i), row_of(right, j));
    }
  }
  return result;
}

Tensor scores(const TensorView& queries, const TensorView& keys) { return matmul(queries, transpose(keys)); }

Tensor scaled(const TensorView& x, double factor) {
  Tensor result = Tensor::copy_of(x, DType::f64);
  for (double& number : result.values<double>()) number *= factor;
  return result;
}

Tensor normalized_by_sum(const TensorView& x, int dim) {
  return with_lines_changed(x, dim, "normalized_by_sum", [](std::span<double> line) {
    double sum = 0;
    for (const double number : line) sum += number;
    for (double& number : line) number /= sum;
  });
}

Tensor softmax_naive(const TensorView& x, int dim) {
  Tensor exponentials = Tensor::copy_of(x, DType::f64);
  for (double& number : exponentials.values<double>()) number = std::exp(number);
  return normalized_by_sum(exponentials, dim);
}

Tensor softmax(const TensorView& x, int dim) {
  return with_lines_changed(x, dim, "softmax", [](std::span<double> line) { softmax_in_place<double>(line); });
}

Tensor causal_mask(std::int64_t seqlen_q, std::int64_t seqlen_k, Causal causal) {
  Tensor mask(DType::boolean, {seqlen_q, seqlen_k});
  const std::int64_t offset = causal == Causal::bottom_right ? seqlen_k - seqlen_q : 0;
  for (std::int64_t i = 0; i < seqlen_q; ++i) {
    for (std::int64_t j = 0; j < seqlen_k; ++j) {
      mask.at<bool>(i, j) = causal == Causal::none || j <= i + offset;
    }
  }
  return mask;
}

Tensor masked(const TensorView& scores, const TensorView& mask) {
  if (mask.dtype != DType::boolean) {
    refuse("masked", "mask has element type " + std::string(name_of(mask.dtype)) + ", not bool");
  }
  Tensor result = Tensor::copy_of(scores, DType::f64);
  const Tensor attend = Tensor::copy_of(broadcast(mask, scores.dims(), "reference::masked", "mask"), DType::f64);
  const std::span<double> numbers = result.values<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (attend.values<double>()[i] == 0) numbers[i] = kMinusInfinity<double>;
  }
  return result;
}

Tensor dropout(const TensorView& weights, const TensorView& keep, double p) {
  if (!(p >= 0 && p < 1)) refuse("dropout", "p is " + std::to_string(p) + ", not in [0, 1)");
  if (keep.dtype != DType::boolean || !std::ranges::equal(keep.dims(), weights.dims())) {
    refuse("dropout", "keep is " + std::string(name_of(keep.dtype)) + " " + to_string(keep.dims()) +
                          ", not bool " + to_string(weights.dims()));
  }
  Tensor result = Tensor::copy_of(weights, DType::f64);
  const Tensor kept = Tensor::copy_of(keep, DType::f64);
  const std::span<double> numbers = result.values<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = kept.values<double>()[i] != 0 ? numbers[i] / (1 - p) : 0;
  }
  return result;
}

Tensor context_vectors(const TensorView& weights, const TensorView& values) { return matmul(weights, values); }

namespace {

// ---- All steps together, one query at a time -----------------------------------------------------------------

/// One head of q, k or v: a matrix of our own in the arithmetic's type.
template <class T>
struct Matrix {
  std::vector<T> numbers;
  std::size_t columns = 0;

  Matrix() = default;
  explicit Matrix(const TensorView& view)
      : numbers(static_cast<std::size_t>(view.size())), columns(static_cast<std::size_t>(view.shape[1])) {
    copy(view, MutableTensorView(numbers.data(), dtype_of<T>, view.dims()));
  }
  std::span<const T> row(std::size_t index) const { return std::span(numbers).subspan(index * columns, columns); }
};

template <class T>
class Attention {
 public:
  Attention(const Arguments& arguments, const AttentionOptions& options, const ScoreModifier& score_modifier)
      : a_(arguments), options_(options), score_modifier_(score_modifier) {}

  AttentionResult run() {
    const Shape square{a_.batch, a_.num_heads, a_.seqlen_q, a_.seqlen_k};
    const Shape output{a_.batch, a_.num_heads, a_.seqlen_q, a_.head_dim_v};
    result_.o = Tensor(DType::f64, output);
    result_.lse = Tensor(DType::f64, {a_.batch, a_.num_heads, a_.seqlen_q});
    result_.weights = Tensor(DType::f64, square);
    result_.scores = Tensor(DType::f64, square);
    result_.logits = Tensor(DType::f64, square);
    result_.bound = Tensor(DType::f64, output);
    for (batch_ = 0; batch_ < a_.batch; ++batch_) {
      for (head_ = 0; head_ < a_.num_heads; ++head_) {
        load_head();
        for (row_ = 0; row_ < a_.seqlen_q; ++row_) attend();
      }
    }
    return std::move(result_);
  }

 private:
  void load_head() {
    const std::int64_t kv_head = head_ / (a_.num_heads / a_.num_kv_heads);
    queries_ = Matrix<T>(a_.q.select(0, batch_).select(0, head_));
    keys_ = Matrix<T>(a_.k.select(0, batch_).select(0, kv_head));
    values_ = Matrix<T>(a_.v.select(0, batch_).select(0, kv_head));
    if (a_.alibi_slopes) slope_ = static_cast<T>(value_at(a_.alibi_slopes, std::array{batch_, head_}));
    if (a_.sinks) sink_ = static_cast<T>(value_at(a_.sinks, std::array{head_}));
  }

  /// What the query of row_ takes from the keys and values of its head.
  void attend() {
    load_row();

    // 1. How alike are the query and each key?
    const std::span<const T> query = queries_.row(static_cast<std::size_t>(row_));
    std::vector<T> scores(static_cast<std::size_t>(a_.seqlen_k));
    for (std::size_t j = 0; j < scores.size(); ++j) scores[j] = dot_product<T>(query, keys_.row(j));

    // 2. Scaled, bounded, biased; -inf for what the query must not see.
    std::vector<T> logits(scores.size(), kMinusInfinity<T>);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (is_visible(static_cast<std::int64_t>(j))) logits[j] = logit(scores[j], static_cast<std::int64_t>(j));
    }

    // 3. The query spreads a total of 1 over the keys.
    std::vector<T> weights = logits;
    const T lse = softmax_in_place<T>(weights, sink_);

    // 4. Some weights are dropped at random; the others grow, so that their sum stays the same on average.
    const std::vector<T> kept = after_dropout(weights);

    // 5. It takes that mixture of the values. Hidden ones are left out: times 0 would not do, 0 * NaN is NaN.
    std::vector<T> o(static_cast<std::size_t>(a_.head_dim_v));
    std::vector<T> bound(o.size());
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (logits[j] == kMinusInfinity<T>) continue;
      const std::span<const T> value = values_.row(j);
      for (std::size_t d = 0; d < o.size(); ++d) {
        o[d] += kept[j] * value[d];
        bound[d] += kept[j] * std::abs(value[d]);
      }
    }

    store(o, result_.o);
    store(std::span(&lse, 1), result_.lse);
    store(options_.weights_after_dropout ? kept : weights, result_.weights);
    store(scores, result_.scores);
    store(logits, result_.logits);
    store(bound, result_.bound);
  }

  void load_row() {
    position_ = a_.first_positions[static_cast<std::size_t>(batch_)] + row_;
    if (!a_.mask) return;
    mask_.resize(static_cast<std::size_t>(a_.seqlen_k));
    copy(a_.mask.select(0, batch_).select(0, head_).select(0, row_),
         MutableTensorView(mask_.data(), {a_.seqlen_k}));
  }

  bool is_visible(std::int64_t column) const {
    const std::int64_t ahead = column - position_;
    if (column >= a_.kv_lengths[static_cast<std::size_t>(batch_)]) return false;
    if (options_.causal != Causal::none && ahead > 0) return false;
    if (options_.window_left >= 0 && -ahead > options_.window_left) return false;
    if (options_.window_right >= 0 && ahead > options_.window_right) return false;
    if (!a_.mask) return true;
    const T mask = mask_[static_cast<std::size_t>(column)];
    return a_.mask.dtype == DType::boolean ? mask != 0 : mask != kMinusInfinity<T>;
  }

  T logit(T score, std::int64_t column) const {
    T s = static_cast<T>(a_.scale) * score;
    if (options_.softcap > 0) {
      const T softcap = static_cast<T>(options_.softcap);
      s = softcap * std::tanh(s / softcap);
    }
    if (score_modifier_) s = static_cast<T>(score_modifier_(s, batch_, head_, row_, column));
    if (a_.alibi_slopes) s -= slope_ * static_cast<T>(std::abs(position_ - column));
    if (a_.mask && a_.mask.dtype != DType::boolean) s += mask_[static_cast<std::size_t>(column)];
    return s;
  }

  std::vector<T> after_dropout(std::vector<T> weights) const {
    if (options_.dropout_p == 0) return weights;
    const T growth = static_cast<T>(1 / (1 - options_.dropout_p));
    const auto batch_head = static_cast<std::uint32_t>(batch_ * a_.num_heads + head_);
    for (std::size_t j = 0; j < weights.size(); ++j) {
      const bool keep =
          dropout_keeps(options_.dropout_seed, options_.dropout_offset, batch_head,
                        static_cast<std::uint32_t>(row_), static_cast<std::uint32_t>(j), options_.dropout_p);
      weights[j] = keep ? weights[j] * growth : 0;
    }
    return weights;
  }

  /// Puts what belongs to the row at work in its place in a result [batch, num_heads, seqlen_q, ...].
  void store(std::span<const T> numbers, Tensor& result) const {
    const std::int64_t row = (batch_ * a_.num_heads + head_) * a_.seqlen_q + row_;
    double* const place = result.values<double>().data() + row * static_cast<std::int64_t>(numbers.size());
    std::ranges::copy(numbers, place);
  }

  const Arguments& a_;
  const AttentionOptions& options_;
  const ScoreModifier& score_modifier_;
  AttentionResult result_;

  std::int64_t batch_ = 0, head_ = 0, row_ = 0;  // what is being computed
  std::int64_t position_ = 0;                    // where that row stands
  Matrix<T> queries_, keys_, values_;            // [seqlen, dim] of that batch entry and head
  T slope_ = 0;
  T sink_ = kMinusInfinity<T>;
  std::vector<T> mask_;  // [seqlen_k] of that row, a bool as 0 or 1
};

}  // namespace

AttentionResult attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options, DType precision, const ScoreModifier& score_modifier) {
  if (precision != DType::f64 && precision != DType::f32) {
    refuse("attention", "precision is " + std::string(name_of(precision)) + ", not f64 or f32");
  }
  const Arguments arguments = checked_arguments(q, k, v, options);
  AttentionResult result = precision == DType::f64 ? Attention<double>(arguments, options, score_modifier).run()
                                                   : Attention<float>(arguments, options, score_modifier).run();

  Shape output_shape(q.dims().begin(), q.dims().end());
  output_shape.back() = arguments.head_dim_v;
  for (Tensor* output : {&result.o, &result.bound}) {
    if (options.layout == Layout::blhd) *output = Tensor::copy_of(output->view().transposed(1, 2));
    *output = std::move(*output).reshaped(output_shape);
  }
  for (Tensor* rows : {&result.lse, &result.weights, &result.scores, &result.logits}) {
    *rows = std::move(*rows).reshaped(Shape(rows->shape().begin() + (4 - q.rank), rows->shape().end()));
  }
  return result;
}

namespace {

/// A copy with its last dimension in another order.
Tensor reordered(const TensorView& view, std::span<const std::size_t> order) {
  const Tensor in = Tensor::copy_of(view, DType::f64);
  Tensor out(DType::f64, in.shape());
  for (std::size_t i = 0; i < in.values<double>().size(); ++i) {
    const std::size_t row = i / order.size() * order.size();
    out.values<double>()[i] = in.values<double>()[row + order[i - row]];
  }
  return out;
}

void take_farther(Tensor& worst, const Tensor& other, const Tensor& exact) {
  const auto numbers = worst.values<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double x = other.values<double>()[i], wanted = exact.values<double>()[i];
    if (std::abs(x - wanted) > std::abs(numbers[i] - wanted)) numbers[i] = x;
  }
}

}  // namespace

AttentionResult naive_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const AttentionOptions& options, const AttentionResult& exact) {
  // A few rows with close and large logits make most of the error, however many rows there are beside them.
  constexpr std::int64_t kManyRows = 4096, kFewestOrders = 6, kMostOrders = 24;
  AttentionResult worst = attention(q, k, v, options, DType::f32);
  const std::int64_t head_dim = q.shape[static_cast<std::size_t>(q.rank - 1)];
  const std::int64_t rows = std::max<std::int64_t>(q.size() / head_dim, 1);
  std::vector<std::size_t> order(static_cast<std::size_t>(head_dim));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(1);
  const std::int64_t orders =
      rows >= kManyRows ? 1 : std::clamp<std::int64_t>(1024 / rows, kFewestOrders, kMostOrders);
  for (std::int64_t i = 1; i < orders; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    const AttentionResult other = attention(reordered(q, order), reordered(k, order), v, options, DType::f32);
    take_farther(worst.o, other.o, exact.o);
    take_farther(worst.lse, other.lse, exact.lse);
    take_farther(worst.weights, other.weights, exact.weights);
  }
  return worst;
}

}  // namespace saccade::reference
