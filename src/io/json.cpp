#include <cmath>
#include <cstring>
#include <utility>

#include "io/elements.h"
#include "io/file.h"
#include "io/json_events.h"
#include "io/token_embeddings.h"

namespace saccade {
namespace io {
namespace {

/// Reads {"tokens": ["a", ...], "inputs": [[0.1, ...], ...]} or the array of rows alone.
class EmbeddingEvents : public JsonEvents {
 public:
  explicit EmbeddingEvents(const Origin& origin) : JsonEvents(origin) {}

  TokenEmbeddings result() && {
    if (!has_inputs_) origin_.refuse("has no \"inputs\", the array of rows of numbers");
    if (columns_ == 0) origin_.refuse("\"inputs\" holds no numbers");
    if (has_tokens_ && tokens_.size() != rows_) {
      origin_.refuse("has " + std::to_string(tokens_.size()) + " tokens but " + std::to_string(rows_) +
                     " rows of inputs");
    }
    Tensor inputs(DType::f32, {static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(columns_)});
    std::memcpy(inputs.data(), numbers_.data(), inputs.bytes());
    return {std::move(tokens_), std::move(inputs)};
  }

 private:
  /// The context of the next event; `before_x` is between the key "x" and its value.
  enum class Place { document, object, before_tokens, tokens, before_inputs, inputs, row, ignored };

  /// The name of the next value in a message: inputs[3][0].
  std::string here() const {
    switch (place_) {
      case Place::before_tokens:
        return "\"tokens\"";
      case Place::tokens:
        return "tokens[" + std::to_string(tokens_.size()) + "]";
      case Place::before_inputs:
        return "\"inputs\"";
      case Place::inputs:
        return "inputs[" + std::to_string(rows_) + "]";
      case Place::row:
        return "inputs[" + std::to_string(rows_) + "][" + std::to_string(row_length_) + "]";
      default:
        return "the document";
    }
  }

  [[noreturn]] void refuse_value(const std::string& got) const {
    const std::string wanted = place_ == Place::row             ? "a number"
                               : place_ == Place::inputs        ? "a row, an array of numbers,"
                               : place_ == Place::tokens        ? "a string"
                               : place_ == Place::before_tokens ? "an array of strings"
                               : place_ == Place::before_inputs ? "an array of rows of numbers"
                                                                : "an object or an array of rows of numbers";
    origin_.refuse(here() + " is " + got + " where " + wanted + " was expected");
  }

  void on_scalar(JsonScalar scalar) override {
    if (place_ == Place::ignored) {
      leave_ignored();
    } else if (auto* text = std::get_if<std::string>(&scalar); text != nullptr && place_ == Place::tokens) {
      tokens_.push_back(std::move(*text));
    } else if (place_ == Place::row) {
      numbers_.push_back(number_from(scalar));
      ++row_length_;
    } else {
      refuse_value(describe(scalar));
    }
  }

  float number_from(const JsonScalar& scalar) const {
    double number = 0.0;
    if (const auto* real = std::get_if<double>(&scalar)) {
      number = *real;
    } else if (const auto* integer = std::get_if<std::int64_t>(&scalar)) {
      number = static_cast<double>(*integer);
    } else if (const auto* natural = std::get_if<std::uint64_t>(&scalar)) {
      number = static_cast<double>(*natural);
    } else {
      refuse_value(describe(scalar));
    }
    if (!std::isfinite(static_cast<float>(number))) {
      origin_.refuse(here() + " is " + describe(scalar) + ", too large for f32");
    }
    return static_cast<float>(number);
  }

  void on_key(std::string key) override {
    if (place_ != Place::object) return;
    if (key == "tokens") {
      if (std::exchange(has_tokens_, true)) origin_.refuse("has \"tokens\" twice");
      place_ = Place::before_tokens;
    } else if (key == "inputs") {
      if (std::exchange(has_inputs_, true)) origin_.refuse("has \"inputs\" twice");
      place_ = Place::before_inputs;
    } else {
      place_ = Place::ignored;
    }
  }

  void on_open_object() override {
    if (place_ == Place::ignored) {
      ++ignored_depth_;
    } else if (place_ == Place::document) {
      place_ = Place::object;
    } else {
      refuse_value("an object");
    }
  }

  void on_close_object() override {
    if (place_ != Place::ignored) return;
    --ignored_depth_;
    leave_ignored();
  }

  void on_open_array() override {
    switch (place_) {
      case Place::ignored:
        ++ignored_depth_;
        return;
      case Place::document:
        is_bare_ = has_inputs_ = true;
        place_ = Place::inputs;
        return;
      case Place::before_inputs:
        place_ = Place::inputs;
        return;
      case Place::before_tokens:
        place_ = Place::tokens;
        return;
      case Place::inputs:
        place_ = Place::row;
        row_length_ = 0;
        return;
      default:
        refuse_value("an array");
    }
  }

  void on_close_array() override {
    if (place_ == Place::ignored) {
      --ignored_depth_;
      leave_ignored();
    } else if (place_ == Place::row) {
      if (rows_ == 0) columns_ = row_length_;
      if (row_length_ != columns_) {
        origin_.refuse("inputs[" + std::to_string(rows_) + "] has " + std::to_string(row_length_) +
                       " numbers but inputs[0] has " + std::to_string(columns_));
      }
      ++rows_;
      place_ = Place::inputs;
    } else {
      place_ = is_bare_ ? Place::document : Place::object;
    }
  }

  /// After a value under an ignored key, unless it is inside a larger ignored value.
  void leave_ignored() {
    if (ignored_depth_ == 0) place_ = Place::object;
  }

  Place place_ = Place::document;
  bool is_bare_ = false;
  bool has_tokens_ = false, has_inputs_ = false;
  std::size_t ignored_depth_ = 0;
  std::size_t rows_ = 0, columns_ = 0, row_length_ = 0;
  std::vector<std::string> tokens_;
  std::vector<float> numbers_;
};

}  // namespace

TokenEmbeddings parse_json(const Origin& origin, std::string_view text) {
  EmbeddingEvents events(origin);
  events.parse(text);
  return std::move(events).result();
}

}  // namespace io

TokenEmbeddings load_json(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("load_json", path);
  return io::parse_json(origin, io::as_text(io::read_file(origin, path)));
}

TokenEmbeddings parse_json(std::string_view text, std::string_view name) {
  return io::parse_json({"parse_json", std::string(name)}, text);
}

}  // namespace saccade
