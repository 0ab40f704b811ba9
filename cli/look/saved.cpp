// saccade look for the models of training runs.
#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/look.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "look.h"

namespace saccade::cli {
namespace {

/// The last component of a path.
std::string name_of_file(const std::string& path) {
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  return normal.has_filename() ? normal.filename().string() : normal.parent_path().filename().string();
}

/// The models of a run: those saved during training, by step, or the final one.
std::map<std::int64_t, std::string> models_of(const std::string& folder) {
  std::map<std::int64_t, std::string> models = kept_models(folder);
  if (models.size() < 2) models = {{-1, folder}};
  return models;
}

void add_model(AttentionPage& page, const SavedModel& saved, const std::string& name,
               const std::vector<std::int64_t>& tokens) {
  const GPTModelOptions& model = saved.model->options();
  const std::int64_t part = page.add_part({.name = name,
                                           .queries = {.tokens = saved.labels_of(tokens), .ids = tokens},
                                           .num_layers = model.num_layers,
                                           .num_heads = model.num_heads,
                                           .is_causal = true});
  const std::vector<Tensor> layers =
      saved.model->attention_weights(TensorView(tokens.data(), {1, std::ssize(tokens)}));
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    for (std::int64_t head = 0; head < model.num_heads; ++head)
      page.add(part, layer, head, layers[static_cast<std::size_t>(layer)].view().select(0, 0).select(0, head));
}

/// Makes the page carry the model.
void carry_model(AttentionPage& page, const SavedModel& saved, const std::vector<std::int64_t>& tokens,
                 const std::string& live_weights) {
  const GPTModelOptions& sizes = saved.model->options();
  const PageWeights weights = page_weights(saved.model->state_dict(), live_weights);
  // Without a letter at the end that the model's length has cut: it would be another one in the page.
  const std::vector<std::string> labels = saved.labels_of(tokens);
  std::size_t count = labels.size();
  while (count > 0 && labels[count - 1].size() == 1 && static_cast<unsigned char>(labels[count - 1][0]) >= 0x80)
    --count;
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += saved.text_of(tokens[i]);
  if (saved.tokens == TokenKind::numbers) text.pop_back();  // the space after the last number
  page.set_model({.files = {{"model.safetensors", safetensors_bytes(weights.tensors)}},
                  .num_heads = sizes.num_heads,
                  .vocab_size = sizes.vocab_size,
                  .max_length = sizes.context_length,
                  .tokens = saved.tokens == TokenKind::bytes ? PageTokens::bytes : PageTokens::numbers,
                  .text = text,
                  .weight_type = weights.type,
                  .weight_error = weights.error});
}

}  // namespace

std::vector<std::int64_t> tokens_of_saved(const SavedModel& saved, const LookArguments& arguments) {
  std::vector<std::int64_t> tokens = saved.tokens_of(text_or_standard_input(*arguments.text), "--text");
  const std::int64_t most = std::min(saved.model->options().context_length, kLookMaxMapTokens);
  if (std::ssize(tokens) > most) {
    note("look", fmt::format("the text has {} tokens; the model sees {}, so these are its first {}", tokens.size(),
                             most, most));
    tokens.resize(static_cast<std::size_t>(most));
  }
  return tokens;
}

void look_at_saved(const LookArguments& arguments) {
  if (arguments.pair || arguments.image || arguments.audio || arguments.target || arguments.other_model ||
      arguments.other_text || !arguments.details.empty() || !arguments.tiles.empty() || arguments.gradient)
    refuse(
        "of a model of saccade train only --text, -o, --title, --max-size, --live, --ablate, --mean and --json "
        "can be given");
  if (!arguments.text)
    refuse("{}", arguments.live ? "--live needs --text, the text with which the page begins"
                                : "give --text, which the model reads");
  if (!arguments.ablated.empty()) {
#ifdef SACCADE_HAS_TOKENIZER
    print_ablation_of_saved(arguments);
#else
    refuse("this saccade was built without saccade::tokenizer, which --ablate needs");
#endif
    if (!arguments.output) return;
  }
  if (!wants_page(arguments)) return print_heads_of_saved(arguments);
  const SavedModel last = load_model(arguments.model);
  const std::vector<std::int64_t> tokens = tokens_of_saved(last, arguments);
  const GPTModelOptions& model = last.model->options();
  const std::int64_t count = std::ssize(tokens);
  const std::map<std::int64_t, std::string> models = models_of(arguments.model);
  AttentionPage page(
      {.title = arguments.title.value_or(name_of_file(arguments.model)),
       .subtitle = fmt::format("{} layers of {} heads, {} tokens", model.num_layers, model.num_heads, count),
       .max_size = arguments.max_bytes(),
       .is_sequence = models.size() > 1});
  for (const auto& [step, file] : models)
    add_model(page, load_model(file), step < 0 ? "" : fmt::format("step {}", step), tokens);
  if (arguments.live) {
    if (arguments.live_weights == "file")
      refuse("--live-weights file is for folders of Hugging Face models; pages carry models of saccade train");
    carry_model(page, last, tokens, arguments.live_weights.value_or("f16"));
  }
  write_page(arguments, page);
}

}  // namespace saccade::cli
