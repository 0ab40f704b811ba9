// KvCache: its contents, compared with a model of plain lists, and its errors.
#include "saccade/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kv_cache/kv_cache_checks.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

/// The tokens of a sequence that a cache still has, [num_kv_heads, length - first_kept, dim], read in the same way
/// as by the kernels. `view` is cache.k() or cache.v().
Tensor stored(const KvCache& cache, const TensorView& view, std::int64_t sequence) {
  const AttentionOptions options = cache.options();
  const std::int64_t first = cache.first_kept(sequence), kept = cache.length(sequence) - first;
  const std::int64_t page_size = cache.config().page_size;
  if (page_size == 0) {
    EXPECT_EQ(options.kv_lengths.as<std::int64_t>()[sequence], kept);
    return Tensor::copy_of(view.select(0, sequence).slice(1, 0, kept));
  }
  EXPECT_EQ(options.kv_lengths.as<std::int64_t>()[sequence], cache.length(sequence));
  Tensor result(view.dtype, {view.shape[1], kept, view.shape[3]});
  for (std::int64_t i = 0; i < kept; ++i) {
    const TensorView entry = options.block_table.select(0, sequence).select(0, (first + i) / page_size);
    const std::int32_t page = entry.as<std::int32_t>()[0];
    copy(view.select(0, page).select(1, (first + i) % page_size), result.mutable_view().select(1, i));
  }
  return result;
}

// ---- Storage -------------------------------------------------------------------------------------------------

/// The expected contents of a cache: every token is a number that determines its keys and values.
class Model {
 public:
  explicit Model(const KvCacheOptions& options)
      : cache_(options), tokens_(static_cast<std::size_t>(options.batch)), seen_from_(tokens_.size()) {}

