#include "comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace saccade::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double difference(double value, double wanted) {
  if (value == wanted || (std::isnan(value) && std::isnan(wanted))) return 0.0;
  return std::isfinite(value) && std::isfinite(wanted) ? std::abs(value - wanted) : kInfinity;
}

// Where naive code fails altogether, by an overflow say, it allows nobody anything.
double largest_finite_difference(std::span<const double> values, std::span<const double> wanted) {
  double largest = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = difference(values[i], wanted[i]);
    if (off < kInfinity) largest = std::max(largest, off);
  }
  return largest;
}

Shape index_of(std::size_t element, const Shape& shape) {
  Shape index(shape.size());
  auto rest = static_cast<std::int64_t>(element);
  for (std::size_t dim = shape.size(); dim-- > 0; rest /= shape[dim]) index[dim] = rest % shape[dim];
  return index;
}

}  // namespace

Comparison compare(std::string name, const TensorView& out, const TensorView& reference, const TensorView& naive,
                   const TensorView& bound) {
  const Tensor out_f64 = Tensor::copy_of(out, DType::f64);
  const Tensor reference_f64 = Tensor::copy_of(reference, DType::f64);
  const Tensor naive_f64 = Tensor::copy_of(naive, DType::f64);
  const Tensor bound_f64 = Tensor::copy_of(bound, DType::f64);
  const auto wanted = reference_f64.values<double>();
  const double naive_error = largest_finite_difference(naive_f64.values<double>(), wanted);

  Comparison result{.name = std::move(name), .worst_index = {}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double off = difference(out_f64.values<double>()[i], wanted[i]);
    const double terms = std::abs(bound_f64.values<double>()[i]);
    const double rounding = std::isfinite(terms) ? 8.0 * std::numeric_limits<float>::epsilon() * terms : 0.0;
    const double allowed = 2.0 * naive_error + rounding;
    const double ratio = off == 0.0 ? 0.0 : off / allowed;
    result.largest_difference = std::max(result.largest_difference, off);
    if (off > allowed) result.holds = false;
    if (ratio <= result.worst_ratio) continue;
    result.worst_ratio = ratio;
    result.worst_index = index_of(i, out_f64.shape());
    result.worst_value = out_f64.values<double>()[i];
    result.worst_reference = wanted[i];
  }
  return result;
}

}  // namespace saccade::cli
