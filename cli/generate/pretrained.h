// Generating text with a model of a Hugging Face folder.
#pragma once

#include <saccade/kv_cache.h>
#include <saccade/sampling.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace saccade::cli {

struct GenerateInput {
  std::string folder;
  std::string prompt;
  std::optional<std::string> audio;  ///< a file, for models of speech
  KvCacheFormat format;              ///< of the keys and values of earlier tokens
};

/// Prints the prompt and up to `count` tokens after it as they are generated; fewer if the model ends the text
/// or runs out of positions. An encoder-decoder reads the prompt, or the sound, and only its answer is printed.
/// Throws std::invalid_argument for an encoder and for a prompt that does not fit.
void generate_pretrained(const GenerateInput& input, std::int64_t count, TokenSampler& sampler,
                         const std::function<void(const std::string&)>& print);

}  // namespace saccade::cli
