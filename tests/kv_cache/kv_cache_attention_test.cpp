// Attention over a KvCache against attention over plain tensors, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kv_cache/kv_cache_checks.h"
#include "saccade/kv_cache.h"
#include "support/each_isa.h"
#include "support/environment.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

/// attention() or decode(), over tensors and over a cache.
struct Kernel {
  Tensor (*over_tensors)(const TensorView&, const TensorView&, const TensorView&, const AttentionOptions&);
  void (*over_cache)(const TensorView&, const KvCache&, const MutableTensorView&, const AttentionOptions&);
};
constexpr Kernel kAttention{.over_tensors = attention, .over_cache = attention};
constexpr Kernel kDecode{.over_tensors = decode, .over_cache = decode};

/// Queries, keys and values of whole sequences, and their attention over a cache, chunk by chunk.
struct Sequences {
  Tensor q, k, v;  // bhsd
  AttentionOptions options{};
  Kernel kernel = kAttention;

  std::int64_t batch() const { return q.shape(0); }

  Tensor at_once(std::int64_t window, const std::optional<Rope>& rope) const {
    AttentionOptions all = options;
    all.causal = Causal::bottom_right;
    if (all.window_left < 0) all.window_left = window;
    if (!rope) return kernel.over_tensors(q, k, v, all);
    Tensor turned_q(q.dtype(), q.shape()), turned_k(k.dtype(), k.shape());
    rope->rotate(q, turned_q);
    rope->rotate(k, turned_k);
    return kernel.over_tensors(turned_q, turned_k, v, all);
  }

  Tensor in_chunks(KvCache& cache, const std::vector<std::int64_t>& chunks) const {
    Tensor o(q.dtype(), {q.shape(0), q.shape(1), q.shape(2), v.shape(3)});
    std::int64_t begin = 0;
    for (const std::int64_t count : chunks) {
      const std::int64_t end = begin + count;
      cache.append(k.view().slice(2, begin, end), v.view().slice(2, begin, end));
      Tensor rows = Tensor::copy_of(q.view().slice(2, begin, end));
      if (const std::optional<Rope>& rope = cache.config().rope) rope->rotate(rows, rows, cache.positions(count));
      kernel.over_cache(rows, cache, o.mutable_view().slice(2, begin, end), options);
      begin = end;
    }
    EXPECT_EQ(begin, q.shape(2));
    return o;
  }
};

Sequences random_sequences(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t seqlen,
                           std::int64_t head_dim, std::int64_t head_dim_v, DType dtype = DType::f32) {
  return {.q = random_tensor({batch, heads, seqlen, head_dim}, 1, dtype),
          .k = random_tensor({batch, kv_heads, seqlen, head_dim}, 2, dtype),
          .v = random_tensor({batch, kv_heads, seqlen, head_dim_v}, 3, dtype)};
}

KvCacheOptions options_for(const Sequences& sequences, std::int64_t page_size) {
  return {.batch = sequences.batch(),
          .num_kv_heads = sequences.k.shape(1),
          .head_dim = sequences.k.shape(3),
          .head_dim_v = sequences.v.shape(3),
          .dtype = sequences.k.dtype(),
          .page_size = page_size};
}

constexpr std::int64_t kAllPageSizes[] = {0, 3, 1, 16, 4096};  // 0: no pages
constexpr auto kPageSizes = std::span(kAllPageSizes).first(kIsSlow ? 2 : 5);

class KvCacheAttention : public EachIsa {};
SACCADE_FOR_EACH_ISA(KvCacheAttention);

TEST_P(KvCacheAttention, HasTheBitsOfPlainTensorsWhateverTheChunks) {
  const Sequences sequences = random_sequences(2, 4, 2, 600, 40, 24);
  const Tensor expected = sequences.at_once(-1, {});
  for (const std::int64_t page_size : kPageSizes) {
    for (const std::vector<std::int64_t>& chunks : {std::vector<std::int64_t>{600},
                                                    {1, 599},
                                                    {255, 1, 1, 343},
                                                    {100, 0, 257, 3, 240},
                                                    std::vector<std::int64_t>(300, 2)}) {
      SCOPED_TRACE("pages of " + std::to_string(page_size) + ", " + std::to_string(chunks.size()) + " chunks");
      KvCache cache(options_for(sequences, page_size));
      EXPECT_TRUE(have_same_bits(sequences.in_chunks(cache, chunks), expected));
    }
  }
}

