// Sentences as vectors: a model's hidden states, pooled over each sentence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "saccade/model.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How the hidden states of a sentence become one vector.
enum class SentencePooling : std::uint8_t {
  mean,  ///< their mean
  max,   ///< their maximum in each dimension
  cls,   ///< the first state
  last,  ///< the last state
};

struct SentenceEmbeddingOptions {
  SentencePooling pooling = SentencePooling::mean;  ///< of the hidden states
  bool normalize = false;                           ///< to length 1
  std::int64_t max_length = 0;  ///< the length in tokens to which texts should be truncated; 0: the model's limit
};

/// The options that a folder in the format of sentence-transformers specifies (modules.json,
/// 1_Pooling/config.json, sentence_bert_config.json); the defaults for other folders. Throws std::runtime_error
/// for unknown modules and poolings.
SentenceEmbeddingOptions load_sentence_embedding_options(const std::filesystem::path& folder);

/// The embeddings of sentences, f32 [sentences, d_model], from their tokens. Sentences longer than the model's
/// limit are refused, not truncated: max_length has no effect here. Computes a few thousand tokens at a time,
/// without padding; a sentence's bits do not depend on the others, or on num_threads (0: num_threads() of
/// runtime.h). Throws std::invalid_argument as Model::hidden_states does.
Tensor sentence_embeddings(const Model& model, std::span<const std::vector<std::int64_t>> sentences,
                           const SentenceEmbeddingOptions& options = {}, int num_threads = 0);

}  // namespace saccade
#pragma GCC visibility pop
