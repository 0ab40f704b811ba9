#include "guide.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "published_examples.h"

namespace saccade::cli {
namespace {

// The digits of a printed number, counted in its shortest decimal form.
struct Digits {
  int after_point = 0;
  int significant = 0;
};

Digits digits_of(double number) {
  std::string text = fmt::format("{}", std::abs(number));
  text.resize(std::min(text.find('e'), text.size()));
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  const std::size_t point = text.find('.');
  Digits digits;
  if (point != std::string::npos) {
    digits.after_point = static_cast<int>(text.size() - point - 1);
    text.erase(point, 1);
  }
  text.erase(0, text.find_first_not_of('0'));
  digits.significant = static_cast<int>(text.size());
  return digits;
}

Digits most_digits(const Json& numbers) {
  if (!numbers.is_array()) return digits_of(numbers.get<double>());
  Digits most;
  for (const Json& part : numbers) {
    const Digits digits = most_digits(part);
    most.after_point = std::max(most.after_point, digits.after_point);
    most.significant = std::max(most.significant, digits.significant);
  }
  return most;
}

std::vector<double> row_of(const Json& numbers) {
  return numbers.is_array() ? numbers.get<std::vector<double>>() : std::vector<double>{numbers.get<double>()};
}

// A number, a row of numbers, or rows of numbers, the shorter ones filled with NaN at their ends.
Tensor matrix_of(const Json& numbers) {
  std::vector<std::vector<double>> rows;
  if (numbers.is_array() && numbers.front().is_array()) {
    for (const Json& row : numbers) rows.push_back(row_of(row));
  } else {
    rows.push_back(row_of(numbers));
  }
  std::size_t columns = 0;
  for (const auto& row : rows) columns = std::max(columns, row.size());
  Tensor matrix(DType::f64, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)});
  double* out = matrix.values<double>().data();
  for (auto& row : rows) {
    row.resize(columns, std::numeric_limits<double>::quiet_NaN());
    out = std::ranges::copy(row, out).out;
  }
  return matrix;
}

}  // namespace

Guide::Guide(Language language)
    : language_(language), examples_(std::make_shared<const Json>(Json::parse(kPublishedExamples))) {}

const Json& Guide::at(const std::string& path) const { return examples_->at(Json::json_pointer(path)); }

void Guide::chapter(Text title) { tour_.chapters.push_back({say(title), {}}); }

void Guide::step(Text text, std::string formula) {
  tour_.chapters.back().steps.push_back({say(text), std::move(formula), {}, {}, {}});
}

Tensor Guide::input(const std::string& path) {
  if (std::ranges::find(tour_.inputs, path) == tour_.inputs.end()) tour_.inputs.push_back(path);
  Tensor numbers = matrix_of(at(path));
  const bool is_row = !at(path).front().is_array();
  return is_row ? Tensor(numbers).reshaped({numbers.size()}) : numbers;
}

std::vector<std::string> Guide::input_tokens(const std::string& path) {
  return at(path).get<std::vector<std::string>>();
}

Tolerance Guide::tolerance_of(const std::string& path, int decimals) const {
  for (Json::json_pointer place(path); !place.empty();) {
    place = place.parent_pointer();
    const Json& around = examples_->at(place);
    if (!around.is_object()) continue;
    if (around.contains("tolerance")) return {around["tolerance"].get<double>(), 0.0};
    if (around.contains("relative_tolerance")) return {0.0, around["relative_tolerance"].get<double>()};
  }
  return {decimals == 0 ? 0.0 : 0.5 * std::pow(10.0, -decimals), 0.0};
}

Check& Guide::check(const std::string& path, const TensorView& computed, std::vector<std::string> row_names,
                    std::vector<std::string> column_names) {
  Check check;
  check.path = path;
  check.printed = matrix_of(at(path));
  check.computed = Tensor::copy_of(computed, DType::f64).reshaped(check.printed.shape());
  check.row_names = std::move(row_names);
  check.column_names = std::move(column_names);
  const Digits digits = most_digits(at(path));
  check.tolerance = tolerance_of(path, digits.after_point);
  check.scientific = check.tolerance.relative > 0.0;
  check.decimals = check.scientific ? digits.significant - 1 : digits.after_point;
  current().checks.push_back(std::move(check));
  return current().checks.back();
}

void Guide::claim(Text text, bool holds, std::string seen) {
  current().claims.push_back({say(text), std::move(seen), holds});
}

void Guide::claim_refused(Text text, const std::string& message, std::initializer_list<std::string_view> wanted) {
  const bool names_all =
      std::ranges::all_of(wanted, [&](std::string_view part) { return message.find(part) != std::string::npos; });
  claim(text, names_all, message);
}

void Guide::picture(Tensor weights, HeatmapOptions options) {
  current().picture = Picture{std::move(weights), std::move(options)};
}

bool same_bits(const TensorView& a, const TensorView& b) {
  return std::memcmp(a.data, b.data, static_cast<std::size_t>(a.size()) * size_of(a.dtype)) == 0;
}

}  // namespace saccade::cli
