// A row's bits depend on its own query, the keys it sees, the options and the instruction set: not on threads,
// batch, other rows, packing, paging, or the pieces of a prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// An element type, with or without a change to every score.
struct Variant {
  DType dtype;
  bool biased;
};
constexpr Variant kAllVariants[] = {{DType::f32, true}, {DType::bf16, false}, {DType::f16, false},
                                    {DType::f64, true}, {DType::f32, false},  {DType::bf16, true},
                                    {DType::f64, false}};
/// Where computing is slow, every type once.
constexpr auto kVariants = std::span(kAllVariants).first(kIsSlow ? 4 : 7);

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kSeqlen = 611, kDim = 72;

/// A causal problem with a window and GQA, [1, heads, seqlen, dim], and its result in one call.
struct Prompt {
  Tensor q, k, v, slopes = alibi_slopes(kHeads), o;
  AttentionOptions options{.causal = Causal::top_left, .window_left = 400, .num_threads = 1};

  explicit Prompt(const Variant& variant)
      : q(random_tensor({1, kHeads, kSeqlen, kDim}, 1, variant.dtype)),
        k(random_tensor({1, kKvHeads, kSeqlen, kDim}, 2, variant.dtype)),
        v(random_tensor({1, kKvHeads, kSeqlen, kDim}, 3, variant.dtype)) {
    if (variant.biased) {
      options.softcap = 20.0;
      options.alibi_slopes = slopes;
    }
    o = attention(q, k, v, options);
  }

  Tensor rows(std::int64_t begin, std::int64_t end) const {
    return Tensor::copy_of(o.view().slice(2, begin, end));
  }
};

class Sameness : public EachIsa {};
SACCADE_FOR_EACH_ISA(Sameness);

TEST_P(Sameness, OverThreads) {
  for (const Variant& variant : kVariants) {
    Prompt prompt(variant);
    for (int threads : {2, 3, 8}) {
      prompt.options.num_threads = threads;
      EXPECT_TRUE(same_bits(attention(prompt.q, prompt.k, prompt.v, prompt.options), prompt.o)) << threads;
    }
  }
}

TEST_P(Sameness, OverHowAPromptIsCut) {
  for (const Variant& variant : kVariants) {
    const Prompt prompt(variant);
    for (std::int64_t piece : {1, 7, 100, 256, 610}) {
      for (std::int64_t begin = 0; begin < kSeqlen; begin += piece * (piece == 1 ? 37 : 1)) {
        const std::int64_t end = std::min(kSeqlen, begin + piece);
        AttentionOptions options = prompt.options;
        options.query_offset = begin;  // only the keys so far exist
        const Tensor o = attention(prompt.q.view().slice(2, begin, end), prompt.k.view().slice(2, 0, end),
                                   prompt.v.view().slice(2, 0, end), options);
        ASSERT_TRUE(same_bits(o, prompt.rows(begin, end)))
            << name_of(variant.dtype) << (variant.biased ? " biased" : "") << ", rows " << begin << " to " << end;
      }
    }
  }
}

TEST_P(Sameness, OverBatchAndPacking) {
  for (const Variant& variant : kVariants) {
    const Prompt prompt(variant);
    // Documents around the prompt, packed as [total, heads, dim].
    const std::vector<std::int64_t> begins = {0, 5, 5, 205, 205 + kSeqlen, 205 + kSeqlen + 97};
    const auto packed = [&](const Tensor& x, std::int64_t heads, std::uint64_t seed) {
      Tensor all = random_tensor({begins.back(), heads, kDim}, seed, variant.dtype);
      copy(x.view().select(0, 0).transposed(0, 1), MutableTensorView(all).slice(0, begins[3], begins[4]));
      return all;
    };
    const Tensor q = packed(prompt.q, kHeads, 11), k = packed(prompt.k, kKvHeads, 12),
                 v = packed(prompt.v, kKvHeads, 13);
    const Tensor cu_seqlens = [&] {
      Tensor result(DType::i64, {static_cast<std::int64_t>(begins.size())});
      std::ranges::copy(begins, result.values<std::int64_t>().begin());
      return result;
    }();
    for (int threads : {1, 3}) {
      AttentionOptions options = prompt.options;
      options.cu_seqlens_q = options.cu_seqlens_k = cu_seqlens;
      options.num_threads = threads;
      const Tensor o = attention(q, k, v, options);
      const Tensor own = Tensor::copy_of(o.view().slice(0, begins[3], begins[4]).transposed(0, 1));
      EXPECT_TRUE(same_bits(own, Tensor::copy_of(prompt.o.view().select(0, 0)))) << name_of(variant.dtype);
    }
  }
}

