// KvCache::state() and from_state(): a cache that was saved and one that was not go on with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "kv_cache/kv_cache_checks.h"
#include "saccade/kv_cache.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kKvHeads = 2, kHeads = 4, kDim = 48, kDimV = 80;

struct StateFormat {
  DType k, v;
  std::optional<bool> rotate{};
};
const std::vector<StateFormat>& state_formats() {
  static const std::vector<StateFormat> all{
      {DType::f32, DType::f32},       {DType::bf16, DType::bf16},    {DType::f16, DType::f16},
      {DType::f64, DType::f64},       {DType::i8, DType::i8},        {DType::i4, DType::i4},
      {DType::f8e4m3, DType::f8e4m3}, {DType::i8, DType::i4},        {DType::i8, DType::i8, true},
      {DType::bf16, DType::i4},       {DType::i4, DType::f32, false}};
  return all;
}

KvCacheOptions options_of(const StateFormat& format, std::int64_t page_size, std::int64_t window = -1) {
  return {.batch = 3,
          .num_kv_heads = kKvHeads,
          .head_dim = kDim,
          .head_dim_v = kDimV,
          .dtype = format.k,
          .dtype_v = format.v,
          .rotate = format.rotate,
          .page_size = page_size,
          .window = window};
}

Tensor keys(std::int64_t count, std::uint64_t seed) { return random_tensor({kKvHeads, count, kDim}, seed); }
Tensor values(std::int64_t count, std::uint64_t seed) { return random_tensor({kKvHeads, count, kDimV}, seed); }

void append(KvCache& cache, std::int64_t sequence, std::int64_t count, std::uint64_t seed) {
  cache.append(sequence, keys(count, seed), values(count, seed + 1));
}

/// Three sequences: one with padding, one that shares a prefix with it, and an empty one.
KvCache filled(const KvCacheOptions& options, std::int64_t tokens) {
  KvCache cache(options);
  for (std::int64_t i = 0; i < tokens; i += 1500) append(cache, 0, std::min<std::int64_t>(1500, tokens - i), 10);
  cache.set_start(0, 3);
  cache.share_prefix(0, 1, tokens - 2);
  append(cache, 1, 5, 30);
  return cache;
}

::testing::AssertionResult have_same_state(const KvCache& a, const KvCache& b) {
  const KvCacheState left = a.state(), right = b.state();
  if (left.metadata != right.metadata) return ::testing::AssertionFailure() << "the metadata differ";
  if (left.tensors.size() != right.tensors.size()) return ::testing::AssertionFailure() << "other tensors";
  for (const auto& [name, tensor] : left.tensors)
    if (!right.tensors.contains(name) || !same_bits(tensor, right.tensors.at(name)))
      return ::testing::AssertionFailure() << name << " differs";
  return ::testing::AssertionSuccess();
}

void expect_same_results(const KvCache& a, const KvCache& b) {
  const Tensor q =
      random_tensor({3, kHeads, 1, kDim}, 5, a.config().dtype == DType::f64 ? DType::f64 : DType::f32);
  EXPECT_TRUE(have_same_bits(decode(q, a), decode(q, b)));
  EXPECT_TRUE(have_same_bits(attention(q, a), attention(q, b)));
  EXPECT_TRUE(std::ranges::equal(a.lengths(), b.lengths()));
  EXPECT_EQ(a.start(0), b.start(0));
}

/// What a server does next.
void go_on(KvCache& cache) {
  append(cache, 2, 40, 50);
  append(cache, 0, 7, 60);
  cache.share_prefix(1, 2, std::max<std::int64_t>(0, cache.length(1) - 3));
  cache.truncate(0, cache.length(0) - 2);
  for (std::int64_t b = 0; b < 3; ++b) append(cache, b, 1, 70 + static_cast<std::uint64_t>(b));
}

TEST(KvCacheState, RestoresEveryTypeAndLayout) {
  for (const StateFormat& format : state_formats()) {
    for (const std::int64_t page_size : {0, 16}) {
      for (const std::int64_t window : {-1, 100}) {
        SCOPED_TRACE(std::string(name_of(format.k)) + " " + std::string(name_of(format.v)) + ", pages of " +
                     std::to_string(page_size) + ", window " + std::to_string(window));
        KvCache cache = filled(options_of(format, page_size, window), window < 0 ? 70 : 9000);
        KvCache restored = KvCache::from_state(cache.state());
        EXPECT_EQ(cache.first_kept(1) > 0, window >= 0);
        EXPECT_EQ(restored.first_kept(1), cache.first_kept(1));
        EXPECT_EQ(restored.pages_in_use(), cache.pages_in_use());
        EXPECT_TRUE(have_same_state(cache, restored));
        expect_same_results(cache, restored);
        go_on(cache);
        go_on(restored);
        EXPECT_EQ(restored.pages_in_use(), cache.pages_in_use());
        const bool drops_alike = page_size > 0 || window < 0;  // without pages, the capacity decides when
        EXPECT_TRUE(!drops_alike || have_same_state(cache, restored));
        expect_same_results(cache, restored);
      }
    }
  }
}

