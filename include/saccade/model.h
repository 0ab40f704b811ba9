// Models of Hugging Face folders: read from disk, run, and looked into.
//
//     const Model model = Model::load("all-MiniLM-L6-v2");
//     const Tensor states = model.hidden_states({.tokens = {101, 7592, 102}});      // [3, 384]
//
// Families: BERT, RoBERTa, DistilBERT, ALBERT; GPT-2, GPT-NeoX; Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3. Link
// saccade::model for this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "saccade/attention.h"
#include "saccade/kv_cache.h"
#include "saccade/tensor.h"

namespace saccade {

/// The sizes of a model.
struct ModelSizes {
  std::string family{};         ///< model_type of config.json: "bert", "llama"
  std::int64_t vocab_size = 0;  ///< rows of the token embedding
  std::int64_t max_length = 0;  ///< the longest sequence, where positions have a table; 0: no limit
  std::int64_t d_model = 0;     ///< the width of a hidden state
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;  ///< query heads of each layer
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  bool is_causal = false;  ///< a decoder: each token sees those before it
  bool has_logits = false;
  std::vector<std::int64_t> end_tokens{};  ///< those that end a text: eos_token_id of config.json
};

/// Tokens of one or more sequences, one sequence after the other.
struct ModelInput {
  std::vector<std::int64_t> tokens{};
  /// The tokens of each sequence, at least 1 each; empty: all tokens are one sequence.
  std::vector<std::int64_t> lengths{};
  /// The type of each token, where a model has types (the second text of a pair: 1); empty: 0.
  std::vector<std::int64_t> types{};
};

/// The attention of one layer in a forward pass, between the sum over the values and the output projection.
struct LayerAttention {
  std::int64_t layer = 0;
  /// [tokens, heads, head_dim], as the layer attends them: normalised and rotated where the family does.
  TensorView q{}, k{}, v{};
  /// With these, attention(q, k, v, options) gives o. They can be completed, for weights for example.
  AttentionOptions options{};
  /// [tokens, num_heads, head_dim]. Changes have an effect: a head whose o is 0 is switched off.
  MutableTensorView o{};
};

/// The keys and values of a decoder's earlier tokens: of one sequence, for all layers.
class ModelCache {
 public:
  /// The number of tokens that the model has seen.
  std::int64_t length() const { return length_; }
  /// Forgets the tokens from `length` on. Throws std::invalid_argument as KvCache::truncate does.
  void truncate(std::int64_t length);
  /// Bytes allocated for keys and values.
  std::size_t bytes() const;

 private:
  friend class Model;
  std::vector<KvCache> layers_;
  std::int64_t length_ = 0;
};

/// How a model runs; fill it with designated initialisers.
struct ModelOptions {
  /// Earlier tokens of the only sequence; the new ones are added. Decoders only.
  ModelCache* cache = nullptr;
  /// Called for each layer. Not together with a cache.
  std::function<void(const LayerAttention&)> on_attention{};
  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// A model with its weights. Activations are f32; weights keep the type that they have on disk. Several threads
/// may call its functions at once.
class Model {
 public:
  /// From a folder with config.json and model.safetensors, or model.safetensors.index.json and the files that it
  /// names. These are mapped; projections are copied in the order in which products read them. Throws
  /// std::runtime_error, one line, for a family, an architecture or a switch of config.json that is not known, and
  /// for a tensor that is missing or has another shape or type than config.json says.
  static Model load(const std::filesystem::path& folder);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelSizes& sizes() const;

  /// The state of each token after the last layer and its norm: f32 [tokens, d_model]. A token's bits do not
  /// depend on other sequences. Throws std::invalid_argument for tokens outside the vocabulary, types outside
  /// their table, lengths that do not fit, and sequences that are too long.
  Tensor hidden_states(const ModelInput& input, const ModelOptions& options = {}) const;

  /// The logits of hidden states [..., d_model]: f32 [..., vocab_size], of the next token for decoders, of the
  /// token itself for encoders. Throws std::invalid_argument if the model has none.
  Tensor logits(const TensorView& hidden_states, int num_threads = 0) const;

  /// An empty cache for hidden_states(). dtype: of keys and values; capacity: tokens to allocate memory for at
  /// once. Throws std::invalid_argument for encoders.
  ModelCache make_cache(DType dtype = DType::f32, std::int64_t capacity = 0) const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace saccade
