// saccade look --ablate: what changes when heads are switched off.
#include <fmt/format.h>
#include <saccade/layers.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "cli/common/common.h"
#include "cli/models/model_file.h"
#include "cli/models/pretrained.h"
#include "cli/output/json.h"
#include "look.h"
#include "passage.h"

namespace saccade::cli {
namespace {

/// Switches heads off: their output becomes 0, or its mean over the tokens.
void ablate(const LayerAttention& layer, const std::vector<HeadPlace>& heads, bool mean) {
  for (const HeadPlace& place : heads) {
    if (place.layer != layer.layer) continue;
    const MutableTensorView o = layer.o.select(1, place.head);
    const std::int64_t tokens = o.shape[0], dim = o.shape[1];
    std::vector<float> row(static_cast<std::size_t>(dim));
    for (std::int64_t i = 0; mean && i < tokens; ++i)
      for (std::int64_t d = 0; d < dim; ++d)
        row[static_cast<std::size_t>(d)] += o.as<float>()[i * o.strides[0] + d] / static_cast<float>(tokens);
    for (std::int64_t i = 0; i < tokens; ++i) std::copy(row.begin(), row.end(), o.as<float>() + i * o.strides[0]);
  }
}

/// What a decoder expects: its loss on the text, and the most likely next tokens.
struct Expectation {
  double loss = 0.0;
  double repeated_loss = 0.0;  ///< on the tokens that follow as before; NaN: there are none
  std::vector<std::pair<std::string, double>> next;
};

/// The tokens that an induction head can foretell: the token before stood in the text before, and this one
/// followed.
std::vector<std::size_t> repeated_places(const std::vector<std::int64_t>& tokens) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::vector<std::size_t> result;
  for (std::size_t i = 1; i < tokens.size(); ++i)
    if (!seen.emplace(tokens[i - 1], tokens[i]).second) result.push_back(i);
  return result;
}

Expectation expectation(const Pretrained& pretrained, const ModelInput& input, const std::vector<HeadPlace>& heads,
                        const LookArguments& arguments) {
  const int threads = arguments.num_threads();
  const Tensor states = pretrained.model.hidden_states(
      input, {.on_attention = [&](const LayerAttention& layer) { ablate(layer, heads, arguments.mean); },
              .num_threads = threads});
  const Tensor logits = pretrained.model.logits(states, threads);
  std::vector<double> losses{0.0};  // of each token by those before it
  for (std::size_t i = 1; i < input.tokens.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    losses.push_back(cross_entropy(logits.view().slice(0, at - 1, at), TensorView(&input.tokens[i], {1})));
  }
  Expectation result;
  if (losses.size() > 1)
    result.loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size() - 1);
  const std::vector<std::size_t> repeated = repeated_places(input.tokens);
  for (const std::size_t i : repeated) result.repeated_loss += losses[i] / static_cast<double>(repeated.size());
  if (repeated.empty()) result.repeated_loss = std::nan("");
  const std::span<const float> row = logits.values<float>().last(static_cast<std::size_t>(logits.shape(1)));
  std::vector<std::int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int64_t token) { return row[static_cast<std::size_t>(token)]; };
  const auto count = std::min<std::ptrdiff_t>(5, std::ssize(order));
  std::ranges::partial_sort(order, order.begin() + count, std::greater(), logit);
  const double largest = logit(order.front());
  double sum = 0.0;
  for (const float x : row) sum += std::exp(x - largest);
  for (const std::int64_t token : std::span(order).first(static_cast<std::size_t>(count)))
    result.next.emplace_back(pretrained.tokenizer().decode(std::vector{token}, false),
                             std::exp(logit(token) - largest) / sum);
  return result;
}

std::string list_of(const Expectation& expected) {
  std::string list;
  for (const auto& [token, share] : expected.next)
    list += fmt::format("{}{:?} {:.3f}", list.empty() ? "" : ", ", token, share);
  return list;
}

Json json_of(const Expectation& expected) {
  Json next = Json::array();
  for (const auto& [token, share] : expected.next) next.push_back({{"token", token}, {"probability", share}});
  return {{"loss", json_number(expected.loss)},
          {"repeated_loss", json_number(expected.repeated_loss)},
          {"next", next}};
}

}  // namespace

void print_ablation(const LookArguments& arguments) {
  const Pretrained pretrained = Pretrained::load(arguments.model);
  const ModelSizes& sizes = pretrained.model.sizes();
  if (!sizes.is_causal || !sizes.has_logits || sizes.num_encoder_layers > 0)
    refuse("--ablate measures the loss of decoders; --model is a {}", sizes.family);
  if (!arguments.text) refuse("give --text, which the model reads");
  const ModelInput input =
      Passage::of(pretrained.tokenizer(), text_or_standard_input(*arguments.text)).input(sizes);
  std::vector<HeadPlace> heads;
  for (const std::string& name : arguments.ablated)
    heads.push_back(head_place(name, "--ablate", sizes.num_layers, sizes.num_heads));
  const Expectation before = expectation(pretrained, input, {}, arguments),
                    after = expectation(pretrained, input, heads, arguments);
  if (arguments.json)
    return print_json({{"ablated", arguments.ablated},
                       {"replaced_by", arguments.mean ? "mean" : "zero"},
                       {"tokens", input.tokens.size()},
                       {"before", json_of(before)},
                       {"after", json_of(after)}});
  fmt::print("loss    {:.4f} -> {:.4f} ({:+.4f} nats a token, over {} tokens)\n", before.loss, after.loss,
             after.loss - before.loss, input.tokens.size());
  if (!std::isnan(before.repeated_loss))
    fmt::print("again   {:.4f} -> {:.4f} ({:+.4f}, over the {} tokens that follow as before)\n",
               before.repeated_loss, after.repeated_loss, after.repeated_loss - before.repeated_loss,
               repeated_places(input.tokens).size());
  fmt::print("next    {}\n     -> {}\n", list_of(before), list_of(after));
}

}  // namespace saccade::cli
