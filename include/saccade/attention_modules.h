// Attention with trainable projections: the modules of the published PyTorch walk-throughs, and
// torch.nn.MultiheadAttention. Parameters carry the published names, so that checkpoints load as they are.
// docs/attention-modules.md has the table: module, parameters and shapes, PyTorch class.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/attention.h"
#include "saccade/layer_attention.h"
#include "saccade/linear.h"
#include "saccade/module.h"
#include "saccade/random.h"
#include "saccade/tensor.h"

#pragma GCC visibility push(default)
namespace saccade {

/// The configuration of an attention module, as the module reports it. It follows from the options that the module
/// was made with.
struct ModuleConfig {
  std::int64_t d_in = 0;         ///< width of the inputs, or of the query inputs if keys and values have their own
  std::int64_t key_width = 0;    ///< width of the inputs that become keys
  std::int64_t value_width = 0;  ///< width of the inputs that become values
  std::int64_t d_out = 0;        ///< width of the output
  std::int64_t num_heads = 1;    ///< query heads
  std::int64_t num_kv_heads = 1;    ///< query head h reads key head h / (num_heads / num_kv_heads)
  std::int64_t head_dim = 0;        ///< width of one head's q, k and v; the scale is 1 / sqrt(head_dim)
  std::int64_t context_length = 0;  ///< the longest sequence allowed; 0: any
  bool causal = false;              ///< key j is visible to query i iff j <= i
  double dropout = 0.0;             ///< the probability of dropping a weight while training
  bool add_zero_attn = false;       ///< every row also sees a key and value of zeros
  bool independent_heads = false;   ///< every head is a separate module, which PyTorch runs one by one
  bool batch_first = true;          ///< rank 3 is [batch, seqlen, width]; else [seqlen, batch, width]
  WeightLayout weight_layout = WeightLayout::out_in;  ///< of W_query, W_key and W_value
};

/// Which attention weights a forward call returns. They need memory proportional to seqlen_q * seqlen_k. Only two
/// other options do: ForwardOptions::dropout_generator, and a key_mask that has to be combined with a mask (see
/// there).
enum class HeadWeights : std::uint8_t { none, per_head, averaged };

/// Everything optional about one forward call.
struct ForwardOptions {
  /// bool (true = attend), or f32 or f64 (added to the logits; -inf hides). Broadcast from the right against
  /// [batch, num_heads, seqlen_q, seqlen_k]: rank 1 is [seqlen_k], rank 3 is [num_heads, seqlen_q, seqlen_k]. Any
  /// strides. With more than one batch entry rank 3 may also be [batch * num_heads, seqlen_q, seqlen_k], as in
  /// PyTorch. PyTorch's boolean masks mean the opposite: see mask_from_torch.
  TensorView mask{};
  /// The keys that count in each batch entry: PyTorch's key_padding_mask, inverted. bool (true = attend), f32 or
  /// f64 (added); [batch, seqlen_k], [1, seqlen_k] or [seqlen_k]. Padding at the right end costs nothing. Any
  /// other key mask, if there is a `mask` too, is combined with it in a copy as large as one mask per batch entry.
  TensorView key_mask{};
  /// Hide later keys in this call, also in a module that is not causal (PyTorch's is_causal).
  bool causal = false;
  /// How causal, also that of the module, aligns rows and keys if their numbers differ; `none` counts as top_left.
  Causal alignment = Causal::top_left;

  HeadWeights weights = HeadWeights::none;  ///< which weights to return
  /// Return the weights after dropout instead of straight after the softmax.
  bool weights_after_dropout = false;
  /// Also return q, k, v and context, to show each step.
  bool steps = false;

  /// In training mode: draw the dropout mask as PyTorch's CPU generator does, over all weights, in the order of
  /// the published classes. Advances the generator. The call then stores all its weights, so use this to reproduce
  /// numbers only. Not given: dropout_keeps of random.h, with a new offset for each call.
  TorchGenerator* dropout_generator = nullptr;
  /// The PyTorch build whose dropout dropout_generator reproduces; published outputs come from the generic build.
  TorchBuild dropout_build = TorchBuild::generic;

