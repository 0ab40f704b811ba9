// Caches of quantized keys and values: what is stored depends on each token alone, and attention is exact over it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kv_cache/kv_cache_checks.h"
#include "saccade/attention_state.h"
#include "saccade/backward.h"
#include "saccade/compare.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/quantize.h"
#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/environment.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kKvHeads = 2, kHeads = 6, kDim = 48, kDimV = 80;

struct Format {
  DType k, v;
  std::optional<bool> rotate{};
};
const std::vector<Format>& formats() {
  static const std::vector<Format> all{{DType::i8, DType::i8},          {DType::i4, DType::i4},
                                       {DType::f8e4m3, DType::f8e4m3},  {DType::i8, DType::i4},
                                       {DType::i8, DType::i8, true},    {DType::i4, DType::i4, false},
                                       {DType::bf16, DType::i4, false}, {DType::f8e4m3, DType::f32}};
  return all;
}
std::string text_of(const Format& f) {
  return std::string(name_of(f.k)) + " " + std::string(name_of(f.v)) +
         (f.rotate.value_or(false) ? " rotated" : "");
}

KvCacheOptions options_of(const Format& format, std::int64_t batch = 1, std::int64_t page_size = 0) {
  return {.batch = batch,
          .num_kv_heads = kKvHeads,
          .head_dim = kDim,
          .head_dim_v = kDimV,
          .dtype = format.k,
          .dtype_v = format.v,
          .rotate = format.rotate,
          .page_size = page_size};
}

Tensor keys(std::int64_t count, std::uint64_t seed = 1) { return random_tensor({1, kKvHeads, count, kDim}, seed); }
Tensor values(std::int64_t count, std::uint64_t seed = 2) {
  return random_tensor({1, kKvHeads, count, kDimV}, seed);
}

KvCache filled(const KvCacheOptions& options, const Tensor& k, const Tensor& v, std::int64_t chunk) {
  KvCache cache(options);
  for (std::int64_t i = 0; i < k.shape(2); i += chunk) {
    const std::int64_t end = std::min(k.shape(2), i + chunk);
    cache.append(k.view().slice(2, i, end), v.view().slice(2, i, end));
  }
  return cache;
}

::testing::AssertionResult store_the_same(const KvCache& a, const KvCache& b) {
  if (const auto keys = have_same_bits(a.dequantize_k(), b.dequantize_k()); !keys) return keys;
  return have_same_bits(a.dequantize_v(), b.dequantize_v());
}

// ---- What is stored --------------------------------------------------------------------------------------------

TEST(QuantizedKvCache, StoresTheSameBytesHoweverTokensArrive) {
  const Tensor k = keys(300), v = values(300);
  for (const Format& format : formats()) {
    SCOPED_TRACE(text_of(format));
    const KvCache whole = filled(options_of(format), k, v, 300);
    for (const std::int64_t page_size : {0, 1, 16, 100})
      for (const std::int64_t chunk : {1, 7, 128})
        EXPECT_TRUE(store_the_same(filled(options_of(format, 1, page_size), k, v, chunk), whole));
  }
}

TEST(QuantizedKvCache, StoresTheRowsOfQuantize) {
  const Tensor k = keys(20), v = values(20);
  for (const DType dtype : {DType::i8, DType::i4, DType::f8e4m3}) {
    const KvCache plain = filled(options_of({dtype, dtype, false}), k, v, 3);
    EXPECT_TRUE(have_same_bits(plain.dequantize_k(), dequantize(quantize(k, dtype))));
    EXPECT_TRUE(have_same_bits(plain.dequantize_v(), dequantize(quantize(v, dtype))));
    const KvCache rotated = filled(options_of({dtype, dtype, true}), k, v, 3);
    EXPECT_TRUE(have_same_bits(rotated.dequantize_k(), hadamard(dequantize(quantize(hadamard(k), dtype)))));
    const AttentionOptions options = rotated.options();
    EXPECT_TRUE(options.k_rotated);
    EXPECT_EQ(options.v_rotated, dtype == DType::i4);
  }
}

