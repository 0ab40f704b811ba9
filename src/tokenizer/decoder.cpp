#include "tokenizer/decoder.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tokenizer/text/byte_level.h"
#include "tokenizer/text/pattern.h"

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

template <class F>
Decoder for_each_token(F change) {
  return [change](Texts tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = change(tokens[i], i);
    return tokens;
  };
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

Decoder word_piece(const Json& description) {
  const auto prefix = description.value("prefix", "##");
  const bool cleans = description.value("cleanup", true);
  return for_each_token([=](std::string token, std::size_t i) {
    if (i > 0) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
    if (!cleans) return token;
    for (const auto& [from, to] : {std::pair{" .", "."},
                                   {" ?", "?"},
                                   {" !", "!"},
                                   {" ,", ","},
                                   {" ' ", "'"},
                                   {" n't", "n't"},
                                   {" 'm", "'m"},
                                   {" do not", " don't"},
                                   {" 's", "'s"},
                                   {" 've", "'ve"},
                                   {" 're", "'re"}})
      replace_all(token, from, to);
    return token;
  });
}

/// Replaces ill-formed UTF-8 by U+FFFD.
std::string repaired(const std::string& bytes) { return utf8_of(characters_of(bytes)); }

Texts from_bytes(const Texts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    std::string of_token;
    bool is_spelled = true;
    for (const char32_t code : codes_of(token)) {
      const auto byte = byte_of_code(code);
      is_spelled = is_spelled && byte;
      if (byte) of_token.push_back(static_cast<char>(*byte));
    }
    bytes += is_spelled ? of_token : token;
  }
  return {repaired(bytes)};
}

Decoder metaspace(const Json& description) {
  const auto mark = description.value("replacement", "▁");
  const bool has_prefix =
      description.value("prepend_scheme", description.value("add_prefix_space", true) ? "always" : "never") !=
      "never";
  return for_each_token([=](std::string token, std::size_t i) {
    replace_all(token, mark, i == 0 && has_prefix ? "" : " ");
    return token;
  });
}

Decoder replace(const Json& description) {
  const auto pattern = std::make_shared<Pattern>(description.at("pattern"));
  const auto content = description.at("content").get<std::string>();
  return for_each_token([=](const std::string& token, std::size_t) {
    const Characters text = characters_of(token);
    std::string result;
    std::size_t at = 0;
    const auto add_until = [&](std::size_t end) {
      for (; at < end; ++at) append_utf8(result, text[at].code);
    };
    for (const Span& match : pattern->matches(text)) {
      add_until(match.begin);
      result += content;
      at = match.end;
    }
    add_until(text.size());
    return result;
  });
}

/// The byte that "<0x0A>" spells; -1 for other tokens.
int spelled_byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  std::size_t used = 0;
  try {
    const int byte = std::stoi(token.substr(3, 2), &used, 16);
    return used == 2 && byte >= 0 ? byte : -1;
  } catch (const std::logic_error&) {
    return -1;
  }
}

Texts with_bytes_joined(const Texts& tokens) {
  Texts result;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    const bool is_text = repaired(bytes) == bytes;
    if (is_text)
      result.push_back(bytes);
    else
      result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const int byte = spelled_byte_of(token); byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    result.push_back(token);
  }
  flush();
  return result;
}

Texts fused(const Texts& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return {text};
}

Decoder strip(const Json& description) {
  const auto content = description.at("content").get<std::string>();
  const auto begins = description.value("start", std::size_t{0}), ends = description.value("stop", std::size_t{0});
  return for_each_token([=](std::string token, std::size_t) {
    for (std::size_t i = 0; i < begins && token.starts_with(content); ++i) token.erase(0, content.size());
    for (std::size_t i = 0; i < ends && token.ends_with(content); ++i) token.erase(token.size() - content.size());
    return token;
  });
}

Decoder sequence(const Json& description) {
  std::vector<Decoder> all;
  for (const Json& one : description.at("decoders")) all.push_back(decoder_of(one));
  return [all](Texts tokens) {
    for (const Decoder& one : all) tokens = one(std::move(tokens));
    return tokens;
  };
}

}  // namespace

Decoder decoder_of(const Json& description) {
  if (description.is_null())
    return for_each_token([](const std::string& token, std::size_t i) { return i > 0 ? " " + token : token; });
  const auto type = description.at("type").get<std::string>();
  if (type == "Sequence") return sequence(description);
  if (type == "WordPiece") return word_piece(description);
  if (type == "ByteLevel") return from_bytes;
  if (type == "Metaspace") return metaspace(description);
  if (type == "Replace") return replace(description);
  if (type == "ByteFallback") return with_bytes_joined;
  if (type == "Fuse") return fused;
  if (type == "Strip") return strip(description);
  throw std::runtime_error("unknown decoder '" + type + "'");
}

}  // namespace saccade::tokenizer
