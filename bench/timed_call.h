// The inputs of a line of gate.txt: its words, its tensors, and a call of attention() or a related function.
#pragma once

#include <saccade/saccade.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace saccade::timer {

/// The words of a line.
class Words {
 public:
  explicit Words(const std::string& line) {
    std::istringstream words(line);
    words >> function_;
    for (std::string word; words >> word;) {
      const std::size_t middle = word.find('=');
      values_[word.substr(0, middle)] = middle == std::string::npos ? "" : word.substr(middle + 1);
    }
  }

  const std::string& function() const { return function_; }

  bool has(const std::string& key) const {
    known_.insert(key);
    return values_.contains(key);
  }
  std::string text(const std::string& key, const std::string& otherwise = "") const {
    return has(key) ? values_.at(key) : otherwise;
  }
  double number(const std::string& key, double otherwise) const {
    return has(key) ? std::stod(values_.at(key)) : otherwise;
  }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const {
    return has(key) ? std::stoll(values_.at(key)) : otherwise;
  }
  DType dtype(const std::string& key, DType otherwise) const {
    if (!has(key)) return otherwise;
    for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::boolean}) {
      if (values_.at(key) == name_of(type)) return type;
    }
    throw std::invalid_argument(key + "=" + values_.at(key) + " is no element type");
  }

  /// Throws for a word that was not used.
  void require_all_known() const {
    for (const auto& [key, value] : values_) {
      if (!known_.contains(key)) throw std::invalid_argument(function_ + " has no word '" + key + "'");
    }
  }

 private:
  std::string function_;
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> known_;
};

/// Numbers in [-1, 1), or bools of which half are true; the same seed gives the same numbers.
inline Tensor draw(const Shape& shape, DType dtype, std::uint32_t seed) {
  Tensor numbers(DType::f32, shape);
  std::minstd_rand generator(seed + 1);
  for (float& number : numbers.values<float>())
    number = static_cast<float>(static_cast<double>(generator()) * 0x1p-30 - 1.0);
  if (dtype == DType::boolean)
    for (float& number : numbers.values<float>()) number = number < 0 ? 1.0F : 0.0F;
  return dtype == DType::f32 ? numbers : Tensor::copy_of(numbers, dtype);
}

/// `parts` lengths, each from half of `longest` to all of it.
inline std::vector<std::int64_t> draw_lengths(std::int64_t parts, std::int64_t longest, std::uint32_t seed) {
  std::minstd_rand generator(seed + 1);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(parts));
  for (std::int64_t& length : lengths)
    length = longest - static_cast<std::int64_t>(generator()) % (longest / 2 + 1);
  return lengths;
}

/// All tensors that a call of attention() or a related function reads or writes.
struct Call {
  Tensor q, k, v, o, lse, mask, block_mask, slopes, lengths, starts, pages, weights;
  Tensor dout, dq, dk, dv;
  AttentionOptions options;

  explicit Call(const Words& words) {
    const std::int64_t batch = words.integer("b", 1), heads = words.integer("h", 1);
    const std::int64_t kv_heads = words.integer("hkv", heads);
    const std::int64_t seqlen_q = words.integer("sq", words.integer("s", 1));
    const std::int64_t seqlen_k = words.integer("sk", seqlen_q);
    const std::int64_t dim = words.integer("d", 64), dim_v = words.integer("dv", dim);
    const DType q_type = words.dtype("dtype", DType::f32), kv_type = words.dtype("kv", q_type);
    const std::int64_t page = words.integer("page", 0), documents = words.integer("docs", 0);
    const auto shape = [&](std::int64_t of_heads, std::int64_t seqlen, std::int64_t width) {
      if (documents > 0) return Shape{seqlen, of_heads, width};
      if (words.has("blhd")) return Shape{batch, seqlen, of_heads, width};
      return Shape{batch, of_heads, seqlen, width};
    };
    const auto key_shape = [&](std::int64_t width) {
      return page > 0 ? Shape{batch * seqlen_k / page, kv_heads, page, width} : shape(kv_heads, seqlen_k, width);
    };
    q = draw(shape(heads, seqlen_q, dim), q_type, 1);
    k = draw(key_shape(dim), kv_type, 2);
    v = draw(key_shape(dim_v), kv_type, 3);
    o = Tensor(q_type, shape(heads, seqlen_q, dim_v));
    // bshd, by its number: older revisions, with whose headers this is compiled too, call it blhd.
    if (words.has("blhd")) options.layout = static_cast<Layout>(1);
    set_positions(words);
    set_masks(words, {batch, heads, seqlen_q, seqlen_k});
    if (page > 0) set_pages(batch, seqlen_k / page);
    if (page > 0 || words.has("lengths")) set_lengths(words.has("lengths"), batch, seqlen_k);
    if (documents > 0) set_documents(documents, seqlen_q);
    if (words.has("lse")) make_lse(batch, heads, seqlen_q);
  }

