// Reads JSON event by event, so that no document, however deep or large, is stored as a tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "io/message.h"

namespace saccade::io {

/// A value that is neither object nor array; std::nullptr_t is null.
using JsonScalar = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string>;

/// "null", "true", "7" or "'text'", for messages.
std::string describe(const JsonScalar& scalar);

/// Receives the events of a document in order. parse() checks the syntax, including UTF-8.
class JsonEvents : private nlohmann::json_sax<nlohmann::json> {
 public:
  /// `begin` is the text's position in the file.
  void parse(std::string_view text, std::size_t begin = 0);

 protected:
  explicit JsonEvents(const Origin& origin) : origin_(origin) {}

  virtual void on_scalar(JsonScalar scalar) = 0;
  virtual void on_key(std::string key) = 0;
  virtual void on_open_object() = 0;
  virtual void on_close_object() = 0;
  virtual void on_open_array() = 0;
  virtual void on_close_array() = 0;

  const Origin& origin_;

 private:
  bool null() final { return on_scalar(nullptr), true; }
  bool boolean(bool value) final { return on_scalar(value), true; }
  bool number_integer(std::int64_t value) final { return on_scalar(value), true; }
  bool number_unsigned(std::uint64_t value) final { return on_scalar(value), true; }
  bool number_float(double value, const std::string&) final { return on_scalar(value), true; }
  bool string(std::string& value) final { return on_scalar(std::move(value)), true; }
  bool binary(nlohmann::json::binary_t&) final { return false; }  // JSON text has no binary values
  bool start_object(std::size_t) final { return on_open_object(), true; }
  bool key(std::string& value) final { return on_key(std::move(value)), true; }
  bool end_object() final { return on_close_object(), true; }
  bool start_array(std::size_t) final { return on_open_array(), true; }
  bool end_array() final { return on_close_array(), true; }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) final;

  std::size_t begin_ = 0;
};

}  // namespace saccade::io
