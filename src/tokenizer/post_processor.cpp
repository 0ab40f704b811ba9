#include "tokenizer/post_processor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tokenizer/text/byte_level.h"

namespace saccade::tokenizer {

using Json = nlohmann::json;

PostProcessor::PostProcessor(const Json& description) {
  if (!description.is_null()) read(description);
}

void PostProcessor::read(const Json& description) {
  const auto type = description.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const Json& one : description.at("processors")) read(one);
  } else if (type == "ByteLevel") {
    read_trimming(description);
  } else if (type == "TemplateProcessing") {
    read_template(description);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const Part cls = added(description.at("cls")), sep = added(description.at("sep"));
    const bool is_roberta = type == "RobertaProcessing";
    if (is_roberta) read_trimming(description);
    single_ = {cls, {0, 0}, sep};
    Part last = sep;
    for (Token& token : last.tokens) token.type = is_roberta ? 0 : 1;
    pair_ = is_roberta ? Template{cls, {0, 0}, sep, sep, {1, 0}, last} : Template{cls, {0, 0}, sep, {1, 1}, last};
  } else {
    throw std::runtime_error("unknown post-processor '" + type + "'");
  }
}

void PostProcessor::read_trimming(const Json& description) {
  trims_ = description.value("trim_offsets", true);
  has_prefix_space_ = description.value("add_prefix_space", true);
}

void PostProcessor::trim(std::vector<Token>& tokens, const Characters& characters) const {
  if (!trims_ || characters.empty()) return;
  const char32_t space = code_of_byte(' ');
  // Ranges are trimmed by characters, not by bytes.
  std::vector<std::size_t> begins;
  for (const Character& c : characters) begins.push_back(c.range.begin);
  begins.push_back(characters.back().range.end);
  const auto place_of = [&](std::size_t byte) {
    return static_cast<std::size_t>(std::ranges::lower_bound(begins, byte) - begins.begin());
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::u32string text = codes_of(tokens[i].text);
    const auto is_space = [&](char32_t code) { return code == space || is_whitespace(code); };
    auto leading = static_cast<std::size_t>(std::ranges::find_if_not(text, is_space) - text.begin());
    const auto last = std::find_if_not(text.rbegin(), text.rend(), is_space);
    const auto trailing = static_cast<std::size_t>(last - text.rbegin());
    std::size_t begin = place_of(tokens[i].range.begin), end = place_of(tokens[i].range.end);
    const bool has_added_space = has_prefix_space_ && (i == 0 || begin == 0) && leading == 1;
    if (has_added_space) leading = 0;  // an added space is in no range
    begin = std::min(begin + leading, end);
    if (trailing == text.size() && has_added_space)
      end = begin;
    else if (trailing <= end)
      end = std::max(end - trailing, begin);
    tokens[i].range = {begins[begin], begins[end]};
  }
}

PostProcessor::Part PostProcessor::added(const Json& token_and_id) {
  return {.tokens = {{.id = token_and_id.at(1).get<std::int64_t>(),
                      .text = token_and_id.at(0).get<std::string>(),
                      .is_added = true}}};
}

void PostProcessor::read_template(const Json& description) {
  const Json& special = description.at("special_tokens");
  const auto read_parts = [&](const Json& list) {
    Template parts;
    for (const Json& one : list) {
      if (one.contains("Sequence")) {
        const Json& sequence = one["Sequence"];
        parts.push_back({sequence.at("id") == "A" ? 0 : 1, sequence.value("type_id", std::int64_t{0})});
        continue;
      }
      const Json& token = one.at("SpecialToken");
      const Json& entry = special.at(token.at("id").get<std::string>());
      Part part;
      for (std::size_t i = 0; i < entry.at("ids").size(); ++i)
        part.tokens.push_back({.id = entry["ids"][i].get<std::int64_t>(),
                               .text = entry.at("tokens").at(i).get<std::string>(),
                               .type = token.value("type_id", std::int64_t{0}),
                               .is_added = true});
      parts.push_back(std::move(part));
    }
    return parts;
  };
  single_ = read_parts(description.at("single"));
  pair_ = read_parts(description.at("pair"));
  if (std::ranges::any_of(single_, [](const Part& part) { return part.sequence == 1; }))
    throw std::runtime_error("the template of a single text has a second one");
}

std::vector<Token> PostProcessor::filled(const Template& parts,
                                         const std::vector<const std::vector<Token>*>& texts, bool add_special) {
  std::vector<Token> result;
  for (const Part& part : parts) {
    if (part.sequence < 0) {
      if (add_special) result.insert(result.end(), part.tokens.begin(), part.tokens.end());
      continue;
    }
    for (Token token : *texts.at(static_cast<std::size_t>(part.sequence))) {
      token.type = part.type;
      result.push_back(std::move(token));
    }
  }
  return result;
}

std::vector<Token> PostProcessor::single(const std::vector<Token>& a, bool add_special) const {
  return filled(single_, {&a}, add_special);
}

std::vector<Token> PostProcessor::pair(const std::vector<Token>& a, const std::vector<Token>& b,
                                       bool add_special) const {
  return filled(pair_, {&a, &b}, add_special);
}

}  // namespace saccade::tokenizer
