#include "saccade/sentence_embeddings.h"

#include <algorithm>
#include <cmath>

#include "model/checkpoint/checkpoint.h"

namespace saccade {
namespace {

using model::Config;
using std::filesystem::path;

/// Tokens computed together, so that memory is bounded and the states of a layer stay in a cache.
constexpr std::int64_t kTokensTogether = 1024;

SentencePooling pooling_of(const path& file) {
  const Config config(model::json_of(file), file.string());
  if (config.has("pooling_mode")) {
    const std::string mode = config.text("pooling_mode");
    if (mode == "mean") return SentencePooling::mean;
    if (mode == "max") return SentencePooling::max;
    if (mode == "cls") return SentencePooling::cls;
    if (mode == "lasttoken") return SentencePooling::last;
    config.refuse("pooling_mode", "is '", mode, "', but only mean, max, cls and lasttoken are known");
  }
  for (const char* const unknown : {"pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"})
    config.require_off(unknown);
  std::vector<SentencePooling> poolings;
  if (config.flag_or("pooling_mode_mean_tokens", false)) poolings.push_back(SentencePooling::mean);
  if (config.flag_or("pooling_mode_max_tokens", false)) poolings.push_back(SentencePooling::max);
  if (config.flag_or("pooling_mode_cls_token", false)) poolings.push_back(SentencePooling::cls);
  if (config.flag_or("pooling_mode_lasttoken", false)) poolings.push_back(SentencePooling::last);
  if (poolings.size() != 1)
    config.refuse("pooling_mode_mean_tokens", "and the other modes: exactly one must be true, but ",
                  poolings.size(), " are");
  return poolings.front();
}

/// Pools one sentence's states [tokens, d_model] into one row.
void pool(const TensorView& states, SentencePooling pooling, float* row) {
  const std::int64_t tokens = states.shape[0], dim = states.shape[1];
  const float* const first = states.as<float>();
  const float* const from = pooling == SentencePooling::last ? first + (tokens - 1) * dim : first;
  std::copy(from, from + dim, row);
  if (pooling == SentencePooling::cls || pooling == SentencePooling::last) return;
  for (std::int64_t i = 1; i < tokens; ++i)
    for (std::int64_t d = 0; d < dim; ++d)
      row[d] =
          pooling == SentencePooling::max ? std::max(row[d], first[i * dim + d]) : row[d] + first[i * dim + d];
  if (pooling == SentencePooling::mean)
    for (std::int64_t d = 0; d < dim; ++d) row[d] /= static_cast<float>(tokens);
}

void normalize(float* row, std::int64_t dim) {
  double squares = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) squares += static_cast<double>(row[d]) * row[d];
  const auto factor = static_cast<float>(1.0 / std::max(std::sqrt(squares), 1e-12));
  for (std::int64_t d = 0; d < dim; ++d) row[d] *= factor;
}

}  // namespace

SentenceEmbeddingOptions load_sentence_embedding_options(const path& folder) {
  SentenceEmbeddingOptions options;
  if (const path file = folder / "sentence_bert_config.json"; model::is_there(file))
    options.max_length = Config(model::json_of(file), file.string()).size_or("max_seq_length", 0);
  const path file = folder / "modules.json";
  if (!model::is_there(file)) return options;
  const nlohmann::json modules = model::json_of(file);
  if (!modules.is_array()) model::refuse_file("[Model] " + file.string() + ": must be an array");
  for (const nlohmann::json& module : modules) {
    const Config config(module, file.string());
    const std::string type = config.text("type"), name = type.substr(type.rfind('.') + 1);
    if (name == "Pooling") {
      const path part = config.text("path");
      if (part.filename() != part || part == "..")
        config.refuse("path", "must be a name in the folder, but it is '", part.string(), "'");
      options.pooling = pooling_of(folder / part / "config.json");
    } else if (name == "Normalize") {
      options.normalize = true;
    } else if (name != "Transformer") {
      config.refuse("type", "is '", type, "', but only Transformer, Pooling and Normalize are known");
    }
  }
  return options;
}

Tensor sentence_embeddings(const Model& model, std::span<const std::vector<std::int64_t>> sentences,
                           const SentenceEmbeddingOptions& options, int num_threads) {
  const std::int64_t dim = model.sizes().d_model;
  Tensor result(DType::f32, {std::ssize(sentences), dim});
  std::size_t begin = 0;
  while (begin < sentences.size()) {
    ModelInput input;
    std::size_t end = begin;
    do {
      const std::vector<std::int64_t>& tokens = sentences[end++];
      input.tokens.insert(input.tokens.end(), tokens.begin(), tokens.end());
      input.lengths.push_back(std::ssize(tokens));
    } while (end < sentences.size() && std::ssize(input.tokens) + std::ssize(sentences[end]) <= kTokensTogether);
    const Tensor states = model.hidden_states(input, {.num_threads = num_threads});
    std::int64_t at = 0;
    for (; begin < end; ++begin) {
      float* const row = result.values<float>().data() + static_cast<std::int64_t>(begin) * dim;
      const std::int64_t next = at + std::ssize(sentences[begin]);
      pool(states.view().slice(0, at, next), options.pooling, row);
      if (options.normalize) normalize(row, dim);
      at = next;
    }
  }
  return result;
}

}  // namespace saccade