  void make_lse(std::int64_t batch, std::int64_t heads, std::int64_t seqlen) {
    const Shape shape = options.cu_seqlens_q ? Shape{heads, seqlen} : Shape{batch, heads, seqlen};
    options.lse = lse = Tensor(q.dtype() == DType::f64 ? DType::f64 : DType::f32, shape);
  }

  void set_positions(const Words& words) {
    const std::string causal = words.text("causal", "none"), window = words.text("window");
    if (causal == "top_left") options.causal = Causal::top_left;
    if (causal == "bottom_right") options.causal = Causal::bottom_right;
    if (window.empty()) return;
    options.window_left = std::stoll(window);
    options.window_right = std::stoll(window.substr(window.find(',') + 1));
  }

  void set_masks(const Words& words, const Shape& sizes) {
    if (words.has("mask"))
      options.mask = mask =
          draw(words.has("per_head") ? Shape{1, sizes[1], sizes[2], sizes[3]} : Shape{sizes[2], sizes[3]},
               words.dtype("mask", DType::boolean), 4);
    if (words.has("block_mask"))
      options.block_mask = block_mask = draw({(sizes[2] + 127) / 128, (sizes[3] + 127) / 128}, DType::boolean, 5);
    if (words.has("alibi")) options.alibi_slopes = slopes = alibi_slopes(sizes[1]);
    options.softcap = words.number("softcap", 0.0);
    options.dropout_p = words.number("dropout", 0.0);
    if (words.has("modifier")) {
      options.score_modifier = [](void*, const ScoreTile& tile) {
        for (std::int64_t i = 0; i < tile.rows; ++i)
          for (std::int64_t j = 0; j < tile.keys; ++j) tile.row<float>(i)[j] *= 0.5F;
      };
    }
    if (words.has("weights")) options.weights = weights = Tensor(DType::f32, sizes);
  }

  void set_pages(std::int64_t batch, std::int64_t pages_of_each) {
    pages = Tensor(DType::i32, {batch, pages_of_each});
    const auto table = pages.values<std::int32_t>();
    std::iota(table.begin(), table.end(), 0);
    std::minstd_rand generator(7);
    for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[generator() % i]);
    options.block_table = pages;
  }

  void set_lengths(bool uneven, std::int64_t batch, std::int64_t seqlen_k) {
    lengths = Tensor(DType::i64, {batch});
    std::ranges::fill(lengths.values<std::int64_t>(), seqlen_k);
    if (uneven) std::ranges::copy(draw_lengths(batch, seqlen_k, 8), lengths.values<std::int64_t>().begin());
    options.kv_lengths = lengths;
  }

  /// Sets the same documents in q and in k, with lengths around seqlen / documents.
  void set_documents(std::int64_t documents, std::int64_t seqlen) {
    const std::vector<std::int64_t> drawn = draw_lengths(documents, seqlen, 9);
    const std::int64_t sum = std::accumulate(drawn.begin(), drawn.end(), std::int64_t{0});
    starts = Tensor(DType::i32, {documents + 1});
    std::int64_t before = 0;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      before += drawn[i];
      starts.values<std::int32_t>()[i + 1] = static_cast<std::int32_t>(before * seqlen / sum);
    }
    options.cu_seqlens_q = options.cu_seqlens_k = starts;
  }

  void make_gradients(const Words& words) {
    make_lse(words.integer("b", 1), words.integer("h", 1), words.integer("s", 1));
    attention(q, k, v, o, options);
    dout = draw(o.shape(), o.dtype(), 10);
    dq = Tensor(q.dtype(), q.shape());
    dk = Tensor(k.dtype(), k.shape());
    dv = Tensor(v.dtype(), v.shape());
  }
};

}  // namespace saccade::timer
