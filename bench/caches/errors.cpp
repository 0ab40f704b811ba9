// Prints what quantized caches cost, beside keys and values as they were given:
//
//     cache_errors synthetic                the error of o, for keys with and without outliers
//     cache_errors text MODEL FILE...       the error of o in the layers of a language model, over the first 4,096
//                                           tokens of each text
//     cache_errors loss MODEL FILE...       its loss over these tokens
//     cache_errors speech MODEL SAMPLES     the error of o in the layers of Whisper; SAMPLES: 16 bits each, 16 kHz
//     cache_errors generate MODEL FILE      text, memory and time of 96 tokens after 4,000, on one thread
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/caches/models.h"
#include "cases/caches/cache_errors.h"

namespace saccade::cache_errors {
namespace {

void print_synthetic() {
  constexpr std::int64_t kTokens = 4096, kQueries = 32, kDim = 128;
  std::printf("| cache |");
  for (const cases::Keys keys : cases::kAllKeys) std::printf(" %s |", name_of(keys).c_str());
  std::printf("\n|---|---:|---:|---:|---:|\n");
  for (const cases::CacheFormat& format : cases::cache_formats()) {
    std::printf("| %s |", name_of(format).c_str());
    for (const cases::Keys keys : cases::kAllKeys) {
      cases::SquaredError error;
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const cases::CacheProblem problem = cases::draw_cache_problem(keys, kTokens, kQueries, kDim, seed);
        error += error_of(format, problem, cases::exact_attention(problem.q, problem.k, problem.v));
      }
      std::printf(" %.4f |", error.relative());
    }
    std::printf("\n");
  }
}

int run(const std::vector<std::string>& words) {
  const std::string task = words.empty() ? "" : words[0];
  const std::vector<std::string> files(words.begin() + std::min<std::ptrdiff_t>(2, std::ssize(words)),
                                       words.end());
  if (task == "synthetic" && words.size() == 1)
    print_synthetic();
  else if (task == "text" && !files.empty())
    print_text_errors(words[1], files);
  else if (task == "loss" && !files.empty())
    print_losses(words[1], files);
  else if (task == "speech" && files.size() == 1)
    print_speech_errors(words[1], files[0]);
  else if (task == "generate" && files.size() == 1)
    print_generated(words[1], files[0]);
  else
    return std::fputs(
               "cache_errors synthetic | text MODEL FILE... | loss MODEL FILE... | speech MODEL SAMPLES | "
               "generate MODEL FILE\n",
               stderr),
           2;
  return 0;
}

}  // namespace
}  // namespace saccade::cache_errors

int main(int count, char** arguments) {
  try {
    return saccade::cache_errors::run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "cache_errors: %s\n", error.what()), 1;
  }
}
