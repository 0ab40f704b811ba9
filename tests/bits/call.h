// A random call of attention() and related functions.
#pragma once

#include <algorithm>
#include <sstream>

#include "memory.h"

namespace saccade::bits {

/// The function of a call: each accepts other sizes and options.
enum class For : std::uint8_t { attention, backward, decode, inspect };

/// The distance that the score modifiers share; see set_modifier().
inline constexpr std::int64_t kReach = 40;

/// Layout::bshd, by its number: older revisions, with whose headers this is compiled too, call it blhd.
inline constexpr auto kRowsFirst = static_cast<Layout>(1);

class Call {
 public:
  Call(Random& random, Memory& memory, std::ostream& text, For function)
      : random_(random),
        memory_(memory),
        text_(text),
        function_(function),
        density_(random.one_of({0.0, 0.15, 0.4})) {
    draw_sizes();
    draw_layout();
    draw_types();
    draw_inputs();
    draw_positions();
    draw_biases();
    draw_masks();
    draw_modifier();
    text_ << " threads=" << (options.num_threads = static_cast<int>(random_.from(1, 3)));
  }

  TensorView q;
  MutableTensorView k, v;
  AttentionOptions options;

  MutableTensorView make_o() { return memory_.output(tensor_shape(heads_, seqlen_q_, dim_v_), o_type_); }
  MutableTensorView make_lse() { return memory_.output(rows_shape(), wide_type()); }

  /// Draws the optional outputs of attention() and decode() besides o.
  void draw_reports() {
    if (wants("lse")) options.lse = make_lse();
    Shape shape = rows_shape();
    shape.push_back(documents_ > 0 ? longest_k_ : seqlen_k_);
    if (wants("weights")) options.weights = memory_.output(shape, wide_type());
    if (options.weights) options.weights_after_dropout = wants("after_dropout");
    if (!wants("scores")) return;
    options.scores = memory_.output(shape, wide_type());
    options.score_stage = static_cast<ScoreStage>(random_.from(0, 3));
    text_ << '=' << static_cast<int>(options.score_stage);
  }

  /// f32, bf16 or f16; f64 if q is f64.
  DType any_type() {
    return q.dtype == DType::f64 ? DType::f64 : random_.one_of({DType::f32, DType::f32, DType::bf16, DType::f16});
  }
  DType wide_type() const { return q.dtype == DType::f64 ? DType::f64 : DType::f32; }
  std::int64_t heads() const { return heads_; }
  std::int64_t rows() const { return documents_ > 0 ? longest_q_ : seqlen_q_; }

  /// Whether to draw an option; if so, adds its name to the text.
  bool wants(const char* name) {
    const bool is_drawn = random_.chance(density_);
    if (is_drawn) text_ << ' ' << name;
    return is_drawn;
  }

 private:
  void draw_sizes() {
    batch_ = random_.from(1, 3);
    kv_heads_ = random_.from(1, 3);
    heads_ = kv_heads_ * random_.one_of({1, 1, 2, 4});
    seqlen_q_ = random_.one_of({1, 3, 17, 48, 70, 130, 201});
    seqlen_k_ = random_.one_of({1, 5, 33, 64, 90, 140, 260});
    dim_ = random_.one_of({1, 7, 16, 32, 40, 64, 64, 80, 128, 192});
    if (random_.chance(0.15)) {  // small sizes have special code
      seqlen_q_ = random_.from(1, 8);
      seqlen_k_ = random_.from(1, 8);
      dim_ = random_.from(1, 8);
    } else if (random_.chance(0.1)) {  // several blocks in each dimension
      batch_ = 1;
      kv_heads_ = std::min<std::int64_t>(kv_heads_, 2);
      heads_ = kv_heads_;
      seqlen_q_ = random_.from(600, 1300);
      seqlen_k_ = random_.from(600, 1300);
      dim_ = std::min<std::int64_t>(dim_, 64);
    }
    if (function_ == For::decode) {
      seqlen_q_ = random_.from(1, 4);
      seqlen_k_ = random_.chance(0.2) ? random_.from(3000, 9000) : seqlen_k_;
    }
    if (random_.chance(0.02)) (random_.chance(0.5) ? seqlen_q_ : seqlen_k_) = 0;
    dim_v_ = random_.chance(0.75) ? dim_ : random_.one_of({1, 24, 64, 96, 128});
  }

