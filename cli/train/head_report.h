// What the heads of a model attend to on some tokens, as numbers and as a picture.
#pragma once

#include <saccade/gpt_model.h>
#include <saccade/heatmap.h>
#include <saccade/tensor.h>

#include <string>
#include <vector>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"

namespace saccade::cli {

/// The weights of every layer and head on one batch of tokens, and their scores.
class HeadReport {
 public:
  /// tokens: i64 [batch, seqlen].
  HeadReport(GPTModel& model, const TensorView& tokens);

  /// One row per head with its scores (head_scores.h), the best ones marked.
  std::string table(const Terminal& terminal) const;
  /// [{"layer": 0, "head": 0, "previous_token": 0.98, "induction": 0.01}, ...]
  Json to_json() const;

  /// The heads of all layers on the first entry of the batch, [layers * heads, seqlen, seqlen], and the labels of
  /// their picture.
  Tensor weights() const;
  HeatmapOptions picture_options(std::vector<std::string> labels, std::string title) const;

 private:
  std::vector<Tensor> weights_;                     // of each layer: [batch, heads, seqlen, seqlen]
  std::vector<Tensor> induction_, previous_token_;  // of each layer: [heads]
};

}  // namespace saccade::cli