TEST(KvCacheState, RestoresAnEmptyCache) {
  for (const std::int64_t page_size : {0, 16}) {
    KvCacheOptions options = options_of({DType::i8, DType::i4}, page_size);
    options.capacity = 1000;
    KvCache cache(options), restored = KvCache::from_state(cache.state());
    EXPECT_TRUE(have_same_state(cache, restored));
    EXPECT_EQ(restored.config().capacity, 0);
    go_on(cache), go_on(restored);
    expect_same_results(cache, restored);
  }
}

TEST(KvCacheState, RestoresTheRotaryEmbedding) {
  const std::vector<RopeOptions> all{{},
                                     {.base = 500000.0, .scaling_factor = 8.0},
                                     {.rotary_dim = 12, .pairs = RopePairs::interleaved},
                                     {.rotary_dim = 4, .frequencies = {0.7, 1e-5}}};
  for (const RopeOptions& rope : all) {
    KvCacheOptions options = options_of({DType::bf16, DType::i8}, 0);
    options.rope.emplace(kDim, rope);
    KvCache cache = filled(options, 20), restored = KvCache::from_state(cache.state());
    go_on(cache), go_on(restored);
    EXPECT_TRUE(have_same_state(cache, restored));
    expect_same_results(cache, restored);
  }
}

TEST(KvCacheState, HoldsWhatIsInUse) {
  KvCacheOptions options = options_of({DType::i4, DType::f8e4m3}, 0);
  options.capacity = 4000;
  const KvCacheState contiguous = filled(options, 70).state();
  const auto shape = [](const KvCacheState& state, const char* name) { return state.tensors.at(name).shape(); };
  EXPECT_THAT(shape(contiguous, "0.k"), ElementsAre(kKvHeads, 70, 32));  // 48 numbers are filled up to 64
  EXPECT_EQ(contiguous.tensors.at("0.k").dtype(), DType::u8);
  EXPECT_THAT(shape(contiguous, "0.k_scale"), ElementsAre(kKvHeads, 70, 1));
  EXPECT_THAT(shape(contiguous, "1.k_multipliers"), ElementsAre(kKvHeads, 73, 4));
  EXPECT_THAT(shape(contiguous, "1.v"), ElementsAre(kKvHeads, 73, kDimV));
  EXPECT_EQ(contiguous.tensors.at("1.v").dtype(), DType::f8e4m3);
  EXPECT_THAT(shape(contiguous, "2.v_scale"), ElementsAre(kKvHeads, 0, 1));

  options.page_size = 16;
  const KvCache cache = filled(options, 70);
  const KvCacheState paged = cache.state();
  EXPECT_EQ(cache.pages_in_use(), 6);  // 4 of the prefix, and a fifth of each sequence
  EXPECT_THAT(shape(paged, "k"), ElementsAre(6, kKvHeads, 16, 32));
  EXPECT_THAT(shape(paged, "block_table"), ElementsAre(3, 5));
  const auto table = paged.tensors.at("block_table").values<std::int32_t>();
  EXPECT_THAT(table, ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 5, -1, -1, -1, -1, -1));
  for (std::int64_t row = 6; row < 16; ++row) {  // rows without a token hold nothing that memory held before
    const Tensor bytes = Tensor::copy_of(paged.tensors.at("k").view().select(0, 4).slice(1, row, row + 1));
    for (const std::uint8_t byte : bytes.values<std::uint8_t>()) ASSERT_EQ(byte, 0);
  }
}

