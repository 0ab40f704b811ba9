// saccade look --ablate: what changes when heads are switched off.
#include <fmt/format.h>
#include <saccade/ablation.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "cli/output/json.h"
#include "look.h"

namespace saccade::cli {
namespace {

std::string list_of(const TextExpectation& expected) {
  std::string list;
  for (const NextToken& next : expected.next)
    list += fmt::format("{}{:?} {:.3f}", list.empty() ? "" : ", ", next.text, next.probability);
  return list;
}

Json json_of(const TextExpectation& expected) {
  Json list = Json::array();
  for (const NextToken& next : expected.next)
    list.push_back({{"token", next.text}, {"probability", next.probability}});
  return {{"loss", json_number(expected.loss)},
          {"repeated_loss", json_number(expected.repeated_loss)},
          {"next", list}};
}

void print_changes(const LookArguments& arguments, const TextExpectation& before, const TextExpectation& after) {
  if (arguments.json)
    return print_json({{"ablated", arguments.ablated},
                       {"replaced_by", arguments.mean ? "mean" : "zero"},
                       {"tokens", before.num_tokens},
                       {"before", json_of(before)},
                       {"after", json_of(after)}});
  fmt::print("loss    {:.4f} -> {:.4f} ({:+.4f} nats a token, over {} tokens)\n", before.loss, after.loss,
             after.loss - before.loss, before.num_tokens);
  if (!std::isnan(before.repeated_loss))
    fmt::print("again   {:.4f} -> {:.4f} ({:+.4f}, over the {} tokens that follow as before)\n",
               before.repeated_loss, after.repeated_loss, after.repeated_loss - before.repeated_loss,
               before.num_repeated);
  fmt::print("next    {}\n     -> {}\n", list_of(before), list_of(after));
}

void print_cosine(const LookArguments& arguments, double cosine) {
  if (arguments.json)
    return print_json({{"ablated", arguments.ablated},
                       {"replaced_by", arguments.mean ? "mean" : "zero"},
                       {"cosine", json_number(cosine)}});
  fmt::print("embedding  cosine {:.4f} with that of all heads\n", cosine);
}

std::vector<HeadPlace> ablated_heads(const LookArguments& arguments) {
  std::vector<HeadPlace> heads;
  for (const std::string& name : arguments.ablated) heads.push_back(head_place(name, "--ablate"));
  return heads;
}

}  // namespace

void print_ablation(const LookArguments& arguments) {
  if (!arguments.text) refuse("give --text, which the model reads");
  AblationOptions options{.replaced_by = arguments.mean ? Ablation::mean : Ablation::zero,
                          .num_threads = arguments.num_threads()};
  const AblationOptions as_it_is = options;
  options.heads = ablated_heads(arguments);
  const PretrainedModel pretrained = PretrainedModel::load(arguments.model);
  const std::string text = text_or_standard_input(*arguments.text);
  if (!pretrained.model().sizes().is_causal && pretrained.model().sizes().num_encoder_layers == 0)
    return print_cosine(arguments, embedding_cosine(pretrained, text, options));
  const TextExpectation after = text_expectation(pretrained, text, options),
                        before = text_expectation(pretrained, text, as_it_is);
  print_changes(arguments, before, after);
}

void print_ablation_of_saved(const LookArguments& arguments) {
  const SavedModel saved = load_model(arguments.model);
  const std::vector<std::int64_t> tokens = tokens_of_saved(saved, arguments);
  std::vector<HeadEdit> edits;
  for (const HeadPlace& place : ablated_heads(arguments)) {
    const GPTModelOptions& sizes = saved.model->options();
    if (place.layer >= sizes.num_layers || place.head >= sizes.num_heads)
      refuse("--ablate L{}H{}: the model has {} layers of {} heads, counted from 0", place.layer, place.head,
             sizes.num_layers, sizes.num_heads);
    edits.push_back({.place = place, .replaced_by = arguments.mean ? Ablation::mean : Ablation::zero});
  }
  const auto expected = [&](std::span<const HeadEdit> changes) {
    const Tensor logits = saved.model->forward(TensorView(tokens.data(), {1, std::ssize(tokens)}),
                                               [&](const LayerAttention& layer) { edit_heads(layer, changes); });
    TextExpectation result = text_expectation(tokens, logits.view().select(0, 0));
    for (NextToken& next : result.next) next.text = saved.text_of(next.id);
    return result;
  };
  print_changes(arguments, expected({}), expected(edits));
}

}  // namespace saccade::cli
