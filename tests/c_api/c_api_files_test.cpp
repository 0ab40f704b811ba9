// What a cache holds, read back through the C interface: as numbers, and in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "saccade/c_api.h"
#include "saccade/decode.h"
#include "saccade/kv_cache_file.h"
#include "support/c_api_views.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A cache of C that destroys itself.
class CCache {
 public:
  CCache() = default;
  explicit CCache(const saccade_options* options, const saccade_rope* rope = nullptr) {
    expect_ok(saccade_kv_cache_create(options, rope, &cache_));
  }
  ~CCache() { saccade_kv_cache_destroy(cache_); }
  CCache(const CCache&) = delete;
  CCache& operator=(const CCache&) = delete;
  operator saccade_kv_cache*() const { return cache_; }
  saccade_kv_cache** to_fill() { return &cache_; }

 private:
  saccade_kv_cache* cache_ = nullptr;
};

/// The path of a file of this test, which is removed in the end.
class TestFile {
 public:
  TestFile()
      : path_(testing::TempDir() + "saccade_" + testing::UnitTest::GetInstance()->current_test_info()->name() +
              ".safetensors") {}
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  operator const char*() const { return path_.c_str(); }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

/// Keys and values of a cache of C as new tensors.
struct Dequantized {
  Tensor k, v;

  explicit Dequantized(const saccade_kv_cache* cache) {
    std::array<std::int64_t, 4> of_k{}, of_v{};
    expect_ok(saccade_kv_cache_shapes(cache, of_k.data(), of_v.data()));
    k = Tensor(DType::f32, Shape(of_k.begin(), of_k.end()));
    v = Tensor(DType::f32, Shape(of_v.begin(), of_v.end()));
    CViews views;
    expect_ok(saccade_kv_cache_dequantize_k(cache, views(k)));
    expect_ok(saccade_kv_cache_dequantize_v(cache, views(v)));
  }
};

/// The same options for C.
void set_options(COptions& to, const KvCacheOptions& from) {
  to.set("batch", from.batch).set("num_kv_heads", from.num_kv_heads).set("head_dim", from.head_dim);
  to.set("head_dim_v", from.head_dim_v).set("page_size", from.page_size).set("window", from.window);
  to.set("dtype", std::string(name_of(from.dtype)).c_str());
}

TEST(CApiFiles, ReadsBackWhatAttentionSees) {
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::i4, DType::f8e4m3}) {
    for (const std::int64_t page_size : {0, 4}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(page_size));
      const KvCacheOptions wanted{
          .batch = 2, .num_kv_heads = 3, .head_dim = 8, .head_dim_v = 5, .dtype = dtype, .page_size = page_size};
      COptions options(SACCADE_KV_CACHE_OPTIONS);
      set_options(options, wanted);
      KvCache cache(wanted);
      const CCache c_cache(options);
      CViews views;
      const Tensor k = random_tensor({3, 6, 8}, 1), v = random_tensor({3, 6, 5}, 2);
      for (const auto& [sequence, count] : {std::pair<std::int64_t, std::int64_t>{0, 6}, {1, 2}}) {
        const TensorView new_k = k.view().slice(1, 0, count), new_v = v.view().slice(1, 0, count);
        cache.append(sequence, new_k, new_v);
        expect_ok(saccade_kv_cache_append(c_cache, sequence, views(new_k), views(new_v), nullptr));
      }
      const Dequantized seen(c_cache);
      EXPECT_THAT(seen.k.shape(), ElementsAre(2, 3, 6, 8));
      EXPECT_THAT(seen.v.shape(), ElementsAre(2, 3, 6, 5));
      EXPECT_TRUE(same_bits(seen.k, cache.dequantize_k()));
      EXPECT_TRUE(same_bits(seen.v, cache.dequantize_v()));
    }
  }
}