TEST(KvCacheState, OfPagesKeepsThemShared) {
  const KvCache cache = filled(options_of({DType::i8, DType::i8}, 16), 64);
  KvCache restored = KvCache::from_state(cache.state());
  const Tensor before = restored.dequantize_k();
  const std::int64_t pages = restored.pages_in_use();
  restored.truncate(1, 10);  // then the next token goes into a page that sequence 0 reads too
  append(restored, 1, 1, 90);
  EXPECT_EQ(restored.pages_in_use(), pages - 1);  // without its own two, with a copy of the first
  const auto of_0 = [](const Tensor& all) { return Tensor::copy_of(all.view().select(0, 0).slice(1, 0, 64)); };
  EXPECT_TRUE(have_same_bits(of_0(restored.dequantize_k()), of_0(before)));
}

// ---- States that no cache has --------------------------------------------------------------------------------

using Damage = std::function<void(KvCacheState&)>;

std::string refusal_of(const KvCacheState& good, const Damage& damage) {
  KvCacheState state = good;
  damage(state);
  return refusal([&] { KvCache::from_state(state); });
}
Damage metadata(const char* name, const char* value) {
  return [=](KvCacheState& state) { state.metadata[name] = value; };
}
Damage number(const char* name, std::int64_t index, std::int64_t value) {
  return [=](KvCacheState& state) {
    state.tensors.at(name).values<std::int64_t>()[static_cast<std::size_t>(index)] = value;
  };
}
Damage page(std::int64_t sequence, std::int64_t index, std::int32_t value) {
  return [=](KvCacheState& state) { state.tensors.at("block_table").at<std::int32_t>(sequence, index) = value; };
}
Damage tensor(const char* name, DType dtype, const Shape& shape) {
  return [=](KvCacheState& state) { state.tensors[name] = Tensor(dtype, shape); };
}
Damage without(const char* name) {
  return [=](KvCacheState& state) { state.tensors.erase(name), state.metadata.erase(name); };
}

void expect_refused(const KvCacheState& good, const std::vector<std::pair<Damage, const char*>>& cases) {
  ASSERT_EQ(refusal_of(good, [](KvCacheState&) {}), "");
  for (const auto& [damage, message] : cases) EXPECT_THAT(refusal_of(good, damage), HasSubstr(message));
}

TEST(KvCacheState, IsRefusedWithWrongOptions) {
  KvCacheOptions options = options_of({DType::i8, DType::i4}, 0);
  options.rope.emplace(kDim);
  expect_refused(
      filled(options, 20).state(),
      {
          {[](KvCacheState& state) { state = {}; }, "must be saccade.kv_cache, but there is none"},
          {metadata("format", "pt"), "must be saccade.kv_cache, but it is 'pt'"},
          {metadata("version", "2"), "version must be 1, the only one that this release reads, but it is 2"},
          {metadata("version", "1\n"), "version in the metadata must be an integer, but it is '1?'"},
          {metadata("version", "99999999999999999999"), "must be an integer"},
          {without("head_dim"), "the metadata has no head_dim"},
          {metadata("head_dim", ""), "head_dim in the metadata must be an integer, but it is ''"},
          {metadata("head_dim", "0"), "dim must lie between 1 and 2^40, got 0"},
          {metadata("num_kv_heads", "-1"), "num_kv_heads must be at least 1, got -1"},
          {metadata("num_kv_heads", "3"), "0.k must be i8 [3, 20, 48], but it is i8 [2, 20, 48]"},
          {metadata("head_dim_v", "1099511627776"), "0.v must be u8 [2, 20, 549755813888]"},
          {metadata("batch", "4"), "lengths must be i64 [4], but it is i64 [3]"},
          {metadata("batch", "1099511627776"), "lengths must be i64 [1099511627776]"},
          {metadata("dtype", "i16"), "dtype in the metadata must be a type of keys and values, but it is 'i16'"},
          {metadata("dtype", "f32"), "0.k must be f32 [2, 20, 48], but it is i8"},
          {metadata("dtype_v", "i8"), "0.v must be i8 [2, 20, 80], but it is u8 [2, 20, 48]"},
          {metadata("rotate", "yes"), "rotate in the metadata must be true or false, but it is 'yes'"},
          {metadata("window", "-2"), "window must be -1 (all keys are kept) or at least 0, got -2"},
          {metadata("page_size", "16"), "there is no tensor block_table"},
          {metadata("rope_pairs", "both"), "rope_pairs in the metadata must be half or interleaved"},
          {without("rope_pairs"), "the tensor 'rope_frequencies' belongs to no part"},
          {tensor("rope_frequencies", DType::f64, {0}), "rope_frequencies must have a number for each pair"},
          {tensor("rope_frequencies", DType::f64, {25}), "rotary_dim must be even and at most dim = 48, got 50"},
      });
}