TEST(QuantizedKvCache, KeepsRowsThroughSharingTruncatingAndEviction) {
  const Tensor k = keys(9000), v = values(9000);
  for (const Format& format : formats()) {
    SCOPED_TRACE(text_of(format));
    const KvCache whole = filled(options_of(format), k, v, 9000);
    const Tensor all_k = whole.dequantize_k(), all_v = whole.dequantize_v();
    for (const std::int64_t page_size : {0, 16}) {
      KvCacheOptions options = options_of(format, 2, page_size);
      options.window = 40;
      KvCache cache(options);
      for (std::int64_t i = 0; i < 9000; i += 750)
        cache.append(0, k.view().select(0, 0).slice(1, i, i + 750), v.view().select(0, 0).slice(1, i, i + 750));
      cache.share_prefix(0, 1, 8990);
      cache.truncate(0, 8995);
      for (const std::int64_t sequence : {0, 1}) {
        const std::int64_t length = cache.length(sequence), first = cache.first_kept(sequence);
        EXPECT_GT(first, 0);
        const std::int64_t begin = page_size == 0 ? 0 : first, offset = page_size == 0 ? first : 0;
        const auto rows = [&](const Tensor& kept) {
          return Tensor::copy_of(kept.view().select(0, sequence).slice(1, begin, length - offset));
        };
        const auto wanted = [&](const Tensor& all) {
          return Tensor::copy_of(all.view().select(0, 0).slice(1, begin + offset, length));
        };
        EXPECT_TRUE(have_same_bits(rows(cache.dequantize_k()), wanted(all_k)));
        EXPECT_TRUE(have_same_bits(rows(cache.dequantize_v()), wanted(all_v)));
      }
    }
  }
}

TEST(QuantizedKvCache, TakesAFractionOfTheMemory) {
  const auto bytes = [](DType dtype) {
    return static_cast<double>(
        KvCache({.num_kv_heads = 8, .head_dim = 128, .dtype = dtype, .capacity = 4096}).bytes());
  };
  EXPECT_LE(bytes(DType::i8) / bytes(DType::bf16), 0.52);
  EXPECT_LE(bytes(DType::f8e4m3) / bytes(DType::bf16), 0.52);
  EXPECT_LE(bytes(DType::i4) / bytes(DType::bf16), 0.30);
}

// ---- Attention -------------------------------------------------------------------------------------------------

class QuantizedKvCacheOfEachIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(QuantizedKvCacheOfEachIsa);

/// The options of a call over the numbers of dequantize_k() and dequantize_v().
AttentionOptions over_numbers(const KvCache& cache, const AttentionOptions& rest = {}) {
  AttentionOptions options = cache.options(rest);
  options.k_scale = options.v_scale = options.k_multipliers = options.v_multipliers = options.block_table = {};
  options.k_rotated = options.v_rotated = false;
  return options;
}

TEST_P(QuantizedKvCacheOfEachIsa, AttentionHasTheBitsOfTheDequantizedNumbers) {
  for (const std::int64_t rows : {1, 40}) {
    const Tensor q = random_tensor({1, kHeads, rows, kDim}, 3);
    for (const Format& format : formats()) {
      const KvCache cache = filled(options_of(format, 1, rows == 1 ? 16 : 0), keys(333), values(333), 50);
      if (cache.options().k_rotated || cache.options().v_rotated) continue;
      if (!is_quantized(format.k) || !is_quantized(format.v)) continue;  // other kernels take a mix of types
      Tensor lse(DType::f32, {1, kHeads, rows}), of_numbers = lse;
      const Tensor o = attention(q, cache, {.lse = lse});
      AttentionOptions options = over_numbers(cache, {.lse = of_numbers});
      const Tensor wanted = attention(q, cache.dequantize_k(), cache.dequantize_v(), options);
      EXPECT_TRUE(have_same_bits(o, wanted)) << text_of(format);
      EXPECT_TRUE(have_same_bits(lse, of_numbers)) << text_of(format);
    }
  }
}

