#include "saccade/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/folder.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"

namespace saccade {

using namespace tokenizer;
using Json = nlohmann::json;

namespace {

constexpr std::string_view kTokenizerPrefix = "[Tokenizer] ";

/// A message on one line, cut at 500 bytes: what a file has in place of a name can be long.
std::string message_of(const std::string& place, const std::string& fault) {
  std::string message =
      (fault.starts_with(kTokenizerPrefix) ? fault : std::string(kTokenizerPrefix) + place + fault).substr(0, 500);
  std::ranges::replace_if(
      message, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return message;
}

}  // namespace

struct Tokenizer::State {
  explicit State(const Json& description)
      : model(word_model_of(description.at("model"), vocabulary)),
        normalizer(normalizer_of(description.value("normalizer", Json()))),
        pre_tokenizer(pre_tokenizer_of(description.value("pre_tokenizer", Json()))),
        post_processor(description.value("post_processor", Json())),
        decoder(decoder_of(description.value("decoder", Json()))),
        added(description.value("added_tokens", Json::array()), normalizer, *vocabulary) {}

  std::vector<Token> encode(std::string_view text) const {
    try {
      return tokens_of(text);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(message_of("", error.what()));
    }
  }

  std::vector<Token> tokens_of(std::string_view text) const {
    std::vector<Token> tokens;
    std::int64_t word = 0;
    const Characters characters = characters_of(text);
    for (Section& section : added.sections_of(characters, normalizer)) {
      if (section.token != nullptr) {
        tokens.push_back(*section.token);
        tokens.back().range = range_of(section.text);
        tokens.back().text = utf8_of(section.text);
        tokens.back().word = word++;
        continue;
      }
      for (const Characters& piece : pre_tokenizer({std::move(section.text)})) {
        const auto first = static_cast<std::ptrdiff_t>(tokens.size());
        model(piece, tokens);
        std::for_each(tokens.begin() + first, tokens.end(), [&](Token& token) { token.word = word; });
        ++word;
      }
    }
    post_processor.trim(tokens, characters);
    return tokens;
  }

  std::shared_ptr<Vocabulary> vocabulary;
  WordModel model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  AddedTokens added;
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

namespace {

/// Parses a description. Throws for numbers beyond 9e15, which no conversion to an integer could keep.
Json parsed(std::string_view text) {
  Json json = Json::parse(text);
  for (std::vector<const Json*> rest{&json}; !rest.empty();) {
    const Json* const value = rest.back();
    rest.pop_back();
    if (value->is_number_float() && !(std::abs(value->get<double>()) < 9e15))
      throw std::runtime_error("the number " + value->dump() + " is too large");
    if (value->is_structured())
      for (const Json& item : *value) rest.push_back(&item);
  }
  return json;
}

}  // namespace

Tokenizer Tokenizer::parse(std::string_view json, std::string_view name) {
  try {
    return Tokenizer(std::make_unique<State>(parsed(json)));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(message_of(std::string(name) + ": ", error.what()));
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  try {
    const auto [json, name] = read_description(path);
    return parse(json, name);
  } catch (const std::filesystem::filesystem_error& error) {
    throw std::runtime_error(message_of("", path.string() + ": " + error.code().message()));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(message_of("", error.what()));
  }
}

std::vector<Token> Tokenizer::encode(std::string_view text, bool add_special) const {
  return state_->post_processor.single(state_->encode(text), add_special);
}

std::vector<Token> Tokenizer::encode(std::string_view text, std::string_view pair, bool add_special) const {
  return state_->post_processor.pair(state_->encode(text), state_->encode(pair), add_special);
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids) {
    const std::string* const text = state_->vocabulary->text_of(id);
    if (text != nullptr && !(skip_special && is_special(id))) tokens.push_back(*text);
  }
  std::string result;
  for (const std::string& part : state_->decoder(std::move(tokens))) result += part;
  return result;
}

std::int64_t Tokenizer::vocabulary_size() const { return state_->vocabulary->size(); }

std::optional<std::int64_t> Tokenizer::id_of(std::string_view token) const {
  return state_->vocabulary->id_of(std::string(token));
}

std::string Tokenizer::text_of(std::int64_t id) const {
  const std::string* const text = state_->vocabulary->text_of(id);
  return text == nullptr ? std::string() : *text;
}

bool Tokenizer::is_special(std::int64_t id) const { return state_->added.is_special(id); }

void truncate(std::vector<Token>& tokens, std::size_t most) {
  for (std::size_t i = tokens.size(); i > 0 && tokens.size() > most; --i)
    if (!tokens[i - 1].is_added) tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) - 1);
}

}  // namespace saccade
