// decode(): agreement with the reference, and that a row's bits depend only on its own inputs.
#include "saccade/decode.h"

#include <gtest/gtest.h>

#include <random>

#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/expect_close.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

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

}  // namespace
}  // namespace saccade::test
