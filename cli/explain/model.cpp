// saccade explain-model: what the heads of a trained model attend to in a text.
#include <fmt/format.h>
#include <saccade/heatmap.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"
#include "cli/train/head_report.h"

namespace saccade::cli {
namespace {

struct ExplainModelArguments {
  std::string model, text;
  NamedPath output{"--output", {}};
  bool json = false;
};

ExitCode explain_model(const ExplainModelArguments& arguments) {
  if (arguments.output.path) {
    is_png(arguments.output);
    if (arguments.output.path == "-" && arguments.json)
      refuse("--json and -o - cannot both go to standard output");
    if (arguments.output.path != "-") require_writable({arguments.output}, {});
  }
  const SavedModel saved = load_model(arguments.model);
  std::vector<std::int64_t> tokens = saved.tokens_of(text_or_standard_input(arguments.text), "--text");
  const auto most = static_cast<std::size_t>(saved.model->options().context_length);
  if (tokens.size() > most) {
    note("explain-model", fmt::format("the text has {} tokens; the model sees {}, so these are its first {}",
                                      tokens.size(), most, most));
    tokens.resize(most);
  }
  const HeadReport report(*saved.model, TensorView(tokens.data(), {1, std::ssize(tokens)}));
  const HeatmapOptions options = report.picture_options(saved.labels_of(tokens), "");

  const Terminal terminal = Terminal::of_standard_output();
  if (arguments.output.path) RenderedPicture(arguments.output, heatmap_svg(report.weights(), options)).write();
  if (arguments.json) {
    Json result;
    result["tokens"] = tokens;
    result["heads"] = report.to_json();
    print_json(result);
  } else if (arguments.output.path != "-") {
    fmt::print("{}", report.table(terminal));
    if (!arguments.output.path) {
      fmt::print("\n{}", heatmap_terminal(report.weights(), options, terminal.color, terminal.width));
    }
  }
  return kGood;
}

}  // namespace

void add_explain_model(Command app, Action& action) {
  const Command command =
      app.add_subcommand("explain-model", "What the heads of a trained model look at in a text");
  const auto arguments = std::make_shared<ExplainModelArguments>();
  add_model_option(command, arguments->model);
  command
      .add_option("--text", arguments->text,
                  "What the model reads; - reads standard input. For a model of the induction task: numbers")
      .type_name("TEXT")
      .required();
  command
      .add_option("-o,--output", arguments->output.path,
                  "Heat maps of all layers and heads, - for SVG on standard output; without, as text")
      .type_name("OUT.svg|OUT.png");
  command.add_flag("--json", arguments->json, "Print the heads' scores as JSON");
  command.footer(
      "Scores are mean weights: on the previous token, and (induction) on the token that followed the last "
      "earlier\n"
      "occurrence of the present one.\n\n"
      "Examples:\n"
      "  saccade explain-model --model licences --text 'You may convey verbatim copies' -o heads.png\n"
      "  saccade explain-model --model induction --text '5 17 99 3 42 5 17 99 3 42'");
  command.callback([=, &action] { action = [=] { return explain_model(*arguments); }; });
}

}  // namespace saccade::cli