  void append_to_all(std::int64_t count, Layout layout) {
    const std::int64_t batch = config().batch;
    Tensor k(DType::f32, {batch, config().num_kv_heads, count, config().head_dim});
    Tensor v(DType::f32, {batch, config().num_kv_heads, count, config().head_dim_v});
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::vector<int> ids = new_tokens(count);
      copy(numbers_of(ids, false), k.mutable_view().select(0, b));
      copy(numbers_of(ids, true), v.mutable_view().select(0, b));
      add(b, ids);
    }
    if (layout == Layout::bhsd) return cache_.append(k, v);
    cache_.append(Tensor::copy_of(k.view().transposed(1, 2)), v.view().transposed(1, 2), layout);
  }

  void append_to(std::int64_t sequence, std::int64_t count, Layout layout) {
    const std::vector<int> ids = new_tokens(count);
    const Tensor k = numbers_of(ids, false), v = numbers_of(ids, true);
    add(sequence, ids);
    if (layout == Layout::bhsd) return cache_.append(sequence, k, v);
    cache_.append(sequence, k.view().transposed(0, 1), Tensor::copy_of(v.view().transposed(0, 1)), layout);
  }

  /// Whether the cache truncated. Fails if the cache refuses although it must be able to.
  bool truncate(std::int64_t sequence, std::int64_t length) {
    const auto at = static_cast<std::size_t>(sequence);
    if (!refusal([&] { cache_.truncate(sequence, length); }).empty()) {
      EXPECT_LT(first_seen(length), seen_from_[at]);
      return false;
    }
    tokens_[at].resize(static_cast<std::size_t>(length));
    seen_from_[at] = std::min(seen_from_[at], first_seen(length));
    return true;
  }

  bool share_prefix(std::int64_t from, std::int64_t to, std::int64_t length) {
    const auto source = static_cast<std::size_t>(from), target = static_cast<std::size_t>(to);
    if (!refusal([&] { cache_.share_prefix(from, to, length); }).empty()) {
      EXPECT_LT(first_seen(length), seen_from_[source]);
      return false;
    }
    tokens_[target] = std::vector<int>(tokens_[source].begin(), tokens_[source].begin() + length);
    seen_from_[target] = first_seen(length);
    return true;
  }

  void clear(std::int64_t sequence) {
    cache_.clear(sequence);
    tokens_[static_cast<std::size_t>(sequence)].clear();
    seen_from_[static_cast<std::size_t>(sequence)] = 0;
  }

  std::int64_t length(std::int64_t sequence) const {
    return static_cast<std::int64_t>(tokens_[static_cast<std::size_t>(sequence)].size());
  }
  const KvCache& cache() const { return cache_; }
  const KvCacheOptions& config() const { return cache_.config(); }

  /// Compares everything that the cache reports with the model.
  void check() const {
    for (std::int64_t b = 0; b < config().batch; ++b) {
      SCOPED_TRACE("sequence " + std::to_string(b));
      const std::vector<int>& tokens = tokens_[static_cast<std::size_t>(b)];
      ASSERT_EQ(cache_.length(b), length(b));
      ASSERT_EQ(cache_.lengths()[static_cast<std::size_t>(b)], length(b));
      const std::int64_t first = cache_.first_kept(b);
      ASSERT_LE(first, seen_from_[static_cast<std::size_t>(b)]);
      const std::vector<int> kept(tokens.begin() + first, tokens.end());
      ASSERT_TRUE(have_same_bits(stored(cache_, cache_.k(), b), numbers_of(kept, false, config().dtype)));
      ASSERT_TRUE(have_same_bits(stored(cache_, cache_.v(), b), numbers_of(kept, true, config().dtype)));
    }
    ASSERT_EQ(cache_.pages_in_use(), pages_listed());
  }

 private:
  std::int64_t first_seen(std::int64_t position) const {
    return config().window < 0 ? 0 : std::max<std::int64_t>(0, position - config().window);
  }

  std::vector<int> new_tokens(std::int64_t count) {
    std::vector<int> ids(static_cast<std::size_t>(count));
    for (int& id : ids) id = next_++;
    return ids;
  }

  void add(std::int64_t sequence, const std::vector<int>& ids) {
    const auto at = static_cast<std::size_t>(sequence);
    if (!ids.empty()) seen_from_[at] = std::max(seen_from_[at], first_seen(length(sequence)));
    tokens_[at].insert(tokens_[at].end(), ids.begin(), ids.end());
  }

  /// [num_kv_heads, tokens, dim]
  Tensor numbers_of(const std::vector<int>& ids, bool values, DType dtype = DType::f32) const {
    const std::int64_t dim = values ? config().head_dim_v : config().head_dim;
    Tensor result(DType::f32, {config().num_kv_heads, static_cast<std::int64_t>(ids.size()), dim});
    float* out = result.values<float>().data();
    for (std::int64_t head = 0; head < config().num_kv_heads; ++head) {
      for (const int id : ids)
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto mixed = static_cast<std::uint32_t>(id * 31 + head * 7 + d * 3 + values) * 2654435761u;
          *out++ = static_cast<float>(mixed) * 0x1p-30f - 2.0f;
        }
    }
    return Tensor::copy_of(result, dtype);
  }

  std::int64_t pages_listed() const {
    std::set<std::int32_t> pages;
    const TensorView table = cache_.options().block_table;
    if (!table) return 0;
    for (std::int64_t b = 0; b < table.shape[0]; ++b)
      for (std::int64_t i = 0; i < table.shape[1]; ++i)
        pages.insert(table.select(0, b).select(0, i).as<std::int32_t>()[0]);
    pages.erase(-1);
    return static_cast<std::int64_t>(pages.size());
  }

  KvCache cache_;
  std::vector<std::vector<int>> tokens_;
  std::vector<std::int64_t> seen_from_;  // the first key that the tokens of the last append see
  int next_ = 0;
};

struct StorageCase {
  std::int64_t page_size, window;
  DType dtype = DType::f32;
};

class KvCacheStorage : public ::testing::TestWithParam<StorageCase> {};

TEST_P(KvCacheStorage, HoldsWhatAModelHoldsThroughAnyCalls) {
  std::mt19937_64 random(GetParam().page_size * 1000 + GetParam().window);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Model model({.batch = 3,
               .num_kv_heads = 2,
               .head_dim = 3,
               .head_dim_v = 2,
               .dtype = GetParam().dtype,
               .page_size = GetParam().page_size,
               .window = GetParam().window});
  int done = 0, refused = 0;
  for (int step = 0; step < 400; ++step) {
    const std::int64_t sequence = draw(0, 2), other = draw(0, 2), length = model.length(sequence);
    const Layout layout = draw(0, 1) ? Layout::bhsd : Layout::bshd;
    // Mostly a few tokens; sometimes thousands, so that many keys leave the window.
    const std::int64_t count = draw(0, 30) ? draw(0, 20) : draw(0, 3000);
    bool did = true;
    switch (draw(0, 9)) {
      case 0:
        did = model.truncate(sequence, draw(std::max<std::int64_t>(0, length - 10), length));
        break;
      case 1:
        did = model.share_prefix(sequence, other, draw(0, 1) ? length : draw(0, length));
        break;
      case 2:
        if (draw(0, 3) == 0) model.clear(sequence);
        break;
      case 3:
      case 4:
      case 5:
        model.append_to(sequence, count, layout);
        break;
      default:
        model.append_to_all(count, layout);
    }
    ++(did ? done : refused);
    model.check();
    if (HasFatalFailure()) FAIL() << "at step " << step;
  }
  EXPECT_GT(done, 350);
  for (std::int64_t b = 0; b < 3; ++b) model.clear(b);
  model.check();
  EXPECT_EQ(model.cache().pages_in_use(), 0);
}

