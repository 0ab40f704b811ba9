// The tensors of a problem.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cases/problem.h"
#include "cases/random.h"

namespace saccade::cases {
namespace {

/// Where documents begin: at 0 and at random places of a sequence, then the total.
Tensor draw_begins(std::int64_t documents, std::int64_t total, Random& random) {
  std::vector<std::int64_t> begins{0, total};
  for (std::int64_t i = 1; i < documents; ++i) begins.push_back(random.uniform(0, total));
  std::ranges::sort(begins);
  Tensor result(DType::i64, {documents + 1});
  std::ranges::copy(begins, result.values<std::int64_t>().begin());
  return result;
}

/// Draws the tensors and options of a problem.
class ProblemDrawing {
 public:
  ProblemDrawing(const Problem& problem, std::uint64_t seed) : p_(problem), random_(seed) {}

  AttentionCase draw() {
    c_.options = p_.options;
    c_.options.dropout_seed = random_.bits();
    c_.has_few_rows = p_.calls_decode;
    draw_sequences();
    draw_tensors();
    draw_masks();
    draw_head_numbers();
    return std::move(c_);
  }

 private:
  void draw_sequences() {
    seqlen_k_ = p_.seqlen_k;
    if (p_.documents > 0) {
      c_.options.cu_seqlens_q = c_.cu_seqlens_q = draw_begins(p_.documents, p_.seqlen_q, random_);
      const bool is_self_attention = p_.seqlen_q == p_.seqlen_k;  // then a document has as many rows as keys
      c_.options.cu_seqlens_k = c_.cu_seqlens_k =
          is_self_attention ? c_.cu_seqlens_q : draw_begins(p_.documents, p_.seqlen_k, random_);
    }
    if (p_.page_size > 0) draw_pages();
    const std::int64_t sequences = std::max(p_.documents, p_.batch);
    const auto keys_of = [&](std::int64_t b) {
      return p_.documents == 0 ? p_.seqlen_k
                               : c_.cu_seqlens_k.at<std::int64_t>(b + 1) - c_.cu_seqlens_k.at<std::int64_t>(b);
    };
    if (p_.has_lengths || p_.page_size > 0) {
      c_.options.kv_lengths = c_.kv_lengths = Tensor(DType::i64, {sequences});
      for (std::int64_t b = 0; b < sequences; ++b)
        c_.kv_lengths.at<std::int64_t>(b) =
            p_.has_lengths ? random_.uniform(keys_of(b) / 2, keys_of(b)) : keys_of(b);
    }
    if (p_.has_starts) {
      c_.options.kv_starts = c_.kv_starts = Tensor(DType::i64, {sequences});
      for (std::int64_t b = 0; b < sequences; ++b)
        c_.kv_starts.at<std::int64_t>(b) = random_.uniform(0, keys_of(b) / 2);
    }
  }

  void draw_pages() {
    const std::int64_t pages = (p_.seqlen_k + p_.page_size - 1) / p_.page_size;
    std::vector<std::int32_t> order(static_cast<std::size_t>(p_.batch * pages));
    std::iota(order.begin(), order.end(), 0);
    random_.shuffle(order);
    c_.block_table = Tensor(DType::i32, {p_.batch, pages});
    std::ranges::copy(order, c_.block_table.values<std::int32_t>().begin());
    c_.options.block_table = c_.block_table;
    seqlen_k_ = pages * p_.page_size;
  }

  void draw_tensors() {
    const auto tensor = [&](DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t seqlen,
                            std::int64_t dim) {
      Shape shape{batch, heads, seqlen, dim};
      if (p_.documents > 0) shape = {seqlen, heads, dim};
      if (p_.documents == 0 && p_.options.layout == Layout::bshd) std::swap(shape[1], shape[2]);
      std::vector<int> order(shape.size() - 1);
      std::iota(order.begin(), order.end(), 0);
      return ScatteredTensor(dtype, shape, order, 0);
    };
    const bool is_paged = p_.page_size > 0;
    const std::int64_t entries = is_paged ? c_.block_table.size() : p_.batch;
    const std::int64_t keys = is_paged ? p_.page_size : p_.seqlen_k;
    c_.q = tensor(p_.q_type, p_.batch, p_.num_heads, p_.seqlen_q, p_.head_dim);
    const auto drawn_as = [](DType dtype) { return is_quantized(dtype) ? DType::f32 : dtype; };
    c_.k = tensor(drawn_as(p_.k_type), entries, p_.num_kv_heads, keys, p_.head_dim);
    c_.v = tensor(drawn_as(p_.v_type), entries, p_.num_kv_heads, keys, p_.head_dim_v);
    c_.o = tensor(p_.o_type, p_.batch, p_.num_heads, p_.seqlen_q, p_.head_dim_v);
    for (ScatteredTensor* input : {&c_.q, &c_.k, &c_.v}) draw_numbers(input->view(), 1.0, random_);
    quantize_tensor(p_.k_type, c_.k, 0, c_.options.k_scale, c_.options.k_multipliers);
    quantize_tensor(p_.v_type, c_.v, 1, c_.options.v_scale, c_.options.v_multipliers);
  }

