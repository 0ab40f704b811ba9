#include "saccade/ablation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <span>

#include "core/check.h"
#include "look/passage.h"
#include "look/place.h"
#include "saccade/layers.h"
#include "saccade/reference.h"

namespace saccade {
namespace {

constexpr const char* kFunction = "text_expectation";

/// The positions of tokens that form, with the token before them, a pair that occurred earlier in the text.
std::vector<std::size_t> repeated_places(std::span<const std::int64_t> tokens) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::vector<std::size_t> result;
  for (std::size_t i = 1; i < tokens.size(); ++i)
    if (!seen.emplace(tokens[i - 1], tokens[i]).second) result.push_back(i);
  return result;
}

/// The most likely tokens by a row of logits, without their texts.
std::vector<NextToken> next_tokens(const TensorView& logits, std::int64_t count) {
  const Tensor last = Tensor::copy_of(logits);
  const std::span<const float> row = last.values<float>();
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
    result.push_back({.id = token, .probability = std::exp(logit(token) - largest) / sum});
  return result;
}

std::vector<HeadEdit> edits_of(const AblationOptions& options) {
  std::vector<HeadEdit> edits;
  for (const HeadPlace& place : options.heads)
    edits.push_back({.place = place, .replaced_by = options.replaced_by});
  return edits;
}

void check_next(std::int64_t num_next) {
  if (num_next < 0) refuse(kFunction, "num_next must be 0 or more, got ", num_next);
}

void check_options(const ModelSizes& sizes, const AblationOptions& options) {
  if (!sizes.is_causal || !sizes.has_logits || sizes.num_encoder_layers > 0)
    refuse(kFunction, "the model is a ", sizes.family, ", but only decoders have the loss of a text");
  check_next(options.num_next);
  for (const HeadPlace& place : options.heads) heads::check_place(kFunction, place, sizes);
}

}  // namespace

TextExpectation text_expectation(std::span<const std::int64_t> tokens, const TensorView& logits,
                                 std::int64_t num_next) {
  if (tokens.empty()) refuse(kFunction, "there are no tokens");
  if (logits.rank != 2 || logits.shape[0] != std::ssize(tokens))
    refuse(kFunction, "logits must be [", tokens.size(), ", vocabulary], but they are ", to_string(logits.dims()));
  check_next(num_next);
  std::vector<double> losses{0.0};  // of each token, given those before it
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    losses.push_back(cross_entropy(logits.slice(0, at - 1, at), TensorView(&tokens[i], {1})));
  }
  TextExpectation result{.num_tokens = std::ssize(tokens)};
  if (losses.size() > 1)
    result.loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size() - 1);
  const std::vector<std::size_t> repeated = repeated_places(tokens);
  result.num_repeated = std::ssize(repeated);
  for (const std::size_t i : repeated) result.repeated_loss += losses[i] / static_cast<double>(repeated.size());
  if (repeated.empty()) result.repeated_loss = std::nan("");
  result.next = next_tokens(logits.select(0, logits.shape[0] - 1), num_next);
  return result;
}

TextExpectation text_expectation(const PretrainedModel& pretrained, std::string_view text,
                                 const AblationOptions& options) {
  const Model& model = pretrained.model();
  check_options(model.sizes(), options);
  const ModelInput input =
      heads::Passage::of(kFunction, pretrained.tokenizer(), std::string(text)).input(kFunction, model.sizes());
  const std::vector<HeadEdit> edits = edits_of(options);
  const Tensor states =
      model.hidden_states(input, {.on_attention = [&](const LayerAttention& layer) { edit_heads(layer, edits); },
                                  .num_threads = options.num_threads});
  TextExpectation result =
      text_expectation(input.tokens, model.logits(states, options.num_threads), options.num_next);
  for (NextToken& next : result.next) next.text = pretrained.tokenizer().decode(std::vector{next.id}, false);
  return result;
}

double embedding_cosine(const PretrainedModel& pretrained, std::string_view text, const AblationOptions& options) {
  constexpr const char* kCosine = "embedding_cosine";
  const Model& model = pretrained.model();
  const ModelSizes& sizes = model.sizes();
  if (sizes.is_causal || sizes.num_encoder_layers > 0 || sizes.image_size > 0 || sizes.num_mel_bins > 0)
    refuse(kCosine, "the model is a ", sizes.family, ", but only encoders of texts have an embedding");
  for (const HeadPlace& place : options.heads) heads::check_place(kCosine, place, sizes);
  const ModelInput input =
      heads::Passage::of(kCosine, pretrained.tokenizer(), std::string(text)).input(kCosine, sizes);
  const auto embedding = [&](const std::vector<HeadEdit>& edits) {
    const Tensor states =
        model.hidden_states(input, {.on_attention = [&](const LayerAttention& layer) { edit_heads(layer, edits); },
                                    .num_threads = options.num_threads});
    std::vector<double> sum(static_cast<std::size_t>(states.shape(1)));  // the mean, up to its length
    for (std::size_t i = 0; i < states.values<float>().size(); ++i)
      sum[i % sum.size()] += states.values<float>()[i];
    return sum;
  };
  const std::vector<double> before = embedding({}), after = embedding(edits_of(options));
  const double dot = reference::dot(before, after);
  return dot / std::sqrt(reference::dot(before, before) * reference::dot(after, after));
}

}  // namespace saccade
