// saccade look for models of Hugging Face folders: pages, and what changes when heads are switched off.
#include "look.h"

#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/layers.h>
#include <saccade/page.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common.h"
#include "json.h"
#include "model_file.h"
#include "pretrained.h"
#include "progress.h"

namespace saccade::cli {
namespace {

struct HeadPlace {
  std::int64_t layer = 0, head = 0;
};

/// "L17H4", of a model that has it.
HeadPlace head_place(const std::string& name, const ModelSizes& sizes) {
  const std::size_t middle = name.find('H');
  if (name.starts_with('L') && middle != std::string::npos) {
    const auto layer = parse_integer(name.substr(1, middle - 1)), head = parse_integer(name.substr(middle + 1));
    if (layer && head) {
      if (*layer < 0 || *layer >= sizes.num_layers || *head < 0 || *head >= sizes.num_heads)
        refuse("--ablate {}: the model has {} layers of {} heads, counted from 0", name, sizes.num_layers,
               sizes.num_heads);
      return {*layer, *head};
    }
  }
  refuse("--ablate {}: heads are named as in L17H4", name);
}

/// The text, its tokens, and what the model is given.
struct Passage {
  std::string text, pair;
  std::vector<Token> tokens{};
  ModelInput input{};

  std::string label(std::size_t i) const {
    const Token& token = tokens[i];
    if (token.is_added || token.range.begin >= token.range.end) return token.text;
    return text_of(token).substr(token.range.begin, token.range.end - token.range.begin);
  }

  /// What stands between a token and the one before it.
  std::string gap_before(std::size_t i) const {
    const Token& token = tokens[i];
    if (token.is_added) return "";
    std::size_t end = 0;  // of the tokens before it, in the same text
    for (std::size_t j = i; j > 0 && end == 0; --j)
      if (!tokens[j - 1].is_added && tokens[j - 1].type == token.type) end = tokens[j - 1].range.end;
    return token.range.begin > end ? text_of(token).substr(end, token.range.begin - end) : "";
  }