TEST_P(KvCacheAttention, EveryElementTypeHasTheBitsOfPlainTensors) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    const Sequences sequences = random_sequences(2, 4, 2, 300, 20, 36, dtype);
    const Tensor expected = sequences.at_once(-1, {});
    for (const std::int64_t page_size : kPageSizes) {
      SCOPED_TRACE("pages of " + std::to_string(page_size) + ", " + std::string(name_of(dtype)));
      KvCache cache(options_for(sequences, page_size));
      EXPECT_TRUE(have_same_bits(sequences.in_chunks(cache, {255, 1, 10, 34}), expected));
    }
  }
}

TEST_P(KvCacheAttention, KeepsKeysInANarrowerTypeThanTheyCome) {
  const Sequences wide = random_sequences(2, 4, 2, 300, 20, 20);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Sequences rounded{.q = wide.q, .k = Tensor::copy_of(wide.k, dtype), .v = Tensor::copy_of(wide.v, dtype)};
    const Tensor expected = rounded.at_once(-1, {});
    for (const std::int64_t page_size : kPageSizes) {
      SCOPED_TRACE("pages of " + std::to_string(page_size) + ", " + std::string(name_of(dtype)));
      KvCache cache(options_for(rounded, page_size));
      EXPECT_TRUE(have_same_bits(wide.in_chunks(cache, {255, 1, 10, 34}), expected));
    }
  }
}

TEST_P(KvCacheAttention, QueriesOfPagesMayBePacked) {
  const Sequences sequences = random_sequences(3, 2, 1, 60, 12, 12);
  const Tensor q = random_tensor({9, 2, 12}, 4);  // of 5, 0 and 4 tokens
  const Tensor begins = Tensor::of<std::int32_t>({0, 5, 5, 9});
  for (const std::int64_t page_size : {1, 3, 16}) {
    KvCacheOptions options = options_for(sequences, page_size);
    options.window = 20;
    KvCache cache(options);
    for (std::int64_t i = 0; i < 60; i += 5)
      cache.append(sequences.k.view().slice(2, i, i + 5), sequences.v.view().slice(2, i, i + 5));
    const Tensor o = attention(q, cache, {.cu_seqlens_q = begins});
    for (const auto& [sequence, begin, end] : {std::array<std::int64_t, 3>{0, 0, 5}, {2, 5, 9}}) {
      const Tensor rows = Tensor::copy_of(q.view().slice(0, begin, end).transposed(0, 1));
      const Tensor expected =
          attention(rows, sequences.k.view().select(0, sequence), sequences.v.view().select(0, sequence),
                    {.causal = Causal::bottom_right, .window_left = 20});
      EXPECT_TRUE(have_same_bits(Tensor::copy_of(o.view().slice(0, begin, end).transposed(0, 1)), expected));
    }
    EXPECT_THAT(refusal([&] {
                  attention(random_tensor({120, 2, 12}, 4), cache,
                            {.cu_seqlens_q = Tensor::of<std::int32_t>({0, 5, 5, 120})});
                }),
                HasSubstr("the cache has kept sequence 2 from"));
  }
}

TEST_P(KvCacheAttention, DecodingHasTheBitsOfPlainTensors) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Sequences sequences = random_sequences(2, 4, 2, 300, 24, 20, dtype);
    sequences.kernel = kDecode;
    const Rope rope(24);
    const Tensor expected = sequences.at_once(-1, rope);
    for (const std::int64_t page_size : kPageSizes) {
      SCOPED_TRACE("pages of " + std::to_string(page_size) + ", " + std::string(name_of(dtype)));
      KvCacheOptions options = options_for(sequences, page_size);
      options.rope = rope;
      KvCache cache(options);
      EXPECT_TRUE(have_same_bits(sequences.in_chunks(cache, {255, 1, 8, 1, 35}), expected));
    }
  }
}

TEST_P(KvCacheAttention, DecodingInAWindowThatForgetsHasTheBitsOfOneThatDoesNot) {
  Sequences sequences = random_sequences(1, 2, 1, 9300, 16, 16);
  sequences.kernel = kDecode;
  const Tensor expected = sequences.at_once(300, {});
  for (const std::int64_t page_size : kPageSizes) {
    KvCacheOptions options = options_for(sequences, page_size);
    options.window = 300;
    KvCache cache(options);
    EXPECT_TRUE(have_same_bits(sequences.in_chunks(cache, {1, 4095, 4000, 1000, 1, 1, 2, 200}), expected))
        << page_size;
    EXPECT_GT(cache.first_kept(0), 4095) << page_size;
    Tensor again = decode(sequences.q.view().slice(2, 9299, 9300), cache);
    EXPECT_TRUE(have_same_bits(again, Tensor::copy_of(expected.view().slice(2, 9299, 9300)))) << page_size;
  }
}