INSTANTIATE_TEST_SUITE_P(Any, KvCacheStorage,
                         ::testing::Values(StorageCase{0, -1}, StorageCase{1, -1}, StorageCase{3, -1},
                                           StorageCase{16, -1}, StorageCase{4096, -1}, StorageCase{0, 0},
                                           StorageCase{0, 50}, StorageCase{0, 5000}, StorageCase{1, 0},
                                           StorageCase{3, 7}, StorageCase{16, 100}, StorageCase{4096, 300},
                                           StorageCase{0, -1, DType::bf16}, StorageCase{16, -1, DType::f16},
                                           StorageCase{3, 20, DType::f64}, StorageCase{16, 20, DType::bf16}));

TEST(KvCache, AWindowBoundsItsMemory) {
  for (const std::int64_t page_size : {0, 1, 16}) {
    KvCache cache({.num_kv_heads = 1, .head_dim = 4, .page_size = page_size, .window = 100});
    const Tensor k = random_tensor({1, 7, 4}, 1);
    for (int i = 0; i < 10'000; ++i) cache.append(k, k);
    EXPECT_EQ(cache.length(0), 70'000);
    const std::int64_t tokens = page_size == 0 ? 100 + 2 * 4096 : 2 * (100 + 7 + 2 * page_size);
    EXPECT_LE(cache.bytes(), static_cast<std::size_t>(tokens * 2 * 4) * sizeof(float) + 128) << page_size;
    EXPECT_EQ(cache.first_kept(0) % (page_size == 0 ? 4096 : page_size), 0);
  }
}

TEST(KvCache, APrefixIsStoredOnce) {
  KvCache cache({.batch = 8, .num_kv_heads = 2, .head_dim = 4, .page_size = 16});
  const Tensor k = random_tensor({2, 1000, 4}, 1);
  cache.append(0, k, k);
  EXPECT_EQ(cache.pages_in_use(), 63);
  for (std::int64_t b = 1; b < 8; ++b) cache.share_prefix(0, b, 1000);
  EXPECT_EQ(cache.pages_in_use(), 63);
  const Tensor token = random_tensor({8, 2, 1, 4}, 2);
  cache.append(token, token);  // seven copy the last page; the eighth is then its only user
  EXPECT_EQ(cache.pages_in_use(), 62 + 8);
  cache.clear(0);
  EXPECT_EQ(cache.pages_in_use(), 62 + 7);
}

TEST(KvCache, RoomForCapacityIsTakenOnce) {
  for (const std::int64_t page_size : {0, 16}) {
    KvCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 4, .page_size = page_size, .capacity = 500});
    const std::size_t bytes = cache.bytes();
    EXPECT_GE(bytes, std::size_t{2 * 2 * 2 * 4 * 500} * sizeof(float));
    const void* const before = cache.k().data;
    const Tensor k = random_tensor({2, 2, 250, 4}, 1);
    cache.append(k, k);
    cache.append(k, k);
    EXPECT_EQ(cache.bytes(), bytes);
    EXPECT_EQ(cache.k().data, before);
  }
}

