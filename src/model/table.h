// Describes a family of models: sizes, switches, and the names of its tensors. Each family fills these tables
// (families/), and stack.cpp builds and runs the model. An empty name: the family has no such component.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/functional.h"
#include "saccade/linear.h"
#include "saccade/model.h"
#include "saccade/rope.h"

namespace saccade::model {

/// A projection: NAME.weight, and NAME.bias if it has one.
struct Projection {
  std::string_view name{};
  bool has_bias = false;

  explicit operator bool() const { return !name.empty(); }
};

/// How one tensor stacks queries, keys and values: all of each in turn, or head by head.
enum class FusedOrder : std::uint8_t { parts, heads };

struct AttentionTable {
  Projection query{}, key{}, value{};
  Projection fused{};  ///< instead of the three
  FusedOrder fused_order = FusedOrder::parts;
  std::string_view query_norm{}, key_norm{};  ///< of each head, before the rotation
  Projection output{};
};

enum class NormKind : std::uint8_t { layer, rms };

/// The names within a layer. Its norms, in the order of the computation:
///
///     x + after_attention(attention(before_attention(x))), then attention_sum of that,
///     x + cross(before_cross(x)), in the decoder of an encoder-decoder,
///     x + after_mlp(mlp(before_mlp(x))), then mlp_sum of that
struct BlockTable {
  std::string_view prefix{};  ///< of all names; {} is the number of the layer
  AttentionTable attention{};
  std::string_view before_attention{}, after_attention{}, attention_sum{};
  AttentionTable cross{};  ///< over the encoder's states: query, key, value and output
  std::string_view before_cross{};
  Projection up{}, gate{}, down{};  ///< down(f(up)), or with a gate down(f(gate) * up)
  std::string_view before_mlp{}, after_mlp{}, mlp_sum{};
  /// Both halves read the x of the first: x + attention(...) + mlp(before_mlp(x)).
  bool is_parallel = false;
};

/// The settings that differ between layers.
struct LayerTable {
  std::int64_t window_left = -1, window_right = -1;  ///< as AttentionOptions
  int rope = -1;                                     ///< index into StackTable::ropes; -1: no rotation
  double scale = 0.0;                                ///< of the scores
};

struct EmbeddingTable {
  std::string_view tokens{};
  std::string_view positions{};
  std::int64_t position_offset = 0;  ///< the row of position 0
  std::int64_t num_positions = 0;    ///< rows of the table
  std::string_view types{};
  std::int64_t num_types = 0;
  std::int64_t dim = 0;
  double factor = 1.0;      ///< of the token's row
  std::string_view norm{};  ///< of the sum
  Projection projection{};  ///< to d_model, if dim differs
};

/// The input of an image encoder: a projection of each patch, a class token in front, and positions of all.
struct ImageTable {
  std::string_view patches{};  ///< NAME.weight [d_model, channels, patch_size, patch_size] and NAME.bias
  std::string_view class_token{}, positions{};  ///< whole names
  std::int64_t size = 0, patch_size = 0, channels = 0;

  std::int64_t num_tokens() const { return (size / patch_size) * (size / patch_size) + 1; }
};

/// The input of a sound encoder: two convolutions over three frames, the second with stride 2, and positions.
struct SoundTable {
  std::string_view first{}, second{};  ///< NAME.weight [d_model, d_in, 3] and NAME.bias
  std::string_view positions{};
  std::int64_t num_bins = 0, num_positions = 0;
};

/// A bias of the scores by distance: one per head and bucket of distances (T5, arXiv:1910.10683). Buckets widen
/// with the distance up to `max_distance`.
struct DistanceBiasTable {
  std::string_view name{};  ///< NAME.weight [num_buckets, num_heads]
  std::int64_t num_buckets = 0, max_distance = 0;
};

struct StackTable {
  std::int64_t d_model = 0, d_hidden = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool is_causal = false;
  NormKind norm = NormKind::layer;
  double norm_eps = 1e-5;
  double norm_offset = 0.0;  ///< added to the scale of every norm
  double softcap = 0.0;      ///< of the scores
  Activation activation = Activation::gelu;
  WeightLayout weight_layout = WeightLayout::out_in;
  std::vector<LayerTable> layers{};
  /// Layers i * n / num_blocks of n share their weights; 0: none do.
  std::int64_t num_blocks = 0;
  std::vector<RopeOptions> ropes{};
  DistanceBiasTable distance_bias{};
  EmbeddingTable embedding{};  ///< or one of the next two
  ImageTable image{};
  SoundTable sound{};
  BlockTable block{};
  std::string_view final_norm{};
};

/// From the last hidden state to logits: decoder(norm(f(transform(x)))).
struct HeadTable {
  Projection transform{};
  Activation activation = Activation::none;
  std::string_view norm{};
  std::string_view decoder{};  ///< a whole name, with ".weight"; as the token embedding if the checkpoint lacks it
  std::string_view bias{};     ///< a whole name
  bool is_tied = false;
  double factor = 1.0;  ///< of the hidden state
  double softcap = 0.0;
};

struct ModelTable {
  std::int64_t vocab_size = 0;
  std::int64_t max_length = 0;  ///< 0: not limited by a table
  std::vector<std::string> prefixes{};
  StackTable stack{};  ///< of an encoder-decoder the decoder
  std::optional<StackTable> encoder{};
  HeadTable head{};  ///< without decoder: the model has none
};

}  // namespace saccade::model