TEST_P(KvCacheAttention, AWindowThatForgetsHasTheBitsOfOneThatDoesNot) {
  Sequences sequences = random_sequences(1, 2, 1, 13'000, 16, 16);
  const Tensor slopes = Tensor::of<float>({0.01f, -0.002f});
  std::vector<std::int64_t> chunks{1, 4000, 96, 4097, 2000, 1001};
  while (chunks.size() < 20) chunks.push_back(1);
  chunks.push_back(13'000 - 11'195 - 14);
  for (const bool has_slopes : {false, true}) {
    if (has_slopes) sequences.options.alibi_slopes = slopes;
    const Tensor expected = sequences.at_once(300, {});
    for (const std::int64_t page_size : kPageSizes) {
      KvCacheOptions options = options_for(sequences, page_size);
      options.window = 300;
      KvCache cache(options);
      EXPECT_TRUE(have_same_bits(sequences.in_chunks(cache, chunks), expected)) << page_size;
      EXPECT_GT(cache.first_kept(0), 4095) << page_size;
    }
  }
}

TEST_P(KvCacheAttention, KeysAreTurnedByPositionAfterEviction) {
  Sequences sequences = random_sequences(1, 2, 2, 9500, 8, 8);
  sequences.options.window_left = 20;  // narrower than the cache's window
  const Rope rope(8);
  const Tensor expected = sequences.at_once(-1, rope);
  for (const std::int64_t page_size : kPageSizes) {
    KvCacheOptions options = options_for(sequences, page_size);
    options.window = 64;
    options.rope = rope;
    KvCache cache(options);
    EXPECT_TRUE(have_same_bits(sequences.in_chunks(cache, {4090, 1000, 3110, 1, 1299}), expected)) << page_size;
    EXPECT_GT(cache.first_kept(0), 4095) << page_size;
  }
}

TEST_P(KvCacheAttention, SequencesOfSharedPrefixesAreIndependent) {
  const Sequences sequences = random_sequences(3, 2, 1, 90, 12, 12);
  const auto tokens = [&](const Tensor& x, std::int64_t from, std::int64_t begin, std::int64_t end) {
    return x.view().select(0, from).slice(1, begin, end);
  };
  for (const std::int64_t page_size : kPageSizes) {
    KvCache cache(options_for(sequences, page_size));
    cache.append(0, tokens(sequences.k, 0, 0, 50), tokens(sequences.v, 0, 0, 50));
    cache.share_prefix(0, 1, 50);
    cache.share_prefix(0, 2, 37);
    // Each sequence continues separately; the second drops a part and appends other tokens.
    for (const std::int64_t b : {2, 0, 1})
      cache.append(b, tokens(sequences.k, b, 50, 90), tokens(sequences.v, b, 50, 90));
    cache.truncate(1, 55);
    cache.append(1, tokens(sequences.k, 2, 0, 35), tokens(sequences.v, 2, 0, 35));
    const Tensor q = Tensor::copy_of(sequences.q.view().slice(2, 70, 90));
    const Tensor o = attention(q, cache);
    for (std::int64_t b = 0; b < 3; ++b) {
      // The same with plain tensors.
      Tensor k(DType::f32, {1, 1, cache.length(b), 12}), v(DType::f32, k.shape());
      const auto fill = [&](const Tensor& from, Tensor& to) {
        const MutableTensorView out = to.mutable_view().select(0, 0);
        const std::int64_t prefix = b == 2 ? 37 : 50, own = b == 1 ? 5 : 40;
        copy(tokens(from, 0, 0, prefix), out.slice(1, 0, prefix));
        copy(tokens(from, b, 50, 50 + own), out.slice(1, prefix, prefix + own));
        if (b == 1) copy(tokens(from, 2, 0, 35), out.slice(1, 55, 90));
      };
      fill(sequences.k, k);
      fill(sequences.v, v);
      const Tensor expected = attention(q.view().slice(0, b, b + 1), k, v, {.causal = Causal::bottom_right});
      EXPECT_TRUE(have_same_bits(Tensor::copy_of(o.view().slice(0, b, b + 1)), expected)) << page_size << b;
    }
  }
}

TEST_P(KvCacheAttention, WhatWasTakenBackHasNoInfluence) {
  const Sequences sequences = random_sequences(1, 2, 2, 80, 20, 20);
  Tensor nan(DType::f32, {1, 2, 33, 20});
  for (float& x : nan.values<float>()) x = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t page_size : kPageSizes) {
    KvCache cache(options_for(sequences, page_size));
    cache.append(nan, nan);
    cache.clear(0);
    cache.append(sequences.k.view().slice(2, 0, 60), sequences.v.view().slice(2, 0, 60));
    cache.append(nan, nan);
    cache.truncate(0, 60);
    const Tensor q = Tensor::copy_of(sequences.q.view().slice(2, 57, 60));
    const Tensor expected = attention(q, sequences.k.view().slice(2, 0, 60), sequences.v.view().slice(2, 0, 60),
                                      {.causal = Causal::bottom_right});
    EXPECT_TRUE(have_same_bits(attention(q, cache), expected)) << page_size;
  }
}

