// saccade look for models of Hugging Face folders.
#include <saccade/io.h>
#include <saccade/look.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
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

std::string file_of(const std::filesystem::path& folder, const char* name) {
  const std::vector<std::byte> content = read_file(folder / name);
  return std::string(reinterpret_cast<const char*>(content.data()), content.size());
}

/// All weights of a folder as they are on disk, from the files that Model::load() reads. It has read them before.
std::map<std::string, Tensor> weights_of(const std::filesystem::path& folder) {
  std::set<std::string> files;
  if (exists(folder / "model.safetensors")) {
    files.insert("model.safetensors");
  } else {
    const auto index = nlohmann::json::parse(file_of(folder, "model.safetensors.index.json"));
    for (const auto& [name, file] : index["weight_map"].items()) files.insert(file.get<std::string>());
  }
  std::map<std::string, Tensor> weights;
  for (const std::string& file : files) weights.merge(load_safetensors(folder / file).tensors);
  return weights;
}

/// Refuses models that no page carries, and no text.
void check_can_carry(const PretrainedModel& pretrained, const std::optional<std::string>& text,
                     const std::string& live_weights) {
  const ModelSizes& sizes = pretrained.model().sizes();
  if (sizes.is_causal || sizes.num_encoder_layers > 0 || sizes.image_size > 0 || sizes.num_mel_bins > 0)
    refuse(
        "--live: the model is a {}; pages carry models of saccade train, and encoders of texts with BERT's "
        "tokenizer",
        sizes.family);
  if (!text) refuse("--live needs --text, the text with which the page begins");
  if (text->empty()) refuse("--live: --text is empty, but the page begins with it");
  if (live_weights == "file" && !exists(pretrained.folder() / "model.safetensors"))
    refuse(
        "--live-weights file: the folder has no model.safetensors, which the page's reader would choose; f16 and "
        "int8 put the weights into the page");
}

/// Makes the page carry the model, or all but its weights.
void carry_model(AttentionPage& page, const PretrainedModel& pretrained, const std::string& text,
                 const std::string& live_weights) {
  const ModelSizes& sizes = pretrained.model().sizes();
  const std::filesystem::path& folder = pretrained.folder();
  PageModel model{.files = {{"config.json", file_of(folder, "config.json")}},
                  .num_heads = sizes.num_heads,
                  .vocab_size = sizes.vocab_size,
                  .max_length = sizes.max_length > 0 ? sizes.max_length : kLookMaxMapTokens,  // 0: no limit
                  .tokens = PageTokens::word_pieces,
                  .word_pieces = file_of(folder, "tokenizer.json"),
                  .text = text};
  if (live_weights == "file") {
    model.asks_for_weights = true;
    model.files.emplace_back("model.safetensors", file_of(folder, "model.safetensors"));
  } else {
    const PageWeights weights = page_weights(weights_of(folder), live_weights);
    model.files.emplace_back("model.safetensors", safetensors_bytes(weights.tensors));
    model.weight_type = weights.type, model.weight_error = weights.error;
  }
  page.set_model(model);
}

}  // namespace

void look_at_pretrained(const LookArguments& arguments) {
  LookOptions options = options_of(arguments);
  const PretrainedModel first = PretrainedModel::load(arguments.model);
  std::optional<PretrainedModel> second;
  if (arguments.other_model) second = PretrainedModel::load(*arguments.other_model);
  LookInput input{.pair = arguments.pair, .target = arguments.target};
  if (arguments.text) input.text = text_or_standard_input(*arguments.text);
  const std::string live_weights = arguments.live_weights.value_or("f16");
  if (arguments.live) check_can_carry(first, input.text, live_weights);
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
  AttentionPage page = look(readings, options);
  bar.reset();
  if (arguments.live) carry_model(page, first, *input.text, live_weights);
  write_page(arguments, page);
}

}  // namespace saccade::cli
