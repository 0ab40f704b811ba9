#include "tokenizer/folder.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;
using std::filesystem::path;

std::string text_of(const path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream || !text) throw std::runtime_error("[Tokenizer] " + file.string() + ": cannot be read");
  return std::move(text).str();
}

Json json_of(const path& file) {
  if (!exists(file)) return Json::object();
  try {
    return Json::parse(text_of(file));
  } catch (const Json::exception& error) {
    throw std::runtime_error("[Tokenizer] " + file.string() + ": " + error.what());
  }
}

std::vector<std::string> lines_of(const path& file) {
  std::istringstream text(text_of(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

Json added_token(const Json& vocabulary, const char* content) {
  if (!vocabulary.contains(content))
    throw std::runtime_error(std::string("[Tokenizer] the vocabulary lacks '") + content + "'");
  return {{"id", vocabulary[content]}, {"content", content}, {"special", true}, {"normalized", false}};
}

/// vocab.txt: one token per line.
Json bert(const path& folder) {
  const Json config = json_of(folder / "tokenizer_config.json");
  Json vocabulary = Json::object();
  for (const std::string& line : lines_of(folder / "vocab.txt")) vocabulary.emplace(line, vocabulary.size());
  Json added = Json::array();
  for (const char* const token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
    added.push_back(added_token(vocabulary, token));
  return {{"added_tokens", added},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"lowercase", config.value("do_lower_case", true)},
            {"strip_accents", config.value("strip_accents", Json())},
            {"handle_chinese_chars", config.value("tokenize_chinese_chars", true)}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "BertProcessing"},
            {"cls", {"[CLS]", vocabulary["[CLS]"]}},
            {"sep", {"[SEP]", vocabulary["[SEP]"]}}}},
          {"decoder", {{"type", "WordPiece"}}},
          {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
}

/// vocab.json and merges.txt, whose first line may be a comment.
Json byte_pairs(const path& folder) {
  const Json vocabulary = json_of(folder / "vocab.json");
  Json merges = Json::array();
  for (const std::string& line : lines_of(folder / "merges.txt"))
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  const bool is_roberta = json_of(folder / "config.json").value("model_type", "gpt2") == "roberta";
  const bool adds_space = json_of(folder / "tokenizer_config.json").value("add_prefix_space", false);
  Json added = Json::array();
  Json post_processor{{"type", "ByteLevel"}, {"trim_offsets", false}};
  if (is_roberta) {
    for (const char* const token : {"<s>", "<pad>", "</s>", "<unk>", "<mask>"})
      added.push_back(added_token(vocabulary, token));
    added.back()["lstrip"] = true;
    post_processor = {
        {"type", "RobertaProcessing"}, {"cls", {"<s>", vocabulary["<s>"]}}, {"sep", {"</s>", vocabulary["</s>"]}}};
  } else {
    added.push_back(added_token(vocabulary, "<|endoftext|>"));
  }
  return {{"added_tokens", added},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", adds_space}}},
          {"post_processor", post_processor},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

}  // namespace

std::pair<std::string, std::string> read_description(const path& given) {
  if (!is_directory(given)) return {text_of(given), given.string()};
  const path file = given / "tokenizer.json";
  if (exists(file)) return {text_of(file), file.string()};
  if (exists(given / "vocab.txt")) return {bert(given).dump(), (given / "vocab.txt").string()};
  if (exists(given / "vocab.json") && exists(given / "merges.txt"))
    return {byte_pairs(given).dump(), (given / "vocab.json").string()};
  throw std::runtime_error("[Tokenizer] " + given.string() +
                           ": has no tokenizer.json, vocab.txt, or vocab.json with merges.txt");
}

}  // namespace saccade::tokenizer