TEST_P(Sameness, OverPages) {
  for (const Variant& variant : kVariants) {
    const Prompt prompt(variant);
    for (std::int64_t page_size : {1, 16, 100, 1024}) {
      const std::int64_t pages = (kSeqlen + page_size - 1) / page_size;
      Tensor pool_k = random_tensor({pages + 2, kKvHeads, page_size, kDim}, 21, variant.dtype), pool_v = pool_k;
      Tensor table(DType::i32, {1, pages});
      std::vector<std::int32_t> order(static_cast<std::size_t>(pages + 2));
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
      std::shuffle(order.begin(), order.end(), std::mt19937_64(5));
      for (std::int64_t page = 0; page < pages; ++page) {
        const std::int32_t entry = order[static_cast<std::size_t>(page)];
        table.at<std::int32_t>(0, page) = entry;
        const std::int64_t first = page * page_size, last = std::min(kSeqlen, first + page_size);
        for (const auto& [from, to] : {std::pair{&prompt.k, &pool_k}, {&prompt.v, &pool_v}})
          copy(from->view().select(0, 0).slice(1, first, last),
               MutableTensorView(*to).select(0, entry).slice(1, 0, last - first));
      }
      const Tensor lengths = Tensor::of<std::int64_t>({kSeqlen});
      AttentionOptions options = prompt.options;
      options.block_table = table;
      options.kv_lengths = lengths;
      EXPECT_TRUE(same_bits(attention(prompt.q, pool_k, pool_v, options), prompt.o))
          << name_of(variant.dtype) << ", pages of " << page_size;
    }
  }
}

/// Visible for some subtiles of 32 keys, which differ from row to row: [rows, keys].
Tensor mask_with_gaps(std::int64_t rows, std::int64_t keys) {
  Tensor mask(DType::boolean, {rows, keys});
  std::mt19937 random(5);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t key = 0, sees = 0; key < keys; ++key) {
      if (key % 32 == 0) sees = random() % 8 < static_cast<unsigned>(row % 8);
      mask.values<bool>()[static_cast<std::size_t>(row * keys + key)] = sees != 0;
    }
  }
  return mask;
}

TEST_P(Sameness, OverWhatOtherRowsSee) {
  constexpr std::int64_t kRows = 30, kKeys = 900;
  const Tensor mask = mask_with_gaps(kRows, kKeys);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor q = random_tensor({kRows, kDim}, 1, dtype), k = random_tensor({kKeys, kDim}, 2, dtype),
                 v = random_tensor({kKeys, kDim}, 3, dtype);
    const Tensor o = attention(q, k, v, {.mask = mask});
    for (std::int64_t row = 0; row < kRows; ++row) {
      const Tensor alone = attention(q.view().slice(0, row, row + 1), k, v,
                                     {.mask = Tensor::copy_of(mask.view().slice(0, row, row + 1))});
      EXPECT_TRUE(same_bits(alone, Tensor::copy_of(o.view().slice(0, row, row + 1))))
          << name_of(dtype) << ' ' << row;
    }
  }
}

/// A few rows of some heads that share keys.
struct SharedKeys {
  static constexpr std::int64_t kBatch = 2, kGroup = 3, kAll = 6, kRows = 7, kKeys = 333, kWidth = 24;
  DType dtype;
  Tensor q = random_tensor({kBatch, kRows, kAll, 40}, 1, dtype),
         k = random_tensor({kBatch, 2, kKeys, 40}, 2, dtype),
         v = random_tensor({kBatch, 2, kKeys, kWidth}, 3, dtype);
  Tensor lengths = Tensor::of<std::int64_t>({300, 333}), starts = Tensor::of<std::int64_t>({0, 41});
  Tensor mask = random_tensor({kRows, kKeys}, 4), of_heads = random_tensor({kBatch, kAll, kRows, kKeys}, 5),
         of_columns = random_tensor({kKeys, kRows}, 6), visible = mask_with_gaps(kRows, kKeys);

  std::vector<AttentionOptions> cases() const {
    return {{},
            {.causal = Causal::bottom_right, .kv_lengths = lengths},
            {.softcap = 5.0, .query_offset = 200, .window_left = 90, .window_right = 3, .kv_starts = starts},
            {.mask = mask},
            {.mask = of_columns.view().transposed(0, 1)},
            {.mask = TensorView(mask.values<float>().data() + kRows * kKeys - 1, {kRows, kKeys}, {-kKeys, -1})},
            {.causal = Causal::bottom_right, .mask = of_heads},
            {.mask = visible},
            {.mask = visible.view().slice(0, 3, 4)}};
  }
};

