// What a piece of text is found by: a string, or a regular expression of Oniguruma, as in the tokenizers library.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tokenizer/text/characters.h"

namespace saccade::tokenizer {

/// Some characters of a text: [begin, end).
struct Span {
  std::size_t begin = 0, end = 0;
};

class Pattern {
 public:
  /// {"String": ...}, {"Regex": ...}. Throws std::runtime_error for an expression that is malformed.
  explicit Pattern(const nlohmann::json& description);
  static Pattern of_regex(const std::string& regex);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  /// All matches that are not empty, in order.
  std::vector<Span> matches(const Characters& text) const;

 private:
  struct Regex;
  Pattern();
  std::u32string string_;
  std::unique_ptr<Regex> regex_;
};

/// What becomes of matches that split a text.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitBehavior split_behavior_of(const nlohmann::json& name);

/// The pieces of a text between and of matches; none is empty. `inverts`: what is between matches counts as a
/// match, and they do not.
std::vector<Characters> split(const Characters& text, const std::vector<Span>& matches, SplitBehavior behavior,
                              bool inverts = false);

}  // namespace saccade::tokenizer
