#include "tokenizer/text/pattern.h"

#include <oniguruma.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace saccade::tokenizer {

struct Pattern::Regex {
  explicit Regex(const std::string& text) {
    static std::once_flag once;
    std::call_once(once, [] {
      OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
      onig_initialize(encodings, 1);
    });
    const auto* const begin = reinterpret_cast<const OnigUChar*>(text.data());
    OnigErrorInfo info;
    const int code = onig_new(&regex, begin, begin + text.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_ONIGURUMA, &info);
    if (code == ONIG_NORMAL) return;
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int size = onig_error_code_to_str(message, code, &info);
    throw std::runtime_error("regular expression '" + text + "': " +
                             std::string(reinterpret_cast<const char*>(message), static_cast<std::size_t>(size)));
  }
  ~Regex() { onig_free(regex); }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  OnigRegex regex = nullptr;
};

Pattern::Pattern() = default;
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

Pattern::Pattern(const nlohmann::json& description) {
  if (description.is_string())
    string_ = codes_of(description.get<std::string>());
  else if (description.contains("String"))
    string_ = codes_of(description["String"].get<std::string>());
  else
    regex_ = std::make_unique<Regex>(description.at("Regex").get<std::string>());
}

Pattern Pattern::of_regex(const std::string& regex) {
  Pattern pattern;
  pattern.regex_ = std::make_unique<Regex>(regex);
  return pattern;
}

std::vector<Span> Pattern::matches(const Characters& text) const {
  std::vector<Span> found;
  if (!regex_) {
    const auto is_same = [](const Character& c, char32_t code) { return c.code == code; };
    for (auto at = text.begin(); !string_.empty();) {
      at = std::search(at, text.end(), string_.begin(), string_.end(), is_same);
      if (at == text.end()) break;
      const auto begin = static_cast<std::size_t>(at - text.begin());
      found.push_back({begin, begin + string_.size()});
      at += static_cast<std::ptrdiff_t>(string_.size());
    }
    return found;
  }
  std::string utf8;
  std::vector<std::size_t> character_at;  // the character of each byte
  for (std::size_t i = 0; i < text.size(); ++i) {
    append_utf8(utf8, text[i].code);
    character_at.resize(utf8.size(), i);
  }
  character_at.push_back(text.size());
  const auto* const begin = reinterpret_cast<const OnigUChar*>(utf8.data());
  const auto* const end = begin + utf8.size();
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(onig_region_new(),
                                                                  [](OnigRegion* r) { onig_region_free(r, 1); });
  for (const OnigUChar* at = begin; at < end;) {
    if (onig_search(regex_->regex, begin, end, at, end, region.get(), ONIG_OPTION_NONE) < 0) break;
    const auto first = static_cast<std::size_t>(region->beg[0]), last = static_cast<std::size_t>(region->end[0]);
    if (last > first) found.push_back({character_at[first], character_at[last]});
    const std::size_t next = last > first ? last : first + 1;
    at = begin + next;
    while (at < end && (*at & 0xC0) == 0x80) ++at;
  }
  return found;
}

SplitBehavior split_behavior_of(const nlohmann::json& name) {
  static const std::map<std::string, SplitBehavior> behaviors{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  const auto found = behaviors.find(name.get<std::string>());
  if (found == behaviors.end()) throw std::runtime_error("unknown behavior '" + name.get<std::string>() + "'");
  return found->second;
}

std::vector<Characters> split(const Characters& text, const std::vector<Span>& matches, SplitBehavior behavior,
                              bool inverts) {
  struct Part {
    Span span;
    bool is_match;
  };
  std::vector<Part> parts;
  std::size_t at = 0;
  for (const Span& match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, inverts});
    parts.push_back({match, !inverts});
    at = match.end;
  }
  if (at < text.size()) parts.push_back({{at, text.size()}, inverts});

  std::vector<Part> merged;
  for (const Part& part : parts) {
    const bool has_previous = !merged.empty();
    bool joins = false;
    switch (behavior) {
      case SplitBehavior::removed:
        if (part.is_match) continue;
        break;
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::contiguous:
        joins = has_previous && merged.back().is_match == part.is_match;
        break;
      case SplitBehavior::merged_with_previous:
        joins = has_previous && part.is_match && !merged.back().is_match;
        break;
      case SplitBehavior::merged_with_next:
        joins = has_previous && !part.is_match && merged.back().is_match;
        break;
    }
    if (joins) {
      merged.back().span.end = part.span.end;
      if (behavior != SplitBehavior::contiguous)
        merged.back().is_match = behavior == SplitBehavior::merged_with_previous;
    } else {
      merged.push_back(part);
    }
  }
  std::vector<Characters> pieces;
  for (const Part& part : merged)
    pieces.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(part.span.begin),
                        text.begin() + static_cast<std::ptrdiff_t>(part.span.end));
  return pieces;
}

}  // namespace saccade::tokenizer