  void draw_layout() {
    rank_ = random_.chance(0.8) ? 4 : static_cast<int>(random_.from(2, 3));
    if (rank_ < 4) batch_ = 1;
    if (rank_ < 3) heads_ = kv_heads_ = 1;
    if (random_.chance(0.3)) options.layout = kRowsFirst;
    if (random_.chance(0.15)) {
      documents_ = random_.from(1, 4);
      batch_ = documents_;
      rank_ = 3;
      options.layout = Layout();
    } else if (rank_ == 4 && seqlen_k_ > 0 && function_ != For::backward && random_.chance(0.25)) {
      page_ = random_.one_of({1, 4, 16, 64});
      pages_of_each_ = (seqlen_k_ + page_ - 1) / page_;
      seqlen_k_ = pages_of_each_ * page_;
    }
    text_ << " rank=" << rank_ << " b=" << batch_ << " h=" << heads_ << " hkv=" << kv_heads_ << " sq=" << seqlen_q_
          << " sk=" << seqlen_k_ << " d=" << dim_ << " dv=" << dim_v_;
    if (options.layout == kRowsFirst) text_ << " blhd";
    if (documents_ > 0) text_ << " docs=" << documents_;
    if (page_ > 0) text_ << " page=" << page_;
  }

  void draw_types() {
    q_type_ = k_type_ = v_type_ = o_type_ =
        random_.one_of({DType::f32, DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64});
    if (q_type_ != DType::f64 && random_.chance(0.25))
      for (DType* type : {&q_type_, &k_type_, &v_type_, &o_type_})
        *type = random_.one_of({DType::f32, DType::bf16, DType::f16});
    text_ << " dtype=" << name_of(q_type_) << ',' << name_of(k_type_) << ',' << name_of(v_type_) << ','
          << name_of(o_type_);
  }

  void draw_inputs() {
    q = memory_.input(tensor_shape(heads_, seqlen_q_, dim_), q_type_);
    k = memory_.input(page_ > 0 ? pool_shape(dim_) : tensor_shape(kv_heads_, seqlen_k_, dim_), k_type_);
    v = memory_.input(page_ > 0 ? pool_shape(dim_v_) : tensor_shape(kv_heads_, seqlen_k_, dim_v_), v_type_);
    if (documents_ > 0) {
      options.cu_seqlens_q = draw_starts(seqlen_q_, longest_q_);
      options.cu_seqlens_k = draw_starts(seqlen_k_, longest_k_);
    }
    if (page_ > 0) draw_pages();
    if (page_ > 0 || wants("lengths")) draw_lengths();
    if (random_.chance(0.02) && k.size() > 0) {  // and a visible NaN shows up in the results
      text_ << " nan";
      fill(random_.chance(0.5) ? k.slice(0, 0, 1) : v.slice(0, 0, 1), std::nanf(""));
    }
  }

