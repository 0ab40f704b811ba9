#include "tokenizer/normalizer.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tokenizer/text/pattern.h"

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;

Characters without(const Characters& text, bool (*is_dropped)(char32_t)) {
  Characters result;
  for (const Character& c : text)
    if (!is_dropped(c.code)) result.push_back(c);
  return result;
}

Characters cleaned(const Characters& text) {
  Characters result;
  for (const Character& c : text) {
    if (c.code == 0 || c.code == 0xFFFD || is_control(c.code)) continue;
    result.push_back({is_whitespace(c.code) ? U' ' : c.code, c.range});
  }
  return result;
}

Characters with_chinese_apart(const Characters& text) {
  Characters result;
  for (const Character& c : text) {
    if (!is_chinese(c.code)) {
      result.push_back(c);
      continue;
    }
    for (const char32_t code : {U' ', c.code, U' '}) result.push_back({code, c.range});
  }
  return result;
}

/// BERT's normalizer: https://github.com/google-research/bert/blob/master/tokenization.py
Normalizer bert(const Json& description) {
  const bool cleans = description.value("clean_text", true),
             chinese = description.value("handle_chinese_chars", true);
  const bool lowers = description.value("lowercase", true);
  const Json strip = description.value("strip_accents", Json());
  const bool strips = strip.is_null() ? lowers : strip.get<bool>();
  return [=](Characters text) {
    if (cleans) text = cleaned(text);
    if (chinese) text = with_chinese_apart(text);
    if (strips) text = without(normalized(text, NormalForm::nfd), is_nonspacing_mark);
    return lowers ? lowered(text) : text;
  };
}

Normalizer replace(const Json& description) {
  const auto pattern = std::make_shared<Pattern>(description.at("pattern"));
  const std::u32string content = codes_of(description.at("content").get<std::string>());
  return [=](const Characters& text) {
    Characters result;
    std::size_t at = 0;
    for (const Span& match : pattern->matches(text)) {
      const auto begin = text.begin() + static_cast<std::ptrdiff_t>(match.begin);
      result.insert(result.end(), text.begin() + static_cast<std::ptrdiff_t>(at), begin);
      for (const char32_t code : content) result.push_back({code, text[match.end - 1].range});
      at = match.end;
    }
    result.insert(result.end(), text.begin() + static_cast<std::ptrdiff_t>(at), text.end());
    return result;
  };
}

Normalizer prepend(const Json& description) {
  const std::u32string content = codes_of(description.at("prepend").get<std::string>());
  return [=](Characters text) {
    if (text.empty()) return text;
    Characters result;
    for (const char32_t code : content) result.push_back({code, text.front().range});
    result.insert(result.end(), text.begin(), text.end());
    return result;
  };
}

Normalizer strip(const Json& description) {
  const bool left = description.value("strip_left", true), right = description.value("strip_right", true);
  return [=](Characters text) {
    while (right && !text.empty() && is_whitespace(text.back().code)) text.pop_back();
    std::size_t begin = 0;
    while (left && begin < text.size() && is_whitespace(text[begin].code)) ++begin;
    text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin));
    return text;
  };
}

Normalizer sequence(const Json& description) {
  std::vector<Normalizer> all;
  for (const Json& one : description.at("normalizers")) all.push_back(normalizer_of(one));
  return [all](Characters text) {
    for (const Normalizer& one : all) text = one(std::move(text));
    return text;
  };
}

Normalizer to(NormalForm form) {
  return [form](const Characters& text) { return normalized(text, form); };
}

}  // namespace

Normalizer normalizer_of(const Json& description) {
  if (description.is_null()) return [](Characters text) { return text; };
  const auto type = description.at("type").get<std::string>();
  if (type == "Sequence") return sequence(description);
  if (type == "BertNormalizer") return bert(description);
  if (type == "Lowercase") return lowered;
  if (type == "StripAccents") return [](const Characters& text) { return without(text, is_mark); };
  if (type == "NFC") return to(NormalForm::nfc);
  if (type == "NFD") return to(NormalForm::nfd);
  if (type == "NFKC") return to(NormalForm::nfkc);
  if (type == "NFKD") return to(NormalForm::nfkd);
  if (type == "Replace") return replace(description);
  if (type == "Prepend") return prepend(description);
  if (type == "Strip") return strip(description);
  if (type == "Precompiled")
    return precompiled_normalizer(description.at("precompiled_charsmap").get<std::string>());
  throw std::runtime_error("unknown normalizer '" + type + "'");
}

}  // namespace saccade::tokenizer
