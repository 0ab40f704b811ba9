// saccade look: the heads of a model over a text, as one page; and what changes when heads are switched off.
#include "look.h"

#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/page.h>

#include <filesystem>
#include <memory>

#include "commands.h"
#include "common.h"
#include "model_file.h"

namespace saccade::cli {
namespace {

/// The page of a model that `saccade train` has saved.
void look_at_saved(const LookArguments& arguments) {
  if (arguments.pair || !arguments.ablated.empty())
    refuse("--pair and --ablate are for models of Hugging Face folders, but --model is one of saccade train");
  const SavedModel saved = load_model(arguments.model);
  const std::vector<std::int64_t> tokens = saved.tokens_of(text_or_standard_input(arguments.text), "--text");
  const GPTModelOptions& model = saved.model->options();
  const std::int64_t count = std::ssize(tokens);
  if (count > model.context_length || count > kMostTokensOfPage)
    refuse("--text has {} tokens, but this model takes {}", count,
           std::min(model.context_length, kMostTokensOfPage));
  AttentionPage page(
      {.title = arguments.title_of_page(),
       .subtitle = fmt::format("{} layers of {} heads, {} tokens", model.num_layers, model.num_heads, count),
       .tokens = saved.labels_of(tokens),
       .ids = tokens,
       .num_layers = model.num_layers,
       .num_heads = model.num_heads,
       .is_causal = true,
       .max_size = arguments.max_bytes()});
  const std::vector<Tensor> layers = saved.model->attention_weights(TensorView(tokens.data(), {1, count}));
  for (std::int64_t layer = 0; layer < std::ssize(layers); ++layer)
    for (std::int64_t head = 0; head < model.num_heads; ++head)
      page.add(layer, head, layers[static_cast<std::size_t>(layer)].view().select(0, 0).select(0, head));
  write_file(*arguments.output, std::string_view(page.html()));
}

ExitCode look(const LookArguments& arguments) {
  if (!arguments.output && arguments.ablated.empty()) refuse("give -o PAGE.html, or --ablate, or both");
  if (!is_hugging_face_folder(arguments.model)) {
    look_at_saved(arguments);
    return kGood;
  }
#ifdef SACCADE_HAS_TOKENIZER
  look_at_pretrained(arguments);
  return kGood;
#else
  refuse("this saccade was built without saccade::tokenizer, which models of Hugging Face folders need");
#endif
}

}  // namespace

std::string LookArguments::title_of_page() const {
  if (title) return *title;
  const std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

std::size_t LookArguments::max_bytes() const {
  const double megabytes = max_size.value_or(25);
  if (!(megabytes > 0 && megabytes <= 1e6)) refuse("--max-size must be a number of megabytes above 0");
  return static_cast<std::size_t>(megabytes * 1e6);
}

void add_look(Command app, Action& action) {
  const Command command = app.add_subcommand("look", "See every head of a model over a text, in one offline page");
  const auto arguments = std::make_shared<LookArguments>();
  command.add_option("--model", arguments->model, "A Hugging Face folder, or the folder of a training run")
      .type_name("DIR")
      .required();
  command.add_option("--text", arguments->text, "What the model reads; - reads standard input")
      .type_name("TEXT")
      .required();
  command.add_option("--pair", arguments->pair, "A second text, for models that take two").type_name("TEXT");
  command.add_option("-o,--output", arguments->output, "The page to write").type_name("PAGE.html");
  command.add_option("--title", arguments->title, "Its title; without, the folder's name").type_name("TEXT");
  add_number(command, "--max-size", arguments->max_size, "The most megabytes of the page [25]").type_name("MB");
  command
      .add_option("--ablate", arguments->ablated,
                  "Switch these heads off, and print loss and next tokens before and after")
      .type_name("L17H4,...")
      .delimiter(',');
  command.add_flag("--mean", arguments->mean,
                   "With --ablate: put the mean of a head's output in its place, not zeros");
  add_integer(command, "--threads", arguments->threads, "Threads; 0: all of the machine [0]", 0);
  command.add_flag("--json", arguments->json, "Print the ablation as JSON");
  command.footer(
      "The page is one file without network: open it in a browser, or send it.\n\n"
      "Examples:\n"
      "  saccade look --model all-MiniLM-L6-v2 --text 'The cat sat on the mat.' -o page.html\n"
      "  saccade look --model SmolLM2-135M --text 'one two three one two' --ablate L17H4,L17H5");
  command.callback([=, &action] { action = [=] { return look(*arguments); }; });
}

}  // namespace saccade::cli