  /// Called between attention and the output projection, with layer 0: what it changes in o takes effect. The kind
  /// is cross when the keys are another view than the queries, else decoder when later keys are hidden, else
  /// encoder. For one sequence (batch 1), not in training mode and not in modules with appended keys.
  OnAttention on_attention{};

  /// Threads of this call; 0: num_threads() of runtime.h. Results do not depend on it.
  int num_threads = 0;
};

/// The result of a module. Tensors are f32, without a batch axis where the inputs had none. Sequence and batch
/// axes have the order of the inputs (ModuleConfig::batch_first), except in `weights`, which is batch-first.
struct ModuleOutput {
  Tensor output;  ///< [batch, seqlen_q, d_out]
  /// Empty unless requested: [batch, num_heads, seqlen_q, seqlen_k], averaged [batch, seqlen_q, seqlen_k]. In
  /// modules with appended keys the last columns belong to these: first the bias key, then the zero key.
  Tensor weights;
  /// Empty unless ForwardOptions::steps is set: the projected inputs. Head h has the head_dim columns from
  /// h * head_dim on.
  Tensor q;        ///< [batch, seqlen_q, num_heads * head_dim]
  Tensor k;        ///< [batch, seqlen_k, num_kv_heads * head_dim]
  Tensor v;        ///< [batch, seqlen_k, num_kv_heads * head_dim]
  Tensor context;  ///< the input of out_proj: [batch, seqlen_q, num_heads * head_dim]
};

struct AppendedKeys;

/// The gradients of the loss with respect to the inputs of a forward call: f32, with the shapes of these inputs.
struct InputGradients {
  Tensor x;                  ///< of forward(x)
  Tensor query, key, value;  ///< of forward(query, key, value)
};

/// The base of all attention modules: they project the inputs to q, k and v, split heads, attend, join heads, and
/// project the result if the module has an output projection. The derived classes differ in their parameters, in
/// the names of these and in how they initialize them.
///
/// Invalid arguments throw std::invalid_argument. The message names the class, the argument, what was expected and
/// what was given.
class AttentionModule : public Module {
 public:
  const ModuleConfig& config() const { return config_; }

  /// The inputs attend to themselves: x is f32 [seqlen, d_in] or [batch, seqlen, d_in].
  ModuleOutput forward(const TensorView& x, const ForwardOptions& options = {});

  /// Queries attend to other inputs: query f32 [batch, seqlen_q, d_in], key [batch, seqlen_k, key_width],
  /// value [batch, seqlen_k, value_width], or all three without batch.
  ModuleOutput forward(const TensorView& query, const TensorView& key, const TensorView& value,
                       const ForwardOptions& options = {});

  /// forward(x) with its output in the caller's memory: f32, contiguous, shaped as x with d_out last, and apart
  /// from x. `num_threads`: as in ForwardOptions. For six tokens of three numbers it takes half as long as
  /// forward(x), which allocates its results.
  void forward_into(const TensorView& x, const MutableTensorView& output, int num_threads = 0);

  /// The backward pass of the last forward call, which must have run in training mode. dout is f32 with the shape
  /// of that call's output. The gradients of the parameters come from attention_backward() and linear_backward(),
  /// so memory is linear in seqlen, unless the call used a dropout_generator, which stores the weights. Between
  /// the two calls the module holds its inputs, q, k, v, context and the masks.
  InputGradients backward(const TensorView& dout);

  /// A module built from a generator derives its first seed from the generator's state; any other module gets its
  /// first seed from the operating system.
  void seed_dropout(std::uint64_t seed) override;

  /// state_dict() plus the buffers `mask`, f32 [context_length, context_length], of the published causal classes,
  /// so that PyTorch's strict load_state_dict of these classes accepts it. Memory is quadratic in context_length.
  /// Throws std::invalid_argument for a causal module without a context_length.
  ///
  /// load_state_dict() accepts these buffers, checks them and does not keep them. MultiHeadAttention's also
  /// accepts the names of torch.nn.MultiheadAttention: in_proj_weight (the rows of W_query, W_key and W_value, in
  /// this order), in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight.
  StateDict published_state_dict() const;

