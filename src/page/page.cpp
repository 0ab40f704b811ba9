#include "saccade/page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "page/assets.h"
#include "page/encode.h"
#include "saccade/head_scores.h"

namespace saccade {
namespace {

using namespace page;
using Json = nlohmann::ordered_json;

constexpr std::string_view kPage = "AttentionPage";
constexpr std::int64_t kThumbnail = 32;

HeadStatistics statistics_of(const TensorView& weights, const std::vector<std::int64_t>& ids) {
  const std::int64_t n = weights.shape[0];
  const TensorView as_batch(weights.data, weights.dtype, Shape{1, 1, n, n}, Shape{0, 0, weights.strides[0], 1});
  HeadStatistics result{.previous = previous_token_scores(as_batch).at<double>(0),
                        .induction = induction_scores(as_batch, TensorView(ids.data(), {1, n})).at<double>(0)};
  for (std::int64_t i = 0; i < n; ++i) {
    const float* const row = weights.as<float>() + i * weights.strides[0];
    if (i > 0) result.first += row[0] / static_cast<double>(n - 1);
    result.self += row[i] / static_cast<double>(n);
    double entropy = 0.0, distance = 0.0;
    for (std::int64_t j = 0; j < n; ++j) {
      if (row[j] > 0) entropy -= row[j] * std::log(static_cast<double>(row[j]));
      distance += row[j] * static_cast<double>(std::abs(i - j));
    }
    result.entropy += entropy / static_cast<double>(n), result.distance += distance / static_cast<double>(n);
  }
  return result;
}

/// The largest weight of each cell of a coarse map.
std::vector<std::uint8_t> thumbnail_of(const TensorView& weights) {
  const std::int64_t n = weights.shape[0], side = std::min(n, kThumbnail);
  std::vector<float> cells(static_cast<std::size_t>(side * side));
  for (std::int64_t i = 0; i < n; ++i) {
    const float* const row = weights.as<float>() + i * weights.strides[0];
    float* const to = cells.data() + i * side / n * side;
    for (std::int64_t j = 0; j < n; ++j) to[j * side / n] = std::max(to[j * side / n], row[j]);
  }
  std::vector<std::uint8_t> result(cells.size());
  std::ranges::transform(cells, result.begin(), code_of);
  return result;
}

/// The codes of the weights, row after row; of a causal head those up to the diagonal.
std::string coded(const TensorView& weights, bool is_causal) {
  const std::int64_t n = weights.shape[0];
  std::vector<std::uint8_t> codes;
  codes.reserve(static_cast<std::size_t>(is_causal ? n * (n + 1) / 2 : n * n));
  for (std::int64_t i = 0; i < n; ++i) {
    const float* const row = weights.as<float>() + i * weights.strides[0];
    for (std::int64_t j = 0; j < (is_causal ? i + 1 : n); ++j) codes.push_back(code_of(row[j]));
  }
  return deflated(codes);
}

/// How much a head tells: one that copies a pattern, or that picks a few keys other than the first.
double interest_of(const HeadStatistics& s, std::int64_t tokens) {
  const double most = std::log(static_cast<double>(std::max<std::int64_t>(tokens, 2)));
  const double sharp = (1.0 - std::min(1.0, s.entropy / most)) * (1.0 - std::min(1.0, s.first));
  const auto or_none = [](double score) { return std::isnan(score) ? 0.0 : score; };
  return std::max({or_none(s.previous), or_none(s.induction), sharp});
}

Json number(double value) { return std::isfinite(value) ? Json(std::round(value * 1e5) / 1e5) : Json(nullptr); }

/// Text within HTML.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

/// Data that a script of the page unpacks.
std::string data_element(const std::string& id, const std::string& compressed) {
  return "<script type=\"text/plain\" id=\"" + id + "\">" + base64(compressed) + "</script>\n";
}

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

struct AttentionPage::State {
  /// A head as the page keeps it.
  struct StoredHead {
    HeadStatistics statistics;
    std::vector<std::uint8_t> thumbnail;
    std::string weights;  // deflated codes
  };

  PageOptions options;
  std::vector<std::optional<StoredHead>> heads;