TEST(KvCache, TurnsKeysByTheirPositions) {
  for (const std::int64_t page_size : {0, 3}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Rope rope(6, {.base = 100.0});
      KvCache cache({.batch = 2,
                     .num_kv_heads = 2,
                     .head_dim = 6,
                     .head_dim_v = 4,
                     .dtype = dtype,
                     .page_size = page_size,
                     .rope = rope});
      const Tensor k = random_tensor({2, 2, 20, 6}, 1), v = random_tensor({2, 2, 20, 4}, 2);
      const auto part = [](const Tensor& x, std::int64_t b, std::int64_t begin, std::int64_t end) {
        return x.view().select(0, b).slice(1, begin, end);
      };
      cache.append(1, part(k, 1, 0, 5), part(v, 1, 0, 5));  // so that the two are at different positions
      cache.append(k.view().slice(2, 5, 12), v.view().slice(2, 5, 12));
      cache.append(0, part(k, 0, 12, 20), part(v, 0, 12, 20));
      for (std::int64_t b = 0; b < 2; ++b) {
        const Tensor in = Tensor::copy_of(b == 0 ? part(k, 0, 5, 20) : part(k, 1, 0, 12));
        Tensor expected(dtype, in.shape());
        rope.rotate(in, expected);
        EXPECT_TRUE(have_same_bits(stored(cache, cache.k(), b), expected));
        const TensorView values = b == 0 ? part(v, 0, 5, 20) : part(v, 1, 0, 12);
        EXPECT_TRUE(have_same_bits(stored(cache, cache.v(), b), Tensor::copy_of(values, dtype)));
      }
      EXPECT_TRUE(have_same_bits(cache.positions(3), Tensor::of<std::int64_t>({{12, 13, 14}, {9, 10, 11}})));
    }
  }
}

TEST(KvCache, MovesWithItsNumbers) {
  KvCache cache({.num_kv_heads = 1, .head_dim = 4});
  const Tensor k = random_tensor({1, 3, 4}, 1);
  cache.append(k, k);
  KvCache moved = std::move(cache);
  cache = KvCache({.num_kv_heads = 1, .head_dim = 2});
  EXPECT_TRUE(have_same_bits(stored(moved, moved.k(), 0), k));
  EXPECT_EQ(cache.length(0), 0);
}

// ---- Errors --------------------------------------------------------------------------------------------------

TEST(KvCache, RefusesOptionsOutOfRange) {
  const auto of = [](const KvCacheOptions& options) { return refusal([&] { KvCache cache(options); }); };
  EXPECT_EQ(of({}), "[KvCache] head_dim must be at least 1, got 0");
  EXPECT_EQ(of({.batch = 0, .head_dim = 4}), "[KvCache] batch must be at least 1, got 0");
  EXPECT_EQ(of({.num_kv_heads = -1, .head_dim = 4}), "[KvCache] num_kv_heads must be at least 1, got -1");
  EXPECT_EQ(of({.head_dim = 4, .head_dim_v = -1}), "[KvCache] head_dim_v must be 0 or more, got -1");
  EXPECT_EQ(of({.head_dim = 4, .page_size = -1}), "[KvCache] page_size must be 0 or more, got -1");
  EXPECT_EQ(of({.head_dim = 4, .window = -2}),
            "[KvCache] window must be -1 (all keys are kept) or at least 0, got -2");
  EXPECT_EQ(of({.head_dim = 4, .window = 8, .causal = false}), "[KvCache] window needs a causal cache");
  EXPECT_EQ(of({.head_dim = 4, .dtype = DType::i16}),
            "[KvCache] dtype must be f32, bf16, f16, f64, i8, f8e4m3 or i4, but it is i16");
  EXPECT_EQ(of({.head_dim = 4, .rope = Rope(8)}), "[KvCache] rope is for dim 8 but head_dim is 4");
  EXPECT_EQ(of({.head_dim = 4, .capacity = std::int64_t{1} << 41}),
            "[KvCache] capacity must be at most 2^40, got 2199023255552");
  EXPECT_THAT(of({.num_kv_heads = 1 << 20, .head_dim = 1 << 20, .capacity = std::int64_t{1} << 40}),
              HasSubstr("does not fit in memory"));
}

