#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tokenizer/text/byte_level.h"
#include "tokenizer/text/pattern.h"

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;

/// https://github.com/openai/gpt-2/blob/master/src/encoder.py
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

template <class F>
PreTokenizer for_each_piece(F split_piece) {
  return [split_piece](const Pieces& pieces) {
    Pieces result;
    for (const Characters& piece : pieces)
      for (Characters& part : split_piece(piece))
        if (!part.empty()) result.push_back(std::move(part));
    return result;
  };
}

/// Matches single characters.
std::vector<Span> where(const Characters& text, bool (*is_match)(char32_t)) {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (is_match(text[i].code)) spans.push_back({i, i + 1});
  return spans;
}

PreTokenizer split_where(bool (*is_match)(char32_t), SplitBehavior behavior) {
  return for_each_piece([=](const Characters& text) { return split(text, where(text, is_match), behavior); });
}

PreTokenizer by_pattern(const std::shared_ptr<Pattern>& pattern, SplitBehavior behavior, bool inverts) {
  return for_each_piece(
      [=](const Characters& text) { return split(text, pattern->matches(text), behavior, inverts); });
}

PreTokenizer by_regex(const char* regex) {
  return by_pattern(std::make_shared<Pattern>(Pattern::of_regex(regex)), SplitBehavior::isolated, false);
}

PreTokenizer bert() {
  return [spaces = split_where(is_whitespace, SplitBehavior::removed),
          punctuation = split_where(is_punctuation, SplitBehavior::isolated)](Pieces pieces) {
    return punctuation(spaces(std::move(pieces)));
  };
}

PreTokenizer whitespace() {
  // Joiners belong to words, as in Unicode Technical Standard 18.
  const auto pattern =
      std::make_shared<Pattern>(Pattern::of_regex(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)"));
  return by_pattern(pattern, SplitBehavior::removed, true);
}

PreTokenizer bytes(const Json& description) {
  const bool adds_space = description.value("add_prefix_space", true);
  const PreTokenizer splits = description.value("use_regex", true) ? by_regex(kGpt2) : nullptr;
  return [=](Pieces pieces) {
    for (Characters& piece : pieces)
      if (adds_space && !piece.empty() && piece.front().code != ' ')
        piece.insert(piece.begin(), {U' ', piece.front().range});
    if (splits) pieces = splits(std::move(pieces));
    for (Characters& piece : pieces) piece = byte_level(piece);
    return pieces;
  };
}

PreTokenizer metaspace(const Json& description) {
  const std::u32string replacement = codes_of(description.value("replacement", "▁"));
  if (replacement.size() != 1) throw std::runtime_error("the replacement of Metaspace must be one character");
  const char32_t mark = replacement[0];
  const std::string scheme =
      description.value("prepend_scheme", description.value("add_prefix_space", true) ? "always" : "never");
  const bool splits = description.value("split", true);
  return [=](Pieces pieces) {
    Pieces result;
    for (Characters& piece : pieces) {
      if (piece.empty()) continue;
      for (Character& c : piece)
        if (c.code == ' ') c.code = mark;
      const TextRange first = piece.front().range;
      const bool prepends = scheme == "always" || (scheme == "first" && first.begin == 0);
      if (prepends && piece.front().code != mark) piece.insert(piece.begin(), {mark, first});
      if (!splits) {
        result.push_back(std::move(piece));
        continue;
      }
      std::vector<Span> marks;
      for (std::size_t i = 0; i < piece.size(); ++i)
        if (piece[i].code == mark) marks.push_back({i, i + 1});
      for (Characters& part : split(piece, marks, SplitBehavior::merged_with_next))
        result.push_back(std::move(part));
    }
    return result;
  };
}

PreTokenizer sequence(const Json& description) {
  std::vector<PreTokenizer> all;
  for (const Json& one : description.at("pretokenizers")) all.push_back(pre_tokenizer_of(one));
  return [all](Pieces pieces) {
    for (const PreTokenizer& one : all) pieces = one(std::move(pieces));
    return pieces;
  };
}

}  // namespace

PreTokenizer pre_tokenizer_of(const Json& description) {
  if (description.is_null()) return [](Pieces pieces) { return pieces; };
  const auto type = description.at("type").get<std::string>();
  const auto behavior = [&](const char* otherwise) {
    return split_behavior_of(description.value("behavior", Json(otherwise)));
  };
  if (type == "Sequence") return sequence(description);
  if (type == "BertPreTokenizer") return bert();
  if (type == "ByteLevel") return bytes(description);
  if (type == "Metaspace") return metaspace(description);
  if (type == "Whitespace") return whitespace();
  if (type == "WhitespaceSplit") return split_where(is_whitespace, SplitBehavior::removed);
  if (type == "Punctuation") return split_where(is_punctuation, behavior("Isolated"));
  if (type == "Digits")
    return split_where(is_number, description.value("individual_digits", false) ? SplitBehavior::isolated
                                                                                : SplitBehavior::contiguous);
  if (type == "Split")
    return by_pattern(std::make_shared<Pattern>(description.at("pattern")), behavior("Isolated"),
                      description.value("invert", false));
  throw std::runtime_error("unknown pre-tokenizer '" + type + "'");
}

}  // namespace saccade::tokenizer
