// Random attention problems: shapes from the awkward list, every option at random, memory laid out at random.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "saccade/attention.h"

namespace saccade::test {

/// A tensor in memory larger than itself: the dimensions in another order, with gaps, and NaN in the gaps, so that
/// reading a wrong element shows.
class ScatteredTensor {
 public:
  ScatteredTensor() = default;

  /// `order` lists the outer dimensions from the slowest to the fastest; the last dimension stays innermost.
  ScatteredTensor(Shape shape, std::vector<int> order, std::int64_t gap) : shape_(std::move(shape)) {
    strides_.assign(shape_.size(), 1);
    std::int64_t stride = shape_.back() + gap;
    for (std::size_t i = order.size(); i-- > 0;) {
      strides_[static_cast<std::size_t>(order[i])] = stride;
      stride *= std::max<std::int64_t>(shape_[static_cast<std::size_t>(order[i])], 1);
      stride += gap;
    }
    memory_.assign(static_cast<std::size_t>(stride + 64), std::nanf(""));
  }

  MutableTensorView view() { return {memory_.data(), DType::f32, shape_, strides_}; }

  /// Calls fill(element) for every element of the tensor, in C order.
  template <class Fill>
  void fill(Fill fill) {
    std::vector<std::int64_t> index(shape_.size(), 0);
    if (element_count(shape_) == 0) return;
    while (true) {
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides_[i];
      fill(memory_[static_cast<std::size_t>(offset)]);
      std::size_t dim = index.size();
      while (dim-- > 0 && ++index[dim] == shape_[dim]) index[dim] = 0;
      if (dim == static_cast<std::size_t>(-1)) return;
    }
  }

  const std::vector<float>& memory() const { return memory_; }

 private:
  Shape shape_;
  std::vector<std::int64_t> strides_;
  std::vector<float> memory_;
};

/// One problem with everything it points at.
struct AttentionCase {
  ScatteredTensor q, k, v, o;
  Tensor mask, kv_lengths, query_offsets, slopes, sinks, lse, weights;
  AttentionOptions options;
  std::string description;
};

/// Draws problems; the same seed draws the same ones.
class AttentionCases {
 public:
  explicit AttentionCases(std::uint64_t seed) : random_(seed) {}

  AttentionCase next() {
    AttentionCase c;
    const bool small = chance(0.15);
    seqlen_q_ = pick<std::int64_t>({1, 2, 3, 7, 16, 17, 63, 64, 65, 97, 129, 193, 257});
    seqlen_k_ = small ? uniform(0, 16)
                      : pick<std::int64_t>({1, 2, 3, 7, 17, 31, 33, 64, 65, 129, 255, 257, 300, 513, 600});
    head_dim_ = small
                    ? uniform(1, 16)
                    : pick<std::int64_t>({1, 3, 8, 31, 40, 59, 60, 64, 72, 80, 96, 111, 128, 192, 256, 257, 300});
    head_dim_v_ = chance(0.6) ? head_dim_
                  : small     ? uniform(1, 16)
                              : pick<std::int64_t>({1, 5, 16, 33, 64, 65, 100, 128, 130});
    kv_heads_ = uniform(1, 3);
    heads_ = kv_heads_ * uniform(1, 3);
    batch_ = uniform(1, 3);
    rank_ = static_cast<int>(uniform(2, 4));
    if (rank_ < 4) batch_ = 1;
    if (rank_ < 3) heads_ = kv_heads_ = 1;
    draw_options(c, small);
    draw_tensors(c);
    describe(c);
    return c;
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  float normal() { return std::normal_distribution<float>()(random_); }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[uniform(0, static_cast<std::int64_t>(list.size()) - 1)];
  }

  void draw_options(AttentionCase& c, bool plain) {
    AttentionOptions& o = c.options;
    o.layout = chance(0.5) ? Layout::bhld : Layout::blhd;
    o.num_threads = static_cast<int>(uniform(1, 3));
    if (plain && chance(0.7)) return;
    if (chance(0.3)) o.scale = pick({0.05, 1.0, -0.3, 0.5});
    if (chance(0.25)) o.softcap = pick({0.5, 5.0, 30.0});
    o.causal = pick({Causal::none, Causal::none, Causal::top_left, Causal::bottom_right});
    if (chance(0.2)) {
      o.query_offset = uniform(-20, 300);
    } else if (chance(0.2)) {
      c.query_offsets = integers(-20, 300);
      o.query_offsets = c.query_offsets;
    }
    if (chance(0.3)) o.window_left = uniform(0, 200);
    if (chance(0.3)) o.window_right = uniform(0, 200);
    if (chance(0.3)) {
      c.kv_lengths = integers(0, seqlen_k_);
      o.kv_lengths = c.kv_lengths;
    }
    if (chance(0.4)) draw_mask(c);
    if (chance(0.2)) {
      c.slopes = chance(0.5) ? floats({heads_}, 0.1f) : floats({batch_, heads_}, 0.1f);
      o.alibi_slopes = c.slopes;
    }
    if (chance(0.2)) {
      c.sinks = floats({heads_}, 3.0f);
      o.sinks = c.sinks;
    }
    if (chance(0.2)) {
      o.dropout_p = pick({0.1, 0.5, 0.9});
      o.dropout_seed = random_();
      o.dropout_offset = static_cast<std::uint32_t>(random_());
    }
    Shape rows = outer_shape();
    rows.push_back(seqlen_q_);
    if (chance(0.7)) {
      c.lse = Tensor(DType::f32, rows);
      o.lse = c.lse;
    }
    if (chance(0.3)) {
      rows.push_back(seqlen_k_);
      c.weights = Tensor(DType::f32, rows);
      o.weights = c.weights;
      o.weights_after_dropout = chance(0.5);
    }
  }

