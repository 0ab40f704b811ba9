// What the functions that generate text share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "glue.h"
#include "saccade/sampling.h"

namespace saccade::web {

inline SamplingOptions sampling_options(const char* texts, std::size_t bytes) {
  Fields fields("generate", texts, bytes);
  SamplingOptions options;
  fields.take("temperature", options.temperature), fields.take("top_k", options.top_k);
  fields.take("top_p", options.top_p), fields.take("seed", options.seed);
  fields.check_all_taken();
  return options;
}

/// Makes the text the call's only result.
inline void give_tokens(const std::vector<std::int64_t>& text) {
  Tensor result(DType::i64, {std::ssize(text)});
  std::ranges::copy(text, result.values<std::int64_t>().begin());
  give_results({{"tokens", std::move(result)}});
}

}  // namespace saccade::web
