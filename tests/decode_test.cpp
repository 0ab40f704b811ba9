// decode() and merge_states(): agreement with the reference, and that a row's bits depend only on its own inputs.
#include "saccade/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "each_isa.h"
#include "expect_close.h"
#include "saccade/reference.h"
#include "tensors.h"

namespace saccade::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class DecodeOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(DecodeOnIsa);

/// The keys of a batch entry in paged form: [num_pages, heads, page_size, dim] and its table.
struct Paged {
  Tensor pool, table;

  Paged(const Tensor& k, std::int64_t page_size, std::uint64_t seed) {
    const std::int64_t batch = k.shape(0), heads = k.shape(1), seqlen = k.shape(2), dim = k.shape(3);
    const std::int64_t pages = (seqlen + page_size - 1) / page_size;
    pool = Tensor(k.dtype(), {batch * pages + 3, heads, page_size, dim});
    table = Tensor(DType::i32, {batch, pages});
    std::vector<std::int32_t> order(static_cast<std::size_t>(pool.shape(0)));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t page = 0; page < pages; ++page) {
        const std::int32_t entry = order[static_cast<std::size_t>(b * pages + page)];
        table.at<std::int32_t>(b, page) = entry;
        const std::int64_t first = page * page_size, last = std::min(seqlen, first + page_size);
        copy(k.view().select(0, b).slice(1, first, last),
             MutableTensorView(pool).select(0, entry).slice(1, 0, last - first));
      }
    }
  }
};

TEST_P(DecodeOnIsa, AgreesWithTheReferenceAcrossPieces) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    const Tensor q = random_tensor({1, 6, 2, 72}, 1, dtype), k = random_tensor({1, 2, 9000, 72}, 2, dtype),
                 v = random_tensor({1, 2, 9000, 40}, 3, dtype);
    const AttentionOptions options{.causal = Causal::bottom_right};
    const auto reference = reference::attention(q, k, v, options),
               naive = reference::naive_attention(q, k, v, options, reference);
    EXPECT_TRUE(is_close(decode(q, k, v, options), {reference.o, naive.o, reference.bound})) << name_of(dtype);
  }
}

TEST_P(DecodeOnIsa, HasTheSameBitsForThreadsBatchTokensAndPages) {
  const std::int64_t length = 9001;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor q = random_tensor({2, 4, 3, 64}, 1, dtype), k = random_tensor({2, 2, length, 64}, 2, dtype),
                 v = random_tensor({2, 2, length, 64}, 3, dtype);
    const Tensor lengths = Tensor::of<std::int64_t>({length, 4500});
    AttentionOptions options{.causal = Causal::bottom_right, .kv_lengths = lengths, .num_threads = 1};
    const Tensor expected = decode(q, k, v, options);
    for (int threads : {2, 5}) {
      options.num_threads = threads;
      EXPECT_TRUE(same_bits(decode(q, k, v, options), expected)) << threads << " threads";
    }
    for (std::int64_t page_size : {1, 7, 16, 256, 4096}) {
      const Paged paged_k(k, page_size, 5), paged_v(v, page_size, 5);
      options.block_table = paged_k.table;
      EXPECT_TRUE(same_bits(decode(q, paged_k.pool, paged_v.pool, options), expected)) << "pages of " << page_size;
    }
    options.block_table = {};
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t i = 0; i < 3; ++i) {
        const std::int64_t seen = lengths.at<std::int64_t>(b) - 2 + i;
        const auto one = [&](const Tensor& x) { return x.view().slice(0, b, b + 1); };
        const Tensor alone = decode(one(q).slice(2, i, i + 1), one(k).slice(2, 0, seen), one(v).slice(2, 0, seen));
        EXPECT_TRUE(same_bits(alone, Tensor::copy_of(one(expected).slice(2, i, i + 1)))) << b << ' ' << i;
        const auto head = [&](const Tensor& x, std::int64_t h) { return one(x).slice(1, h, h + 1); };
        const Tensor row =
            decode(head(q, 3).slice(2, i, i + 1), head(k, 1).slice(2, 0, seen), head(v, 1).slice(2, 0, seen));
        EXPECT_TRUE(same_bits(row, Tensor::copy_of(head(expected, 3).slice(2, i, i + 1)))) << b << ' ' << i;
      }
    }
  }
}

TEST(MergeStates, PutsTwoHalvesTogether) {
  for (Layout layout : {Layout::bhld, Layout::blhd}) {
    const Shape rows = layout == Layout::bhld ? Shape{2, 3, 5, 16} : Shape{2, 5, 3, 16};
    const Shape keys = layout == Layout::bhld ? Shape{2, 3, 40, 16} : Shape{2, 40, 3, 16};
    const int axis = layout == Layout::bhld ? 2 : 1;
    const Tensor q = random_tensor(rows, 1), k = random_tensor(keys, 2), v = random_tensor(keys, 3);
    Tensor lse_a(DType::f32, {2, 3, 5}), lse_b(DType::f32, {2, 3, 5});
    const auto part = [&](const Tensor& x, std::int64_t begin, std::int64_t end) {
      return x.view().slice(axis, begin, end);
    };
    Tensor o_a = attention(q, part(k, 0, 13), part(v, 0, 13), {.lse = lse_a, .layout = layout});
    const Tensor o_b = attention(q, part(k, 13, 40), part(v, 13, 40), {.lse = lse_b, .layout = layout});
    merge_states(o_a, lse_a, o_b, lse_b, o_a, lse_a, layout);
    const AttentionOptions options{.layout = layout};
    const auto reference = reference::attention(q, k, v, options),
               naive = reference::naive_attention(q, k, v, options, reference);
    EXPECT_TRUE(is_close(o_a, {reference.o, naive.o, reference.bound}));
    EXPECT_TRUE(is_close(lse_a, {reference.lse, naive.lse}));
  }
}

TEST(MergeStates, LeavesOutAPartWithoutKeys) {
  const Tensor o_a = Tensor::of<float>({{1, 2}}), o_b = Tensor::of<float>({{kNan, kNan}});
  const Tensor lse_a = Tensor::of<float>({3}), none = Tensor::of<float>({-kInf});
  Tensor o(DType::f32, {1, 2}), lse(DType::f32, {1});
  merge_states(o_a, lse_a, o_b, none, o, lse);
  EXPECT_TRUE(same_bits(o, o_a));
  EXPECT_TRUE(same_bits(lse, lse_a));
  merge_states(o_b, none, o_b, none, o, lse);
  EXPECT_EQ(o.at<float>(0, 0), 0.0f);
  EXPECT_EQ(lse.at<float>(0), -kInf);
}

TEST(MergeStates, RefusesWhatDoesNotFit) {
  const Tensor o(DType::f32, {2, 3, 4}), lse(DType::f32, {2, 3}), other(DType::f32, {2, 2});
  Tensor out(DType::f32, {2, 3, 4}), out_lse(DType::f32, {2, 3});
  try {
    merge_states(o, lse, o, other, out, out_lse);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "[merge_states] lse_b must have shape [2, 3], but it has shape [2, 2]");
  }
}

}  // namespace
}  // namespace saccade::test
