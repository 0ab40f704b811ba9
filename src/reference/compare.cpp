#include "saccade/compare.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "core/check.h"

namespace saccade {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0.0;
  }
}

double difference(double value, double wanted) {
  if (value == wanted || (std::isnan(value) && std::isnan(wanted))) return 0.0;
  return std::isfinite(value) && std::isfinite(wanted) ? std::abs(value - wanted) : kInfinity;
}

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

Comparison compare(const TensorView& out, const Expected& expected, Tolerance tolerance) {
  const TensorView bound_view = expected.bound ? expected.bound : expected.reference;
  const std::pair<const char*, const TensorView&> others[] = {
      {"reference", expected.reference}, {"naive", expected.naive}, {"bound", bound_view}};
  for (const auto& [name, other] : others) {
    if (!std::ranges::equal(out.dims(), other.dims()))
      refuse("compare", name, " has shape ", to_string(other.dims()), " but out has shape ",
             to_string(out.dims()));
    check_data("compare", name, other);
    check_has_numbers("compare", name, other);
  }
  check_data("compare", "out", out);
  check_has_numbers("compare", "out", out);
  const Tensor out_f64 = Tensor::copy_of(out, DType::f64), naive_f64 = Tensor::copy_of(expected.naive, DType::f64);
  const Tensor reference_f64 = Tensor::copy_of(expected.reference, DType::f64);
  const Tensor bound_f64 = Tensor::copy_of(bound_view, DType::f64);
  const auto values = out_f64.values<double>(), wanted = reference_f64.values<double>();
  const double eps = epsilon_of(expected.coarsest.value_or(out.dtype));

  Comparison result;
  result.elements = out.size();
  result.naive_error = largest_finite_difference(naive_f64.values<double>(), wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double off = difference(values[i], wanted[i]), terms = std::abs(bound_f64.values<double>()[i]);
    const double unavoidable = std::isfinite(terms) ? tolerance.eps_factor * eps * terms : 0.0;
    const double allowed = tolerance.naive_factor * result.naive_error + unavoidable;
    const double ratio = off == 0.0 ? 0.0 : off / allowed;
    result.largest_difference = std::max(result.largest_difference, off);
    if (off > allowed) ++result.failures;
    if (i > 0 && ratio <= result.worst_ratio) continue;
    result.worst_ratio = ratio;
    result.worst_index = index_of(i, out_f64.shape());
    result.worst_difference = off;
    result.worst_value = values[i];
    result.worst_reference = wanted[i];
  }
  result.holds = result.failures == 0;
  return result;
}

std::string to_string(const Comparison& comparison) {
  std::ostringstream text;
  text << std::setprecision(9) << "element " << to_string(std::span<const std::int64_t>(comparison.worst_index))
       << " is " << comparison.worst_value << " but the reference has " << comparison.worst_reference
       << ": off by " << comparison.worst_difference << ", " << comparison.worst_ratio
       << " times what is allowed (naive code: " << comparison.naive_error << "); " << comparison.failures
       << " of " << comparison.elements << " elements are off";
  return text.str();
}

}  // namespace saccade
