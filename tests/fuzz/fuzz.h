// Shared by the fuzz targets: a reader either accepts bytes or throws std::runtime_error with one line about them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string_view>

#include "saccade/io.h"

namespace saccade::fuzz {

/// Reports a finding by stopping the fuzzer.
inline void require(bool condition) {
  if (!condition) std::abort();
}

/// Runs `read` on the input. Any exception except std::runtime_error ends the program: a finding. Its message must
/// begin with `prefix`.
template <class Read>
int run(const std::uint8_t* data, std::size_t size, const Read& read, std::string_view prefix = "[parse_") {
  try {
    read(std::as_bytes(std::span(data, size)));
  } catch (const std::runtime_error& error) {
    const std::string_view message = error.what();
    require(message.starts_with(prefix) && message.find('\n') == std::string_view::npos && message.size() < 600);
  }
  return 0;
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Embeddings are a matrix of f32, with a token for each row or none at all.
inline void check(const TokenEmbeddings& embeddings) {
  require(embeddings.inputs.dtype() == DType::f32 && embeddings.inputs.rank() == 2 &&
          embeddings.inputs.size() > 0);
  const auto rows = static_cast<std::size_t>(embeddings.inputs.shape(0));
  require(embeddings.tokens.empty() || embeddings.tokens.size() == rows);
}

}  // namespace saccade::fuzz