TEST(CApiFiles, ReadsBackAWindow) {
  for (const std::int64_t page_size : {0, 64}) {
    const KvCacheOptions wanted{.head_dim = 2, .dtype = DType::i8, .page_size = page_size, .window = 10};
    COptions options(SACCADE_KV_CACHE_OPTIONS);
    set_options(options, wanted);
    KvCache cache(wanted);
    const CCache c_cache(options);
    CViews views;
    for (const std::int64_t count : {9000, 1}) {
      const Tensor x = random_tensor({1, 1, count, 2}, 1);
      cache.append(x, x);
      expect_ok(saccade_kv_cache_append(c_cache, -1, views(x), views(x), nullptr));
    }
    ASSERT_GT(cache.first_kept(0), 0);
    EXPECT_TRUE(same_bits(Dequantized(c_cache).k, cache.dequantize_k()));
    std::int64_t shape[4];
    expect_ok(saccade_kv_cache_shapes(c_cache, nullptr, shape));
    EXPECT_EQ(shape[2], page_size == 0 ? 9001 - cache.first_kept(0) : 9001);
  }
}

TEST(CApiFiles, WritesToAnyStrides) {
  COptions options(SACCADE_KV_CACHE_OPTIONS);
  set_options(options, {.num_kv_heads = 2, .head_dim = 8, .dtype = DType::i8});
  const CCache cache(options);
  EXPECT_THAT(Dequantized(cache).k.shape(), ElementsAre(1, 2, 0, 8));  // before the first token
  CViews views;
  const Tensor x = random_tensor({1, 2, 3, 8}, 1);
  expect_ok(saccade_kv_cache_append(cache, -1, views(x), views(x), nullptr));
  Tensor bshd(DType::f32, {1, 3, 2, 8});
  expect_ok(saccade_kv_cache_dequantize_k(cache, views(bshd.view().transposed(1, 2))));
  EXPECT_TRUE(same_bits(Tensor::copy_of(bshd.view().transposed(1, 2)), Dequantized(cache).k));
}

TEST(CApiFiles, RefusesOtherTensors) {
  COptions options(SACCADE_KV_CACHE_OPTIONS);
  set_options(options, {.num_kv_heads = 2, .head_dim = 8, .head_dim_v = 4, .dtype = DType::i8});
  const CCache cache(options);
  CViews views;
  const Tensor k(DType::f32, {1, 2, 3, 8}), v(DType::f32, {1, 2, 3, 4}), narrow(DType::f16, {1, 2, 3, 8});
  expect_ok(saccade_kv_cache_append(cache, -1, views(k), views(v), nullptr));
  EXPECT_EQ(saccade_kv_cache_dequantize_k(cache, views(v)), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(),
              HasSubstr("[saccade_kv_cache_dequantize_k] k must have shape [1, 2, 3, 8], but "
                        "it has shape [1, 2, 3, 4]"));
  EXPECT_EQ(saccade_kv_cache_dequantize_v(cache, views(k)), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_dequantize_v] v must have shape [1, 2, 3, 4]"));
  EXPECT_EQ(saccade_kv_cache_dequantize_k(cache, views(narrow)), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("k must be f32, but it is f16"));
  EXPECT_EQ(saccade_kv_cache_shapes(nullptr, nullptr, nullptr), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_shapes] cache must be given"));
}

// ---- Files ---------------------------------------------------------------------------------------------------

