// Attention on a user's vectors, keeping every step for display.
#pragma once

#include <saccade/attention_modules.h>
#include <saccade/random.h>
#include <saccade/tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"

namespace saccade::cli {

enum class Normalization { softmax, sum };

/// Names and vectors: f32 [tokens, dim].
struct Tokens {
  std::vector<std::string> names;
  Tensor vectors;
};

/// What to explain, and how.
struct ExplainRequest {
  Tokens queries;
  std::optional<Tokens> keys;  ///< not given: the queries attend to themselves
  Normalization normalization = Normalization::softmax;
  std::optional<double> scale;  ///< not given: 1 without a module, 1 / sqrt(head_dim) with one
  bool causal = false;
  Causal alignment = Causal::top_left;  ///< of the queries and the keys, if causal
  double dropout = 0.0;
  std::shared_ptr<AttentionModule> module;  ///< null: queries, keys and values are the vectors themselves
  std::string module_origin;                ///< "from W.safetensors", "drawn by PyTorch's seed 123"
  TorchGenerator dropout_generator{0};
};

/// The steps of one head. All are f64 except q, k and v, which have the type of the projection.
struct HeadSteps {
  Tensor q, k, v;     ///< [queries, head_dim], [keys, head_dim], [keys, head_dim_v]
  Tensor scores{};    ///< [queries, keys]: q . k
  Tensor logits{};    ///< scaled, -inf where hidden
  Tensor weights{};   ///< each row adds up to 1
  Tensor dropped{};   ///< the weights after dropout; equal to `weights` without dropout
  Tensor contexts{};  ///< [queries, head_dim_v]
};

struct Explanation {
  ExplainRequest request;
  std::vector<std::string> key_names;  ///< of the columns; a module may append a key
  double scale = 1.0;
  std::vector<HeadSteps> heads;
  Tensor output;  ///< f32 [queries, d_out] of a module with an output projection; else empty

  const Tokens& keys() const { return request.keys ? *request.keys : request.queries; }
  /// The final weights of all heads: f64 [heads, queries, keys].
  Tensor all_weights() const;
};

/// Computes every step. Throws std::invalid_argument if the vectors are incompatible with each other or the
/// module, and if scores would be divided by a sum of 0.
Explanation explain(ExplainRequest request);

/// The steps as text; if `query` is given, those of one query with the arithmetic written out.
std::string explanation_text(const Explanation& explanation, std::optional<std::int64_t> query,
                             const Terminal& terminal);

/// The steps as JSON; if `query` is given, the rows of one query.
Json explanation_json(const Explanation& explanation, std::optional<std::int64_t> query);

}  // namespace saccade::cli
