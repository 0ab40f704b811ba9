// The layers of a model, as a StackTable describes them, with the weights of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/layers/distance_bias.h"
#include "model/layers/norm.h"
#include "model/layers/projections.h"
#include "saccade/kv_cache.h"
#include "saccade/rope.h"

namespace saccade::model {

/// The sequences and positions of a call's tokens.
struct Sequences {
  Tensor begins{};     ///< i64 [sequences + 1]: AttentionOptions::cu_seqlens_q; empty: one sequence
  Tensor positions{};  ///< i64 [tokens]
};

/// The encoder's states that the decoder of an encoder-decoder reads.
struct Source {
  TensorView states{};  ///< f32 [tokens, width of the encoder], or none: `caches` have its keys and values
  Tensor begins{};      ///< as Sequences::begins
};

/// The inputs of a run of the layers besides the states.
struct Run {
  Sequences sequences{};
  std::span<KvCache> caches{};  ///< of each layer, or none
  Source source{};
  /// The keys and values of the source for each layer, [source tokens, 2 num_kv_heads, head_dim], or none. Empty
  /// tensors are filled.
  std::span<Tensor> source_caches{};
  std::function<void(const LayerAttention&)> on_attention{};
  int num_threads = 0;
};

/// The weights of a layer.
struct Block {
  PackedLinear qkv, attention_output, up, down;  ///< with a gate, `up` has its columns first
  PackedLinear cross_query, cross_kv, cross_output;
  NormLayer query_norm, key_norm;
  NormLayer before_attention, after_attention, attention_sum, before_cross, before_mlp, after_mlp, mlp_sum;
  TensorView output_weight, cross_output_weight;  ///< LayerAttention::output_weight, in the checkpoint's memory

  Block(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix, std::int64_t d_source);
};

class Stack {
 public:
  /// d_source: the width of the states that the cross-attention reads.
  Stack(const StackTable& table, const Checkpoint& checkpoint, AttentionKind kind, std::int64_t d_source = 0);

  /// Runs all layers and the final norm on x [tokens, d_model], in place.
  void operator()(Tensor& x, const Run& run) const;

  /// The backward pass of a run on x, from the gradient of a loss with respect to the result: calls on_gradient
  /// for each attention, last one first. Keeps only x of each layer and recomputes the rest. Returns the
  /// gradient with respect to the source's states, or an empty tensor without a source.
  Tensor backward(Tensor x, const TensorView& dout, const Run& run, const OnAttentionGradient& on_gradient) const;

 private:
  struct Buffers;
  struct Steps;

  const Block& block_of(std::size_t layer) const { return blocks_[layer * blocks_.size() / table_.layers.size()]; }
  void run_layer(std::size_t layer, const Run& run, Tensor& x, Buffers& buffers) const;
  void run_layers(std::size_t begin, std::size_t end, const Run& run, Tensor& x) const;
  /// Normalizes and rotates queries and keys [tokens, heads, head_dim], in place.
  void prepare(std::size_t layer, const Run& run, const MutableTensorView& q, const MutableTensorView& k) const;
  AttentionOptions options_of(std::size_t layer, const Run& run) const;
  AttentionOptions cross_options_of(std::size_t layer, const Run& run) const;

  // stack_backward.cpp
  Steps steps_of(std::size_t layer, const Run& run, const Tensor& x) const;
  Tensor mlp_backward(std::size_t layer, const Steps& steps, const Tensor& dout, Tensor& dx,
                      int num_threads) const;
  Tensor cross_backward(std::size_t layer, const Run& run, const Steps& steps, Tensor dsum, Tensor& dsource,
                        const OnAttentionGradient& on_gradient) const;
  void attention_backward(std::size_t layer, const Run& run, const Steps& steps, const Tensor& dmiddle, Tensor& dx,
                          const OnAttentionGradient& on_gradient) const;

  void attend(std::size_t layer, const Block& block, const Run& run, Buffers& buffers) const;
  void add_cross_attention(std::size_t layer, const Block& block, const Run& run, Tensor& x,
                           Buffers& buffers) const;
  void add_attention(const Block& block, Tensor& x, Buffers& buffers) const;
  void add_mlp(const Block& block, const TensorView& from, Tensor& x, Buffers& buffers) const;

  StackTable table_;
  AttentionKind kind_;
  DistanceBias distance_bias_;
  std::vector<Rope> ropes_;
  std::vector<Block> blocks_;
  NormLayer final_norm_;
};

}  // namespace saccade::model
