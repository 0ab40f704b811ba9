// saccade look for models of Hugging Face folders.
#include <saccade/io.h>
#include <saccade/look.h>

#include <vector>

#include "cli/common/common.h"
#include "cli/models/media.h"
#include "cli/models/model_file.h"
#include "cli/output/progress.h"
#include "look.h"

namespace saccade::cli {
namespace {

/// "L17H4:9000-9255:0-255"
LookTile tile_of(const std::string& text) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos)
    refuse("--tile {}: expected a head, queries and keys, as in L17H4:9000-9255:0-255", text);
  const auto range = [&](const std::string& part) -> std::pair<std::int64_t, std::int64_t> {
    const std::size_t dash = part.find('-');
    if (dash != std::string::npos) {
      const auto begin = parse_integer(part.substr(0, dash)), end = parse_integer(part.substr(dash + 1));
      if (begin && end) return {*begin, *end};
    }
    refuse("--tile {}: '{}' is no range, such as 9000-9255", text, part);
  };
  const auto queries = range(text.substr(first + 1, second - first - 1)), keys = range(text.substr(second + 1));
  return {.place = head_place(text.substr(0, first), "--tile"),
          .first_query = queries.first,
          .last_query = queries.second,
          .first_key = keys.first,
          .last_key = keys.second};
}

LookOptions options_of(const LookArguments& arguments) {
  LookOptions options{.page = {.title = arguments.title.value_or(""), .max_size = arguments.max_bytes()},
                      .gradient = arguments.gradient,
                      .num_threads = arguments.num_threads()};
  for (const std::string& name : arguments.details) options.details.push_back(head_place(name, "--details"));
  for (const std::string& text : arguments.tiles) options.tiles.push_back(tile_of(text));
  return options;
}

}  // namespace

void look_at_pretrained(const LookArguments& arguments) {
  LookOptions options = options_of(arguments);
  const PretrainedModel first = PretrainedModel::load(arguments.model);
  std::optional<PretrainedModel> second;
  if (arguments.other_model) second = PretrainedModel::load(*arguments.other_model);
  LookInput input{.pair = arguments.pair, .target = arguments.target};
  if (arguments.text) input.text = text_or_standard_input(*arguments.text);
  std::optional<PngFile> picture;
  if (arguments.image) {
    picture = read_png(*arguments.image);
    input.rgb = picture->pixels, input.png = picture->png;
  }
  if (arguments.audio) input.sound = read_sound(*arguments.audio);
  std::vector<LookReading> readings{{.pretrained = &first, .input = input}};
  if (arguments.other_model || arguments.other_text) {
    readings.push_back({.pretrained = second ? &*second : &first, .input = input});
    if (arguments.other_text) readings.back().input.text = arguments.other_text;
  }
  std::optional<ProgressBar> bar;
  options.on_layer = [&](std::int64_t done, std::int64_t total) {
    if (!bar) bar.emplace(total);
    bar->show(done, "layers");
  };
  const AttentionPage page = look(readings, options);
  bar.reset();
  write_file(*arguments.output, std::string_view(page.html()));
}

}  // namespace saccade::cli