/// Compares attention() and decode() with attention in f64 over the numbers of the cache.
void expect_exact(const Tensor& q, const KvCache& cache, const AttentionOptions& rest) {
  const AttentionOptions of_numbers = over_numbers(cache, rest);
  const Tensor k = cache.dequantize_k(), v = cache.dequantize_v();
  const reference::AttentionResult exact = reference::attention(q, k, v, of_numbers);
  const reference::AttentionResult naive =
      reference::naive_attention(q, k, v, of_numbers, exact, {.o = q.dtype()});
  Tensor lse(DType::f32, {1, kHeads, q.shape()[2]});
  AttentionOptions options = rest;
  options.lse = lse;
  for (const bool decodes : {false, true}) {
    SCOPED_TRACE(decodes ? "decode()" : "attention()");
    const Tensor o = decodes ? decode(q, cache, options) : attention(q, cache, options);
    const Comparison of_o = compare(o, {exact.o, naive.o, exact.bound, o.dtype()});
    EXPECT_TRUE(of_o.holds) << to_string(of_o);
    const Comparison of_lse = compare(lse, {exact.lse, naive.lse});
    EXPECT_TRUE(of_lse.holds) << to_string(of_lse);
  }
}

TEST_P(QuantizedKvCacheOfEachIsa, AgreesWithF64OverTheStoredNumbers) {
  const Tensor sinks = random_tensor({kHeads}, 9), slopes = alibi_slopes(kHeads);
  const std::vector<AttentionOptions> all{{},
                                          {.softcap = 5.0},
                                          {.window_left = 70},
                                          {.alibi_slopes = slopes, .sinks = sinks},
                                          {.dropout_p = 0.3, .dropout_seed = 4}};
  constexpr std::array kDTypes{DType::f32, DType::bf16, DType::f16};
  for (std::size_t turn = 0; const Format& format : formats()) {
    for (const DType dtype : one_if_slow(kDTypes, ++turn)) {
      for (std::size_t n = 0; n < all.size(); ++n) {
        SCOPED_TRACE(text_of(format) + ", q " + std::string(name_of(dtype)) + ", options " + std::to_string(n));
        KvCache cache = filled(options_of(format, 1, n % 2 == 0 ? 0 : 16), keys(260), values(260), 64);
        cache.truncate(0, 250);
        cache.set_start(0, 3);
        const Tensor q = random_tensor({1, kHeads, 5, kDim}, 3, dtype);
        expect_exact(q, cache, all[n]);
      }
    }
  }
}

void expect_bits_of_the_row_alone(DType dtype) {
  const Tensor q = random_tensor({1, kHeads, 4, kDim}, 3, dtype), k = keys(5000), v = values(5000);
  for (const Format& format : formats()) {
    SCOPED_TRACE(text_of(format));
    const KvCache cache = filled(options_of(format), k, v, 5000),
                  paged = filled(options_of(format, 1, 16), k, v, 99);
    const Tensor of_attention = attention(q, cache), of_decode = decode(q, cache);
    for (const int threads : {1, 3}) {
      EXPECT_TRUE(have_same_bits(attention(q, paged, {.num_threads = threads}), of_attention));
      EXPECT_TRUE(have_same_bits(decode(q, paged, {.num_threads = threads}), of_decode));
    }
    const Tensor last = Tensor::copy_of(q.view().slice(2, 3, 4));
    const auto last_row = [](const Tensor& o) { return Tensor::copy_of(o.view().slice(2, 3, 4)); };
    EXPECT_TRUE(have_same_bits(attention(last, cache), last_row(of_attention)));
    EXPECT_TRUE(have_same_bits(decode(last, cache), last_row(of_decode)));
    KvCache batch(options_of(format, 2));
    batch.append(0, keys(77, 5).view().select(0, 0), values(77, 6).view().select(0, 0));
    batch.append(1, k.view().select(0, 0), v.view().select(0, 0));
    Tensor two(dtype, {2, kHeads, 4, kDim});
    copy(q.view().select(0, 0), two.mutable_view().select(0, 1));
    const auto second = [](const Tensor& o) { return Tensor::copy_of(o.view().slice(0, 1, 2)); };
    EXPECT_TRUE(have_same_bits(second(attention(two, batch)), of_attention));
    EXPECT_TRUE(have_same_bits(second(decode(two, batch)), of_decode));
  }
}
TEST_P(QuantizedKvCacheOfEachIsa, BitsDependOnTheRowAlone) {
  constexpr std::array kDTypes{DType::f32, DType::bf16};
  for (const DType dtype : one_if_slow(kDTypes, static_cast<std::size_t>(GetParam())))
    expect_bits_of_the_row_alone(dtype);
}

