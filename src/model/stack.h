// The layers of a model: what a StackTable says, with the weights of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/distance_bias.h"
#include "model/norm.h"
#include "model/projections.h"
#include "saccade/kv_cache.h"
#include "saccade/rope.h"

namespace saccade::model {

/// Which sequence and position the tokens of a call have.
struct Sequences {
  Tensor begins{};     ///< i64 [sequences + 1]: AttentionOptions::cu_seqlens_q; empty: one sequence
  Tensor positions{};  ///< i64 [tokens]
};

/// What the decoder of an encoder-decoder reads.
struct Source {
  TensorView states{};  ///< f32 [tokens, width of the encoder], or none: `caches` have its keys and values
  Tensor begins{};      ///< as Sequences::begins
};

/// What a run of the layers needs besides the states.
struct Run {
  Sequences sequences{};
  std::span<KvCache> caches{};  ///< of each layer, or none
  Source source{};
  /// The keys and values of the source, of each layer, [source tokens, 2 num_kv_heads, head_dim], or none. Those
  /// that are empty are filled.
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

 private:
  struct Buffers;

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