/// o and lse of heads [begin, end), [batch, heads, rows, dim]. `dense`: the rows of a head are adjacent in memory,
/// else the heads of a row.
std::pair<Tensor, Tensor> of_heads(const SharedKeys& of, AttentionOptions options, std::int64_t begin,
                                   std::int64_t end, bool dense) {
  const TensorView q = of.q.view().transposed(1, 2).slice(1, begin, end);
  const std::int64_t first = begin / SharedKeys::kGroup,
                     last = (end + SharedKeys::kGroup - 1) / SharedKeys::kGroup;
  if (options.mask.rank == 4) options.mask = options.mask.slice(1, begin, end);
  Tensor lse(of.dtype == DType::f64 ? DType::f64 : DType::f32,
             {SharedKeys::kBatch, end - begin, SharedKeys::kRows});
  Tensor o(of.dtype, {SharedKeys::kBatch, SharedKeys::kRows, end - begin, SharedKeys::kWidth});
  options.lse = lse;
  const TensorView k = of.k.view().slice(1, first, last), v = of.v.view().slice(1, first, last);
  if (dense) return {attention(Tensor::copy_of(q), k, v, options), lse};
  attention(q, k, v, MutableTensorView(o).transposed(1, 2), options);
  return {Tensor::copy_of(o.view().transposed(1, 2)), lse};
}

TEST_P(Sameness, OverHeadsThatShareKeys) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const SharedKeys of{.dtype = dtype};
    for (int number = 0; const AttentionOptions& options : of.cases()) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", case " << number++);
      for (const bool dense : {false, true}) {
        const auto [o, lse] = of_heads(of, options, 0, SharedKeys::kAll, dense);
        for (std::int64_t h = 0; h < SharedKeys::kAll; ++h) {
          const auto [own, own_lse] = of_heads(of, options, h, h + 1, dense);
          EXPECT_TRUE(same_bits(own, Tensor::copy_of(o.view().slice(1, h, h + 1)))) << h;
          EXPECT_TRUE(same_bits(own_lse, Tensor::copy_of(lse.view().slice(1, h, h + 1)))) << h;
        }
      }
    }
  }
}

TEST_P(Sameness, OfGradientsOverWhatOtherRowsAndKeysSee) {
  constexpr std::int64_t kRows = 300, kKeys = 700;
  const Tensor mask = mask_with_gaps(kRows, kKeys);
  const Tensor q = random_tensor({kRows, kDim}, 1), k = random_tensor({kKeys, kDim}, 2),
               v = random_tensor({kKeys, kDim}, 3), dout = random_tensor({kRows, kDim}, 4);
  Tensor o(DType::f32, {kRows, kDim}), lse(DType::f32, {kRows});
  attention(q, k, v, o, {.mask = mask, .lse = lse});
  /// Gradients of some rows and keys.
  const auto gradients = [&](std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) {
    const auto part = [&](const Tensor& all, std::int64_t begin, std::int64_t count) {
      return Tensor::copy_of(all.view().slice(0, begin, begin + count));
    };
    const Tensor some_o = part(o, row, rows), some_lse = part(lse, row, rows), some_dout = part(dout, row, rows);
    const Tensor some_mask = Tensor::copy_of(part(mask, row, rows).view().slice(1, key, key + keys));
    std::array<Tensor, 3> all{Tensor(DType::f32, {rows, kDim}), Tensor(DType::f32, {keys, kDim}),
                              Tensor(DType::f32, {keys, kDim})};
    attention_backward(part(q, row, rows), part(k, key, keys), part(v, key, keys),
                       {.o = some_o, .lse = some_lse, .dout = some_dout},
                       {.dq = all[0], .dk = all[1], .dv = all[2]}, {.mask = some_mask});
    return all;
  };
  const auto all = gradients(0, kRows, 0, kKeys);
  for (std::int64_t row = 0; row < kRows; row += 17) {
    const auto alone = gradients(row, 1, 0, kKeys);
    EXPECT_TRUE(same_bits(alone[0], Tensor::copy_of(all[0].view().slice(0, row, row + 1)))) << row;
  }
  for (std::int64_t key = 0; key < kKeys; key += 23) {
    const auto alone = gradients(0, kRows, key, 1);
    EXPECT_TRUE(same_bits(alone[1], Tensor::copy_of(all[1].view().slice(0, key, key + 1)))) << key;
    EXPECT_TRUE(same_bits(alone[2], Tensor::copy_of(all[2].view().slice(0, key, key + 1)))) << key;
  }
}

TEST_P(Sameness, OfSmallProblemsAndTheirTiles) {
  for (std::int64_t seqlen_k = 1; seqlen_k <= 16; ++seqlen_k) {
    const Tensor q = random_tensor({2, 37, 5}, 1, DType::f32), k = random_tensor({2, seqlen_k, 5}, 2, DType::f32),
                 v = random_tensor({2, seqlen_k, 9}, 3, DType::f32);
    Tensor lse(DType::f32, {2, 37});  // the path for small problems does not write it
    EXPECT_TRUE(same_bits(attention(q, k, v), attention(q, k, v, {.lse = lse}))) << seqlen_k << " keys";
  }
}

}  // namespace
}  // namespace saccade::test
