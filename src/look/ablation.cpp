#include "saccade/ablation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "core/check.h"
#include "look/passage.h"
#include "look/place.h"
#include "saccade/layers.h"

namespace saccade {
namespace {

constexpr const char* kFunction = "text_expectation";

/// Switches heads off: their output becomes 0, or its mean over the tokens.
void ablate(const LayerAttention& layer, const AblationOptions& options) {
  for (const HeadPlace& place : options.heads) {
    if (place.layer != layer.layer) continue;
    const MutableTensorView o = layer.o.select(1, place.head);
    const std::int64_t tokens = o.shape[0], dim = o.shape[1];
    std::vector<float> row(static_cast<std::size_t>(dim));
    for (std::int64_t i = 0; options.replaced_by == Ablation::mean && i < tokens; ++i)
      for (std::int64_t d = 0; d < dim; ++d)
        row[static_cast<std::size_t>(d)] += o.as<float>()[i * o.strides[0] + d] / static_cast<float>(tokens);
    for (std::int64_t i = 0; i < tokens; ++i) std::copy(row.begin(), row.end(), o.as<float>() + i * o.strides[0]);
  }
}

/// The positions of tokens that form, with the token before them, a pair that occurred earlier in the text.
std::vector<std::size_t> repeated_places(const std::vector<std::int64_t>& tokens) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::vector<std::size_t> result;
  for (std::size_t i = 1; i < tokens.size(); ++i)
    if (!seen.emplace(tokens[i - 1], tokens[i]).second) result.push_back(i);
  return result;
}

/// The most likely tokens after the last row of logits.
std::vector<NextToken> next_tokens(const Tokenizer& tokenizer, const Tensor& logits, std::int64_t count) {
  const std::span<const float> row = logits.values<float>().last(static_cast<std::size_t>(logits.shape(1)));
  std::vector<std::int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int64_t token) { return row[static_cast<std::size_t>(token)]; };
  count = std::min<std::int64_t>(count, std::ssize(order));
  std::ranges::partial_sort(order, order.begin() + count, std::greater(), logit);
  const double largest = *std::ranges::max_element(row);
  double sum = 0.0;
  for (const float x : row) sum += std::exp(x - largest);
  std::vector<NextToken> result;
  for (const std::int64_t token : std::span(order).first(static_cast<std::size_t>(count)))
    result.push_back({.id = token,
                      .text = tokenizer.decode(std::vector{token}, false),
                      .probability = std::exp(logit(token) - largest) / sum});
  return result;
}

void check_options(const ModelSizes& sizes, const AblationOptions& options) {
  if (!sizes.is_causal || !sizes.has_logits || sizes.num_encoder_layers > 0)
    refuse(kFunction, "the model is a ", sizes.family, ", but only decoders have the loss of a text");
  if (options.num_next < 0) refuse(kFunction, "num_next must be 0 or more, got ", options.num_next);
  for (const HeadPlace& place : options.heads) heads::check_place(kFunction, place, sizes);
}

}  // namespace

TextExpectation text_expectation(const PretrainedModel& pretrained, std::string_view text,
                                 const AblationOptions& options) {
  const Model& model = pretrained.model();
  check_options(model.sizes(), options);
  const ModelInput input =
      heads::Passage::of(kFunction, pretrained.tokenizer(), std::string(text)).input(kFunction, model.sizes());
  const Tensor states =
      model.hidden_states(input, {.on_attention = [&](const LayerAttention& layer) { ablate(layer, options); },
                                  .num_threads = options.num_threads});
  const Tensor logits = model.logits(states, options.num_threads);
  std::vector<double> losses{0.0};  // of each token, given those before it
  for (std::size_t i = 1; i < input.tokens.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    losses.push_back(cross_entropy(logits.view().slice(0, at - 1, at), TensorView(&input.tokens[i], {1})));
  }
  TextExpectation result{.num_tokens = std::ssize(input.tokens)};
  if (losses.size() > 1)
    result.loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size() - 1);
  const std::vector<std::size_t> repeated = repeated_places(input.tokens);
  result.num_repeated = std::ssize(repeated);
  for (const std::size_t i : repeated) result.repeated_loss += losses[i] / static_cast<double>(repeated.size());
  if (repeated.empty()) result.repeated_loss = std::nan("");
  result.next = next_tokens(pretrained.tokenizer(), logits, options.num_next);
  return result;
}

}  // namespace saccade
