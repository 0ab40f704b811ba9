// saccade explain: from a user's own vectors to context vectors, step by step.
#include <fmt/format.h>
#include <saccade/attention_modules.h>
#include <saccade/heatmap.h>
#include <saccade/io.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"
#include "explanation.h"

namespace saccade::cli {
namespace {

struct ExplainArguments {
  std::string file;
  std::optional<std::string> keys;
  TokenOptions tokens, key_tokens;
  std::optional<std::string> query;
  std::string normalize = "softmax";
  std::optional<std::string> scale;
  std::string causal;  // empty, "true", "top-left" or "bottom-right"
  std::optional<std::string> params;
  std::optional<std::int64_t> d_out, seed, heads;
  std::optional<double> dropout;
  NamedPath heatmap{"--output", {}};
  NamedPath lines{"--lines", {}};
  bool json = false;
};

Tokens load_tokens(const std::string& path, const TokenOptions& names) {
  TokenEmbeddings embeddings = load_token_embeddings(path);
  const std::int64_t count = embeddings.inputs.shape(0);
  Tokens tokens{std::move(embeddings.tokens), std::move(embeddings.inputs)};
  if (names.given()) tokens.names = names.read(count);
  if (tokens.names.empty()) tokens.names = numbered_tokens(count);
  return tokens;
}

// The position given by --query: a number is a position; other text must equal exactly one of the tokens.
std::int64_t find_query(const std::string& query, const std::vector<std::string>& names) {
  const auto count = static_cast<std::int64_t>(names.size());
  const std::optional<std::int64_t> number = parse_integer(query);
  const auto first = std::ranges::find(names, query);
  const std::int64_t position = first == names.end() ? -1 : first - names.begin();
  if (number && position >= 0 && position != *number) {
    refuse("--query {} is both a position and the token at position {}; the tokens are: {}", query, position,
           listed(names));
  }
  if (number && *number >= 0 && *number < count) return *number;
  if (number) refuse("--query {}: positions go from 0 to {}; the tokens are: {}", query, count - 1, listed(names));
  if (position < 0) refuse("--query: there is no token '{}'; the tokens are: {}", query, listed(names));
  if (std::ranges::count(names, query) > 1) {
    refuse("--query: '{}' occurs more than once, give its position; the tokens are: {}", query, listed(names));
  }
  return position;
}

std::optional<double> parse_scale(const std::optional<std::string>& text, std::int64_t head_dim) {
  if (!text) return std::nullopt;
  if (*text == "none") return 1.0;
  if (*text == "auto") return 1.0 / std::sqrt(static_cast<double>(head_dim));
  const std::optional<double> number = parse_number(*text);
  if (!number) refuse("--scale: expected none, auto or a number, got '{}'", *text);
  return number;
}

/// How --causal aligns queries and keys; if it does not say, there must be as many of both.
Causal alignment_of(const std::string& causal, const ExplainRequest& request) {
  const std::int64_t queries = request.queries.vectors.shape(0);
  const std::int64_t keys = request.keys ? request.keys->vectors.shape(0) : queries;
  if (causal == "true" && queries != keys)
    refuse("--causal: {} queries and {} keys; say --causal=top-left or --causal=bottom-right ({})", queries, keys,
           kCausalChoices);
  return causal == "bottom-right" ? Causal::bottom_right : Causal::top_left;
}

std::shared_ptr<AttentionModule> load_module(const ExplainArguments& arguments) {
  const Safetensors checkpoint = load_safetensors(*arguments.params);
  if (checkpoint.tensors.contains("out_proj.weight") && !arguments.heads) {
    refuse("{} has an out_proj, so its projections are split into heads: --heads must say how many",
           *arguments.params);
  }
  return module_from_state_dict(checkpoint.tensors, {.num_heads = arguments.heads.value_or(0)});
}

std::shared_ptr<AttentionModule> draw_module(const ExplainArguments& arguments, const ExplainRequest& request,
                                             TorchGenerator& generator) {
  const std::int64_t d_in = request.queries.vectors.shape(1);
  const std::int64_t d_out = *arguments.d_out;
  if (!arguments.heads && !arguments.causal.empty()) {
    return std::make_shared<CausalAttention>(CausalAttentionOptions{.d_in = d_in, .d_out = d_out}, generator);
  }
  if (!arguments.heads) {
    return std::make_shared<SelfAttention>(SelfAttentionOptions{.d_in = d_in, .d_out = d_out}, generator);
  }
  const std::int64_t key_width = request.keys ? request.keys->vectors.shape(1) : d_in;
  const MultiHeadAttentionOptions options{.d_in = d_in,
                                          .d_out = d_out,
                                          .num_heads = *arguments.heads,
                                          .key_width = key_width,
                                          .value_width = key_width,
                                          .causal = !arguments.causal.empty()};
  return std::make_shared<MultiHeadAttention>(options, generator);
}

void check_combinations(const ExplainArguments& arguments) {
  if (arguments.heads && !arguments.params && !arguments.d_out) refuse("--heads needs --params or --d-out");
  if (arguments.seed && !arguments.d_out && !arguments.dropout) refuse("--seed needs --d-out or --dropout");
  if (arguments.key_tokens.given() && !arguments.keys) refuse("--key-tokens needs --keys");
  if (arguments.dropout && (*arguments.dropout < 0.0 || *arguments.dropout >= 1.0)) {
    refuse("--dropout: expected a probability of at least 0 and below 1, got {}", *arguments.dropout);
  }
  if (!std::ranges::count(std::array{"", "true", "top-left", "bottom-right"}, arguments.causal))
    refuse("--causal: expected top-left or bottom-right, got '{}'; {}", arguments.causal, kCausalChoices);
  if (arguments.heatmap.path) is_png(arguments.heatmap);
  if (arguments.lines.path) is_png(arguments.lines);
  const std::vector<NamedPath> inputs{{"FILE", arguments.file},
                                      {"--keys", arguments.keys},
                                      {"--params", arguments.params},
                                      {"--tokens-file", arguments.tokens.file},
                                      {"--key-tokens-file", arguments.key_tokens.file}};
  require_one_standard_input(inputs);
  require_writable({arguments.heatmap, arguments.lines}, inputs);
}

ExplainRequest make_request(const ExplainArguments& arguments) {
  ExplainRequest request;
  request.queries = load_tokens(arguments.file, arguments.tokens);
  if (arguments.keys) request.keys = load_tokens(*arguments.keys, arguments.key_tokens);
  request.normalization = arguments.normalize == "sum" ? Normalization::sum : Normalization::softmax;
  request.causal = !arguments.causal.empty();
  request.alignment = alignment_of(arguments.causal, request);
  request.dropout = arguments.dropout.value_or(0.0);
  // One generator draws the weights and then the dropout, as in a PyTorch program.
  const std::int64_t seed = arguments.seed.value_or(0);
  TorchGenerator generator(static_cast<std::uint64_t>(seed));
  if (arguments.params) {
    request.module = load_module(arguments);
    request.module_origin = fmt::format("from {}", visible(*arguments.params));
  } else if (arguments.d_out) {
    request.module = draw_module(arguments, request, generator);
    request.module_origin = fmt::format("as PyTorch draws it after torch.manual_seed({})", seed);
  }
  request.dropout_generator = generator;
  const std::int64_t head_dim =
      request.module ? request.module->config().head_dim : request.queries.vectors.shape(1);
  request.scale = parse_scale(arguments.scale, head_dim);
  return request;
}

ExitCode run_explain(const ExplainArguments& arguments) {
  check_combinations(arguments);
  ExplainRequest request = make_request(arguments);
  std::optional<std::int64_t> query;
  if (arguments.query) query = find_query(*arguments.query, request.queries.names);
  const Explanation explanation = explain(std::move(request));

  const HeatmapOptions options{.query_tokens = explanation.request.queries.names,
                               .key_tokens = explanation.key_names};
  std::vector<RenderedPicture> pictures;
  if (arguments.heatmap.path)
    pictures.emplace_back(arguments.heatmap, heatmap_svg(explanation.all_weights(), options));
  if (arguments.lines.path)
    pictures.emplace_back(arguments.lines, attention_lines_svg(explanation.all_weights(), options));
  for (const RenderedPicture& picture : pictures) picture.write();

  if (arguments.json) {
    print_json(explanation_json(explanation, query));
  } else {
    fmt::print("{}", explanation_text(explanation, query, Terminal::of_standard_output()));
  }
  return kGood;
}

void add_module_options(Command command, ExplainArguments& arguments) {
  const Option params =
      command.add_option("--params", arguments.params, "Projections from a checkpoint of a module")
          .type_name("W.safetensors");
  add_integer(command, "--d-out", arguments.d_out, "Projections to N numbers as PyTorch initialises them", 1)
      .excludes(params);
  add_integer(command, "--seed", arguments.seed, "torch.manual_seed of --d-out and --dropout; without, 0", 0);
  add_integer(command, "--heads", arguments.heads, "Heads that the projections are split into", 1);
  add_number(command, "--dropout", arguments.dropout, "Drop weights with probability X, as PyTorch draws");
}

}  // namespace

void add_explain(Command app, Action& action) {
  const Command command =
      app.add_subcommand("explain", "Attention by hand on your own few vectors, step by step, with a heat map");
  const auto arguments = std::make_shared<ExplainArguments>();
  command.add_option("file", arguments->file, "Tokens and vectors: JSON, npy or CSV; - reads standard input")
      .type_name("FILE")
      .required();
  command.add_option("--keys", arguments->keys, "Attend from FILE's tokens to these").type_name("FILE");
  arguments->tokens.add_to(command, "--tokens", "FILE's rows");
  arguments->key_tokens.add_to(command, "--key-tokens", "the rows of --keys");
  command.add_option("--query", arguments->query, "Follow one query only: a token, or its position from 0")
      .type_name("TOKEN|N");
  command.add_option("--normalize", arguments->normalize, "How scores become weights")
      .one_of({"softmax", "sum"})
      .capture_default_str();
  command
      .add_option("--scale", arguments->scale,
                  "Factor of the scores; auto: 1/sqrt(head_dim). Without: none, or auto with projections")
      .type_name("none|auto|X");
  command.add_flag(
      "--causal", arguments->causal,
      "Hide the keys after the query's position; --causal=top-left or --causal=bottom-right says where "
      "the queries stand where there are fewer or more keys");
  add_module_options(command, *arguments);
  command.add_option("-o,--output", arguments->heatmap.path, "Write the heat map")
      .type_name("OUT.svg|OUT.png")
      .deprecated("--heatmap");
  command.add_option("--lines", arguments->lines.path, "Write the tokens joined by lines")
      .type_name("OUT.svg|OUT.png");
  command.add_flag("--json", arguments->json, "Print JSON");
  command.footer(
      "explain shows every step for your own vectors; tour for the published ones. inspect gives statistics of q "
      "and\n"
      "k of any length, look shows a trained model.\n\n"
      "Without --params and --d-out queries, keys and values are the vectors themselves.\n\n"
      "Examples:\n"
      "  saccade explain tokens.json --query journey\n"
      "  saccade explain tokens.json --d-out 2 --seed 123 --heads 2 --causal -o weights.png\n"
      "  saccade explain vectors.csv --params W.safetensors --json\n"
      "  saccade explain english.json --keys french.json --scale auto --lines alignment.svg");
  command.callback([=, &action] { action = [=] { return run_explain(*arguments); }; });
}

}  // namespace saccade::cli
