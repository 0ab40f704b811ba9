// saccade look, for the models that `saccade train` makes and for those of Hugging Face folders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace saccade::cli {

/// The weights of a head are computed as a whole: 64 MiB of so many tokens.
inline constexpr std::int64_t kMostTokensOfPage = 4096;

struct LookArguments {
  std::string model;
  std::string text;
  std::optional<std::string> pair, output, title;
  std::optional<double> max_size;
  std::optional<std::int64_t> threads;
  std::vector<std::string> ablated;
  bool mean = false, json = false;

  std::string title_of_page() const;
  /// Throws std::invalid_argument for a --max-size that is none.
  std::size_t max_bytes() const;
};

/// Writes the page of a Hugging Face folder's model, or measures what changes without some heads, or both.
void look_at_pretrained(const LookArguments& arguments);

}  // namespace saccade::cli