TEST(CApiFiles, KeepCaches) {
  const TestFile file;
  const Tensor tokens = random_tensor({2, 2, 5, 8}, 1), more = random_tensor({2, 2, 1, 8}, 2),
               q = random_tensor({2, 4, 1, 8}, 3);
  saccade_rope* rope = nullptr;
  expect_ok(saccade_rope_create(8, nullptr, &rope));
  for (const char* const type : {"bf16", "i8", "i4", "f8e4m3"}) {
    for (const std::int64_t page_size : {0, 2}) {
      SCOPED_TRACE(std::string(type) + " " + std::to_string(page_size));
      COptions options(SACCADE_KV_CACHE_OPTIONS);
      options.set("batch", std::int64_t{2}).set("num_kv_heads", std::int64_t{2}).set("head_dim", std::int64_t{8});
      options.set("page_size", page_size).set("dtype", type);
      const CCache cache(options, rope);
      CViews views;
      expect_ok(saccade_kv_cache_append(cache, -1, views(tokens), views(tokens), nullptr));
      expect_ok(saccade_kv_cache_truncate(cache, 1, 4));
      expect_ok(saccade_kv_cache_set_start(cache, 1, 2));
      expect_ok(saccade_kv_cache_save(cache, file));

      // The file is that of C++.
      const KvCache of_cpp = load_kv_cache(static_cast<const char*>(file));
      EXPECT_EQ(name_of(of_cpp.config().dtype), type);
      EXPECT_THAT(of_cpp.lengths(), ElementsAre(5, 4));

      CCache loaded, parsed;
      expect_ok(saccade_kv_cache_load(file, loaded.to_fill()));
      const std::string bytes = file.bytes();
      expect_ok(saccade_kv_cache_parse(bytes.data(), bytes.size(), nullptr, parsed.to_fill()));
      std::int64_t length = 0, start = 0;
      expect_ok(saccade_kv_cache_state(loaded, 1, &length, nullptr, &start, nullptr, nullptr));
      EXPECT_EQ(std::pair(length, start), std::pair(std::int64_t{4}, std::int64_t{2}));
      EXPECT_TRUE(same_bits(Dequantized(loaded).k, Dequantized(cache).k));
      EXPECT_TRUE(same_bits(Dequantized(loaded).k, of_cpp.dequantize_k()));

      // They go on alike.
      std::vector<Tensor> results;
      saccade_kv_cache* const caches[] = {cache, loaded, parsed};
      for (saccade_kv_cache* const each : caches) {
        expect_ok(saccade_kv_cache_append(each, -1, views(more), views(more), nullptr));
        results.emplace_back(DType::f32, Shape{2, 4, 1, 8});
        expect_ok(saccade_decode_over_cache(views(q), each, views(results.back()), nullptr));
      }
      EXPECT_TRUE(same_bits(results[1], results[0]));
      EXPECT_TRUE(same_bits(results[2], results[0]));
    }
  }
  saccade_rope_destroy(rope);
}

TEST(CApiFiles, SayWhatIsWrong) {
  const TestFile file;
  COptions options(SACCADE_KV_CACHE_OPTIONS);
  options.set("head_dim", std::int64_t{8});
  const CCache cache(options);
  expect_ok(saccade_kv_cache_save(cache, file));
  std::string bytes = file.bytes();

  EXPECT_EQ(saccade_kv_cache_save(nullptr, file), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_save] cache must be given, but it is NULL"));
  EXPECT_EQ(saccade_kv_cache_save(cache, nullptr), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_save] path must be given"));
  EXPECT_EQ(saccade_kv_cache_save(cache, "/nonexistent/c.safetensors"), SACCADE_FAILED);
  EXPECT_THAT(saccade_last_error(), HasSubstr("/nonexistent/c.safetensors"));
  EXPECT_EQ(file.bytes(), bytes);

  saccade_kv_cache* none = nullptr;
  EXPECT_EQ(saccade_kv_cache_load(nullptr, &none), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_load] path must be given"));
  EXPECT_EQ(saccade_kv_cache_load(file, nullptr), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_load] cache must be given"));
  EXPECT_EQ(saccade_kv_cache_load("/nonexistent/c", &none), SACCADE_FAILED);
  EXPECT_THAT(saccade_last_error(), HasSubstr("/nonexistent/c"));
  EXPECT_EQ(saccade_kv_cache_parse(nullptr, 0, "q", &none), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("[saccade_kv_cache_parse] bytes must be given"));
  bytes.replace(bytes.find("\"lengths\""), 9, "\"lengtns\"");
  EXPECT_EQ(saccade_kv_cache_parse(bytes.data(), bytes.size(), "the prompt", &none), SACCADE_FAILED);
  EXPECT_THAT(saccade_last_error(), HasSubstr("the prompt: there is no tensor lengths"));
  EXPECT_EQ(saccade_kv_cache_parse(bytes.data(), 4, nullptr, &none), SACCADE_FAILED);
  EXPECT_THAT(saccade_last_error(), HasSubstr("kv_cache"));
  EXPECT_EQ(none, nullptr);
}

}  // namespace
}  // namespace saccade::test
