#include "picture/heatmap/matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "picture/text.h"
#include "picture/ticks.h"

namespace saccade::picture {
namespace {

constexpr std::int64_t kMaxHeads = 256;
constexpr int kMaxDecimals = 12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kLongSequence = 64;  // with more keys `automatic` may be logarithmic
constexpr double kLogarithmicSpan = 1e3;    // default of high / low on a logarithmic scale

[[noreturn]] void refuse(std::string_view function, const std::string& what) {
  throw std::invalid_argument("[" + std::string(function) + "] " + what);
}

std::vector<std::string> labels_of(const std::vector<std::string>& tokens) {
  std::vector<std::string> labels(tokens.size());
  std::transform(tokens.begin(), tokens.end(), labels.begin(),
                 [](const std::string& token) { return label_of(token); });
  return labels;
}

void check_count(std::string_view function, std::string_view what, std::size_t count, std::int64_t wanted,
                 std::string_view of) {
  if (count == 0 || static_cast<std::int64_t>(count) == wanted) return;
  refuse(function, std::string(what) + " has " + std::to_string(count) + " entries but the matrix has " +
                       std::to_string(wanted) + " " + std::string(of));
}

void check_options(const HeatmapOptions& options, std::string_view function) {
  for (const std::optional<double>& bound : {options.low, options.high}) {
    if (bound && !std::isfinite(*bound)) refuse(function, "low and high must be finite");
  }
  if (options.low && options.high && !(*options.low < *options.high)) {
    refuse(function, "low " + concise(*options.low, 6) + " must be below high " + concise(*options.high, 6));
  }
  if (options.decimals && (*options.decimals < 0 || *options.decimals > kMaxDecimals)) {
    refuse(function, "decimals must be 0 to 12, got " + std::to_string(*options.decimals));
  }
}

// Folds one row of weights into a row of cells.
void pool_row(const double* row, std::int64_t seqlen_k, std::int64_t block_k, double* cells, double& smallest) {
  for (std::int64_t j = 0; j < seqlen_k; ++j) {
    double& cell = cells[j / block_k];
    const double value = row[j];
    if (std::isfinite(value)) smallest = std::min(smallest, value);
    if (std::isnan(value) || value > cell) cell = value;  // no value is larger than a NaN, so it stays
  }
}

// Decimals that show two digits of a largest value below 1, and three of a larger one.
int decimals_for(double largest) {
  if (!(largest > 0)) return 2;
  const double exponent = std::floor(std::log10(largest));
  return static_cast<int>(std::clamp(exponent < 0 ? 1 - exponent : 2 - exponent, 0.0, 6.0));
}

bool half_of_the_values_would_be_pale(const Cells& cells, double high) {
  std::int64_t positive = 0, pale = 0;
  for (const double value : cells.values) {
    positive += value > 0;
    pale += value > 0 && value < high / 50;
  }
  return pale > positive - pale;
}

void set_range(Scale& scale, const Cells& cells, const HeatmapOptions& options) {
  double smallest = kInfinity, largest = -kInfinity;
  for (const double value : cells.values) {
    if (!std::isfinite(value)) continue;
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  if (smallest > largest) smallest = largest = 0;  // nothing finite
  scale.low = options.low.value_or(std::min(smallest, 0.0));
  scale.high = options.high.value_or(largest);
  if (scale.low < scale.high) return;
  // All values are equal, or all are outside a given end.
  constexpr double kLargest = std::numeric_limits<double>::max();
  if (options.high) {
    scale.low = std::max(scale.high - std::max(1.0, std::abs(scale.high)), -kLargest);
  } else {
    scale.high = std::min(scale.low + std::max(1.0, std::abs(scale.low)), kLargest);
  }
}

// Stays linear where the numbers are so small that their ratios are meaningless.
void make_logarithmic(Scale& scale, const Cells& cells, const HeatmapOptions& options) {
  double low = scale.low;
  if (!options.low) {
    double smallest = scale.high;
    for (const double value : cells.values) {
      if (value > 0) smallest = std::min(smallest, value);
    }
    low = smallest < scale.high ? std::max(smallest, scale.high / kLogarithmicSpan) : scale.high / 10;
  }
  if (!std::isnormal(low)) return;
  scale.logarithmic = true;
  scale.low = low;
}

std::string tick_text(double value, double step) {
  if (std::abs(value) >= 1e6 || step < 1e-6) return concise(value, 3);
  return fixed(value, static_cast<int>(std::max(0.0, -std::floor(std::log10(step) + 1e-9))));
}

std::vector<Scale::Tick> linear_ticks(const Scale& scale, int count) {
  const double range = scale.high - scale.low;
  if (!std::isfinite(range) || !std::isnormal(range / count)) {
    return {{0, concise(scale.low, 3)}, {1, concise(scale.high, 3)}};
  }
  const double step = tick_step(range, count);
  std::vector<Scale::Tick> ticks;
  const double first = std::ceil(scale.low / step - 1e-9);
  for (int i = 0; i <= count; ++i) {
    const double value = (first + i) * step;
    if (value > scale.high + step * 1e-9) break;
    ticks.push_back({scale.position(value), tick_text(value, step)});
  }
  return ticks;
}

std::vector<Scale::Tick> logarithmic_ticks(const Scale& scale) {
  const bool short_span = scale.high / scale.low < 100;
  std::vector<Scale::Tick> ticks;
  const double first = std::floor(std::log10(scale.low)), last = std::ceil(std::log10(scale.high));
  const double every = std::max(1.0, std::ceil((last - first) / 6));
  for (double exponent = first; exponent <= last; exponent += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = exponent < 0 ? factor / std::pow(10.0, -exponent) : factor * std::pow(10.0, exponent);
      if (factor > 1 && !short_span) break;
      if (value < scale.low * (1 - 1e-9) || value > scale.high * (1 + 1e-9)) continue;
      ticks.push_back({scale.position(value), concise(value, 3)});
    }
  }
  return ticks;
}

}  // namespace

Input checked(const TensorView& weights, const HeatmapOptions& options, std::string_view function) {
  if (weights.rank != 2 && weights.rank != 3) {
    refuse(function, "weights must have rank 2 [seqlen_q, seqlen_k] or 3 [heads, seqlen_q, seqlen_k], got shape " +
                         to_string(weights.dims()));
  }
  if (weights.size() == 0) refuse(function, "weights must not be empty, got shape " + to_string(weights.dims()));
  if (weights.data == nullptr)
    refuse(function, "weights has shape " + to_string(weights.dims()) + " but no data (null pointer)");
  if (weights.dtype == DType::i4) refuse(function, "weights must not be i4, whose numbers need scales");
  Input input;
  input.weights = weights;
  if (weights.rank == 2) {
    const std::array<std::int64_t, 3> shape = {1, weights.shape[0], weights.shape[1]};
    const std::array<std::int64_t, 3> strides = {0, weights.strides[0], weights.strides[1]};
    input.weights = TensorView(weights.data, weights.dtype, shape, strides);
  }
  input.heads = input.weights.shape[0];
  input.seqlen_q = input.weights.shape[1];
  input.seqlen_k = input.weights.shape[2];
  input.queries = options.queries == 0 ? input.seqlen_q : options.queries;
  input.keys = options.keys == 0 ? input.seqlen_k : options.keys;
  if (input.queries < input.seqlen_q || input.keys < input.seqlen_k) {
    refuse(function, "queries and keys must be 0 or at least the " + std::to_string(input.seqlen_q) +
                         " rows and " + std::to_string(input.seqlen_k) + " columns, got " +
                         std::to_string(options.queries) + " and " + std::to_string(options.keys));
  }
  if (input.queries > kMaxLength || input.keys > kMaxLength) {
    refuse(function, "queries and keys must be at most 2^40, got " + std::to_string(input.queries) + " and " +
                         std::to_string(input.keys));
  }
  if (input.heads > kMaxHeads) {
    refuse(function, "a picture has room for 256 heads, got " + std::to_string(input.heads));
  }
  check_count(function, "query_tokens", options.query_tokens.size(), input.seqlen_q, "rows");
  check_count(function, "key_tokens", options.key_tokens.size(), input.seqlen_k, "columns");
  check_count(function, "panel_titles", options.panel_titles.size(), input.heads, "heads");
  check_options(options, function);

  const bool same_tokens = options.key_tokens.empty() && input.seqlen_q == input.seqlen_k;
  input.query_labels = labels_of(options.query_tokens);
  input.key_labels = same_tokens ? input.query_labels : labels_of(options.key_tokens);
  input.panel_titles = labels_of(options.panel_titles);
  if (input.panel_titles.empty() && input.heads > 1) {
    for (std::int64_t head = 0; head < input.heads; ++head) {
      input.panel_titles.push_back("head " + std::to_string(head));
    }
  }
  return input;
}

Cells pooled(const Input& input, std::int64_t block_q, std::int64_t block_k) {
  Cells cells{.heads = input.heads,
              .rows = (input.seqlen_q + block_q - 1) / block_q,
              .columns = (input.seqlen_k + block_k - 1) / block_k,
              .block_q = block_q,
              .block_k = block_k,
              .seqlen_q = input.seqlen_q,
              .seqlen_k = input.seqlen_k,
              .queries = input.queries,
              .keys = input.keys,
              .smallest = kInfinity};
  cells.values.assign(static_cast<std::size_t>(cells.heads * cells.rows * cells.columns), -kInfinity);
  std::vector<double> row(static_cast<std::size_t>(input.seqlen_k));
  for (std::int64_t head = 0; head < input.heads; ++head) {
    for (std::int64_t i = 0; i < input.seqlen_q; ++i) {
      copy(input.weights.select(0, head).select(0, i), MutableTensorView(row.data(), {input.seqlen_k}));
      double* out = cells.values.data() + (head * cells.rows + i / block_q) * cells.columns;
      pool_row(row.data(), input.seqlen_k, block_k, out, cells.smallest);
    }
  }
  for (const double value : cells.values) {
    cells.has_nan |= std::isnan(value);
    cells.has_zero |= value == 0;
    cells.has_minus_infinity |= value == -kInfinity;
  }
  return cells;
}

Kind Scale::kind(double value) const {
  if (std::isnan(value)) return Kind::nan;
  return value == -kInfinity || (value == 0 && zero_is_masked) ? Kind::masked : Kind::value;
}

double Scale::position(double value) const {
  if (value >= high) return 1;
  if (value <= low) return 0;
  if (logarithmic) return (std::log(value) - std::log(low)) / (std::log(high) - std::log(low));
  const double range = high - low;
  return std::isfinite(range) ? (value - low) / range : (value / 2 - low / 2) / (high / 2 - low / 2);
}

std::vector<Scale::Tick> Scale::ticks(int count) const {
  return logarithmic ? logarithmic_ticks(*this) : linear_ticks(*this, count);
}

Scale scale_of(const Cells& cells, const HeatmapOptions& options, std::string_view function) {
  Scale scale;
  const bool negative = cells.smallest < 0;
  scale.zero_is_masked = !negative && options.low.value_or(0) >= 0;
  set_range(scale, cells, options);
  const bool positive = scale.zero_is_masked && scale.high > 0;
  if (options.scale == ColorScale::logarithmic) {
    if (negative) refuse(function, "a logarithmic scale needs weights that are not negative");
    if (options.low.value_or(1) <= 0 || scale.high <= 0) {
      refuse(function, "a logarithmic scale must stay above 0");
    }
    make_logarithmic(scale, cells, options);
  } else if (options.scale == ColorScale::automatic && cells.seqlen_k > kLongSequence && positive &&
             !options.low && half_of_the_values_would_be_pale(cells, scale.high)) {
    make_logarithmic(scale, cells, options);
  }
  scale.decimals = options.decimals.value_or(decimals_for(std::max(std::abs(scale.low), std::abs(scale.high))));
  return scale;
}

std::string pooling_note(const Cells& cells) {
  if (!cells.pooled()) return {};
  return "Each cell is the largest of " + std::to_string(cells.block_q) + " \u00D7 " +
         std::to_string(cells.block_k) + (cells.is_map() ? " cells of the map." : " weights.");
}

std::string masked_note(const Cells& cells, const Scale& scale) {
  if (cells.has_zero && scale.zero_is_masked) return "masked or 0";
  return cells.has_minus_infinity ? "masked" : "";
}

std::int64_t round_step(double wanted) {
  std::int64_t magnitude = 1;
  for (;; magnitude *= 10) {
    for (const std::int64_t factor : {1, 2, 5}) {
      if (static_cast<double>(magnitude * factor) >= wanted) return magnitude * factor;
    }
  }
}

}  // namespace saccade::picture
