#include "page/live.h"

#include <zlib.h>
#include <algorithm>

#include <cstdio>
#include <iterator>
#include <span>

#include "core/check.h"
#include "page/encode.h"
#include "page/state.h"

namespace saccade::page {
namespace {

constexpr std::string_view kFunction = "set_model";

/// "0.05 %"
std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g %%", 100.0 * share);
  return text;
}

/// "201 MB", rounded up.
std::string megabytes(std::size_t bytes) { return std::to_string((bytes + 999'999) / 1'000'000) + " MB"; }

Json member(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : Json();
}

/// What surrounds a single text, such as "[CLS] A [SEP] ".
std::string template_of(const Json& processor) {
  const auto text = [](const Json& value) { return value.is_string() ? value.get<std::string>() : ""; };
  const auto first = [&](const Json& pair) { return pair.is_array() && !pair.empty() ? text(pair[0]) : ""; };
  if (member(processor, "type") == "BertProcessing")
    return first(member(processor, "cls")) + " A " + first(member(processor, "sep")) + " ";
  std::string result;
  for (const Json& one : member(processor, "single"))
    for (const char* const kind : {"SpecialToken", "Sequence"})
      if (const Json name = member(member(one, kind), "id"); name.is_string()) result += text(name) + " ";
  return result;
}

/// Refuses a tokenizer that does what the script of the page does not.
void check_word_pieces(const Json& file) {
  const Json model = member(file, "model"), normalizer = member(file, "normalizer");
  const auto differs = [](const Json& given, const Json& of_bert) { return !given.is_null() && given != of_bert; };
  std::string what;
  for (const char* const name : {"clean_text", "handle_chinese_chars"})
    if (differs(member(normalizer, name), true)) what = name;
  if (differs(member(normalizer, "strip_accents"), member(normalizer, "lowercase") != false))
    what = "strip_accents";
  if (differs(member(model, "continuing_subword_prefix"), "##")) what = "continuing_subword_prefix";
  if (differs(member(model, "max_input_chars_per_word"), 100)) what = "max_input_chars_per_word";
  for (const Json& token : member(file, "added_tokens"))
    for (const char* const name : {"single_word", "lstrip", "rstrip", "normalized"})
      if (differs(member(token, name), false)) what = name;
  if (template_of(member(file, "post_processor")) != "[CLS] A [SEP] ") what = "post_processor";
  if (!what.empty())
    refuse(kFunction, "word_pieces has another ", what,
           " than BERT's tokenizer, and a page splits texts as that does");
}

/// What a script needs to split texts as a WordPiece tokenizer does: the pieces in the order of their tokens,
/// those that may be written in a text, such as [MASK], and how BERT prepares a text.
Json word_pieces_of(const std::string& text, std::int64_t vocab_size) {
  const Json file = Json::parse(text, nullptr, false);
  const Json model = member(file, "model"), normalizer = member(file, "normalizer");
  if (member(model, "type") != "WordPiece" || !member(model, "vocab").is_object() ||
      member(normalizer, "type") != "BertNormalizer" ||
      member(member(file, "pre_tokenizer"), "type") != "BertPreTokenizer")
    refuse(kFunction, "word_pieces is not the tokenizer.json of a WordPiece tokenizer as BERT has it");
  check_word_pieces(file);
  std::vector<std::string> pieces(model["vocab"].size());
  for (const auto& [piece, token] : model["vocab"].items())
    if (token.is_number_unsigned() && token.get<std::size_t>() < pieces.size())
      pieces[token.get<std::size_t>()] = piece;
  Json added = Json::array();
  for (const Json& token : member(file, "added_tokens")) {
    const Json id = member(token, "id"), content = member(token, "content");
    if (!id.is_number_unsigned() || !content.is_string() || id >= vocab_size) continue;
    pieces.resize(std::max(pieces.size(), id.get<std::size_t>() + 1));
    pieces[id.get<std::size_t>()] = content;
    added.push_back(content);
  }
  return {{"pieces", pieces},
          {"added", added},
          {"lowercase", member(normalizer, "lowercase") != false},
          {"unknown", member(model, "unk_token").is_string() ? model["unk_token"] : Json("[UNK]")}};
}

constexpr const char* kTokens[] = {"numbers", "bytes", "word_pieces"};

LiveModel live_model_of(const PageModel& model) {
  if (model.files.empty()) refuse(kFunction, "there are no files");
  std::size_t size = 0;
  for (const auto& file : model.files) size += file.second.size();
  if (size > kPageMaxModelSize)
    refuse(kFunction, "the model's files have ", megabytes(size),
           ", but a browser opens no page that is much larger than ", megabytes(kPageMaxModelSize));
  if (model.text.empty()) refuse(kFunction, "text must not be empty");
  if (model.num_heads < 1 || model.vocab_size < 1 || model.max_length < 1)
    refuse(kFunction, "num_heads, vocab_size and max_length must be at least 1, but they are ", model.num_heads,
           ", ", model.vocab_size, " and ", model.max_length);
  const auto tokens = static_cast<std::size_t>(model.tokens);
  if (tokens >= std::size(kTokens))
    refuse(kFunction, "tokens must be numbers, bytes or word_pieces, but it is ", tokens);
  LiveModel live;
  Json names = Json::array();
  Json asked;
  for (const auto& [name, bytes] : model.files) {
    const std::span<const std::uint8_t> content(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    if (model.asks_for_weights && name == "model.safetensors") {
      asked = {{"size", content.size()}, {"crc32", crc32_z(0, content.data(), content.size())}};
    } else {
      live.files.push_back({"model-" + std::to_string(names.size()), deflated(content)});
      names.push_back(name);
    }
  }
  if (model.asks_for_weights && asked.is_null())
    refuse(kFunction, "asks_for_weights is set, but files has no model.safetensors");
  live.about = {{"files", names},
                {"heads", model.num_heads},
                {"vocabulary", model.vocab_size},
                {"longest", model.max_length},
                {"tokens", kTokens[tokens]},
                {"text", model.text},
                {"weights", {{"dtype", model.weight_type}, {"error", percent(model.weight_error)}}}};
  if (!asked.is_null()) live.about["asked"] = asked;
  if (model.tokens == PageTokens::word_pieces)
    live.about["wordPieces"] = word_pieces_of(model.word_pieces, model.vocab_size);
  return live;
}

}  // namespace
}  // namespace saccade::page

// Here and not beside the other functions, so that programs without it do not contain saccade.js.
void saccade::AttentionPage::set_model(const PageModel& model) { state_->model = page::live_model_of(model); }