TEST_P(KvCacheAttention, HidesPaddingOnTheLeft) {
  Sequences sequences = random_sequences(3, 4, 2, 60, 12, 12);
  const Tensor starts = Tensor::of<std::int64_t>({0, 7, 31}),
               q = Tensor::copy_of(sequences.q.view().slice(2, 55, 60));
  for (std::int64_t i = 0; i < 31; ++i)
    sequences.k.at<float>(2, 0, i, 0) = std::numeric_limits<float>::quiet_NaN();
  const Tensor expected =
      attention(q, sequences.k, sequences.v, {.causal = Causal::bottom_right, .kv_starts = starts});
  for (const std::int64_t page_size : kPageSizes) {
    KvCache cache(options_for(sequences, page_size));
    cache.append(sequences.k.view().slice(2, 0, 40), sequences.v.view().slice(2, 0, 40));
    for (std::int64_t b = 0; b < 3; ++b) cache.set_start(b, starts.at<std::int64_t>(b));
    cache.append(sequences.k.view().slice(2, 40, 60), sequences.v.view().slice(2, 40, 60));
    EXPECT_TRUE(have_same_bits(attention(q, cache), expected)) << page_size;
    cache.share_prefix(2, 0, 60);
    EXPECT_TRUE(
        have_same_bits(Tensor::copy_of(attention(q, cache, {.scale = 0.0}).view().select(0, 0).select(0, 0)),
                       Tensor::copy_of(attention(q, cache, {.scale = 0.0}).view().select(0, 2).select(0, 0))));
    cache.truncate(2, 20);
    EXPECT_EQ(cache.start(2), 20);
    cache.clear(2);
    EXPECT_EQ(cache.start(2), 0);
    EXPECT_EQ(cache.start(0), 31);
  }
}

TEST_P(KvCacheAttention, HidesPaddingAlsoWhereAWindowDropsKeys) {
  Sequences sequences = random_sequences(1, 2, 2, 9500, 8, 8);
  const Tensor q = Tensor::copy_of(sequences.q.view().slice(2, 9499, 9500));
  for (const std::int64_t start : {100, 9450, 9500}) {
    const Tensor starts = Tensor::of<std::int64_t>({start});
    const Tensor expected = attention(q, sequences.k, sequences.v,
                                      {.causal = Causal::bottom_right, .window_left = 64, .kv_starts = starts});
    for (const std::int64_t page_size : kPageSizes) {
      KvCacheOptions options = options_for(sequences, page_size);
      options.window = 64;
      KvCache cache(options);
      for (std::int64_t i = 0; i < 9500; i += 100)
        cache.append(sequences.k.view().slice(2, i, i + 100), sequences.v.view().slice(2, i, i + 100));
      cache.set_start(0, start);
      EXPECT_GT(cache.first_kept(0), 4095) << page_size;
      EXPECT_TRUE(have_same_bits(attention(q, cache), expected)) << page_size << ' ' << start;
    }
  }
}

TEST_P(KvCacheAttention, EmptySequencesGiveZeros) {
  for (const std::int64_t page_size : kPageSizes) {
    KvCache cache({.batch = 2, .num_kv_heads = 1, .head_dim = 8, .page_size = page_size});
    const Tensor q = random_tensor({2, 1, 1, 8}, 1), k = random_tensor({1, 5, 8}, 2);
    EXPECT_TRUE(have_same_bits(attention(q, cache), Tensor(DType::f32, q.shape())));
    cache.append(1, k, k);
    const Tensor o = attention(q, cache);
    EXPECT_TRUE(have_same_bits(Tensor::copy_of(o.view().select(0, 0)), Tensor(DType::f32, {1, 1, 8})));
    EXPECT_NE(o.at<float>(1, 0, 0, 0), 0.0f);
  }
}

