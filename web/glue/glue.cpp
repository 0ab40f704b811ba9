// Options and results of the functions that JavaScript calls.
#include "glue.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace saccade::web {
namespace {

std::string text_of_call;

struct Result {
  std::string name;
  Tensor tensor;
  saccade_tensor view;
};
std::vector<Result> results_of_call;

/// Texts that end with 0.
std::vector<std::string> split(const char* texts, std::size_t bytes) {
  std::vector<std::string> parts;
  for (const char* const end = texts + bytes; texts < end; texts += parts.back().size() + 1)
    parts.emplace_back(texts);
  return parts;
}

}  // namespace

Fields::Fields(std::string_view function, const char* texts, std::size_t bytes) : function_(function) {
  const std::vector<std::string> parts = split(texts, bytes);
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) fields_.emplace_back(parts[i], parts[i + 1]);
}

bool Fields::has(std::string_view name) const {
  return std::ranges::any_of(fields_, [&](const auto& field) { return field.first == name; });
}

const std::string* Fields::find(std::string_view name) {
  taken_.emplace_back(name);
  const auto found = std::ranges::find_if(fields_, [&](const auto& field) { return field.first == name; });
  return found == fields_.end() ? nullptr : &found->second;
}

double Fields::number(std::string_view name, const std::string& value) const {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0') refuse(function_, name, " must be a number, but it is '", value, "'");
  return number;
}

void Fields::take(std::string_view name, std::string& target) {
  if (const std::string* const value = find(name)) target = *value;
}
void Fields::take(std::string_view name, std::vector<std::string>& target) {
  if (!find(name)) return;
  target.clear();
  for (const auto& [key, value] : fields_)
    if (key == name) target.push_back(value);
}
void Fields::take(std::string_view name, double& target) {
  if (const std::string* const value = find(name)) target = number(name, *value);
}
void Fields::take(std::string_view name, std::int64_t& target) {
  const std::string* const value = find(name);
  if (!value) return;
  const char* const end = value->data() + value->size();
  if (const auto read = std::from_chars(value->data(), end, target); read.ec != std::errc() || read.ptr != end)
    refuse(function_, name, " must be a whole number, but it is '", *value, "'");
}
void Fields::take(std::string_view name, std::uint64_t& target) {
  auto bits = static_cast<std::int64_t>(target);
  take(name, bits);
  target = static_cast<std::uint64_t>(bits);
}
void Fields::take(std::string_view name, bool& target) {
  std::int64_t value = target ? 1 : 0;
  take(name, value);
  target = value != 0;
}

void Fields::check_all_taken() const {
  for (const auto& [name, value] : fields_)
    if (std::ranges::find(taken_, name) == taken_.end()) refuse(function_, "there is no option '", name, "'");
}

void give_text(std::string text) { text_of_call = std::move(text); }

void give_results(std::vector<std::pair<std::string, Tensor>> results) {
  results_of_call.clear();
  for (auto& [name, tensor] : results) {
    Result& kept = results_of_call.emplace_back(std::move(name), std::move(tensor), saccade_tensor{});
    kept.view = {kept.tensor.data(), static_cast<saccade_dtype>(kept.tensor.dtype()),
                 static_cast<std::int32_t>(kept.tensor.rank()), nullptr, nullptr};
  }
  for (Result& kept : results_of_call) kept.view.shape = kept.tensor.shape().data();  // the list no longer moves
}

std::map<std::string, TensorView> named_tensors(std::string_view function, const char* names, std::size_t bytes,
                                                const saccade_tensor* tensors) {
  std::map<std::string, TensorView> named;
  for (const std::string& name : split(names, bytes)) named[name] = c_api::view_of(function, name, tensors++);
  return named;
}

std::map<std::string, Tensor> state_of(std::string_view function, const char* names, std::size_t bytes,
                                       const saccade_tensor* tensors) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, view] : named_tensors(function, names, bytes, tensors))
    state.emplace(name, Tensor::copy_of(view));
  return state;
}

std::vector<std::int64_t> numbers_of(std::string_view function, const char* name, const saccade_tensor* tensor) {
  if (tensor == nullptr) return {};
  const TensorView view = c_api::view_of(function, name, tensor);
  check_dtype(function, name, view, DType::i64);
  const Tensor contiguous = Tensor::copy_of(view);
  return {contiguous.values<std::int64_t>().begin(), contiguous.values<std::int64_t>().end()};
}

}  // namespace saccade::web

using namespace saccade::web;

SACCADE_WEB_API(web_text) const char* web_text() { return text_of_call.c_str(); }
/// How many tensors the last call returned, and each one's name and view.
SACCADE_WEB_API(web_results) std::int32_t web_results() {
  return static_cast<std::int32_t>(results_of_call.size());
}
SACCADE_WEB_API(web_result_name) const char* web_result_name(std::int32_t i) {
  return results_of_call[static_cast<std::size_t>(i)].name.c_str();
}
SACCADE_WEB_API(web_result) const saccade_tensor* web_result(std::int32_t i) {
  return &results_of_call[static_cast<std::size_t>(i)].view;
}
SACCADE_WEB_API(web_release_results) void web_release_results() { results_of_call.clear(), text_of_call.clear(); }
