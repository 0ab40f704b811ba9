// A small language model: GPT-2's architecture with the class and parameter names of the published walk-through.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "saccade/attention_modules.h"
#include "saccade/layers.h"
#include "saccade/module.h"
#include "saccade/random.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// How a new GPTModel draws its parameters.
enum class GPTInitialization : std::uint8_t {
  torch,  ///< each layer as PyTorch makes it: what the published class does after torch.manual_seed
  /// The same, but embeddings are scaled by 1/5, and those of positions are sinusoids (Vaswani et al. 2017,
  /// arXiv:1706.03762, section 3.5). The output of attention is then not drowned out by the token itself, and the
  /// model need not learn for each position which token is next to it. Small models learn to look back several
  /// times as fast.
  sinusoidal,
};

struct GPTModelOptions {
  std::int64_t vocab_size = 0;      ///< tokens are 0 to vocab_size - 1
  std::int64_t context_length = 0;  ///< the longest sequence allowed
  std::int64_t d_model = 0;         ///< width of the states
  std::int64_t num_layers = 1;      ///< transformer blocks
  std::int64_t num_heads = 1;       ///< a divisor of d_model
  std::int64_t d_hidden = 0;        ///< of the feed-forward layers; 0: 4 * d_model
  /// Blocks without feed-forward layers, so that only attention can compute anything (Elhage et al.: A
  /// mathematical framework for transformer circuits. 2021).
  bool attention_only = false;
  double dropout = 0.0;   ///< of embeddings, attention weights and everything added to the residual stream
  bool qkv_bias = false;  ///< the projections of q, k and v have a bias
  GPTInitialization init = GPTInitialization::torch;  ///< how parameters are drawn
};

/// x + dropout(att(norm1(x))), and then x + dropout(ff(norm2(x))): the published TransformerBlock, with parameters
/// att.W_query.weight ..., ff.layers.0.weight ..., norm1.scale, norm1.shift, norm2.scale, norm2.shift. With
/// attention_only there is no second half, so neither ff nor norm2.
class TransformerBlock final : public Module {
 public:
  /// Parameters of zeros, scales of ones. Throws std::invalid_argument as the layers do.
  explicit TransformerBlock(const GPTModelOptions& options);
  /// Parameters as PyTorch draws them after torch.manual_seed, from `generator`.
  TransformerBlock(const GPTModelOptions& options, TorchGenerator& generator);

  /// x is f32 [batch, seqlen, d_model]; the result has the same shape.
  Tensor forward(const TensorView& x);
  /// The same, also returning the attention weights, [batch, num_heads, seqlen, seqlen].
  Tensor forward(const TensorView& x, Tensor& weights);
  /// The same, calling on_attention as ForwardOptions says.
  Tensor forward(const TensorView& x, const OnAttention& on_attention);
  /// dout has the shape of x; returns the gradient of x.
  Tensor backward(const TensorView& dout);

 private:
  friend class GPTModel;

  std::vector<Part> parts() override;
  Tensor forward(const TensorView& x, Tensor* weights, const OnAttention& on_attention);

  bool attention_only_;
  MultiHeadAttention att_;
  FeedForward ff_;
  LayerNorm norm1_, norm2_;
  Dropout drop_att_, drop_ff_;
};

/// Embeddings of tokens and positions, causal transformer blocks, a final norm and a projection to the vocabulary:
/// the published GPTModel, whose checkpoints load unchanged. Parameters tok_emb.weight [vocab_size, d_model],
/// pos_emb.weight [context_length, d_model], trf_blocks.0 ... (see TransformerBlock), final_norm.scale,
/// final_norm.shift, out_head.weight [vocab_size, d_model].
class GPTModel final : public Module {
 public:
  /// Parameters of zeros, scales of ones, for load_state_dict. Throws std::invalid_argument for sizes below 1, for
  /// num_heads that does not divide d_model and for a dropout outside [0, 1).
  explicit GPTModel(const GPTModelOptions& options);
  /// Parameters drawn from `generator` as options.init says.
  GPTModel(const GPTModelOptions& options, TorchGenerator& generator);

  const GPTModelOptions& options() const { return options_; }

  /// The logits of each next token, f32 [batch, seqlen, vocab_size]. tokens: i64 [batch, seqlen], seqlen from 1 to
  /// context_length; throws std::invalid_argument otherwise.
  Tensor forward(const TensorView& tokens);
  /// The same for one sequence in evaluation mode, i64 [1, seqlen]. Calls on_attention for each layer, between its
  /// attention and its output projection: what it changes in o takes effect (edit_heads() of layer_attention.h).
  /// An empty on_attention is as none.
  Tensor forward(const TensorView& tokens, const OnAttention& on_attention);

  /// The logits of the token after `tokens`, f32 [vocab_size]; the model sees the last context_length of them.
  /// Throws std::invalid_argument when there are no tokens, and for a token outside the vocabulary.
  Tensor next_logits(std::span<const std::int64_t> tokens);

  /// Adds the gradients of all parameters; dlogits has the shape of the logits of the last forward call.
  void backward(const TensorView& dlogits);

  /// The attention weights of every head on tokens, i64 [batch, seqlen]: [batch, num_heads, seqlen, seqlen] for
  /// each layer, first layer first. Memory is quadratic in seqlen. No dropout, also in training mode.
  std::vector<Tensor> attention_weights(const TensorView& tokens);

 private:
  std::vector<Part> parts() override;
  Tensor embed(const TensorView& tokens);
  void make_embeddings_sinusoidal();

  GPTModelOptions options_;
  Embedding tok_emb_, pos_emb_;
  Dropout drop_emb_;
  std::vector<TransformerBlock> trf_blocks_;
  LayerNorm final_norm_;
  Linear out_head_;
};

/// The model that a checkpoint, `state`, was saved from, in evaluation mode. All sizes except num_heads follow
/// from the tensors. Throws std::invalid_argument for a checkpoint that is not a GPTModel's.
std::unique_ptr<GPTModel> gpt_model_from_state_dict(const StateDict& state, std::int64_t num_heads);

}  // namespace saccade
#pragma GCC visibility pop