TEST(KvCache, ARefusedCallLeavesItAsItWas) {
  for (const std::int64_t page_size : {0, 4}) {
    KvCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 4, .head_dim_v = 3, .page_size = page_size});
    const Tensor k = random_tensor({2, 2, 5, 4}, 1), v = random_tensor({2, 2, 5, 3}, 2);
    cache.append(k, v);
    const Tensor before_k = stored(cache, cache.k(), 1), before_v = stored(cache, cache.v(), 1);
    const auto says = [&](const auto& call) {
      const std::string text = refusal(call);
      EXPECT_EQ(cache.length(0), 5);
      EXPECT_EQ(cache.length(1), 5);
      EXPECT_TRUE(have_same_bits(stored(cache, cache.k(), 1), before_k));
      EXPECT_TRUE(have_same_bits(stored(cache, cache.v(), 1), before_v));
      return text;
    };
    EXPECT_EQ(says([&] { cache.append(k.view().select(0, 0), v.view().select(0, 0)); }),
              "[KvCache::append] k must have shape [2, 2, n, 4], but it has shape [2, 5, 4]");
    EXPECT_EQ(says([&] { cache.append(k, v, Layout::bshd); }),
              "[KvCache::append] k must have shape [2, n, 2, 4], but it has shape [2, 2, 5, 4]");
    EXPECT_EQ(says([&] { cache.append(k, k); }),
              "[KvCache::append] v must have shape [2, 2, n, 3], but it has shape [2, 2, 5, 4]");
    EXPECT_EQ(says([&] { cache.append(0, k, v); }),
              "[KvCache::append] k must have shape [2, n, 4], but it has shape [2, 2, 5, 4]");
    EXPECT_EQ(says([&] { cache.append(k, v.view().slice(2, 0, 3)); }),
              "[KvCache::append] v has 3 tokens but k has 5");
    EXPECT_EQ(says([&] { cache.append(Tensor(DType::i32, k.shape()), v); }),
              "[KvCache::append] k must be of a floating-point type, but it is i32");
    EXPECT_EQ(says([&] {
                cache.append(TensorView(static_cast<const float*>(nullptr), {2, 2, 5, 4}), v);
              }),
              "[KvCache::append] k has shape [2, 2, 5, 4] but no data (null pointer)");
    EXPECT_EQ(says([&] { cache.append(2, k.view().select(0, 0), v.view().select(0, 0)); }),
              "[KvCache::append] sequence 2 does not exist in a batch of 2");
    EXPECT_EQ(says([&] { cache.truncate(0, 6); }),
              "[KvCache::truncate] length must lie between 0 and the 5 tokens of sequence 0, got 6");
    EXPECT_EQ(says([&] { cache.set_start(0, 6); }),
              "[KvCache::set_start] start must lie between 0 and the 5 tokens of sequence 0, got 6");
    EXPECT_EQ(says([&] { cache.set_start(2, 0); }),
              "[KvCache::set_start] sequence 2 does not exist in a batch of 2");
    EXPECT_EQ(says([&] { cache.start(-1); }), "[KvCache::start] sequence -1 does not exist in a batch of 2");
    EXPECT_EQ(says([&] { cache.truncate(-1, 0); }),
              "[KvCache::truncate] sequence -1 does not exist in a batch of 2");
    EXPECT_EQ(says([&] { cache.share_prefix(0, 2, 5); }),
              "[KvCache::share_prefix] sequence 2 does not exist in a batch of 2");
    EXPECT_EQ(says([&] { cache.clear(2); }), "[KvCache::clear] sequence 2 does not exist in a batch of 2");
    EXPECT_EQ(says([&] { cache.positions(-1); }), "[KvCache::positions] count must be 0 or more, got -1");
    const float one[4] = {1, 2, 3, 4};
    const TensorView beyond(one, {2, 2, std::int64_t{1} << 40, 4}, {0, 0, 0, 1});
    EXPECT_EQ(says([&] { cache.append(beyond, beyond.slice(3, 0, 3)); }),
              "[KvCache::append] sequence 0 would have 1099511627781 tokens, more than 2^40");
  }
}

TEST(KvCache, AnAppendWithoutMemoryLeavesItAsItWas) {
  for (const std::int64_t page_size : {0, 4}) {
    KvCache cache({.num_kv_heads = 1 << 14, .head_dim = 128, .dtype = DType::f64, .page_size = page_size});
    const bfloat16 one[128] = {bfloat16(1.0f), bfloat16(2.0f)};  // every token of every head
    const auto tokens = [&](std::int64_t count) { return TensorView(one, {1 << 14, count, 128}, {0, 0, 1}); };
    cache.append(tokens(1), tokens(1));
    EXPECT_ANY_THROW(cache.append(tokens(std::int64_t{1} << 39), tokens(std::int64_t{1} << 39)));
    EXPECT_EQ(cache.length(0), 1);
    EXPECT_TRUE(have_same_bits(stored(cache, cache.k(), 0), Tensor::copy_of(tokens(1), DType::f64)));
    cache.append(tokens(1), tokens(1));
    EXPECT_TRUE(have_same_bits(stored(cache, cache.v(), 0), Tensor::copy_of(tokens(2), DType::f64)));
  }
}

}  // namespace
}  // namespace saccade::test