/// `hidden`: a key that is hidden beside 32 to 127, which no product is computed for.
void expect_nothing_of_hidden_nan(std::int64_t hidden) {
  constexpr std::int64_t kTokens = 300;
  const auto is_hidden = [&](std::int64_t key) { return (key >= 32 && key < 128) || key == hidden; };
  Tensor mask(DType::boolean, {1, kTokens});
  for (std::int64_t key = 0; key < kTokens; ++key) mask.at<bool>(0, key) = !is_hidden(key);
  for (const DType stored : {DType::i8, DType::f8e4m3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::string(name_of(stored)) + ", q " + std::string(name_of(dtype)));
      const Tensor q = random_tensor({1, kHeads, 2, kDim}, 3, dtype);
      QuantizedTensor k = quantize(keys(kTokens), stored), v = quantize(values(kTokens), stored);
      const auto results = [&] {
        const AttentionOptions options{.mask = mask, .k_scale = k.scale, .v_scale = v.scale};
        return std::array{attention(q, k.view(), v.view(), options), decode(q, k.view(), v.view(), options)};
      };
      const auto wanted = results();
      for (QuantizedTensor* x : {&k, &v}) {
        const auto row_bytes = x->numbers.size() / (kKvHeads * kTokens);
        for (std::int64_t row = 0; row < kKvHeads * kTokens; ++row) {
          if (!is_hidden(row % kTokens)) continue;
          x->scale.values<float>()[static_cast<std::size_t>(row)] = std::numeric_limits<float>::quiet_NaN();
          if (stored == DType::f8e4m3)
            std::memset(static_cast<std::byte*>(x->numbers.data()) + row * row_bytes, 0x7f,
                        static_cast<std::size_t>(row_bytes));
        }
      }
      const auto found = results();
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(have_same_bits(found[i], wanted[i])) << (i == 0 ? "attention" : "decode");
      if (stored != DType::f8e4m3) continue;
      static_cast<std::uint8_t*>(v.numbers.data())[5] = 0x7f;  // of key 0 of the first head, which all rows see
      for (const Tensor& o : results()) {
        const Tensor of_f32 = Tensor::copy_of(o, DType::f32);
        EXPECT_TRUE(std::isnan(of_f32.at<float>(0, 0, 1, 5)));
        EXPECT_TRUE(std::isfinite(of_f32.at<float>(0, 0, 1, 6)));
        EXPECT_TRUE(std::isfinite(of_f32.at<float>(0, kHeads - 1, 1, 5)));
      }
    }
}
TEST_P(QuantizedKvCacheOfEachIsa, HiddenNaNReachesNothing) {
  for (const std::int64_t hidden : {40, 201}) {
    SCOPED_TRACE(hidden);
    expect_nothing_of_hidden_nan(hidden);
  }
}

TEST_P(QuantizedKvCacheOfEachIsa, TakesHugeAndTinyValues) {
  for (const auto& [dtype, factor] :
       {std::pair{DType::f32, 1e36F}, {DType::bf16, 1e36F}, {DType::f32, 1e-34F}, {DType::bf16, 1e-30F}})
    for (const Format& format : formats()) {
      SCOPED_TRACE(text_of(format) + ", q " + std::string(name_of(dtype)) + ", factor " + std::to_string(factor));
      Tensor v = values(260);
      for (float& x : v.values<float>()) x *= factor;
      const KvCache cache = filled(options_of(format), keys(260), v, 260);
      const Tensor q = random_tensor({1, kHeads, 2, kDim}, 3, dtype);
      expect_exact(q, cache, {});
    }
}