 protected:
  /// The parameters: weights by config_.weight_layout, with the rows (columns) of the heads in order.
  struct Weights {
    Parameter query, key, value, out;
    Parameter query_bias, key_bias, value_bias, out_bias;
    Parameter bias_k, bias_v;  ///< [1, 1, num_kv_heads * head_dim]
  };

  /// The checkpoint name of one of these parameters, or of some of its rows.
  struct Slot {
    std::string name;
    Parameter Weights::*parameter;
    std::int64_t first_row, end_row;
  };

  AttentionModule(std::string name, const ModuleConfig& config);
  AttentionModule(const AttentionModule&) = default;
  AttentionModule(AttentionModule&&) = default;
  AttentionModule& operator=(const AttentionModule&) = default;
  AttentionModule& operator=(AttentionModule&&) = default;

  /// Allocates a parameter and names it.
  void add(std::string name, Parameter Weights::*parameter, Shape shape);
  /// Adds W_query, W_key and W_value as linear layers.
  void add_projections(bool bias);
  /// Draws these layers as nn.Linear does.
  void draw_projections(TorchGenerator& generator);
  /// Seeds dropout with the generator's next number.
  void seed_dropout_after(TorchGenerator generator);

  std::vector<Part> parts() override;
  void translate(const std::string& prefix, std::map<std::string, TensorView>& entries) override;

  Weights weights_;
  std::vector<Slot> slots_;

 private:
  struct Inputs;
  struct Projections;
  struct ForwardCall;
  struct ProjectedGradients;

  Inputs checked_inputs(const TensorView& query, const TensorView& key, const TensorView& value) const;
  Inputs checked_input_of_all(const TensorView& x) const;
  ModuleOutput forward(const Inputs& inputs, const ForwardOptions& options);
  void project(const TensorView& x, const Parameter& weight, const Parameter& bias, const MutableTensorView& y,
               int num_threads) const;
  void project(const Inputs& inputs, const Projections& projections, int num_threads) const;
  AttentionOptions plain_options(bool causal, int num_threads) const;
  void attend(const Projections& projections, ForwardCall& call, const ForwardOptions& options);
  void hand_over(AttentionKind kind, const Projections& projections, const ForwardCall& call,
                 const OnAttention& on_attention) const;
  Tensor reported_weights(ForwardCall& call, bool has_batch, const ForwardOptions& options) const;
  void keep(ForwardCall call, const Inputs& inputs);
  ProjectedGradients attend_backward(const ForwardCall& call, const TensorView& dcontext);
  AppendedKeys appended_keys() const;
  void add_fresh_dropout(AttentionOptions& call);
  std::vector<std::string> mask_buffers() const;
  void check_mask_buffer(const std::string& buffer, const TensorView& mask) const;

