// The input of the layers: embeds tokens, patches of an image or frames of sound.
#pragma once

#include <cstdint>
#include <span>

#include "model/layers/norm.h"
#include "model/layers/projections.h"

namespace saccade::model {

class TokenEmbedding {
 public:
  TokenEmbedding(const StackTable& table, const Checkpoint& checkpoint, std::int64_t vocab_size);
  /// f32 [tokens, d_model]. Tokens, positions and types must be within their tables; empty types: all 0.
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

class ImageEmbedding {
 public:
  ImageEmbedding(const StackTable& table, const Checkpoint& checkpoint);
  /// pixels: f32 [images, channels, size, size]. The class token and the patches, row by row, of each image.
  Tensor operator()(const TensorView& pixels, int num_threads) const;

 private:
  ImageTable table_;
  PackedLinear projection_;
  Tensor class_token_, positions_;
};

class AudioEmbedding {
 public:
  AudioEmbedding(const StackTable& table, const Checkpoint& checkpoint);
  /// features: f32 [sequences, bins, frames]. Every two frames give one state.
  Tensor operator()(const TensorView& features, int num_threads) const;

 private:
  PackedLinear first_, second_;
  Tensor positions_;
};

}  // namespace saccade::model