  void draw_mask(AttentionCase& c) {
    Shape shape = {batch_, heads_, seqlen_q_, seqlen_k_};
    for (std::int64_t& n : shape)
      if (chance(0.3)) n = 1;
    shape.erase(shape.begin(), shape.begin() + uniform(0, 3));
    const DType dtype = pick({DType::boolean, DType::f32, DType::f64});
    c.mask = Tensor(dtype, shape);
    const double hidden = pick({0.0, 0.1, 0.5, 0.95});
    for (std::int64_t i = 0; i < c.mask.size(); ++i) {
      const bool hide = chance(hidden);
      const float bias = hide ? -INFINITY : normal();
      const auto at = static_cast<std::size_t>(i);
      if (dtype == DType::boolean) c.mask.values<bool>()[at] = !hide;
      if (dtype == DType::f32) c.mask.values<float>()[at] = bias;
      if (dtype == DType::f64) c.mask.values<double>()[at] = bias;
    }
    c.options.mask = c.mask;
  }

  Shape outer_shape() const {
    if (rank_ == 2) return {};
    if (rank_ == 3) return {heads_};
    return {batch_, heads_};
  }

  Tensor integers(std::int64_t low, std::int64_t high) {
    Tensor result(chance(0.5) ? DType::i64 : DType::i32, {batch_});
    for (std::size_t i = 0; i < static_cast<std::size_t>(batch_); ++i) {
      if (result.dtype() == DType::i64)
        result.values<std::int64_t>()[i] = uniform(low, high);
      else
        result.values<std::int32_t>()[i] = static_cast<std::int32_t>(uniform(low, high));
    }
    return result;
  }

  Tensor floats(Shape shape, float scale) {
    Tensor result(DType::f32, std::move(shape));
    for (float& x : result.values<float>()) x = scale * normal();
    return result;
  }

  ScatteredTensor scattered(std::int64_t heads, std::int64_t seqlen, std::int64_t dim, bool numbers) {
    Shape shape;
    if (rank_ > 3) shape.push_back(batch_);
    if (rank_ > 2) shape.push_back(heads);
    shape.push_back(seqlen);
    if (blhd_ && rank_ > 2) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    std::vector<int> order(shape.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    if (chance(0.5)) std::shuffle(order.begin(), order.end(), random_);
    shape.push_back(dim);
    ScatteredTensor result(shape, order, chance(0.5) ? 0 : uniform(1, 9));
    const float scale = pick({0.3f, 1.0f, 1.0f, 2.0f});
    if (numbers) result.fill([&](float& x) { x = scale * normal(); });
    return result;
  }

  void draw_tensors(AttentionCase& c) {
    blhd_ = c.options.layout == Layout::blhd;
    c.q = scattered(heads_, seqlen_q_, head_dim_, true);
    c.k = scattered(kv_heads_, seqlen_k_, head_dim_, true);
    c.v = scattered(kv_heads_, seqlen_k_, head_dim_v_, true);
    c.o = scattered(heads_, seqlen_q_, head_dim_v_, false);
  }

  void describe(AttentionCase& c) const {
    const AttentionOptions& o = c.options;
    c.description =
        "rank " + std::to_string(rank_) + (blhd_ ? " blhd" : " bhld") + ", batch " + std::to_string(batch_) +
        ", heads " + std::to_string(heads_) + '/' + std::to_string(kv_heads_) + ", seqlen " +
        std::to_string(seqlen_q_) + 'x' + std::to_string(seqlen_k_) + ", dims " + std::to_string(head_dim_) + '/' +
        std::to_string(head_dim_v_) + ", causal " + std::to_string(static_cast<int>(o.causal)) + ", window " +
        std::to_string(o.window_left) + ',' + std::to_string(o.window_right) + ", softcap " +
        std::to_string(o.softcap) + ", dropout " + std::to_string(o.dropout_p) +
        (o.query_offset ? ", offset " + std::to_string(*o.query_offset) : "") +
        (o.query_offsets ? ", offsets" : "") + (o.kv_lengths ? ", lengths" : "") +
        (o.mask ? ", mask " + std::string(name_of(o.mask.dtype)) + to_string(o.mask.dims()) : "") +
        (o.alibi_slopes ? ", alibi" : "") + (o.sinks ? ", sinks" : "") + (o.weights ? ", weights" : "");
  }

  std::mt19937_64 random_;
  std::int64_t batch_ = 1, heads_ = 1, kv_heads_ = 1, seqlen_q_ = 1, seqlen_k_ = 1, head_dim_ = 1, head_dim_v_ = 1;
  int rank_ = 2;
  bool blhd_ = false;
};

}  // namespace saccade::test