  ModuleConfig config_;
  std::shared_ptr<const ForwardCall> kept_;  ///< what backward() needs of the last forward call
  std::optional<std::uint64_t> dropout_seed_;
  std::uint32_t dropout_calls_ = 0;
};

struct SelfAttentionOptions {
  std::int64_t d_in = 0;   ///< width of the input
  std::int64_t d_out = 0;  ///< width of q, k, v and the output
  /// out_in: linear layers, W_query.weight [d_out, d_in]; in_out: plain parameters, W_query [d_in, d_out].
  WeightLayout weight_layout = WeightLayout::out_in;
  /// Give the linear layers a bias; plain parameters have none.
  bool qkv_bias = false;
};

/// One head over a whole sequence: softmax(q k^T / sqrt(d_out)) v, the published SelfAttention classes.
class SelfAttention final : public AttentionModule {
 public:
  /// Parameters of zeros, for load_state_dict. Throws std::invalid_argument for widths below 1, and for
  /// qkv_bias with plain parameters.
  explicit SelfAttention(const SelfAttentionOptions& options);
  /// Parameters as PyTorch makes them after torch.manual_seed, drawn from `generator`: plain ones by torch.rand,
  /// linear layers by nn.Linear, in the order query, key, value.
  SelfAttention(const SelfAttentionOptions& options, TorchGenerator& generator);
};

struct CausalAttentionOptions {
  std::int64_t d_in = 0;            ///< width of the input
  std::int64_t d_out = 0;           ///< width of q, k, v and the output
  std::int64_t context_length = 0;  ///< the longest sequence allowed; 0: any
  double dropout = 0.0;             ///< 0 <= dropout < 1
  bool qkv_bias = false;            ///< give the linear layers a bias
};

/// One causal head with dropout: the published CausalAttention. Accepts any sequence up to context_length.
class CausalAttention final : public AttentionModule {
 public:
  /// Parameters of zeros, for load_state_dict. Throws std::invalid_argument for widths below 1, a negative
  /// context_length, or a dropout outside [0, 1).
  explicit CausalAttention(const CausalAttentionOptions& options);
  /// Linear layers as PyTorch makes them after torch.manual_seed, drawn from `generator` in the order query, key,
  /// value.
  CausalAttention(const CausalAttentionOptions& options, TorchGenerator& generator);
};

struct MultiHeadAttentionWrapperOptions {
  std::int64_t d_in = 0;            ///< width of the input
  std::int64_t d_out = 0;           ///< of one head; the module's output is num_heads * d_out wide
  std::int64_t num_heads = 1;       ///< independent heads
  std::int64_t context_length = 0;  ///< the longest sequence allowed; 0: any
  double dropout = 0.0;             ///< 0 <= dropout < 1
  bool qkv_bias = false;            ///< give the linear layers a bias
};

/// Independent CausalAttention heads whose outputs are concatenated: the published MultiHeadAttentionWrapper. Its
/// parameters are heads.0.W_query.weight and so on.
class MultiHeadAttentionWrapper final : public AttentionModule {
 public:
  /// Parameters of zeros, for load_state_dict. Throws std::invalid_argument as CausalAttention does, and for
  /// num_heads below 1.
  explicit MultiHeadAttentionWrapper(const MultiHeadAttentionWrapperOptions& options);
  /// Heads as PyTorch makes them after torch.manual_seed, drawn from `generator` one by one.
  MultiHeadAttentionWrapper(const MultiHeadAttentionWrapperOptions& options, TorchGenerator& generator);
};

/// How a new MultiHeadAttention draws its parameters.
enum class Initialization : std::uint8_t {
  linear_layers,    ///< four nn.Linear: query, key, value, out_proj (the published class)
  torch_multihead,  ///< torch.nn.MultiheadAttention: Xavier weights, biases 0
};

/// Options of MultiHeadAttention. The published MultiHeadAttention(d_in, d_out, context_length, dropout,
/// num_heads, qkv_bias) needs `.causal = true`. torch.nn.MultiheadAttention(embed_dim, num_heads, dropout, bias,
/// add_bias_kv, add_zero_attn, kdim, vdim, batch_first) needs d_in = d_out = embed_dim, qkv_bias = out_bias = bias
/// and `.init = Initialization::torch_multihead`.
struct MultiHeadAttentionOptions {
  std::int64_t d_in = 0;
  std::int64_t d_out = 0;  ///< of the module; a head is d_out / num_heads wide
  std::int64_t num_heads = 1;
  /// Fewer key and value heads than query heads: groups of query heads share them (GQA). 0: num_heads.
  std::int64_t num_kv_heads = 0;
  std::int64_t key_width = 0;       ///< width of the key inputs (PyTorch: kdim); 0: d_in
  std::int64_t value_width = 0;     ///< width of the value inputs (PyTorch: vdim); 0: d_in
  std::int64_t context_length = 0;  ///< the longest sequence allowed; 0: any
  bool causal = false;
  double dropout = 0.0;  ///< 0 <= dropout < 1
  bool qkv_bias = false;
  bool out_bias = true;
  bool add_bias_kv = false;    ///< append a trained key and value, bias_k and bias_v, that every row sees
  bool add_zero_attn = false;  ///< append a key and value of zeros that every row sees
  bool batch_first = true;     ///< rank-3 inputs are [batch, seqlen, width]; else [seqlen, batch, width]
  Initialization init = Initialization::linear_layers;
};

/// Heads split from one projection each for queries, keys and values, and joined by out_proj: the published
/// MultiHeadAttention and torch.nn.MultiheadAttention. Self- or cross-attention, causal or not.
///
/// Parameters W_query.weight [d_out, d_in], W_key.weight [num_kv_heads * head_dim, key_width], W_value.weight
/// [num_kv_heads * head_dim, value_width], their .bias, bias_k and bias_v [1, 1, num_kv_heads * head_dim],
/// out_proj.weight [d_out, d_out], out_proj.bias [d_out].
class MultiHeadAttention final : public AttentionModule {
 public:
  /// Parameters of zeros, for load_state_dict. Throws std::invalid_argument for widths or num_heads below 1,
  /// d_out that num_heads does not divide, num_heads that num_kv_heads does not divide, a negative
  /// context_length, or a dropout outside [0, 1).
  explicit MultiHeadAttention(const MultiHeadAttentionOptions& options);
  /// Parameters as PyTorch makes them after torch.manual_seed, drawn from `generator` by options.init.
  MultiHeadAttention(const MultiHeadAttentionOptions& options, TorchGenerator& generator);