  /// Heads whose weights fit, the most telling ones first.
  std::vector<std::size_t> kept(std::size_t room) const {
    std::vector<std::size_t> order(heads.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) {
      return interest_of(heads[i]->statistics, std::ssize(options.tokens));
    });
    std::vector<std::size_t> result;
    for (const std::size_t i : order) {
      const std::size_t size = (heads[i]->weights.size() + 2) / 3 * 4 + 64;
      if (size > room) break;
      room -= size;
      result.push_back(i);
    }
    return result;
  }
  Json index(const std::vector<std::size_t>& kept) const;
};

AttentionPage::~AttentionPage() = default;
AttentionPage::AttentionPage(AttentionPage&&) noexcept = default;
AttentionPage& AttentionPage::operator=(AttentionPage&&) noexcept = default;

AttentionPage::AttentionPage(const PageOptions& options) : state_(std::make_unique<State>()) {
  const std::size_t tokens = options.tokens.size();
  if (tokens == 0) refuse(kPage, "tokens must not be empty");
  if (options.num_layers < 1 || options.num_heads < 1)
    refuse(kPage, "num_layers and num_heads must be at least 1, but they are ", options.num_layers, " and ",
           options.num_heads);
  const auto check_length = [&](const char* name, std::size_t length) {
    if (length != 0 && length != tokens)
      refuse(kPage, name, " must be as many as tokens, ", tokens, ", but there are ", length);
  };
  check_length("gaps", options.gaps.size());
  check_length("ids", options.ids.size());
  check_length("words", options.words.size());
  check_length("special", options.special.size());
  state_->options = options;
  PageOptions& own = state_->options;
  if (own.num_kv_heads == 0) own.num_kv_heads = own.num_heads;
  if (own.ids.empty()) {
    std::map<std::string, std::int64_t> ids;
    for (const std::string& token : own.tokens)
      own.ids.push_back(ids.emplace(token, std::ssize(ids)).first->second);
  }
  state_->heads.resize(static_cast<std::size_t>(own.num_layers * own.num_heads));
}

HeadStatistics AttentionPage::add(std::int64_t layer, std::int64_t head, const TensorView& weights) {
  const PageOptions& options = state_->options;
  const std::int64_t n = std::ssize(options.tokens);
  check_dtype(kPage, "weights", weights, DType::f32);
  check_shape(kPage, "weights", weights, {n, n});
  check_memory(kPage, "weights", weights);
  if (layer < 0 || layer >= options.num_layers || head < 0 || head >= options.num_heads)
    refuse(kPage, "layer and head must be below ", options.num_layers, " and ", options.num_heads,
           ", but they are ", layer, " and ", head);
  std::optional<State::StoredHead>& stored =
      state_->heads[static_cast<std::size_t>(layer * options.num_heads + head)];
  if (stored) refuse(kPage, "layer ", layer, ", head ", head, " was added before");
  stored = {statistics_of(weights, options.ids), thumbnail_of(weights), coded(weights, options.is_causal)};
  return stored->statistics;
}

Json AttentionPage::State::index(const std::vector<std::size_t>& kept) const {
  Json list = Json::array();
  for (const std::optional<StoredHead>& head : heads) {
    const HeadStatistics& s = head->statistics;
    list.push_back({number(s.previous), number(s.first), number(s.self), number(s.induction), number(s.entropy),
                    number(s.distance)});
  }
  Json special = Json::array();
  for (const bool is_special : options.special) special.push_back(is_special ? 1 : 0);
  return {{"title", options.title},
          {"tokens", options.tokens},
          {"gaps", options.gaps},
          {"words", options.words},
          {"special", special},
          {"layers", options.num_layers},
          {"heads", options.num_heads},
          {"kvHeads", options.num_kv_heads},
          {"causal", options.is_causal},
          {"thumbnail", std::min<std::int64_t>(std::ssize(options.tokens), kThumbnail)},
          {"kept", kept},
          {"statistics", list}};
}

std::string AttentionPage::html() const {
  const State& state = *state_;
  for (std::size_t i = 0; i < state.heads.size(); ++i)
    if (!state.heads[i])
      refuse(kPage, "layer ", static_cast<std::int64_t>(i) / state.options.num_heads, ", head ",
             static_cast<std::int64_t>(i) % state.options.num_heads, " is missing");
  std::vector<std::uint8_t> thumbnails;
  for (const std::optional<State::StoredHead>& head : state.heads)
    thumbnails.insert(thumbnails.end(), head->thumbnail.begin(), head->thumbnail.end());
  const std::string thumbnails_element = data_element("thumbnails", deflated(thumbnails));
  std::string all_tokens;
  for (const std::string& token : state.options.tokens) all_tokens += token;
  const std::size_t fixed = kPageStyle.size() + kPageScript.size() + thumbnails_element.size() +
                            4 * all_tokens.size() + 80 * state.heads.size() + 4096;
  const std::vector<std::size_t> kept =
      state.kept(state.options.max_size - std::min(fixed, state.options.max_size));
  const std::string index = state.index(kept).dump(-1, ' ', false, Json::error_handler_t::replace);

  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
      "style-src "
      "'unsafe-inline'; img-src data: blob:\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += "<title>" + escaped(state.options.title) + "</title>\n<style>\n";
  html += kPageStyle;
  html += "</style>\n</head>\n<body>\n<header><h1>" + escaped(state.options.title) + "</h1><p id=\"subtitle\">" +
          escaped(state.options.subtitle) + "</p></header>\n";
  html += kPageBody;
  html += data_element("index", deflated(bytes_of(index))) + thumbnails_element;
  html += "<script>\n";
  html += kPageScript;
  html += "</script>\n";
  for (const std::size_t i : kept) html += data_element("head-" + std::to_string(i), state.heads[i]->weights);
  html += "</body>\n</html>\n";
  return html;
}

}  // namespace saccade
