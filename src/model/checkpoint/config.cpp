#include "model/checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace saccade::model {

namespace {
/// Longer than any dimension of a model, and short enough that products of two sizes cannot overflow.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 30;
}  // namespace

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  const bool result = exists(path, error);
  if (error) refuse_file("[Model] " + path.string() + ": " + error.message());
  return result;
}

Config::Config(nlohmann::json json, std::string name, std::string path)
    : json_(std::move(json)), name_(std::move(name)), path_(std::move(path)) {
  if (!json_.is_object()) refuse_file("[Model] " + name_ + ": must be an object");
}

bool Config::has(const std::string& key) const { return json_.contains(key) && !json_[key].is_null(); }

const nlohmann::json& Config::at(const std::string& key) const {
  if (!has(key)) refuse(key, "is missing");
  return json_[key];
}

std::int64_t Config::size(const std::string& key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > static_cast<double>(kMaxSize))
    refuse(key, "must be a number of at least 1, but it is ", value.dump());
  return value.get<std::int64_t>();
}

std::int64_t Config::size_or(const std::string& key, std::int64_t fallback) const {
  return has(key) ? size(key) : fallback;
}

double Config::number(const std::string& key) const {
  const nlohmann::json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    refuse(key, "must be a number, but it is ", value.dump());
  return value.get<double>();
}

double Config::number_or(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

std::array<double, 3> Config::triple(const std::string& key) const {
  const nlohmann::json& value = at(key);
  std::array<double, 3> result{};
  const auto is_number = [](const nlohmann::json& x) { return x.is_number() && std::isfinite(x.get<double>()); };
  if (!value.is_array() || value.size() != 3 || !std::ranges::all_of(value, is_number))
    refuse(key, "must be three numbers, but it is ", value.dump());
  for (std::size_t i = 0; i < 3; ++i) result[i] = value[i].get<double>();
  return result;
}

bool Config::flag_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!json_[key].is_boolean()) refuse(key, "must be true or false, but it is ", json_[key].dump());
  return json_[key].get<bool>();
}

std::string Config::text(const std::string& key) const {
  if (!at(key).is_string()) refuse(key, "must be a text, but it is ", json_[key].dump());
  return json_[key].get<std::string>();
}

std::string Config::text_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

std::vector<std::string> Config::texts(const std::string& key) const {
  std::vector<std::string> result;
  if (!has(key)) return result;
  if (!json_[key].is_array()) refuse(key, "must be an array of texts");
  for (const nlohmann::json& item : json_[key]) {
    if (!item.is_string()) refuse(key, "must be an array of texts, but it has ", item.dump());
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::vector<std::int64_t> Config::tokens(const std::string& key) const {
  std::vector<std::int64_t> result;
  if (!has(key)) return result;
  for (const nlohmann::json& item : json_[key].is_array() ? json_[key] : nlohmann::json::array({json_[key]})) {
    if (!item.is_number_integer()) refuse(key, "must be a token or an array of tokens, but it has ", item.dump());
    result.push_back(item.get<std::int64_t>());
  }
  return result;
}

Config Config::part(const std::string& key) const {
  if (!at(key).is_object()) refuse(key, "must be an object");
  return {json_[key], name_, path_ + key + "."};
}

Activation Config::activation(const std::string& key) const {
  static const std::map<std::string, Activation> kKnown{
      {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"quick_gelu", Activation::quick_gelu},
      {"relu", Activation::relu},
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"tanh", Activation::tanh},
  };
  const auto found = kKnown.find(text(key));
  if (found == kKnown.end()) refuse(key, "is '", text(key), "', which is not a known activation");
  return found->second;
}

void Config::require(const std::string& key, const std::string& fallback, const std::string& known) const {
  if (text_or(key, fallback) != known) refuse(key, "is '", text(key), "', but only '", known, "' is known");
}

void Config::require_off(const std::string& key) const {
  if (flag_or(key, false)) refuse(key, "is true, which is not known");
}

}  // namespace saccade::model