 private:
  void draw_xavier_projections(TorchGenerator& generator);
};

/// What a checkpoint does not tell about its module.
struct CheckpointOptions {
  /// The number of heads of a checkpoint with out_proj, for which it is required. For all others 0, or the number
  /// that the checkpoint implies.
  std::int64_t num_heads = 0;
  /// Not given: causal when the checkpoint has the published buffer `mask` or independent heads.
  std::optional<bool> causal{};
  /// The longest sequence allowed. 0: the size of the buffer `mask`; without this buffer, any length.
  std::int64_t context_length = 0;
  double dropout = 0.0;        ///< 0 <= dropout < 1
  bool add_zero_attn = false;  ///< every row also sees a key and value of zeros
  bool batch_first = true;     ///< rank-3 inputs are [batch, seqlen, width]; else [seqlen, batch, width]
};

/// The module that a checkpoint, `state`, was saved from, with its parameters and in evaluation mode:
///
/// | the checkpoint has                             | module                                              |
/// | W_query                                        | SelfAttention, plain parameters                     |
/// | W_query.weight                                 | CausalAttention when causal, else SelfAttention     |
/// | heads.0.W_query.weight                         | MultiHeadAttentionWrapper                           |
/// | W_query.weight and out_proj.weight             | MultiHeadAttention, num_kv_heads from the shapes    |
/// | in_proj_weight or q_proj_weight                | MultiHeadAttention (torch.nn.MultiheadAttention)    |
///
/// Throws std::invalid_argument for a checkpoint of none of these, for options that contradict it, and as
/// load_state_dict does.
std::unique_ptr<AttentionModule> module_from_state_dict(const StateDict& state,
                                                        const CheckpointOptions& options = {});

/// Converts a mask from PyTorch's meaning to ours: inverts boolean masks and copies floating-point masks. (In
/// attn_mask and key_padding_mask of nn.MultiheadAttention true means ignore; here true means attend. The boolean
/// masks of F.scaled_dot_product_attention mean the same as ours: do not convert them.) Throws
/// std::invalid_argument for a mask of another type.
Tensor mask_from_torch(const TensorView& mask);

/// What scaled_dot_product_attention returns: `auto [output, weights] = ...`.
struct AttentionAndWeights {
  Tensor output;   ///< like q, but the last axis has the length of v's
  Tensor weights;  ///< f32 [batch, num_heads, seqlen_q, seqlen_k], without the leading axes that q lacks
};

/// The classic function with a mask (true = attend, or added) that returns output and weights: attention() with
/// its arguments q, k and v. Throws std::invalid_argument as attention() does, and when `options` also has a mask,
/// or a view for weights.
AttentionAndWeights scaled_dot_product_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                                 const TensorView& mask = {}, AttentionOptions options = {});

}  // namespace saccade
#pragma GCC visibility pop