  TensorView draw_starts(std::int64_t total, std::int64_t& longest) {
    std::vector<std::int64_t> starts{0, total};
    for (std::int64_t i = 1; i < documents_; ++i) starts.push_back(random_.from(0, total));
    std::ranges::sort(starts);
    for (std::size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
    return memory_.integers(starts);
  }

  void draw_pages() {
    std::vector<std::int64_t> pages(static_cast<std::size_t>(batch_ * pages_of_each_));
    for (std::size_t i = 0; i < pages.size(); ++i) {
      pages[i] = static_cast<std::int64_t>(i);
      std::swap(pages[i], pages[static_cast<std::size_t>(random_.from(0, static_cast<std::int64_t>(i)))]);
    }
    options.block_table = memory_.integers<std::int32_t>(pages).reshaped({batch_, pages_of_each_});
  }

  /// Sometimes everything beyond a length is NaN: it must not spread.
  void draw_lengths() {
    const std::int64_t longest = documents_ > 0 ? 0 : seqlen_k_;
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < batch_; ++b) {
      std::int64_t most = longest;
      if (documents_ > 0) {
        const double begin = value_at(options.cu_seqlens_k, std::vector{b});
        most = static_cast<std::int64_t>(value_at(options.cu_seqlens_k, std::vector{b + 1}) - begin);
      }
      lengths.push_back(random_.chance(0.1) ? 0 : random_.from(most / 2, most));
    }
    options.kv_lengths = memory_.integers(lengths);
    if (documents_ > 0 || page_ > 0 || !random_.chance(0.5)) return;
    text_ << " hidden_nan";
    for (std::int64_t b = 0; b < batch_; ++b) {
      for (const MutableTensorView& all : {k, v}) {
        const MutableTensorView of_entry = rank_ == 4 ? all.select(0, b) : all;
        const int axis = rank_ == 2 || options.layout == kRowsFirst ? 0 : 1;
        fill(of_entry.slice(axis, lengths[static_cast<std::size_t>(b)], seqlen_k_), std::nanf(""));
      }
    }
  }

  void draw_positions() {
    if (random_.chance(0.4)) options.causal = random_.chance(0.5) ? Causal::top_left : Causal::bottom_right;
    if (function_ == For::decode && random_.chance(0.5)) options.causal = Causal::bottom_right;
    text_ << " causal=" << static_cast<int>(options.causal);
    if (wants("offset")) text_ << '=' << *(options.query_offset = random_.from(-5, seqlen_k_));
    if (!options.query_offset && wants("offsets")) {
      std::vector<std::int64_t> offsets(static_cast<std::size_t>(batch_));
      for (std::int64_t& offset : offsets) offset = random_.from(-5, seqlen_k_);
      options.query_offsets = memory_.integers(offsets);
    }
    if (wants("left")) text_ << '=' << (options.window_left = random_.from(0, 70));
    if (wants("right")) text_ << '=' << (options.window_right = random_.from(0, 70));
  }

  void draw_biases() {
    if (wants("scale")) options.scale = random_.uniform();
    if (wants("softcap")) options.softcap = 2.0 + random_.uniform();
    const Shape one_a_head{heads_}, each{batch_, heads_};
    if (wants("alibi")) options.alibi_slopes = contiguous(random_.chance(0.5) ? one_a_head : each);
    if (wants("sinks")) options.sinks = contiguous(one_a_head);
    if (function_ == For::inspect || !wants("dropout")) return;
    options.dropout_p = random_.one_of({0.1, 0.5, 0.9});
    options.dropout_seed = random_.next();
    options.dropout_offset = static_cast<std::uint32_t>(random_.next());
  }

  void draw_masks() {
    if (wants("mask")) {
      const DType type = random_.one_of({DType::boolean, DType::f32, DType::f64});
      const Shape shape = broadcast(rows(), documents_ > 0 ? longest_k_ : seqlen_k_);
      const MutableTensorView mask = memory_.input(shape, type);
      text_ << '=' << name_of(type) << to_string(shape);
      const int keys = mask.rank - 1;
      for (std::int64_t j = 0; j < mask.shape[static_cast<std::size_t>(keys)]; ++j)  // keys that no row sees
        if (random_.chance(0.1))
          fill(mask.slice(keys, j, j + 1),
               type == DType::boolean ? 0.0F : -std::numeric_limits<float>::infinity());
      options.mask = mask;
    }
    if (wants("block_mask")) {
      options.block_mask_q = random_.one_of({16, 64, 128});
      options.block_mask_k = random_.one_of({16, 64, 100, 128});
      const auto blocks = [](std::int64_t length, std::int64_t block) { return (length + block - 1) / block; };
      const Shape shape = broadcast(blocks(rows(), options.block_mask_q),
                                    blocks(documents_ > 0 ? longest_k_ : seqlen_k_, options.block_mask_k), 2);
      options.block_mask = memory_.input(shape, DType::boolean);
      text_ << '=' << options.block_mask_q << 'x' << options.block_mask_k << to_string(shape);
    }
  }