TEST_P(QuantizedKvCacheOfEachIsa, ABadRowReachesOnlyTheRowsThatSeeIt) {
  constexpr std::int64_t kTokens = 100, kBad = 97;
  Tensor k = keys(kTokens), v = values(kTokens);
  const KvCacheOptions plain = options_of({DType::i8, DType::i8});
  const Tensor q = random_tensor({1, kHeads, 4, kDim}, 3);
  const KvCache clean = filled(plain, k, v, kTokens);
  for (Tensor* spoiled : {&k, &v}) {
    Tensor kept = *spoiled;
    spoiled->at<float>(0, 0, kBad, 5) = std::numeric_limits<float>::infinity();
    for (const Format& format : formats()) {
      SCOPED_TRACE(text_of(format));
      if (!is_quantized(spoiled == &k ? format.k : format.v)) continue;
      const KvCache good = filled(options_of(format), spoiled == &k ? kept : k, spoiled == &v ? kept : v, kTokens);
      const KvCache bad = filled(options_of(format), k, v, kTokens);
      for (const bool decodes : {false, true}) {
        const Tensor o = decodes ? decode(q, bad) : attention(q, bad);
        const Tensor wanted = decodes ? decode(q, good) : attention(q, good);
        for (std::int64_t head = 0; head < kHeads; ++head)
          for (std::int64_t row = 0; row < 4; ++row)
            for (std::int64_t d = 0; d < kDimV; ++d) {
              const bool sees = head < kHeads / kKvHeads && row + kTokens - 4 >= kBad;
              const float number = o.at<float>(0, head, row, d);
              if (sees)
                ASSERT_TRUE(std::isnan(number)) << head << ' ' << row;
              else
                ASSERT_EQ(number, wanted.at<float>(0, head, row, d)) << head << ' ' << row;
            }
      }
    }
    *spoiled = kept;
  }
}

TEST_P(QuantizedKvCacheOfEachIsa, InspectsWhatIsStored) {
  const Tensor q = random_tensor({1, kHeads, 6, kDim}, 3);
  for (const Format& format : formats()) {
    SCOPED_TRACE(text_of(format));
    const KvCache cache = filled(options_of(format), keys(200), values(200), 200);
    Tensor weights(DType::f32, {1, kHeads, 6, 200});
    attention(q, cache, {.weights = weights});
    const Inspection seen = inspect(q, cache.k(), {.entropy = true, .received = true}, cache.options());
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (std::int64_t row = 0; row < 6; ++row) {
        double entropy = 0;
        for (std::int64_t j = 0; j < 200; ++j)
          if (const double w = weights.at<float>(0, head, row, j); w > 0) entropy -= w * std::log(w);
        EXPECT_NEAR(seen.entropy.at<float>(0, head, row), entropy, 1e-4);
      }
  }
}

TEST_P(QuantizedKvCacheOfEachIsa, TakesScalesOfAnySign) {
  const Tensor q = random_tensor({1, kHeads, 2, kDim}, 3);
  const KvCache cache = filled(options_of({DType::i8, DType::i8}), keys(600), values(600), 600);
  Tensor v_scale = random_tensor({kKvHeads, 600, 1}, 8);
  AttentionOptions options = cache.options();
  options.v_scale = v_scale;
  const auto expect_reference = [&] {
    const Tensor wanted = reference::attention(q, cache.k(), cache.v(), options).o;
    for (const Tensor& o : {attention(q, cache.k(), cache.v(), options), decode(q, cache.k(), cache.v(), options)})
      for (std::int64_t i = 0; i < o.size(); ++i)
        EXPECT_NEAR(o.values<float>()[static_cast<std::size_t>(i)],
                    wanted.values<double>()[static_cast<std::size_t>(i)], 1e-4);
  };
  expect_reference();
  for (float& x : v_scale.values<float>()) x = -0.01F;
  expect_reference();
  v_scale.values<float>()[7] = std::numeric_limits<float>::infinity();
  for (const Tensor& o : {attention(q, cache.k(), cache.v(), options), decode(q, cache.k(), cache.v(), options)})
    for (std::int64_t d = 0; d < kDimV; ++d) {
      EXPECT_FALSE(std::isfinite(o.at<float>(0, 0, 0, d)));
      EXPECT_TRUE(std::isfinite(o.at<float>(0, kHeads - 1, 0, d)));
    }
}

