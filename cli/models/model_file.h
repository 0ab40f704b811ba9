// Trained models in files, and the meaning of their tokens.
#pragma once

#include <saccade/gpt_model.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common/command_line.h"

namespace saccade::cli {

/// The meaning of a model's tokens.
enum class TokenKind : std::uint8_t {
  bytes,    ///< the bytes of a text
  numbers,  ///< plain numbers
};

struct SavedModel {
  std::unique_ptr<GPTModel> model;  ///< in evaluation mode
  TokenKind tokens = TokenKind::bytes;

  /// A text as tokens: its bytes, or numbers with spaces between them. Throws std::invalid_argument, naming the
  /// option, for text that is not a number, for a token outside the vocabulary, and for no tokens.
  std::vector<std::int64_t> tokens_of(std::string_view text, std::string_view option) const;

  /// A token as text: its byte, or its number followed by a space.
  std::string text_of(std::int64_t token) const;

  /// Names for the tokens of a sequence in a picture. For a UTF-8 character of several bytes, the first byte's
  /// name is the character, the others' a dot.
  std::vector<std::string> labels_of(const std::vector<std::int64_t>& sequence) const;
};

/// The file of a training run's folder that holds the model.
std::string model_path(const std::string& folder);

/// The file of a training run's folder that holds the model as it was after a step.
std::string kept_model_path(const std::string& folder, std::int64_t step);

/// These files by step; none if `folder` is a file.
std::map<std::int64_t, std::string> kept_models(const std::string& folder);

/// Writes the model's parameters, num_heads and the kind of tokens. Throws std::runtime_error when writing fails;
/// an old file is then unchanged.
void save_model(const std::string& path, const GPTModel& model, TokenKind tokens);

/// Whether the config.json of a folder names a family of models; that of `saccade train` does not.
bool is_hugging_face_folder(const std::string& folder);

/// Reads a model from a safetensors file, or from the folder of a training run. Throws std::runtime_error for a
/// file that cannot be read or has no such model.
SavedModel load_model(const std::string& file_or_folder);

/// Adds the required option --model, the argument of load_model.
void add_model_option(Command app, std::string& file_or_folder);

/// The text for a model: the argument or, if that is "-", all of standard input.
std::string text_or_standard_input(const std::string& argument);

}  // namespace saccade::cli