  const std::string& text_of(const Token& token) const { return token.type == 1 && !pair.empty() ? pair : text; }
};

Passage passage_of(const Pretrained& pretrained, const LookArguments& arguments) {
  Passage passage{.text = text_or_standard_input(arguments.text), .pair = arguments.pair.value_or("")};
  passage.tokens = arguments.pair ? pretrained.tokenizer.encode(passage.text, passage.pair)
                                  : pretrained.tokenizer.encode(passage.text);
  if (passage.tokens.empty()) refuse("the text has no tokens");
  const std::int64_t count = std::ssize(passage.tokens), limit = pretrained.model.sizes().max_length;
  if (limit > 0 && count > limit) refuse("the text has {} tokens, but this model takes {}", count, limit);
  if (count > kMostTokensOfPage) refuse("the text has {} tokens, but a page holds {}", count, kMostTokensOfPage);
  for (const Token& token : passage.tokens) {
    passage.input.tokens.push_back(token.id);
    passage.input.types.push_back(token.type);
  }
  return passage;
}

/// The weights of one head of a layer, [1, tokens, tokens].
Tensor weights_of(const LayerAttention& layer, std::int64_t head, int threads) {
  const std::int64_t tokens = layer.q.shape[0], group = layer.q.shape[1] / layer.k.shape[1];
  Tensor weights(DType::f32, {1, tokens, tokens});
  AttentionOptions options = layer.options;
  options.weights = weights;
  options.num_threads = threads;
  const std::int64_t kv_head = head / group;
  attention(layer.q.slice(1, head, head + 1), layer.k.slice(1, kv_head, kv_head + 1),
            layer.v.slice(1, kv_head, kv_head + 1), options);
  return weights;
}

PageOptions page_options(const Pretrained& pretrained, const Passage& passage, const LookArguments& arguments) {
  const ModelSizes& sizes = pretrained.model.sizes();
  PageOptions options{.title = arguments.title_of_page(),
                      .subtitle = fmt::format("{}: {} layers of {} heads, {} tokens", sizes.family,
                                              sizes.num_layers, sizes.num_heads, passage.tokens.size()),
                      .ids = passage.input.tokens,
                      .num_layers = sizes.num_layers,
                      .num_heads = sizes.num_heads,
                      .num_kv_heads = sizes.num_kv_heads,
                      .is_causal = sizes.is_causal};
  for (std::size_t i = 0; i < passage.tokens.size(); ++i) {
    options.tokens.push_back(passage.label(i));
    options.gaps.push_back(passage.gap_before(i));
    options.words.push_back(passage.tokens[i].word);
    options.special.push_back(passage.tokens[i].is_added || pretrained.tokenizer.is_special(passage.tokens[i].id));
  }
  options.max_size = arguments.max_bytes();
  return options;
}

void write_page(const Pretrained& pretrained, const Passage& passage, const LookArguments& arguments) {
  AttentionPage page(page_options(pretrained, passage, arguments));
  const int threads = static_cast<int>(arguments.threads.value_or(0));
  const ModelSizes& sizes = pretrained.model.sizes();
  ProgressBar bar(sizes.num_layers);
  pretrained.model.hidden_states(
      passage.input, {.on_attention =
                          [&](const LayerAttention& layer) {
                            for (std::int64_t head = 0; head < sizes.num_heads; ++head)
                              page.add(layer.layer, head, weights_of(layer, head, threads).view().select(0, 0));
                            bar.show(layer.layer + 1, "layers");
                          },
                      .num_threads = threads});
  write_file(*arguments.output, std::string_view(page.html()));
}

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
  std::vector<std::pair<std::string, double>> next;
};

Expectation expectation(const Pretrained& pretrained, const Passage& passage, const std::vector<HeadPlace>& heads,
                        const LookArguments& arguments) {
  const int threads = static_cast<int>(arguments.threads.value_or(0));
  const Tensor states = pretrained.model.hidden_states(
      passage.input, {.on_attention = [&](const LayerAttention& layer) { ablate(layer, heads, arguments.mean); },
                      .num_threads = threads});
  const Tensor logits = pretrained.model.logits(states, threads);
  std::vector<std::int64_t> targets(passage.input.tokens.begin() + 1, passage.input.tokens.end());
  const std::int64_t last = std::ssize(targets);
  Expectation result;
  if (last > 0) result.loss = cross_entropy(logits.view().slice(0, 0, last), TensorView(targets.data(), {last}));
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
    result.next.emplace_back(pretrained.tokenizer.decode(std::vector{token}, false),
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
  return {{"loss", json_number(expected.loss)}, {"next", next}};
}

void print_ablation(const Pretrained& pretrained, const Passage& passage, const LookArguments& arguments) {
  const ModelSizes& sizes = pretrained.model.sizes();
  if (!sizes.is_causal || !sizes.has_logits)
    refuse("--ablate measures the loss of decoders; --model is a {}", sizes.family);
  std::vector<HeadPlace> heads;
  for (const std::string& name : arguments.ablated) heads.push_back(head_place(name, sizes));
  const Expectation before = expectation(pretrained, passage, {}, arguments),
                    after = expectation(pretrained, passage, heads, arguments);
  if (arguments.json)
    return print_json({{"ablated", arguments.ablated},
                       {"replaced_by", arguments.mean ? "mean" : "zero"},
                       {"tokens", passage.tokens.size()},
                       {"before", json_of(before)},
                       {"after", json_of(after)}});
  fmt::print("loss    {:.4f} -> {:.4f} ({:+.4f} nats a token, over {} tokens)\n", before.loss, after.loss,
             after.loss - before.loss, passage.tokens.size());
  fmt::print("next    {}\n     -> {}\n", list_of(before), list_of(after));
}

}  // namespace

void look_at_pretrained(const LookArguments& arguments) {
  const Pretrained pretrained = Pretrained::load(arguments.model);
  const Passage passage = passage_of(pretrained, arguments);
  if (!arguments.ablated.empty()) print_ablation(pretrained, passage, arguments);
  if (arguments.output) write_page(pretrained, passage, arguments);
}

}  // namespace saccade::cli
