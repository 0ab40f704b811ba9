// saccade heatmap: any matrix of weights as a picture.
#include <fmt/format.h>
#include <saccade/heatmap.h>
#include <saccade/io.h>

#include <memory>

#include "cli/common/common.h"
#include "cli/output/terminal.h"
#include "commands.h"

namespace saccade::cli {
namespace {

struct HeatmapArguments {
  std::string weights;
  TokenOptions query_labels;
  TokenOptions key_labels;
  std::string title;
  std::string style = "cells";
  NamedPath output{"--output", {}};
};

// [rows, columns] or [heads, rows, columns]; a batch of one entry loses its batch axis.
Tensor load_weights(const std::string& path) {
  Tensor weights = load_npy(path);
  const Shape shape = weights.shape();
  if (shape.size() == 4 && shape[0] == 1) return std::move(weights).reshaped({shape[1], shape[2], shape[3]});
  if (shape.size() == 4)
    refuse("{} holds a batch of {}: a picture shows one entry, [heads, queries, keys]", path, shape[0]);
  if (shape.size() != 2 && shape.size() != 3) {
    refuse("{} has shape {}: a picture needs [queries, keys] or [heads, queries, keys]", path, to_string(shape));
  }
  return weights;
}

ExitCode heatmap(const HeatmapArguments& arguments) {
  const bool lines = arguments.style == "lines";
  if (lines && !arguments.output.path)
    refuse("--style lines needs -o OUT.svg or OUT.png: a terminal cannot show lines");
  if (arguments.output.path) is_png(arguments.output);
  const std::vector<NamedPath> inputs{{"W.npy", arguments.weights},
                                      {"--labels-file", arguments.query_labels.file},
                                      {"--key-labels-file", arguments.key_labels.file}};
  require_one_standard_input(inputs);
  if (arguments.output.path != "-") require_writable({arguments.output}, inputs);

  const Tensor weights = load_weights(arguments.weights);
  const HeatmapOptions options{.query_tokens = arguments.query_labels.read(weights.shape(-2)),
                               .key_tokens = arguments.key_labels.read(weights.shape(-1)),
                               .title = arguments.title};
  if (arguments.output.path) {
    RenderedPicture(arguments.output,
                    lines ? attention_lines_svg(weights, options) : heatmap_svg(weights, options))
        .write();
  } else {
    const Terminal terminal = Terminal::of_standard_output();
    fmt::print("{}", heatmap_terminal(weights, options, terminal.color, terminal.width));
  }
  return kGood;
}

}  // namespace

void add_heatmap(Command app, Action& action) {
  const Command command = app.add_subcommand("heatmap", "A picture of a matrix of weights: terminal, SVG or PNG");
  const auto arguments = std::make_shared<HeatmapArguments>();
  command
      .add_option("weights", arguments->weights,
                  "[queries, keys] or [heads, queries, keys]; - reads standard input")
      .type_name("W.npy")
      .required();
  arguments->query_labels.add_to(command, "--labels", "the rows", "--tokens");
  arguments->key_labels.add_to(command, "--key-labels", "the columns (without: as the rows of a square matrix)",
                               "--key-tokens");
  command.add_option("--title", arguments->title, "Above the picture").type_name("T");
  command.add_option("--style", arguments->style, "cells: a heat map; lines: tokens joined by lines")
      .one_of({"cells", "lines"})
      .capture_default_str();
  command
      .add_option("-o,--output", arguments->output.path, "Picture, - for SVG on standard output; without, as text")
      .type_name("OUT.svg|OUT.png");
  command.footer(
      "Darker is larger. Rows are queries, columns are keys.\n\n"
      "Examples:\n"
      "  saccade heatmap W.npy\n"
      "  saccade heatmap W.npy --labels Your,journey,starts -o weights.png\n"
      "  saccade heatmap W.npy --labels-file tokens.txt --style lines -o weights.svg\n"
      "  saccade run --q Q.npy --k K.npy --v V.npy -o O.npy --weights W.npy && saccade heatmap W.npy");
  command.callback([=, &action] { action = [=] { return heatmap(*arguments); }; });
}

}  // namespace saccade::cli