  /// Either halves every score, or hides keys that are further than kReach away.
  void draw_modifier() {
    if (!wants("modifier")) return;
    if (random_.chance(0.5)) {
      options.score_modifier = [](void*, const ScoreTile& tile) { change(tile, [](auto& s, auto) { s /= 2; }); };
      options.score_modifier_backward = [](void*, const ScoreTile&, const ScoreTile& gradients) {
        change(gradients, [](auto& gradient, auto) { gradient /= 2; });
      };
      return;
    }
    text_ << "=reach";
    options.score_modifier = [](void*, const ScoreTile& tile) {
      change(tile, [](auto& s, std::int64_t distance) {
        if (std::abs(distance) > kReach) s = -std::numeric_limits<double>::infinity();
      });
    };
    if (!random_.chance(0.5)) return;
    text_ << ",blocks";
    options.score_block_effect = [](void*, const ScoreBlock& block) {
      const std::int64_t position = block.first_row + block.offset;
      const std::int64_t least = block.first_key - (position + block.rows - 1);
      const std::int64_t most = block.first_key + block.keys - 1 - position;
      if (least > kReach || most < -kReach) return BlockEffect::skip;
      return least >= -kReach && most <= kReach ? BlockEffect::full : BlockEffect::partial;
    };
  }

  /// Calls change(score, key - position) for every score of a tile.
  template <class Change>
  static void change(const ScoreTile& tile, const Change& change_one) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        const std::int64_t distance = tile.first_key + j - (tile.first_row + i + tile.offset);
        if (tile.dtype == DType::f64) {
          change_one(tile.row<double>(i)[j], distance);
        } else {
          change_one(tile.row<float>(i)[j], distance);
        }
      }
    }
  }

  TensorView contiguous(const Shape& shape) {
    MutableTensorView view;
    do view = memory_.input(shape, DType::f32);
    while (!view.is_contiguous());
    return view;
  }

  /// Some shape that broadcasts from the right against [batch, heads, rows, keys], of `least` dimensions or more.
  Shape broadcast(std::int64_t rows, std::int64_t keys, std::int64_t least = 1) {
    const Shape full{batch_, heads_, rows, keys};
    Shape shape(full.end() - random_.from(least, 4), full.end());
    for (std::int64_t& length : shape)
      if (random_.chance(0.2)) length = 1;
    return shape;
  }

  Shape tensor_shape(std::int64_t heads, std::int64_t seqlen, std::int64_t width) const {
    if (documents_ > 0) return {seqlen, heads, width};
    Shape shape{batch_, heads, seqlen, width};
    if (options.layout == kRowsFirst) std::swap(shape[1], shape[2]);
    if (rank_ < 4) shape.erase(shape.begin());
    return rank_ == 2 ? Shape{seqlen, width} : shape;
  }

  Shape pool_shape(std::int64_t width) const {
    Shape shape{batch_ * pages_of_each_, kv_heads_, page_, width};
    if (options.layout == kRowsFirst) std::swap(shape[1], shape[2]);
    return shape;
  }

  /// The shape of lse.
  Shape rows_shape() const {
    const Shape full{batch_, heads_, seqlen_q_};
    return {full.begin() + (4 - rank_), full.end()};
  }

  Random& random_;
  Memory& memory_;
  std::ostream& text_;
  For function_;
  double density_;  ///< the probability of each option
  std::int64_t batch_ = 1, heads_ = 1, kv_heads_ = 1, seqlen_q_ = 1, seqlen_k_ = 1, dim_ = 1, dim_v_ = 1;
  std::int64_t documents_ = 0, longest_q_ = 0, longest_k_ = 0, page_ = 0, pages_of_each_ = 0;
  int rank_ = 4;
  DType q_type_ = DType::f32, k_type_ = DType::f32, v_type_ = DType::f32, o_type_ = DType::f32;
};

}  // namespace saccade::bits
