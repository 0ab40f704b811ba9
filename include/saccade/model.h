// Models in Hugging Face folders: load, run and inspect them.
//
//     const Model model = Model::load("all-MiniLM-L6-v2");
//     const Tensor states = model.hidden_states({.tokens = {101, 7592, 102}});      // [3, 384]
//
// Families: BERT, RoBERTa, DistilBERT, ALBERT; GPT-2, GPT-NeoX; Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3; ViT;
// T5, Whisper. Link saccade::model for this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "saccade/attention.h"
#include "saccade/kv_cache.h"
#include "saccade/layer_attention.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The sizes of a model.
struct ModelSizes {
  std::string family{};                    ///< model_type of config.json: "bert", "llama"
  std::int64_t vocab_size = 0;             ///< rows of the token embedding; for images: classes
  std::int64_t max_length = 0;             ///< the longest sequence, for learned positions; 0: no limit
  std::int64_t d_model = 0;                ///< the width of a hidden state
  std::int64_t num_layers = 0;             ///< transformer blocks
  std::int64_t num_heads = 0;              ///< query heads of each layer
  std::int64_t num_kv_heads = 0;           ///< key and value heads of each layer, which query heads share
  std::int64_t head_dim = 0;               ///< numbers of a head
  bool is_causal = false;                  ///< a decoder: each token sees those before it
  bool has_logits = false;                 ///< whether logits() works
  std::vector<std::int64_t> end_tokens{};  ///< tokens that end a text: eos_token_id of config.json

  // An encoder-decoder's encoder; num_layers and the others above are its decoder's. 0: the model is not one.
  std::int64_t num_encoder_layers = 0, num_encoder_heads = 0;  ///< as num_layers and num_heads
  std::int64_t start_token = -1;  ///< the first token of its decoder; -1: not in config.json

  std::int64_t image_size = 0, patch_size = 0, num_channels = 0;  ///< pixels; 0: the model does not read images
  std::int64_t num_mel_bins = 0, max_frames = 0;                  ///< 0: the model does not read audio
};

/// Tokens of one or more sequences, one sequence after the other.
struct ModelInput {
  std::vector<std::int64_t> tokens{};  ///< their ids
  /// The tokens of each sequence, at least 1 each; empty: all tokens are one sequence.
  std::vector<std::int64_t> lengths{};
  /// The type of each token, where a model has types (the second text of a pair: 1); empty: 0.
  std::vector<std::int64_t> types{};
  /// The input of image and audio models instead of tokens, f32: pixels [images, num_channels, image_size,
  /// image_size] (image.h), or log-mel features [sequences, num_mel_bins, frames] (log_mel.h), with an even number
  /// of frames. An image has a state for the class token and for each patch, audio one for every two frames.
  TensorView features{};
  /// The result of encode(), for the decoder of an encoder-decoder: f32 [source tokens, d_model]. Not needed with
  /// a cache that has already seen it.
  TensorView encoder_states{};
  /// The number of source tokens of each sequence; empty: a single sequence has them all.
  std::vector<std::int64_t> encoder_lengths{};
};

/// Receives the attention of a layer and the gradient of a loss with respect to its o, f32 [tokens, num_heads,
/// head_dim]. In each head, the gradient with respect to the weight of key j for query i is the dot product of
/// dout's row i and v's row j.
using OnAttentionGradient = std::function<void(const LayerAttention&, const TensorView& dout)>;

/// The keys and values of a decoder's earlier tokens: one sequence, all layers. For an encoder-decoder also those
/// of the source.
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
  std::vector<Tensor> source_;  // keys and values of an encoder's states, of each layer
  std::int64_t length_ = 0;
};

/// How a model runs; fill it with designated initializers.
struct ModelOptions {
  /// Earlier tokens of the sequence, which must be the only one; the new ones are appended. Decoders only. A call
  /// that throws leaves it as it was.
  ModelCache* cache = nullptr;
  /// Called for each layer. Cannot be combined with a cache.
  OnAttention on_attention{};
  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// A model with its weights. Activations are f32; weights keep the type that they have on disk. Several threads
/// may call its functions at once.
class Model {
 public:
  /// From a folder with config.json and model.safetensors, or model.safetensors.index.json and the files that it
  /// names. The files are mapped into memory; projections are copied into packed form. Throws std::runtime_error,
  /// one line, for an unknown family, architecture or setting in config.json, and for a tensor that is missing or
  /// whose shape or type does not match config.json.
  static Model load(const std::filesystem::path& folder);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelSizes& sizes() const;

  /// The output of an encoder-decoder's encoder: f32 [source tokens, d_model]. Throws std::invalid_argument as
  /// hidden_states() does, and for other models.
  Tensor encode(const ModelInput& source, const ModelOptions& options = {}) const;

  /// The state of each token of an input after the last layer and its norm: f32 [tokens, d_model]; of an
  /// encoder-decoder, of the decoder. A token's bits do not depend on other sequences. Throws
  /// std::invalid_argument for tokens outside the vocabulary, types outside their table, lengths that do not fit,
  /// sequences that are too long, and for features and encoder_states of another shape.
  Tensor hidden_states(const ModelInput& input, const ModelOptions& options = {}) const;

  /// The logits of hidden_states [..., d_model], on num_threads threads (0: num_threads() of runtime.h): f32 [...,
  /// vocab_size], of the next token for decoders, of the token itself for encoders, and of an image's classes for
  /// its class token. Throws std::invalid_argument if the model has none.
  Tensor logits(const TensorView& hidden_states, int num_threads = 0) const;

  /// The backward pass of hidden_states(input): from dstates [tokens, d_model], the gradient of a loss with
  /// respect to its result, calls on_gradient for each attention, last layer first. Returns the gradient with
  /// respect to encoder_states, or an empty tensor (rank 0) without them. Weights get no gradients. The forward
  /// pass runs again and keeps only the input of each layer. `num_threads`: as in ModelOptions. Throws
  /// std::invalid_argument as hidden_states() does.
  Tensor backward(const ModelInput& input, const TensorView& dstates, const OnAttentionGradient& on_gradient,
                  int num_threads = 0) const;
  /// The same for encode(source): dstates, on_gradient and num_threads are those of backward().
  void encode_backward(const ModelInput& source, const TensorView& dstates, const OnAttentionGradient& on_gradient,
                       int num_threads = 0) const;
  /// The gradient of a loss with respect to hidden_states [..., d_model], from dlogits, the gradient with respect
  /// to their logits. `num_threads`: as in ModelOptions. Throws std::invalid_argument as logits() does, and for
  /// dlogits of another shape.
  Tensor logits_backward(const TensorView& hidden_states, const TensorView& dlogits, int num_threads = 0) const;

  /// An empty cache for hidden_states(). format: of keys and values; capacity: tokens to allocate memory for at
  /// the start. Throws std::invalid_argument for encoders, and as KvCache() does.
  ModelCache make_cache(const KvCacheFormat& format = {}, std::int64_t capacity = 0) const;

 private:
  struct State;
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace saccade
#pragma GCC visibility pop
