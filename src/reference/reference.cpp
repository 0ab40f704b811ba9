#include "saccade/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "core/check.h"
#include "reference/arguments.h"

namespace saccade::reference {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// ---- Shared helpers ------------------------------------------------------------------------------------------

[[noreturn]] void refuse(const char* function, const std::string& what) {
  throw std::invalid_argument("[reference::" + std::string(function) + "] " + what);
}

void check_readable(const TensorView& x, const char* function, const char* name) {
  const std::string full_name = "reference::" + std::string(function);
  check_data(full_name, name, x);
  check_has_numbers(full_name, name, x);
}

void check_given(const TensorView& x, const char* function, const char* name) {
  if (!x) refuse(function, std::string(name) + " must be given, but it is an empty view");
  check_readable(x, function, name);
}

/// A copy in f64; throws unless it has the rank that `function` expects.
Tensor checked_copy(const TensorView& view, int rank, const char* function, const char* name) {
  if (view.rank != rank) {
    refuse(function,
           std::string(name) + " has shape " + to_string(view.dims()) + ", not rank " + std::to_string(rank));
  }
  check_given(view, function, name);
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

/// A copy in f64, after calling `change` for every line along `dim`.
template <class Change>
Tensor with_lines_changed(const TensorView& x, int dim, const char* function, const Change& change) {
  if (dim < -x.rank || dim >= x.rank) {
    refuse(function, "dimension " + std::to_string(dim) + " does not exist in shape " + to_string(x.dims()));
  }
  check_given(x, function, "x");
  // Lines of the last dimension are contiguous, so swap the requested dimension there and back.
  Tensor lines = Tensor::copy_of(x.transposed(dim, -1), DType::f64);
  const auto length = static_cast<std::size_t>(lines.shape(-1));
  const std::span<double> numbers = lines.values<double>();
  for (std::size_t first = 0; first < numbers.size(); first += length) change(numbers.subspan(first, length));
  return Tensor::copy_of(lines.view().transposed(dim, -1));
}

}  // namespace

// ---- The single steps ----------------------------------------------------------------------------------------

double dot(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) {
    refuse("dot", "a has " + std::to_string(a.size()) + " numbers but b has " + std::to_string(b.size()));
  }
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
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
  check_given(x, "scaled", "x");
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
  check_given(x, "softmax_naive", "x");
  Tensor exponentials = Tensor::copy_of(x, DType::f64);
  for (double& number : exponentials.values<double>()) number = std::exp(number);
  return normalized_by_sum(exponentials, dim);
}

Tensor softmax(const TensorView& x, int dim) {
  return with_lines_changed(x, dim, "softmax", [](std::span<double> line) {
    double largest = kHidden;
    for (const double number : line) largest = std::max(largest, number);
    if (largest == kHidden) largest = 0;  // avoids exp(-inf + inf): the exponentials are then 0
    double sum = 0;
    for (double& number : line) sum += number = std::exp(number - largest);
    if (sum == 0) return;
    for (double& number : line) number /= sum;
  });
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
  check_readable(scores, "masked", "scores");
  check_readable(mask, "masked", "mask");
  Tensor result = Tensor::copy_of(scores, DType::f64);
  const Tensor attend = Tensor::copy_of(broadcast(mask, scores.dims(), "reference::masked", "mask"), DType::f64);
  const std::span<double> numbers = result.values<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (attend.values<double>()[i] == 0) numbers[i] = kHidden;
  }
  return result;
}

Tensor dropout(const TensorView& weights, const TensorView& keep, double p) {
  if (!(p >= 0 && p < 1)) refuse("dropout", "p is " + std::to_string(p) + ", not in [0, 1)");
  if (keep.dtype != DType::boolean || !std::ranges::equal(keep.dims(), weights.dims())) {
    refuse("dropout", "keep is " + std::string(name_of(keep.dtype)) + " " + to_string(keep.dims()) +
                          ", not bool " + to_string(weights.dims()));
  }
  check_readable(weights, "dropout", "weights");
  check_readable(keep, "dropout", "keep");
  Tensor result = Tensor::copy_of(weights, DType::f64);
  const Tensor kept = Tensor::copy_of(keep, DType::f64);
  const std::span<double> numbers = result.values<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = kept.values<double>()[i] != 0 ? numbers[i] / (1 - p) : 0;
  }
  return result;
}

Tensor context_vectors(const TensorView& weights, const TensorView& values) { return matmul(weights, values); }

}  // namespace saccade::reference