  void quantize_tensor(DType dtype, ScatteredTensor& tensor, std::size_t index, TensorView& scale,
                       TensorView& multipliers) {
    if (!is_quantized(dtype)) return;
    const QuantizedTensor quantized = quantize(std::as_const(tensor).view(), dtype);
    const bool rows_go_first = p_.documents > 0 || p_.options.layout == Layout::bshd;
    const auto in_bhsd = [&](const TensorView& view) {
      return Tensor::copy_of(rows_go_first ? view.transposed(-3, -2) : view);
    };
    scale = c_.scales[index] = in_bhsd(quantized.scale);
    if (dtype == DType::i4) multipliers = c_.scales[index + 2] = in_bhsd(quantized.multipliers);
    tensor = ScatteredTensor(quantized);
  }

  /// The rows and keys that masks extend to: those of the longest document.
  std::int64_t longest(const Tensor& begins, std::int64_t otherwise) const {
    std::int64_t most = p_.documents == 0 ? otherwise : 0;
    for (std::int64_t b = 0; b < p_.documents; ++b)
      most = std::max(most, begins.at<std::int64_t>(b + 1) - begins.at<std::int64_t>(b));
    return most;
  }

  void draw_masks() {
    AttentionOptions& o = c_.options;
    const std::int64_t rows = longest(c_.cu_seqlens_q, p_.seqlen_q), keys = longest(c_.cu_seqlens_k, seqlen_k_);
    if (p_.mask) {
      c_.mask = Tensor(*p_.mask, {rows, keys});
      Tensor numbers(DType::f32, {rows, keys});
      const bool is_bool = *p_.mask == DType::boolean;
      for (float& number : numbers.values<float>()) {
        const bool hide = random_.chance(0.5);
        number = is_bool ? (hide ? 0.0F : 1.0F) : hide ? -HUGE_VALF : static_cast<float>(random_.bell());
      }
      copy(numbers, c_.mask);
      o.mask = c_.mask;
    }
    if (p_.has_block_mask) {
      const auto blocks = [](std::int64_t seqlen, std::int64_t block) { return (seqlen + block - 1) / block; };
      c_.block_mask = Tensor(DType::boolean, {blocks(rows, o.block_mask_q), blocks(keys, o.block_mask_k)});
      for (bool& attend : c_.block_mask.values<bool>()) attend = random_.chance(0.5);
      o.block_mask = c_.block_mask;
    }
  }

  void draw_head_numbers() {
    AttentionOptions& o = c_.options;
    for (const AttentionOption* option : p_.head_numbers) {
      Tensor& numbers = c_.head_numbers.emplace_back(DType::f32, Shape{p_.num_heads});
      if (option->name == "alibi_slopes")
        numbers = alibi_slopes(p_.num_heads);
      else
        draw_numbers(numbers, 1.0, random_);
      o.*std::get<TensorView AttentionOptions::*>(option->member) = numbers;
    }
    if (!p_.has_lse) return;
    const Shape shape =
        p_.documents > 0 ? Shape{p_.num_heads, p_.seqlen_q} : Shape{p_.batch, p_.num_heads, p_.seqlen_q};
    o.lse = c_.lse = Tensor(p_.q_type == DType::f64 ? DType::f64 : DType::f32, shape);
  }

  const Problem& p_;
  Random random_;
  AttentionCase c_;
  std::int64_t seqlen_k_ = 0;  // of a sequence, in whole pages
};

}  // namespace

AttentionCase draw_case(const Problem& problem, std::uint64_t seed) {
  return ProblemDrawing(problem, seed).draw();
}

std::vector<reference::RowIndex> rows_to_check(const Problem& p, const AttentionCase& drawn, std::uint64_t seed) {
  constexpr double kWorkOfAll = 2e8, kWorkOfSome = 5e7;
  constexpr std::int64_t kFewest = 16, kMost = 512, kHeads = 4;
  const double row = static_cast<double>(p.seqlen_k) * static_cast<double>(p.head_dim + p.head_dim_v);
  const double all = static_cast<double>(p.batch * p.num_heads) * static_cast<double>(p.seqlen_q) * row;
  if (all <= kWorkOfAll) return {};
  const auto count = std::clamp(static_cast<std::int64_t>(kWorkOfSome / row), kFewest, kMost);
  Random random(seed);
  std::vector<reference::RowIndex> rows;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    const std::int64_t batch = random.uniform(0, std::max(p.documents, p.batch) - 1);
    std::int64_t seqlen_q = p.seqlen_q;
    if (p.documents > 0)
      seqlen_q = drawn.cu_seqlens_q.at<std::int64_t>(batch + 1) - drawn.cu_seqlens_q.at<std::int64_t>(batch);
    if (seqlen_q == 0) continue;
    const std::int64_t number = random.uniform(0, p.num_heads - 1);
    for (const std::int64_t ends : {std::int64_t{0}, seqlen_q - 1}) rows.push_back({batch, number, ends});
    for (std::int64_t i = 2; i < std::min(count / kHeads, seqlen_q); ++i)
      rows.push_back({batch, number, random.uniform(0, seqlen_q - 1)});
  }
  return rows;
}

}  // namespace saccade::cases
