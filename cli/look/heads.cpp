// saccade look without a page: what the heads of a model of `saccade train` do, as a table and as heat maps.
#include <fmt/format.h>
#include <saccade/heatmap.h>

#include <nlohmann/json.hpp>

#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"
#include "cli/train/head_report.h"
#include "look.h"

namespace saccade::cli {

void print_heads_of_saved(const LookArguments& arguments) {
  const NamedPath output{"--output", arguments.output};
  if (output.path == "-" && arguments.json) refuse("--json and -o - cannot both go to standard output");
  if (output.path && output.path != "-") require_writable({output}, {});
  const SavedModel saved = load_model(arguments.model);
  const std::vector<std::int64_t> tokens = tokens_of_saved(saved, arguments);
  const HeadReport report(*saved.model, TensorView(tokens.data(), {1, std::ssize(tokens)}));
  const HeatmapOptions options = report.picture_options(saved.labels_of(tokens), arguments.title.value_or(""));

  const Terminal terminal = Terminal::of_standard_output();
  if (output.path) RenderedPicture(output, heatmap_svg(report.weights(), options)).write();
  if (arguments.json) {
    Json result;
    result["tokens"] = tokens;
    result["heads"] = report.to_json();
    print_json(result);
  } else if (output.path != "-") {
    fmt::print("{}", report.table(terminal));
    if (!output.path)
      fmt::print("\n{}", heatmap_terminal(report.weights(), options, terminal.color, terminal.width));
  }
}

}  // namespace saccade::cli