TEST_P(QuantizedKvCacheOfEachIsa, TakesScalesNearTheLargestFloat) {
  constexpr float kScale = 3.395e38F;
  Tensor k(DType::i8, {1, 1, 1, 16}), v(DType::i8, {1, 1, 1, 16}), v_scale(DType::f32, {1});
  std::fill_n(static_cast<std::int8_t*>(v.data()), 8, std::int8_t{1});
  std::fill_n(static_cast<std::int8_t*>(v.data()) + 8, 8, std::int8_t{-1});
  v_scale.values<float>()[0] = kScale;
  const AttentionOptions options{.k_scale = v_scale, .v_scale = v_scale};  // k is 0
  const Tensor o = decode(random_tensor({1, 1, 1, 16}, 3), k, v, options);
  for (std::int64_t d = 0; d < 16; ++d) EXPECT_NEAR(o.at<float>(0, 0, 0, d) / kScale, d < 8 ? 1 : -1, 1e-6) << d;
}

TEST_P(QuantizedKvCacheOfEachIsa, ARowThatSeesNothingIsZeroWhateverTheScales) {
  const Tensor q = random_tensor({1, kHeads, 2, kDim}, 3), lengths(DType::i32, {1});
  const KvCache cache = filled(options_of({DType::i8, DType::i8}), keys(40), values(40), 40);
  Tensor of_channels(DType::f32, {kDimV});
  for (float& x : of_channels.values<float>()) x = std::numeric_limits<float>::infinity();
  AttentionOptions options = cache.options();
  options.kv_lengths = lengths;
  options.v_scale = of_channels;
  for (const Tensor& o : {attention(q, cache.k(), cache.v(), options), decode(q, cache.k(), cache.v(), options)})
    for (const float x : o.values<float>()) EXPECT_EQ(x, 0.0F);
}

TEST(QuantizedKvCacheStates, AreThoseOfDecode) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Format& format : formats()) {
      const Tensor q = random_tensor({1, kHeads, 2, kDim}, 3, dtype);
      const KvCache cache = filled(options_of(format), keys(6000), values(6000), 1000);
      const AttentionOptions options = cache.options();
      const Tensor states = decode_states(q, cache.k(), cache.v(), options);
      for (const DType of_o : {dtype, DType::f32}) {
        Tensor o(of_o, {1, kHeads, 2, kDimV}), wanted(of_o, {1, kHeads, 2, kDimV});
        merge_decode_states(q, cache.k(), cache.v(), states, o, options);
        decode(q, cache, wanted);
        EXPECT_TRUE(have_same_bits(o, wanted)) << text_of(format);
      }
    }
}

