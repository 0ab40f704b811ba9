#include "json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/common/common.h"

namespace saccade::cli {
namespace {

Json json_element(const TensorView& tensor, std::span<const std::int64_t> index) {
  const double value = value_at(tensor, index);
  if (tensor.dtype == DType::boolean) return value != 0.0;
  if (!is_floating(tensor.dtype)) return static_cast<std::int64_t>(value);
  if (tensor.dtype == DType::f64 || !std::isfinite(value)) return json_number(value);
  // The shortest decimal for this float, instead of the longer one for its value as a double.
  return *parse_number(fmt::format("{}", static_cast<float>(value)));
}

Json json_array(const TensorView& tensor, std::vector<std::int64_t>& index) {
  if (index.size() == tensor.rank) return json_element(tensor, index);
  Json array = Json::array();
  const std::int64_t length = tensor.shape[index.size()];
  index.push_back(0);
  for (; index.back() < length; ++index.back()) array.push_back(json_array(tensor, index));
  index.pop_back();
  return array;
}

bool is_nested(const Json& array) {
  return std::ranges::any_of(array, [](const Json& item) { return item.is_structured(); });
}

// Appends indented JSON with every array of plain values on one line.
void append_json(std::string& text, const Json& value, std::size_t depth) {
  if (!value.is_structured() || value.empty() || (value.is_array() && !is_nested(value))) {
    text += value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  const std::string indent(2 * depth, ' ');
  const char* separator = "\n";
  text += value.is_object() ? "{" : "[";
  for (const auto& [key, item] : value.items()) {
    text += separator + indent + "  ";
    if (value.is_object()) text += Json(key).dump(-1, ' ', false, Json::error_handler_t::replace) + ": ";
    append_json(text, item, depth + 1);
    separator = ",\n";
  }
  text += "\n" + indent + (value.is_object() ? "}" : "]");
}

}  // namespace

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json to_json(const TensorView& tensor) {
  std::vector<std::int64_t> index;
  return json_array(tensor, index);
}

void print_json(const Json& document) {
  std::string text;
  append_json(text, document, 0);
  fmt::print("{}\n", text);
}

}  // namespace saccade::cli
