// The layers of a model: what a StackTable says, with the weights of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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

/// What a run of the layers needs besides the states.
struct Run {
  Sequences sequences{};
  std::span<KvCache> caches{};  ///< of each layer, or none
  std::function<void(const LayerAttention&)> on_attention{};
  int num_threads = 0;
};

/// The embedding of tokens.
class EmbeddingLayer {
 public:
  EmbeddingLayer(const StackTable& table, const Checkpoint& checkpoint, std::int64_t vocab_size);
  /// f32 [tokens, d_model]. Tokens, positions and types are within their tables; no types: all 0.
  Tensor operator()(std::span<const std::int64_t> tokens, std::span<const std::int64_t> positions,
                    std::span<const std::int64_t> types, int num_threads) const;

 private:
  TensorView tokens_;  // in the checkpoint's memory
  Tensor positions_, types_;
  std::int64_t position_offset_;
  float factor_;
  NormLayer norm_;
  PackedLinear projection_;
};

/// The weights of a layer.
struct Block {
  PackedLinear qkv, attention_output, up, down;  ///< with a gate, `up` has its columns first
  NormLayer query_norm, key_norm;
  NormLayer before_attention, after_attention, attention_sum, before_mlp, after_mlp, mlp_sum;

  Block(const StackTable& table, const Checkpoint& checkpoint, const std::string& prefix);
};

class Stack {
 public:
  Stack(const StackTable& table, const Checkpoint& checkpoint);

  /// Runs all layers and the final norm on x [tokens, d_model], in place.
  void operator()(Tensor& x, const Run& run) const;

 private:
  struct Buffers;

  void attend(std::size_t layer, const Block& block, const Run& run, Buffers& buffers) const;
  void add_attention(const Block& block, Tensor& x, Buffers& buffers) const;
  void add_mlp(const Block& block, const TensorView& from, Tensor& x, Buffers& buffers) const;

  StackTable table_;
  std::vector<Rope> ropes_;
  std::vector<Block> blocks_;
  NormLayer final_norm_;
};

}  // namespace saccade::model
