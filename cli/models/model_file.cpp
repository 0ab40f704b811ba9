#include "model_file.h"

#include <saccade/io.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/common/common.h"

namespace saccade::cli {
namespace {

constexpr const char* kByteTokens = "bytes";
constexpr const char* kNumberTokens = "numbers";

/// The number of bytes of the UTF-8 character at `at`; 1 if it is incomplete or invalid.
std::size_t character_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(at) >= 0xF0 ? 4 : byte(at) >= 0xE0 ? 3 : byte(at) >= 0xC2 ? 2 : 1;
  if (byte(at) > 0xF4 || at + length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xC0) != 0x80) return 1;
  return length;
}

}  // namespace

std::vector<std::int64_t> SavedModel::tokens_of(std::string_view text, std::string_view option) const {
  std::vector<std::int64_t> result;
  if (tokens == TokenKind::bytes) {
    for (const char byte : text) result.push_back(static_cast<unsigned char>(byte));
  } else {
    constexpr std::string_view kSpaces = " \t\r\n,";
    for (std::size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;) {
      const std::size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
      const auto token = parse_integer(text.substr(at, end - at));
      if (!token || *token < 0 || *token >= model->options().vocab_size)
        refuse("{}: this model's tokens are numbers from 0 to {}, not '{}'", option,
               model->options().vocab_size - 1, text.substr(at, end - at));
      result.push_back(*token);
      at = text.find_first_not_of(kSpaces, end);
    }
  }
  if (result.empty()) refuse("{} has no token in it", option);
  return result;
}

std::string SavedModel::text_of(std::int64_t token) const {
  return tokens == TokenKind::bytes ? std::string(1, static_cast<char>(token)) : std::to_string(token) + " ";
}

std::vector<std::string> SavedModel::labels_of(const std::vector<std::int64_t>& sequence) const {
  std::vector<std::string> labels;
  if (tokens == TokenKind::numbers) {
    for (const std::int64_t token : sequence) labels.push_back(std::to_string(token));
    return labels;
  }
  std::string text;
  for (const std::int64_t token : sequence) text += static_cast<char>(token);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    labels.push_back(text.substr(at, length));
    labels.insert(labels.end(), length - 1, "\u00B7");
    at += length;
  }
  return labels;
}

std::string model_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "model.safetensors").string();
}

std::string kept_model_path(const std::string& folder, std::int64_t step) {
  return (std::filesystem::path(folder) / fmt::format("model_step_{:06}.safetensors", step)).string();
}

std::map<std::int64_t, std::string> kept_models(const std::string& folder) {
  constexpr std::string_view kBegin = "model_step_", kEnd = ".safetensors";
  std::map<std::int64_t, std::string> models;
  if (!std::filesystem::is_directory(folder)) return models;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) continue;
    const auto step =
        parse_integer(std::string_view(name).substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size()));
    if (step && *step >= 0) models[*step] = entry.path().string();
  }
  return models;
}

void save_model(const std::string& path, const GPTModel& model, TokenKind tokens) {
  save_safetensors(path, {.tensors = model.state_dict(),
                          .metadata = {{"num_heads", std::to_string(model.options().num_heads)},
                                       {"tokens", tokens == TokenKind::bytes ? kByteTokens : kNumberTokens}}});
}

bool is_hugging_face_folder(const std::string& folder) {
  const std::filesystem::path file = std::filesystem::path(folder) / "config.json";
  if (std::error_code error; !std::filesystem::is_regular_file(file, error)) return false;
  const std::vector<std::byte> bytes = read_file(file);
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  const nlohmann::json config = nlohmann::json::parse(text, text + bytes.size(), nullptr, false);
  return config.is_object() && config.contains("model_type");
}

SavedModel load_model(const std::string& file_or_folder) {
  const std::string path =
      std::filesystem::is_directory(file_or_folder) ? model_path(file_or_folder) : file_or_folder;
  const Safetensors file = load_safetensors(path);
  const auto metadata = [&](const std::string& name) {
    const auto entry = file.metadata.find(name);
    if (entry == file.metadata.end())
      throw std::runtime_error(
          fmt::format("{} is no model that saccade train wrote: its metadata has no {}", path, name));
    return entry->second;
  };
  const std::string kind = metadata("tokens");
  const auto num_heads = parse_integer(metadata("num_heads"));
  if (!num_heads || (kind != kByteTokens && kind != kNumberTokens))
    throw std::runtime_error(
        fmt::format("{}: num_heads '{}' and tokens '{}' are not a model's", path, metadata("num_heads"), kind));
  try {
    return {.model = gpt_model_from_state_dict(file.tensors, *num_heads),
            .tokens = kind == kByteTokens ? TokenKind::bytes : TokenKind::numbers};
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + ": " + message_line(error.what()));
  }
}

void add_model_option(Command app, std::string& file_or_folder) {
  app.add_option("-m,--model", file_or_folder, "The folder of a training run, or its model.safetensors")
      .type_name("DIR|FILE")
      .required();
}

std::string text_or_standard_input(const std::string& argument) {
  if (argument != "-") return argument;
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

}  // namespace saccade::cli
