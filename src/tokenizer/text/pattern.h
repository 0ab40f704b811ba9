// Search patterns: a string, or an Oniguruma regular expression, as in the tokenizers library.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tokenizer/text/characters.h"

namespace saccade::tokenizer {

/// The characters [begin, end) of a text.
struct Span {
  std::size_t begin = 0, end = 0;
};

class Pattern {
 public:
  /// {"String": ...} or {"Regex": ...}. Throws std::runtime_error for a malformed expression.
  explicit Pattern(const nlohmann::json& description);
  static Pattern of_regex(const std::string& regex);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  /// All nonempty matches, in order.
  std::vector<Span> matches(const Characters& text) const;

 private:
  struct Regex;
  Pattern();
  std::u32string string_;
  std::unique_ptr<Regex> regex_;
};

/// What happens to the matches at which a text is split.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitBehavior split_behavior_of(const nlohmann::json& name);

/// Splits a text at matches into nonempty pieces. `inverts`: swaps the matches and the text between them.
std::vector<Characters> split(const Characters& text, const std::vector<Span>& matches, SplitBehavior behavior,
                              bool inverts = false);

}  // namespace saccade::tokenizer
