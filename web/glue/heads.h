// What JavaScript sees and changes of the heads of a model.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "glue.h"
#include "saccade/layer_attention.h"

namespace saccade::web {

/// Edits of a call, and the weights of its layers if they are wanted.
class HeadCall {
 public:
  /// places: i64 [edits, 3], of each the layer, the head, and 0 for zeros, 1 for the mean, 2 for weights; NULL:
  /// none. weights: a tensor for each edit, empty unless it has weights.
  HeadCall(const saccade_tensor* places, const saccade_tensor* weights, bool wants_weights);

  /// Changes a layer's o, and keeps its weights: [heads, tokens, keys], those of the edits among them.
  void operator()(const LayerAttention& layer);

  bool has_edits() const { return !edits_.empty(); }
  bool is_needed() const { return wants_weights_ || has_edits(); }
  /// The kept weights, by name, behind a first result. Throws std::invalid_argument for edits of layers that there
  /// are not.
  std::vector<std::pair<std::string, Tensor>> results(const char* name, Tensor first);

 private:
  std::vector<HeadEdit> edits_;
  bool wants_weights_;
  std::int64_t num_layers_ = 0;  // that the call has had
  std::vector<std::pair<std::string, Tensor>> weights_;
};

}  // namespace saccade::web
