// Generating text with a model of a Hugging Face folder.
#pragma once

#include <saccade/sampling.h>

#include <cstdint>
#include <functional>
#include <string>

namespace saccade::cli {

/// Prints the prompt and up to `count` tokens after it, as the model makes them; fewer if the model ends the text
/// or its positions end. Throws std::invalid_argument for an encoder and for a prompt that does not fit.
void generate_pretrained(const std::string& folder, const std::string& prompt, std::int64_t count,
                         TokenSampler& sampler, const std::function<void(const std::string&)>& print);

}  // namespace saccade::cli
