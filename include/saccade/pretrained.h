// A model in a Hugging Face folder, with its tokenizer and its image preprocessing.
//
//     const auto pretrained = PretrainedModel::load("SmolLM2-135M");
//     std::vector<std::int64_t> tokens = pretrained.ids_of("K Q A V");
//     continue_tokens(pretrained.model(), tokens, {}, 20, next, [&](std::int64_t token) { tokens.push_back(token);
//     });
//
// Link saccade::look for this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/image.h"
#include "saccade/model.h"
#include "saccade/tensor.h"
#include "saccade/tokenizer.h"

#pragma GCC visibility push(default)
namespace saccade {

/// A model, its tokenizer, and how it reads pictures. Several threads may call its functions at once.
class PretrainedModel {
 public:
  /// From a folder, as Model::load(), Tokenizer::load() and ImageOptions::load() read it. Throws
  /// std::runtime_error, one line, for a folder that cannot be read or holds something unknown.
  static PretrainedModel load(const std::filesystem::path& folder);
  ~PretrainedModel();
  PretrainedModel(PretrainedModel&&) noexcept;
  PretrainedModel& operator=(PretrainedModel&&) noexcept;

  const Model& model() const;
  /// Throws std::invalid_argument for an image model, which has none.
  const Tokenizer& tokenizer() const;
  /// How the model reads pictures; `size` is the model's own.
  const ImageOptions& image_options() const;
  const std::filesystem::path& folder() const;
  /// The last part of the folder's path.
  std::string name() const;

  /// The tokens of a text, including the special tokens that the model expects around it. Throws
  /// std::invalid_argument for a text without tokens, and as Tokenizer::encode() does.
  std::vector<std::int64_t> ids_of(std::string_view text) const;

  /// The first tokens of an encoder-decoder's decoder: its start token; for Whisper also those for English,
  /// transcription and no timestamps. Throws std::invalid_argument if config.json names no start token.
  std::vector<std::int64_t> first_tokens() const;

 private:
  struct State;
  explicit PretrainedModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Generates up to `count` tokens after `tokens`, which `next` picks from logits [vocab_size], until the model
/// emits an end token or reaches its maximum length. encoder_states: for an encoder-decoder, the result of
/// Model::encode(); otherwise empty. `on_token` is called for each new token, in order. num_threads: 0:
/// num_threads() of runtime.h. format: of the keys and values of earlier tokens.
void continue_tokens(const Model& model, std::vector<std::int64_t> tokens, const TensorView& encoder_states,
                     std::int64_t count, const std::function<std::int64_t(std::span<const float>)>& next,
                     const std::function<void(std::int64_t)>& on_token, int num_threads = 0,
                     const KvCacheFormat& format = {});

}  // namespace saccade
#pragma GCC visibility pop