TEST(QuantizedKvCacheOptions, AreRefusedWithAReason) {
  const auto refused = [](const KvCacheOptions& options) { return refusal([&] { KvCache cache(options); }); };
  EXPECT_THAT(refused({.head_dim = 8, .dtype = DType::i16}),
              HasSubstr("dtype must be f32, bf16, f16, f64, i8, f8e4m3 or i4, but it is i16"));
  EXPECT_THAT(refused({.head_dim = 8, .dtype = DType::f64, .dtype_v = DType::i8}),
              HasSubstr("dtype and dtype_v must both be f64 or neither"));
  EXPECT_THAT(refused({.head_dim = 8, .dtype = DType::bf16, .rotate = true}), HasSubstr("rotate needs quantized"));
  const KvCache cache = filled(options_of({DType::i8, DType::i8}), keys(5), values(5), 5);
  const Tensor q = random_tensor({1, kHeads, 1, kDim}, 3), scale(DType::f32, {1});
  EXPECT_THAT(refusal([&] { attention(q, cache, {.k_scale = scale}); }),
              HasSubstr("k_scale or v_scale was given: the cache"));
  EXPECT_THAT(refusal([&] { attention(q, cache.k(), cache.v()); }), HasSubstr("k is i8, which needs k_scale"));
  EXPECT_THAT(refusal([&] { attention(Tensor::copy_of(q, DType::f64), cache); }),
              HasSubstr("must all be f64 or none"));
  const Tensor per_both(DType::f32, {5, kDim});
  EXPECT_THAT(refusal([&] { attention(q, cache.k(), cache.v(), {.k_scale = per_both, .v_scale = scale}); }),
              HasSubstr("one scale for each token or for each channel, not for both"));
}

TEST(QuantizedTensors, AreRefusedWithAReason) {
  const Tensor q(DType::f32, {1, 1, 1, 64}), k(DType::i8, {2, 1, 16, 64}), table(DType::i32, {1, 2});
  const Tensor lengths(DType::i32, {1}), scale(DType::f32, {1}), of_pages(DType::f32, {2, 1, 1, 64});
  EXPECT_THAT(refusal([&] {
                decode(q, k, k,
                       {.kv_lengths = lengths, .block_table = table, .k_scale = of_pages, .v_scale = scale});
              }),
              HasSubstr("k_scale must have the same scales of channels for all pages"));
  const Tensor bytes(DType::u8, {4, 64}), multipliers(DType::i8, {4, 8});
  const auto of_i4 = [&](std::int64_t dim, std::int64_t stride) {
    return TensorView(bytes.data(), DType::i4, std::array<std::int64_t, 2>{4, dim},
                      std::array{stride, std::int64_t{1}});
  };
  const auto refused = [&](const TensorView& rows, const TensorView& of_groups) {
    return refusal([&] {
      attention(Tensor(DType::f32, {1, rows.shape[1]}), rows, rows,
                {.k_scale = scale, .v_scale = scale, .k_multipliers = of_groups, .v_multipliers = of_groups});
    });
  };
  EXPECT_THAT(refused(of_i4(16, 16), multipliers.view().slice(1, 0, 2)),
              HasSubstr("k of i4 must have rows of 32 numbers and even strides, but a stride is 16"));
  EXPECT_THAT(refused(of_i4(64, 67), multipliers.view().slice(1, 0, 4)), HasSubstr("but a stride is 67"));
  EXPECT_EQ(refused(of_i4(64, 64), multipliers.view().slice(1, 0, 4)), "");
  const TensorView every_other(multipliers.data(), DType::i8, std::array<std::int64_t, 2>{4, 4},
                               std::array<std::int64_t, 2>{8, 2});
  EXPECT_THAT(refused(of_i4(64, 64), every_other), HasSubstr("k_multipliers must have a contiguous"));
  EXPECT_THAT(refusal([&] {
                dequantize(of_i4(64, 64), scale, Tensor(DType::i8, {4, 1}));
              }),
              HasSubstr("multipliers has shape [4, 1]"));
  EXPECT_THAT(refusal([&] { dequantize(of_i4(64, 64), scale, every_other); }), HasSubstr("contiguous"));
  EXPECT_THAT(refusal([&] { dequantize(of_i4(16, 16), scale, multipliers.view().slice(1, 0, 2)); }),
              HasSubstr("x of i4 must have rows of 32 numbers"));
  EXPECT_THAT(refusal([&] { dequantize(k.view().transposed(2, 3), scale); }),
              HasSubstr("x must have a contiguous"));
}

