// What quantized caches change in models: the parts of errors.cpp that read a folder of script/models.
#pragma once

#include <string>
#include <vector>

namespace saccade::cache_errors {

/// The error of o in the layers of a language model, in the median and in the worst.
void print_text_errors(const std::string& model, const std::vector<std::string>& files);
/// The same of Whisper: of its encoder, of its decoder over what it has heard, and of the decoder's
/// cross-attention.
void print_speech_errors(const std::string& model, const std::string& samples);
/// The loss of a token when attention reads keys and values from a cache.
void print_losses(const std::string& model, const std::vector<std::string>& files);
/// The texts that caches give, their memory, and the time of a token.
void print_generated(const std::string& model, const std::string& file);

}  // namespace saccade::cache_errors