TEST(KvCacheState, IsRefusedWithWrongTensors) {
  expect_refused(
      filled(options_of({DType::i8, DType::i4}, 0), 20).state(),
      {
          {without("0.k"), "there is no tensor 0.k"},
          {without("1.k_scale"), "there is no tensor 1.k_scale"},
          {without("2.v_multipliers"), "there is no tensor 2.v_multipliers"},
          {without("starts"), "there is no tensor starts"},
          {tensor("0.k", DType::u8, {2, 20, 48}), "0.k must be i8 [2, 20, 48], but it is u8 [2, 20, 48]"},
          {tensor("0.k", DType::i8, {2, 20, 47}), "but it is i8 [2, 20, 47]"},
          {tensor("0.k", DType::i8, {2, 20, 48, 1}), "but it is i8 [2, 20, 48, 1]"},
          {tensor("0.k_scale", DType::f32, {2, 19, 1}), "0.k_scale must be f32 [2, 20, 1]"},
          {tensor("1.v_multipliers", DType::i8, {2, 23, 5}), "1.v_multipliers must be i8 [2, 23, 6]"},
          {tensor("3.k", DType::i8, {2, 20, 48}), "the tensor '3.k' belongs to no part of a cache"},
          {tensor("0.k_multipliers", DType::i8, {2, 20, 3}), "'0.k_multipliers' belongs to no part"},
          {tensor("lengths", DType::i32, {3}), "lengths must be i64 [3], but it is i32 [3]"},
          {number("lengths", 0, 21), "0.k must be i8 [2, 21, 48], but it is i8 [2, 20, 48]"},
          {number("lengths", 2, std::int64_t{1} << 40), "2.k must be i8 [2, 1099511627776, 48]"},
          {number("lengths", 1, (std::int64_t{1} << 40) + 1), "lengths[1] must lie between 0 and 2^40"},
          {number("lengths", 1, -1), "lengths[1] must lie between 0 and 2^40, but it is -1"},
          {number("first_kept", 0, 4096), "first_kept[0] must be a multiple of 4096 from 0 to 0, but it is 4096"},
          {number("starts", 1, 24), "starts[1] must lie between 0 and the length 23, but it is 24"},
          {number("starts", 1, -1), "starts[1] must lie between 0 and the length 23, but it is -1"},
      });
  const KvCacheState evicted = filled(options_of({DType::i8, DType::i4}, 0, 100), 9000).state();
  expect_refused(evicted, {
                              {number("first_kept", 0, 4095), "first_kept[0] must be a multiple of 4096"},
                              {number("first_kept", 0, -4096), "first_kept[0] must be a multiple of 4096"},
                              {number("first_kept", 0, 12288), "from 0 to 8900, but it is 12288"},
                          });
}

TEST(KvCacheState, IsRefusedWithWrongPages) {
  KvCache cache = filled(options_of({DType::i8, DType::i8}, 16, 100), 200);
  append(cache, 0, 20, 40);  // drops the first 6 pages
  append(cache, 1, 1, 42);
  expect_refused(
      cache.state(),
      {
          {page(0, 12, 9), "block_table[0, 12] must be a page from 0 to 8, but it is 9"},
          {page(0, 12, -1), "block_table[0, 12] must be a page from 0 to 8, but it is -1"},
          {page(0, 0, 1), "block_table[0, 0] must be -1, but it is 1"},  // outside of the window
          {page(2, 12, 1), "block_table[2, 12] must be -1, but it is 1"},
          {page(0, 12, 0), "page 6 of k belongs to no sequence in block_table"},
          {tensor("block_table", DType::i32, {3, 13}), "block_table has shape [3, 13], but the longest sequence"},
          {tensor("block_table", DType::i64, {3, 14}), "block_table must be i32 [3, any length]"},
          {tensor("k", DType::i8, {9, 2, 15, 48}), "k must be i8 [any length, 2, 16, 48]"},
          {tensor("v", DType::i8, {8, 2, 16, 80}), "v must be i8 [9, 2, 16, 80], but it is i8 [8, 2, 16, 80]"},
          {without("v_scale"), "there is no tensor v_scale"},
          {number("lengths", 0, 500), "the longest sequence has 32 pages"},
          {number("first_kept", 0, 17), "first_kept[0] must be a multiple of 16 from 0 to 120, but it is 17"},
          {number("first_kept", 0, 16), "block_table[0, 1] must be a page"},
      });
}

}  // namespace
}  // namespace saccade::test
