// A model's config.json: numbers and names by key. Errors name the file and the key.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/check.h"
#include "saccade/functional.h"

namespace saccade::model {

/// Throws std::runtime_error. Names and texts in a message are those of files, which anyone may have made.
[[noreturn]] inline void refuse_file(const std::string& message) { throw std::runtime_error(one_line(message)); }

/// Whether there is a file or folder of that name. Throws std::runtime_error where that cannot be found out.
bool is_there(const std::filesystem::path& path);

class Config {
 public:
  /// `name` is the file, for messages; `path` the keys of the enclosing objects: "text_config.".
  Config(nlohmann::json json, std::string name, std::string path = "");

  /// Whether there is a value other than null.
  bool has(const std::string& key) const;
  /// A size, at least 1.
  std::int64_t size(const std::string& key) const;
  std::int64_t size_or(const std::string& key, std::int64_t fallback) const;
  double number(const std::string& key) const;
  double number_or(const std::string& key, double fallback) const;
  bool flag_or(const std::string& key, bool fallback) const;
  std::string text(const std::string& key) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  /// The strings of an array; empty if there is no such key.
  std::vector<std::string> texts(const std::string& key) const;
  /// A token or an array of tokens, like eos_token_id; empty if there is no such key.
  std::vector<std::int64_t> tokens(const std::string& key) const;
  bool is_object(const std::string& key) const { return has(key) && json_[key].is_object(); }
  /// Three numbers.
  std::array<double, 3> triple(const std::string& key) const;
  /// An object.
  Config part(const std::string& key) const;
  /// The number of its keys.
  std::int64_t count() const { return static_cast<std::int64_t>(json_.size()); }
  /// An activation by its name in `transformers`.
  Activation activation(const std::string& key) const;

  /// Throws std::runtime_error("[Model] FILE: KEY " + parts).
  template <class... Parts>
  [[noreturn]] void refuse(const std::string& key, const Parts&... parts) const {
    std::string text = "[Model] " + name_ + ": " + path_ + key + " ";
    (append_to(text, parts), ...);
    refuse_file(text);
  }
  /// Throws unless a string has the value that is supported.
  void require(const std::string& key, const std::string& fallback, const std::string& known) const;
  /// Throws if a switch is on.
  void require_off(const std::string& key) const;

 private:
  const nlohmann::json& at(const std::string& key) const;

  nlohmann::json json_;
  std::string name_, path_;
};

}  // namespace saccade::model
