// Tokenizers beside the tokenizers library: its tokens, ranges and decoded texts
// (tests/goldens/make_tokenizers.py).
#include "saccade/tokenizer.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/system.h"

namespace saccade::test {
namespace {

using Json = nlohmann::json;
using std::filesystem::path;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

path data(const std::string& name) { return path(SACCADE_SOURCE_DIR) / "tests/data/tokenizers" / name; }

std::vector<std::int64_t> ids_of(const std::vector<Token>& tokens) {
  std::vector<std::int64_t> ids;
  for (const Token& token : tokens) ids.push_back(token.id);
  return ids;
}

std::vector<std::string> texts_of(const std::vector<Token>& tokens) {
  std::vector<std::string> texts;
  for (const Token& token : tokens) texts.push_back(token.text);
  return texts;
}

/// What loading throws.
std::string error_of(const std::string& json) {
  try {
    Tokenizer::parse(json);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

/// A folder that is removed again.
class Folder {
 public:
  Folder() = default;
  ~Folder() { remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  operator path() const { return path_; }  // NOLINT(google-explicit-constructor)

 private:
  path path_ = new_temporary_folder();
};

class TokenizerOf : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerOf, AgreesWithTheTokenizersLibrary) {
  const std::string name = GetParam();
  const Tokenizer tokenizer = Tokenizer::load(data(name + ".json"));
  const Json cases = Json::parse(std::ifstream(data("cases/" + name + ".json")));
  ASSERT_GT(cases.size(), 50U);
  for (const Json& one : cases) {
    const auto text = one["text"].get<std::string>();
    SCOPED_TRACE(name + ": " + one["text"].dump());
    const bool add = one["add"].get<bool>();
    const std::vector<Token> tokens = one.contains("pair")
                                          ? tokenizer.encode(text, one["pair"].get<std::string>(), add)
                                          : tokenizer.encode(text, add);
    EXPECT_EQ(Json(ids_of(tokens)), one["ids"]);
    EXPECT_EQ(Json(texts_of(tokens)), one["tokens"]);
    Json ranges = Json::array(), types = Json::array(), words = Json::array();
    for (const Token& token : tokens) {
      ranges.push_back({token.range.begin, token.range.end});
      types.push_back(token.type);
      words.push_back(token.word < 0 ? Json() : Json(token.word));
    }
    EXPECT_EQ(ranges, one["ranges"]);
    EXPECT_EQ(types, one["types"]);
    EXPECT_EQ(words, one["words"]);
    EXPECT_EQ(Json(tokenizer.decode(ids_of(tokens), one["skip"].get<bool>())), one["decoded"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Kind, TokenizerOf,
                         ::testing::Values("bert", "bert_cased", "gpt2", "gpt2_trim", "roberta", "roberta_prefix",
                                           "llama", "llama_new", "llama3", "t5", "unigram_bytes", "misc", "level",
                                           "charsmap"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer bert = Tokenizer::load(data("bert.json"));
  EXPECT_EQ(bert.vocabulary_size(), 400);
  EXPECT_EQ(bert.id_of("[SEP]"), 3);
  EXPECT_EQ(bert.id_of("no such token"), std::nullopt);
  EXPECT_EQ(bert.text_of(2), "[CLS]");
  EXPECT_EQ(bert.text_of(-1), "");
  EXPECT_TRUE(bert.is_special(2));
  EXPECT_FALSE(bert.is_special(7));
}

TEST(Tokenizer, TakesBytesThatAreNoText) {
  const Tokenizer gpt2 = Tokenizer::load(data("gpt2.json"));
  const std::vector<Token> tokens = gpt2.encode("a\xFF");
  EXPECT_EQ(tokens.back().range, (TextRange{1, 2}));
  EXPECT_EQ(gpt2.decode(ids_of(tokens)), "a\xEF\xBF\xBD");
  // One U+FFFD for the beginning of a character, as the tokenizers library and Python have it.
  EXPECT_EQ(gpt2.decode(ids_of(gpt2.encode("\xE5\x8D\xC4"
                                           "a"))),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
}

TEST(Tokenizer, ReadsTheFilesOfBert) {
  const Folder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\nPlay\n");
  EXPECT_THAT(texts_of(Tokenizer::load(folder).encode("Playing [MASK] x")),
              ElementsAre("[CLS]", "play", "##ing", "[MASK]", "[UNK]", "[SEP]"));
  folder.write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_THAT(texts_of(Tokenizer::load(folder).encode("Playing")), ElementsAre("[CLS]", "Play", "##ing", "[SEP]"));
}

TEST(Tokenizer, ReadsTheFilesOfGpt2AndRoberta) {
  const Folder folder;
  folder.write("vocab.json",
               R"({"<|endoftext|>": 0, "h": 1, "i": 2, "hi": 3, "Ġ": 4, "Ġhi": 5, "<s>": 6, "<pad>": 7,
                                 "</s>": 8, "<unk>": 9, "<mask>": 10})");
  folder.write("merges.txt", "#version: 0.2\nh i\nĠ hi\n");
  EXPECT_THAT(texts_of(Tokenizer::load(folder).encode("hi hi<|endoftext|>")),
              ElementsAre("hi", "Ġhi", "<|endoftext|>"));
  folder.write("config.json", R"({"model_type": "roberta"})");
  EXPECT_THAT(texts_of(Tokenizer::load(folder).encode("hi")), ElementsAre("<s>", "hi", "</s>"));
}

TEST(Tokenizer, RefusesWhatItDoesNotKnow) {
  Json description = Json::parse(std::ifstream(data("level.json")));
  const auto error_with = [&](const char* part, const Json& value) {
    Json other = description;
    other[part] = value;
    return error_of(other.dump());
  };
  EXPECT_THAT(error_with("normalizer", {{"type", "Upper"}}),
              HasSubstr("tokenizer.json: unknown normalizer 'Upper'"));
  EXPECT_THAT(error_with("pre_tokenizer", {{"type", "Cut"}}), HasSubstr("unknown pre-tokenizer 'Cut'"));
  EXPECT_THAT(error_with("post_processor", {{"type", "Wrap"}}), HasSubstr("unknown post-processor 'Wrap'"));
  EXPECT_THAT(error_with("decoder", {{"type", "Rot13"}}), HasSubstr("unknown decoder 'Rot13'"));
  EXPECT_THAT(error_with("model", {{"type", "Markov"}, {"vocab", Json::object()}}),
              HasSubstr("unknown model 'Markov'"));
  EXPECT_THAT(
      error_with("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}}),
      HasSubstr("regular expression '(a': "));
  EXPECT_THAT(error_with("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AA"}}),
              HasSubstr("too short"));
  EXPECT_THAT(error_of("{"), HasSubstr("[Tokenizer] tokenizer.json: "));
  EXPECT_THAT(error_of("{}"), HasSubstr("'model'"));
  EXPECT_THROW(Tokenizer::load("/no/such/folder"), std::runtime_error);
  EXPECT_THROW(Tokenizer::load(std::filesystem::temp_directory_path()), std::runtime_error);
}

}  // namespace
}  // namespace saccade::test
