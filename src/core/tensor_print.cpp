// to_string() of a tensor.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "core/check.h"
#include "saccade/tensor.h"

namespace saccade {
namespace {

constexpr int kMaxPrecision = 17;  // enough for every double
constexpr double kWide = 1e8;

/// How many numbers or, of a view without any, pairs of brackets there are.
double count_shown(const TensorView& view) {
  double count = 1.0;
  for (const std::int64_t length : view.dims()) count *= static_cast<double>(std::max<std::int64_t>(length, 1));
  return count;
}

/// Formats the numbers of one view with one width.
class Printer {
 public:
  Printer(const TensorView& view, const PrintOptions& options)
      : precision_(std::clamp(options.precision, 0, kMaxPrecision)),
        edge_items_(std::max(options.edge_items, 1)),
        is_shortened_(count_shown(view) > static_cast<double>(options.threshold)) {
    double largest = 0.0;
    for_each_shown(view, [&](const TensorView& element) {
      const double magnitude = std::abs(value_at(element, {}));
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    });
    const bool all_look_zero = largest != 0.0 && largest < 0.5 * std::pow(10.0, -precision_);
    format_ = largest >= kWide || all_look_zero ? std::chars_format::scientific : std::chars_format::fixed;
    for_each_shown(view, [&](const TensorView& element) { width_ = std::max(width_, number(element).size()); });
  }

  std::string print(const TensorView& view, std::size_t indent) const {
    if (view.rank == 0) return right_aligned(view);
    std::string gap = ",";
    gap.append(view.rank - 1U, '\n');
    gap.append(view.rank == 1 ? 1 : indent + 1, ' ');
    std::string text = "[";
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      if (i != 0) text += gap;
      if (is_left_out(view.shape[0], i)) {
        text += "...";
        i = view.shape[0] - edge_items_ - 1;
      } else {
        text += print(view.select(0, i), indent + 1);
      }
    }
    return text + "]";
  }

 private:
  bool is_left_out(std::int64_t length, std::int64_t index) const {
    return is_shortened_ && index >= edge_items_ && index < length - edge_items_;
  }

  template <class Function>
  void for_each_shown(const TensorView& view, const Function& function) const {
    if (view.rank == 0) return function(view);
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      if (is_left_out(view.shape[0], i)) i = view.shape[0] - edge_items_;
      for_each_shown(view.select(0, i), function);
    }
  }

  std::string number(const TensorView& element) const {
    std::array<char, 64> text{};
    char* const end = text.data() + text.size();
    std::to_chars_result result{};
    if (element.dtype == DType::boolean) return value_at(element, {}) != 0.0 ? "true" : "false";
    if (is_floating(element.dtype)) {
      result = std::to_chars(text.data(), end, value_at(element, {}), format_, precision_);
    } else if (element.dtype == DType::u64) {
      result = std::to_chars(text.data(), end, *element.as<std::uint64_t>());
    } else {
      std::int64_t value = 0;
      copy(element, MutableTensorView(&value, {}));
      result = std::to_chars(text.data(), end, value);
    }
    return {text.data(), result.ptr};
  }

  std::string right_aligned(const TensorView& element) const {
    const std::string text = number(element);
    return std::string(width_ - text.size(), ' ') + text;
  }

  int precision_;
  std::int64_t edge_items_;
  bool is_shortened_;
  std::chars_format format_ = std::chars_format::fixed;
  std::size_t width_ = 0;
};

}  // namespace

std::string to_string(const TensorView& view, const PrintOptions& options) {
  if (view.data == nullptr && view.rank == 0) return "[]";
  check_data("to_string", "view", view);
  check_has_numbers("to_string", "view", view);
  PrintOptions of_view = options;
  if (view.size() == 0) {  // it may have 2^40 pairs of brackets
    of_view.edge_items = std::min(options.edge_items, PrintOptions{}.edge_items);
    of_view.threshold = std::min(options.threshold, PrintOptions{}.threshold);
  }
  return Printer(view, of_view).print(view, 0);
}

}  // namespace saccade
