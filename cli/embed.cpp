// saccade embed: sentences as vectors.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/io.h>
#include <saccade/pretrained.h>
#include <saccade/sentence_embeddings.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "commands.h"

namespace saccade::cli {
namespace {

struct EmbedArguments {
  std::string model;
  std::vector<std::string> texts;
  std::optional<std::string> output;
  std::optional<std::int64_t> threads;
  bool json = false;
};

std::vector<std::string> lines_of_standard_input() {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

/// The tokens of a text, truncated to `most` by dropping the text's own tokens from its end.
std::vector<std::int64_t> ids_of(const Tokenizer& tokenizer, const std::string& text, std::int64_t most) {
  std::vector<Token> tokens = tokenizer.encode(text);
  if (most > 0) truncate(tokens, static_cast<std::size_t>(most));
  std::vector<std::int64_t> ids;
  for (const Token& token : tokens) ids.push_back(token.id);
  return ids;
}

/// Embeds the sentences in batches, so that the progress bar moves.
Tensor embed(const PretrainedModel& pretrained, const std::vector<std::vector<std::int64_t>>& sentences,
             const SentenceEmbeddingOptions& options, int threads) {
  Tensor all(DType::f32, {std::ssize(sentences), pretrained.model().sizes().d_model});
  ProgressBar bar(std::ssize(sentences));
  for (std::size_t begin = 0; begin < sentences.size();) {
    const std::size_t count = std::min<std::size_t>(256, sentences.size() - begin);
    const auto at = static_cast<std::int64_t>(begin);
    copy(sentence_embeddings(pretrained.model(), std::span(sentences).subspan(begin, count), options, threads),
         all.mutable_view().slice(0, at, at + static_cast<std::int64_t>(count)));
    begin += count;
    bar.show(static_cast<std::int64_t>(begin), "sentences");
  }
  return all;
}

ExitCode embed(const EmbedArguments& arguments) {
  const std::vector<std::string> texts = arguments.texts.empty() ? lines_of_standard_input() : arguments.texts;
  if (texts.empty()) refuse("there is no text: give --text, or lines on standard input");
  const PretrainedModel pretrained = PretrainedModel::load(arguments.model);
  const SentenceEmbeddingOptions options = load_sentence_embedding_options(arguments.model);
  const std::int64_t limit = pretrained.model().sizes().max_length;
  const std::int64_t most =
      options.max_length > 0 && (limit == 0 || options.max_length < limit) ? options.max_length : limit;
  std::vector<std::vector<std::int64_t>> sentences;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sentences.push_back(ids_of(pretrained.tokenizer(), texts[i], most));
    if (sentences.back().empty()) refuse("text {} has no tokens", i + 1);
  }
  const Tensor result = embed(pretrained, sentences, options, static_cast<int>(arguments.threads.value_or(0)));
  if (arguments.output) save_npy(*arguments.output, result);
  if (arguments.json) {
    print_json({{"texts", texts}, {"embeddings", to_json(result)}});
  } else if (!arguments.output) {
    for (std::int64_t i = 0; i < result.shape(0); ++i) {
      const auto row = result.values<float>().subspan(static_cast<std::size_t>(i * result.shape(1)),
                                                      static_cast<std::size_t>(result.shape(1)));
      fmt::print("{}\n", fmt::join(row, " "));
    }
  }
  return kGood;
}

}  // namespace

void add_embed(Command app, Action& action) {
  const Command command = app.add_subcommand("embed", "Sentences as vectors, by a model of a Hugging Face folder");
  const auto arguments = std::make_shared<EmbedArguments>();
  command.add_option("-m,--model", arguments->model, "The folder: config.json, model.safetensors, tokenizer.json")
      .type_name("DIR")
      .required();
  command
      .add_option("--text", arguments->texts,
                  "A sentence; may be repeated. Without, each line of standard input is one")
      .type_name("TEXT");
  command.add_option("-o,--output", arguments->output, "Write the embeddings as an array [sentences, d_model]")
      .type_name("OUT.npy");
  add_integer(command, "--threads", arguments->threads, "Threads; 0: all of the machine [0]", 0);
  command.add_flag("--json", arguments->json, "Print texts and embeddings as JSON");
  command.footer(
      "Hidden states are pooled as the folder says (modules.json, 1_Pooling/config.json), or else averaged. "
      "Longer\n"
      "texts than the model takes are cut. Without --json and -o, a line of numbers for each sentence.\n\n"
      "Examples:\n"
      "  saccade embed -m all-MiniLM-L6-v2 --text 'A cat sits.' --text 'A dog stands.' --json\n"
      "  saccade embed -m all-MiniLM-L6-v2 -o embeddings.npy < sentences.txt");
  command.callback([=, &action] { action = [=] { return embed(*arguments); }; });
}

}  // namespace saccade::cli
