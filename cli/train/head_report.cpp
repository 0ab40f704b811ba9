#include "head_report.h"

#include <saccade/head_scores.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/output/table.h"

namespace saccade::cli {
namespace {

std::string score(double value) { return std::isnan(value) ? "-" : fmt::format("{:.3f}", value); }

}  // namespace

HeadReport::HeadReport(GPTModel& model, const TensorView& tokens) : weights_(model.attention_weights(tokens)) {
  for (const Tensor& weights : weights_) {
    induction_.push_back(induction_scores(weights, tokens));
    previous_token_.push_back(previous_token_scores(weights));
  }
}

std::string HeadReport::table(const Terminal& terminal) const {
  constexpr double kClear = 0.8;  // the score of a head that does little else
  Table table(2);
  table.add_row({"layer", "head", "previous token", "induction"}, Table::Tone::faint);
  for (std::size_t layer = 0; layer < weights_.size(); ++layer) {
    for (std::int64_t head = 0; head < induction_[layer].size(); ++head) {
      const double induction = induction_[layer].at<double>(head),
                   previous = previous_token_[layer].at<double>(head);
      const std::string mark = induction >= kClear  ? "  an induction head"
                               : previous >= kClear ? "  looks at the previous token"
                                                    : "";
      table.add_row({std::to_string(layer), std::to_string(head), score(previous), score(induction)},
                    Table::Tone::normal, mark);
    }
  }
  return table.to_string(terminal);
}

Json HeadReport::to_json() const {
  Json heads = Json::array();
  for (std::size_t layer = 0; layer < weights_.size(); ++layer)
    for (std::int64_t head = 0; head < induction_[layer].size(); ++head)
      heads.push_back({{"layer", layer},
                       {"head", head},
                       {"previous_token", json_number(previous_token_[layer].at<double>(head))},
                       {"induction", json_number(induction_[layer].at<double>(head))}});
  return heads;
}

Tensor HeadReport::weights() const {
  const std::int64_t num_heads = weights_.front().shape(1), seqlen = weights_.front().shape(2);
  Tensor all(DType::f32, {std::ssize(weights_) * num_heads, seqlen, seqlen});
  for (std::int64_t layer = 0; layer < std::ssize(weights_); ++layer)
    copy(weights_[static_cast<std::size_t>(layer)].view().select(0, 0),
         all.mutable_view().slice(0, layer * num_heads, (layer + 1) * num_heads));
  return all;
}

HeatmapOptions HeadReport::picture_options(std::vector<std::string> labels, std::string title) const {
  HeatmapOptions options{.query_tokens = std::move(labels), .title = std::move(title)};
  for (std::size_t layer = 0; layer < weights_.size(); ++layer)
    for (std::int64_t head = 0; head < weights_[layer].shape(1); ++head)
      options.panel_titles.push_back(fmt::format("layer {}, head {}", layer, head));
  options.show_values = false;
  return options;
}

}  // namespace saccade::cli