TEST(QuantizedTensors, HaveNoGradients) {
  const Tensor q(DType::f32, {1, 1, 4, 64}), k(DType::f8e4m3, {1, 1, 4, 64});
  Tensor dq(DType::f32, {1, 1, 4, 64});
  EXPECT_THAT(refusal([&] {
                attention_backward(q, k, q, {.o = q, .lse = Tensor(DType::f32, {1, 1, 4}), .dout = q}, {.dq = dq});
              }),
              HasSubstr("k is f8e4m3, but attention_backward has no quantized keys and values"));
}

TEST(QuantizedTensors, OfAStateMustAgree) {
  const Tensor q = random_tensor({4, 64}, 1), k(DType::i8, {4, 64}), of_tokens(DType::f32, {4, 1});
  Tensor of_channels = random_tensor({64}, 2);
  const AttentionOptions options{.k_scale = of_tokens, .v_scale = of_channels, .k_rotated = true};
  const auto refused = [&](const TensorView& v, const AttentionOptions& changed) {
    return refusal([&] {
      AttentionState state;
      state.add(q, k, k, options);
      of_channels.at<float>(5) += 1;
      state.add(q, k, v, changed);
    });
  };
  const Tensor same = of_channels;
  AttentionOptions other = options;
  other.v_scale = same;
  EXPECT_EQ(refused(k, other), "");  // numbers of the first call may be gone
  EXPECT_THAT(refused(k, other), HasSubstr("v_scale has other scales of channels than in the first call"));
  other.k_rotated = false;
  EXPECT_THAT(refused(k, other), HasSubstr("k_rotated was not given, but in the first call it was"));
  other = options;
  other.v_scale = {};
  EXPECT_THAT(refused(q, other), HasSubstr("v is f32, but it was i8 in the first call"));
  EXPECT_THAT(refused(k, other), HasSubstr("v is i8, which needs v_scale"));
}

TEST_P(QuantizedKvCacheOfEachIsa, StatesTakeScalesOfChannelsOfKeys) {
  const Tensor q = random_tensor({4, 64}, 1, DType::bf16);
  const QuantizedTensor k = quantize(random_tensor({40, 64}, 2), DType::i8),
                        v = quantize(random_tensor({40, 64}, 3), DType::i8);
  Tensor of_channels(DType::f32, {64});
  for (float& x : of_channels.values<float>()) x = 0.02F;
  const AttentionOptions first{.k_scale = of_channels, .v_scale = v.scale},
      second{.k_scale = k.scale, .v_scale = v.scale};
  AttentionState state(DType::f32);
  state.add(q, k.view(), v.view(), first);
  state.add(q, k.view(), v.view(), second);
  Tensor lse(DType::f32, {4}), o(DType::f32, {4, 64});
  state.finish(o, {.lse = lse});
  Tensor both_k(DType::f32, {80, 64}), both_v(DType::f32, {80, 64}), wanted_lse(DType::f32, {4});
  for (std::int64_t i = 0; i < 80; ++i)
    for (std::int64_t d = 0; d < 64; ++d) {
      const std::int64_t row = i % 40;
      const float scale = i < 40 ? 0.02F : k.scale.at<float>(row, 0);
      both_k.at<float>(i, d) = scale * static_cast<float>(k.numbers.at<std::int8_t>(row, d));
      both_v.at<float>(i, d) = v.scale.at<float>(row, 0) * static_cast<float>(v.numbers.at<std::int8_t>(row, d));
    }
  Tensor wanted(DType::f32, {4, 64});
  attention(q, both_k, both_v, wanted, {.lse = wanted_lse});
  for (std::int64_t row = 0; row < 4; ++row) {
    EXPECT_NEAR(lse.at<float>(row), wanted_lse.at<float>(row), 1e-4);
    for (std::int64_t d = 0; d < 64; ++d) EXPECT_NEAR(o.at<float>(row, d), wanted.at<float>(row, d), 1e-4);
  }
  const auto refused = [&] {
    AttentionState other(DType::f32);
    other.add(q, k.view(), v.view(), second);
    other.add(q, k.view(), v.view(), first);
  };
  EXPECT_THAT(refusal(refused), HasSubstr("k_scale has scales of channels, but it had none in the first call"));
}

}  // namespace
}  // namespace saccade::test
