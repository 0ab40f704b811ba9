// A text, by the tokenizers of the tests: tokens whose ranges lie in it, whatever its bytes are.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "fuzz.h"
#include "saccade/tokenizer.h"
#include "token_checks.h"

namespace {

std::vector<saccade::Tokenizer> all_tokenizers() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SACCADE_SOURCE_DIR "/tests/data/tokenizers"))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<saccade::Tokenizer> result;
  for (const auto& file : files) result.push_back(saccade::Tokenizer::load(file));
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<saccade::Tokenizer> kTokenizers = all_tokenizers();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const saccade::Tokenizer& tokenizer : kTokenizers) saccade::fuzz::check(tokenizer, text);
  return 0;
}
