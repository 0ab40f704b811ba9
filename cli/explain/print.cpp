// An explanation as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/output/table.h"
#include "explanation.h"

namespace saccade::cli {
namespace {

constexpr int kDecimals = 4;

std::string bar(double share, int longest) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * longest * 8));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

std::string fixed(double value) { return fmt::format("{:.{}f}", value, kDecimals); }

// "0.55×0.43 + 0.87×0.15", or the number of products.
std::string written_out(const TensorView& a, const TensorView& b) {
  constexpr std::int64_t kMaxTerms = 4;
  const std::int64_t terms = a.shape[0];
  if (terms > kMaxTerms) return fmt::format("({} products)", terms);
  std::string text;
  for (std::int64_t i = 0; i < terms; ++i) {
    const std::array index{i};
    text += fmt::format("{}{:.4g}×{:.4g}", i == 0 ? "" : " + ", value_at(a, index), value_at(b, index));
  }
  return text;
}

std::string row_text(const TensorView& row) {
  std::string text;
  for (const std::int64_t i : shown_positions(row.shape[0], 12)) {
    text += text.empty() ? "[" : ", ";
    text += i < 0 ? "…" : fixed(value_at(row, std::array{i}));
  }
  return text + "]";
}

class ExplanationPrinter {
 public:
  ExplanationPrinter(const Explanation& explanation, std::optional<std::int64_t> query, const Terminal& terminal)
      : explanation_(explanation), request_(explanation.request), query_(query), terminal_(terminal) {}

  std::string print() {
    print_vectors();
    for (std::size_t head = 0; head < explanation_.heads.size(); ++head) {
      if (explanation_.heads.size() > 1) heading(fmt::format("Head {}", head));
      if (request_.module) print_projections(explanation_.heads[head]);
      if (query_) {
        print_query(explanation_.heads[head]);
      } else {
        print_all_queries(explanation_.heads[head]);
      }
    }
    if (explanation_.output.size() > 0) print_output();
    print_picture();
    return std::move(text_);
  }

 private:
  const std::vector<std::string>& query_names() const { return request_.queries.names; }

  void heading(std::string_view title, std::string_view formula = "") {
    text_ += terminal_.heading(title);
    if (!formula.empty()) text_ += fmt::format("   {}", terminal_.bold(formula));
    text_ += "\n";
  }

  void matrix(const TensorView& numbers, const std::vector<std::string>& rows,
              const std::vector<std::string>& columns = {}) {
    text_ += matrix_table(numbers, rows, columns, kDecimals, terminal_) + "\n";
  }

  void print_vectors() {
    const Tensor& x = request_.queries.vectors;
    heading(fmt::format("{} tokens, each a vector of {} numbers", x.shape(0), x.shape(1)));
    matrix(x, query_names());
    if (request_.keys) {
      const Tensor& keys = request_.keys->vectors;
      heading(fmt::format("{} keys to attend to, each a vector of {} numbers", keys.shape(0), keys.shape(1)));
      matrix(keys, request_.keys->names);
    }
    if (!request_.module) return;
    const ModuleConfig& config = request_.module->config();
    heading(fmt::format("{} {}", request_.module->name(), request_.module_origin));
    text_ += fmt::format("  {} -> {} numbers, {}{}\n\n", config.d_in, config.d_out,
                         config.num_heads == 1
                             ? "1 head"
                             : fmt::format("{} heads with head_dim {}", config.num_heads, config.head_dim),
                         request_.causal ? ", causal" : "");
  }

  void print_projections(const HeadSteps& head) {
    heading("Queries", "q = X W_query");
    matrix(head.q, query_names());
    heading("Keys", "k = X W_key");
    matrix(head.k, explanation_.key_names);
    heading("Values", "v = X W_value");
    matrix(head.v, explanation_.key_names);
  }

  bool logits_differ() const { return explanation_.scale != 1.0 || request_.causal; }

  std::string logits_title() const {
    std::string title;
    if (explanation_.scale != 1.0) title = fmt::format("Scores times {:.4g}", explanation_.scale);
    if (request_.causal) title += title.empty() ? "Scores without the keys to come" : ", without the keys to come";
    return title;
  }

  std::string_view weights_formula() const {
    return request_.normalization == Normalization::softmax ? "weight = exp(score) / Σ exp(score)"
                                                            : "weight = score / Σ score";
  }

  void print_all_queries(const HeadSteps& head) {
    heading("Scores", "score = q · k");
    matrix(head.scores, query_names(), explanation_.key_names);
    if (logits_differ()) {
      heading(logits_title());
      matrix(head.logits, query_names(), explanation_.key_names);
    }
    heading("Weights", weights_formula());
    matrix(head.weights, query_names(), explanation_.key_names);
    if (request_.dropout > 0.0) {
      heading(fmt::format("Weights after dropout of {}", request_.dropout));
      matrix(head.dropped, query_names(), explanation_.key_names);
    }
    heading("Context vectors", "context = Σ weight · v");
    matrix(head.contexts, query_names());
  }

  // The keys to show, in ascending order: all, or those with the largest weights when there are very many.
  std::vector<std::int64_t> keys_to_show(const TensorView& weights) const {
    constexpr std::size_t kMost = 40;
    constexpr std::size_t kLargest = 20;
    std::vector<std::int64_t> keys(explanation_.key_names.size());
    std::iota(keys.begin(), keys.end(), 0);
    if (keys.size() <= kMost) return keys;
    const auto weight = [&](std::int64_t key) { return value_at(weights, std::array{key}); };
    std::ranges::stable_sort(keys, std::ranges::greater{}, weight);
    keys.resize(kLargest);
    std::ranges::sort(keys);
    return keys;
  }