TEST_P(KvCacheAttention, TakesTheCallersLayoutAndOptions) {
  const Sequences sequences = random_sequences(2, 4, 2, 50, 12, 8);
  const Tensor q = Tensor::copy_of(sequences.q.view().slice(2, 45, 50));
  const Tensor sinks = Tensor::of<float>({0.5f, 1.0f, -1.0f, 0.0f});
  const AttentionOptions given{.scale = 0.3, .softcap = 5.0, .window_left = 17, .sinks = sinks};
  AttentionOptions plain = given;
  plain.causal = Causal::bottom_right;
  const Tensor expected = attention(q, sequences.k, sequences.v, plain);
  for (const std::int64_t page_size : kPageSizes) {
    KvCache cache(options_for(sequences, page_size));
    cache.append(sequences.k, sequences.v);
    EXPECT_TRUE(have_same_bits(attention(q, cache, given), expected));
    AttentionOptions bshd = given;
    bshd.layout = Layout::bshd;
    const Tensor o = attention(Tensor::copy_of(q.view().transposed(1, 2)), cache, bshd);
    EXPECT_TRUE(have_same_bits(Tensor::copy_of(o.view().transposed(1, 2)), expected));
  }
}

TEST_P(KvCacheAttention, ACacheThatIsNotCausalLeavesPositionsToTheCaller) {
  const Sequences sequences = random_sequences(1, 2, 2, 50, 12, 12);
  const Tensor q = Tensor::copy_of(sequences.q.view().slice(2, 0, 7));
  for (const std::int64_t page_size : kPageSizes) {
    KvCacheOptions options = options_for(sequences, page_size);
    options.causal = false;
    KvCache cache(options);
    cache.append(sequences.k, sequences.v);
    for (const AttentionOptions& given :
         {AttentionOptions{}, AttentionOptions{.causal = Causal::top_left},
          AttentionOptions{.causal = Causal::bottom_right}, AttentionOptions{.query_offset = 9, .window_left = 3}})
      EXPECT_TRUE(have_same_bits(attention(q, cache, given), attention(q, sequences.k, sequences.v, given)));
  }
}

TEST(KvCache, RefusesWhatAWindowHasForgotten) {
  for (const std::int64_t page_size : {0, 16}) {
    KvCache cache({.num_kv_heads = 1, .head_dim = 4, .page_size = page_size, .window = 10});
    const Tensor k = random_tensor({1, 6000, 4}, 1);
    for (int i = 0; i < 4; ++i) cache.append(k, k);
    EXPECT_EQ(cache.first_kept(0), page_size == 0 ? 16'384 : 17'984);
    EXPECT_THAT(
        refusal([&] { cache.truncate(0, 15'000); }),
        HasSubstr("[KvCache::truncate] the token after position 14999 would see keys from position 14990 on"));
    EXPECT_EQ(refusal([&] { cache.truncate(0, 18'000); }), "");
    cache.append(k, k);
    EXPECT_THAT(refusal([&] {
                  attention(random_tensor({1, 1, 9000, 4}, 1), cache);
                }),
                HasSubstr("[attention] q has seqlen 9000 and a window that begins at key 14990"));
  }
}

TEST(KvCache, RefusesOptionsThatAreTheCaches) {
  KvCache cache({.num_kv_heads = 1, .head_dim = 4, .window = 10});
  const Tensor lengths = Tensor::of<std::int64_t>({0}), table(DType::i32, {1, 1});
  const auto of = [&](const AttentionOptions& options) { return refusal([&] { cache.options(options); }); };
  EXPECT_EQ(of({.kv_lengths = lengths}), "[KvCache::options] kv_lengths was given: the cache sets it");
  EXPECT_EQ(of({.block_table = table}), "[KvCache::options] block_table was given: the cache sets it");
  EXPECT_THAT(of({.kv_starts = lengths}), HasSubstr("kv_starts was given: the cache sets it"));
  EXPECT_THAT(of({.cu_seqlens_k = lengths}), HasSubstr("cu_seqlens_k was given"));
  EXPECT_THAT(of({.cu_seqlens_q = lengths}), HasSubstr("cu_seqlens_q was given"));
  EXPECT_THAT(of({.causal = Causal::top_left}), HasSubstr("causal is top_left"));
  EXPECT_THAT(of({.query_offset = 1}), HasSubstr("a query offset was given"));
  EXPECT_THAT(of({.query_offsets = lengths}), HasSubstr("a query offset was given"));
  EXPECT_EQ(of({.window_left = 11}), "[KvCache::options] window_left is 11, but the cache keeps a window of 10");
  EXPECT_EQ(of({.causal = Causal::bottom_right, .window_left = 10}), "");
}

}  // namespace
}  // namespace saccade::test
