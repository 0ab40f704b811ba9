// saccade look: the heads of a model over a text, as one page; and what changes when heads are switched off.
#include "look.h"

#include <memory>

#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/models/model_file.h"

namespace saccade::cli {
namespace {

/// Refuses arguments with which --live would have no effect, or which the page would not follow.
void check_live(const LookArguments& arguments) {
  if (!arguments.live) {
    if (arguments.live_weights) refuse("--live-weights needs --live");
    return;
  }
  if (!wants_page(arguments))
    refuse("--live needs -o PAGE.html{}", arguments.text || arguments.image || arguments.audio
                                              ? ", the page that carries the model"
                                              : ", and --text, the text with which it begins");
  if (arguments.pair) refuse("--live: the model in a page reads one text, so --pair cannot be given");
}

ExitCode look(const LookArguments& arguments) {
  check_live(arguments);
  if (!is_hugging_face_folder(arguments.model)) {
    look_at_saved(arguments);
    return kGood;
  }
  if (!arguments.output && arguments.ablated.empty()) refuse("give -o PAGE.html, or --ablate, or both");
  if (arguments.output && !wants_page(arguments))
    refuse("-o {}: of a Hugging Face folder there are pages only, PAGE.html", *arguments.output);
#ifdef SACCADE_HAS_TOKENIZER
  if (!arguments.ablated.empty()) print_ablation(arguments);
  if (arguments.output) look_at_pretrained(arguments);
  return kGood;
#else
  refuse("this saccade was built without saccade::tokenizer, which models of Hugging Face folders need");
#endif
}

void add_inputs(Command command, LookArguments& arguments) {
  const auto text = [&](const std::string& name, std::optional<std::string>& value, const std::string& help,
                        const char* type = "TEXT") { command.add_option(name, value, help).type_name(type); };
  text("--text", arguments.text, "What the model reads; - reads standard input");
  text("--pair", arguments.pair, "A second text, for models that take two");
  text("--image", arguments.image, "The picture that a model of images reads", "FILE.png");
  command.add_option("--audio", arguments.audio, "The sound that a model of speech reads: 16,000 samples a second")
      .type_name("FILE.wav")
      .deprecated("--sound");
  text("--target", arguments.target, "What an encoder-decoder's decoder reads; without, what the model makes");
  text("--other-model", arguments.other_model, "A second model, to compare with", "DIR");
  text("--other-text", arguments.other_text, "A second text, to compare with");
}

void add_options(Command command, LookArguments& arguments) {
  command
      .add_option("-m,--model", arguments.model,
                  "A Hugging Face folder, the folder of a training run, or its model.safetensors")
      .type_name("DIR|FILE")
      .required();
  add_inputs(command, arguments);
  command
      .add_option("-o,--output", arguments.output,
                  "The page to write; of a training run also heat maps, - for SVG on standard output")
      .type_name("PAGE.html|OUT.svg|OUT.png");
  command.add_option("--title", arguments.title, "Its title; without, the folder's name").type_name("TEXT");
  add_number(command, "--max-size", arguments.max_size, "The most megabytes of the page [25]").type_name("MB");
  command
      .add_option(
          "--details", arguments.details,
          "Keep these heads cell by cell, with their arithmetic, whatever they tell; of a text of over 4096 "
          "tokens show only these")
      .type_name("L17H4,...")
      .delimiter(',');
  command
      .add_option("--tile", arguments.tiles,
                  "Of a text of over 4096 tokens: keep a region of a head exactly, first to last query and key")
      .type_name("L17H4:9000-9255:0-255");
  command.add_flag("--gradient", arguments.gradient,
                   "Also show gradient times attention: the weights on which the model's answer rests");
  command
      .add_option(
          "--ablate", arguments.ablated,
          "Switch these heads off, and print loss and next tokens before and after; of an encoder how far the "
          "embedding moves")
      .type_name("L17H4,...")
      .delimiter(',');
  command.add_flag("--mean", arguments.mean,
                   "With --ablate: put the mean of a head's output in its place, not zeros");
  command.add_flag("--live", arguments.live,
                   "Put the model into the page: its reader runs it on other texts, and switches heads off");
  command
      .add_option("--live-weights", arguments.live_weights,
                  "With --live: the weights in the page, f16 [f16], or int8 in half the room; file: none, and the "
                  "reader chooses the model's file")
      .type_name("TYPE")
      .one_of({"f16", "int8", "file"});
  add_integer(command, "--threads", arguments.threads, "Threads; 0: all of the machine [0]", 0);
  command.add_flag("--json", arguments.json,
                   "Print the ablation, or what the heads of a training run do, as JSON");
}

}  // namespace

bool wants_page(const LookArguments& arguments) {
  if (!arguments.output || arguments.output == "-") return false;
  if (arguments.output->ends_with(".html")) return true;
  if (arguments.output->ends_with(".svg") || arguments.output->ends_with(".png")) return false;
  refuse("--output needs a name that ends in .html, .svg or .png, not '{}'", *arguments.output);
}

std::size_t LookArguments::max_bytes() const {
  const double megabytes = max_size.value_or(25);
  if (!(megabytes > 0 && megabytes <= 1e6)) refuse("--max-size must be a number of megabytes above 0");
  return static_cast<std::size_t>(megabytes * 1e6);
}

HeadPlace head_place(const std::string& name, const std::string& option) {
  const std::size_t middle = name.find('H');
  if (name.starts_with('L') && middle != std::string::npos) {
    const auto layer = parse_integer(name.substr(1, middle - 1)), head = parse_integer(name.substr(middle + 1));
    if (layer && head) return {*layer, *head};
  }
  refuse("{} {}: heads are named as in L17H4", option, name);
}

void add_look(Command app, Action& action) {
  const Command command =
      app.add_subcommand("look", "A whole model's heads: every head over a text, in one offline page");
  const auto arguments = std::make_shared<LookArguments>();
  add_options(command, *arguments);
  command.footer(
      "look shows a trained model; explain and tour show the arithmetic of a few vectors, inspect statistics of "
      "your\n"
      "own q and k.\n\n"
      "The page is one file without network: open it in a browser, or send it. Of a training run, without -o, a\n"
      "table of its heads: the mean weight on the previous token, and (induction) on the token that followed the "
      "last\n"
      "earlier occurrence of the present one.\n\n"
      "Examples:\n"
      "  saccade look -m all-MiniLM-L6-v2 --text 'The cat sat on the mat.' -o page.html\n"
      "  saccade look -m all-MiniLM-L6-v2 --other-model tuned --text 'The cat sat.' -o compared.html\n"
      "  saccade look -m whisper-base --audio speech.wav -o page.html\n"
      "  saccade look -m SmolLM2-135M --text 'K Q A V K Q A V' --ablate L17H5,L18H6\n"
      "  saccade look -m induction --text '5 17 99 3 42 5 17 99 3 42'");
  command.callback([=, &action] { action = [=] { return look(*arguments); }; });

  const Command old = app.add_deprecated_subcommand("explain-model", "Deprecated: saccade look does the same");
  const auto old_arguments = std::make_shared<LookArguments>();
  add_options(old, *old_arguments);
  old.callback([=, &action] {
    note("explain-model", "explain-model is deprecated; use look");
    action = [=] { return look(*old_arguments); };
  });
}

}  // namespace saccade::cli