  void print_query(const HeadSteps& head) {
    const TensorView q = head.q.view().select(0, *query_);
    const std::string name = visible(query_names()[static_cast<std::size_t>(*query_)]);
    heading(fmt::format("Query {} {}", *query_, name), fmt::format("q = {}", row_text(q)));
    const TensorView weights = head.dropped.view().select(0, *query_);
    const std::vector<std::int64_t> keys = keys_to_show(weights);
    if (keys.size() < explanation_.key_names.size()) {
      text_ += fmt::format("  the {} largest weights of {}\n", keys.size(), explanation_.key_names.size());
    }
    constexpr int kLongestBar = 20;
    const bool has_room = query_table(head, keys, true, 0).width() <= terminal_.width;
    const int room = terminal_.width - query_table(head, keys, has_room, 0).width() - 1;
    text_ += query_table(head, keys, has_room, std::clamp(room, 0, kLongestBar)).to_string(terminal_);
    text_ += fmt::format("  {} = {}\n\n", terminal_.bold("context = Σ weight · v"),
                         row_text(head.contexts.view().select(0, *query_)));
  }

  // A row for each key: the products written out where there is room, and a bar proportional to its weight.
  Table query_table(const HeadSteps& head, const std::vector<std::int64_t>& keys, bool with_products,
                    int longest_bar) const {
    Table table(with_products ? 2 : 1);
    std::vector<std::string> titles{"key"};
    if (with_products) titles.emplace_back("q · k");
    titles.emplace_back("score");
    if (logits_differ()) titles.emplace_back(explanation_.scale != 1.0 ? "scaled" : "visible");
    titles.emplace_back("weight");
    if (request_.dropout > 0.0) titles.emplace_back("dropped");
    table.add_row(std::move(titles), Table::Tone::faint);

    const auto weight = [&](std::int64_t key) { return head.dropped.at<double>(*query_, key); };
    double largest = 0.0;
    for (const std::int64_t key : keys) largest = std::max(largest, weight(key));
    for (const std::int64_t key : keys) {
      const double share = largest > 0.0 ? weight(key) / largest : 0.0;
      table.add_row(key_cells(head, key, with_products), Table::Tone::normal,
                    terminal_.accent(bar(share, longest_bar)));
    }
    return table;
  }

  std::vector<std::string> key_cells(const HeadSteps& head, std::int64_t key, bool with_products) const {
    const auto cell = [&](const Tensor& numbers) { return fixed(numbers.at<double>(*query_, key)); };
    std::vector<std::string> cells{shortened(explanation_.key_names[static_cast<std::size_t>(key)], 16)};
    if (with_products)
      cells.push_back(written_out(head.q.view().select(0, *query_), head.k.view().select(0, key)));
    cells.push_back(cell(head.scores));
    if (logits_differ()) cells.push_back(cell(head.logits));
    cells.push_back(cell(head.weights));
    if (request_.dropout > 0.0) cells.push_back(cell(head.dropped));
    return cells;
  }

  void print_output() {
    const bool projected = request_.module->state_dict().contains("out_proj.weight");
    heading("Output", projected ? "contexts side by side, through out_proj" : "contexts side by side");
    const std::int64_t begin = query_.value_or(0);
    const std::int64_t end = query_ ? begin + 1 : explanation_.output.shape(0);
    matrix(explanation_.output.view().slice(0, begin, end),
           {query_names().begin() + begin, query_names().begin() + end});
  }

  void print_picture() {
    text_ += heatmap_terminal(explanation_.all_weights(),
                              {.query_tokens = query_names(), .key_tokens = explanation_.key_names},
                              terminal_.color, terminal_.width);
  }

  const Explanation& explanation_;
  const ExplainRequest& request_;
  std::optional<std::int64_t> query_;
  const Terminal& terminal_;
  std::string text_;
};

}  // namespace

std::string explanation_text(const Explanation& explanation, std::optional<std::int64_t> query,
                             const Terminal& terminal) {
  return ExplanationPrinter(explanation, query, terminal).print();
}

Json explanation_json(const Explanation& explanation, std::optional<std::int64_t> query) {
  const ExplainRequest& request = explanation.request;
  const auto rows = [&](const Tensor& matrix) {
    return to_json(query ? matrix.view().slice(0, *query, *query + 1) : matrix.view());
  };
  Json heads = Json::array();
  for (const HeadSteps& head : explanation.heads) {
    heads.push_back({{"q", rows(head.q)},
                     {"k", to_json(head.k)},
                     {"v", to_json(head.v)},
                     {"scores", rows(head.scores)},
                     {"logits", rows(head.logits)},
                     {"weights", rows(head.weights)},
                     {"weights_after_dropout", rows(head.dropped)},
                     {"contexts", rows(head.contexts)}});
  }
  return {{"tokens", request.queries.names},
          {"key_tokens", explanation.key_names},
          {"query", query ? Json(*query) : Json(nullptr)},
          {"module", request.module ? Json(request.module->name()) : Json(nullptr)},
          {"scale", explanation.scale},
          {"normalize", request.normalization == Normalization::softmax ? "softmax" : "sum"},
          {"causal", request.causal},
          {"dropout", request.dropout},
          {"heads", heads},
          {"output", explanation.output.size() > 0 ? rows(explanation.output) : Json(nullptr)}};
}

}  // namespace saccade::cli
