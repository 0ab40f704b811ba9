// Trained models in files, and what their tokens stand for.
#pragma once

#include <saccade/gpt_model.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"

namespace saccade::cli {

/// What the tokens of a model stand for.
enum class TokenKind : std::uint8_t {
  bytes,    ///< those of a text
  numbers,  ///< nothing but themselves
};

struct SavedModel {
  std::unique_ptr<GPTModel> model;  ///< in evaluation mode
  TokenKind tokens = TokenKind::bytes;

  /// A text as tokens: its bytes, or numbers with spaces between them. Throws std::invalid_argument, naming the
  /// option, for what is no number or not in the vocabulary, and for none.
  std::vector<std::int64_t> tokens_of(std::string_view text, std::string_view option) const;

  /// A token as it is written: its byte, or its number with a space behind it.
  std::string text_of(std::int64_t token) const;

  /// Names for the tokens of a sequence in a picture. Bytes of one UTF-8 character share it: the character stands
  /// at its first byte, the others show a dot.
  std::vector<std::string> labels_of(const std::vector<std::int64_t>& sequence) const;
};

/// The file of a training run's folder that holds the model.
std::string model_path(const std::string& folder);

/// Writes the model's parameters, and beside them what they do not say: num_heads, and the kind of tokens. Throws
/// std::runtime_error when writing fails; an old file is then as it was.
void save_model(const std::string& path, const GPTModel& model, TokenKind tokens);

/// Reads a model from a safetensors file, or from the folder of a training run. Throws std::runtime_error for a
/// file that cannot be read or holds no such model.
SavedModel load_model(const std::string& file_or_folder);

/// Adds the required option --model: what load_model takes.
void add_model_option(Command app, std::string& file_or_folder);

/// What a model is to read: the argument itself or, where that is "-", all of standard input.
std::string text_or_standard_input(const std::string& argument);

}  // namespace saccade::cli
