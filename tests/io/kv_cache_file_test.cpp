// Caches in files.
#include <gmock/gmock.h>

#include "io/io_fixtures.h"
#include "saccade/kv_cache_file.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Reader kReadCache = [](std::span<const std::byte> bytes) { parse_kv_cache(bytes, "q.safetensors"); };

KvCache small_cache(DType dtype, std::int64_t page_size) {
  KvCache cache({.batch = 2, .num_kv_heads = 1, .head_dim = 4, .dtype = dtype, .page_size = page_size});
  cache.append(0, random_tensor({1, 3, 4}, 1), random_tensor({1, 3, 4}, 2));
  cache.append(1, random_tensor({1, 1, 4}, 3), random_tensor({1, 1, 4}, 4));
  return cache;
}

std::string file_of(const KvCache& cache) {
  const TemporaryFolder folder;
  save_kv_cache(folder / "c.safetensors", cache);
  return as_string(read_file(folder / "c.safetensors"));
}

TEST(KvCacheFile, GoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  const Tensor q = random_tensor({2, 2, 1, 4}, 7), more = random_tensor({2, 1, 1, 4}, 8);
  for (const DType dtype :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::i4, DType::f8e4m3}) {
    for (const std::int64_t page_size : {0, 2}) {
      KvCache cache = small_cache(dtype, page_size);
      save_kv_cache(folder / "c.safetensors", cache);
      KvCache loaded = load_kv_cache(folder / "c.safetensors");
      const Tensor rows = dtype == DType::f64 ? Tensor::copy_of(q, DType::f64) : q;
      EXPECT_TRUE(same_bits(decode(rows, loaded), decode(rows, cache))) << name_of(dtype);
      cache.append(more, more);
      loaded.append(more, more);
      EXPECT_TRUE(same_bits(decode(rows, loaded), decode(rows, cache))) << name_of(dtype);
      EXPECT_EQ(file_of(loaded), file_of(cache));
    }
  }
  EXPECT_THAT(folder.names(), ElementsAre("c.safetensors"));
}

TEST(KvCacheFile, HasTheTypesOfSafetensors) {
  const TemporaryFolder folder;
  save_kv_cache(folder / "c.safetensors", small_cache(DType::f8e4m3, 0));
  const Safetensors file = load_safetensors(folder / "c.safetensors");
  EXPECT_EQ(file.metadata.at("format"), "saccade.kv_cache");
  EXPECT_EQ(file.tensors.at("0.k").dtype(), DType::f8e4m3);
  EXPECT_EQ(file.tensors.at("0.k_scale").dtype(), DType::f32);
  save_kv_cache(folder / "c.safetensors", small_cache(DType::i4, 0));
  EXPECT_EQ(load_safetensors(folder / "c.safetensors").tensors.at("0.k").dtype(), DType::u8);
}

TEST(KvCacheFile, ReadsAndWritesVersion1) {
  for (const std::string name : {"contiguous", "paged"}) {
    const std::string file = "kv_cache/" + name + ".safetensors";
    EXPECT_EQ(file_of(load_kv_cache(fixture(file))), fixture_bytes(file));
  }
  const KvCache paged = load_kv_cache(fixture("kv_cache/paged.safetensors"));
  EXPECT_THAT(paged.lengths(), ElementsAre(9, 10));
  EXPECT_EQ(paged.first_kept(1), 6);
  EXPECT_EQ(load_kv_cache(fixture("kv_cache/contiguous.safetensors")).start(0), 1);
}

TEST(KvCacheFile, SurvivesDamage) {
  for (const std::int64_t page_size : {0, 2}) {
    const std::string good = file_of(small_cache(DType::i4, page_size));
    ASSERT_EQ(refusal(kReadCache, as_bytes(good)), "");
    expect_survives_truncation(kReadCache, good, true);
    expect_survives_flips(kReadCache, good, 0);
    const std::string fewer = with(good, good.find("\"lengths\""), 9, "\"lengtns\"");
    EXPECT_THAT(refusal(kReadCache, as_bytes(fewer)),
                HasSubstr("[parse_kv_cache] q.safetensors: there is no tensor lengths"));
  }
}

TEST(KvCacheFile, RefusesOtherFiles) {
  EXPECT_THAT([] { load_kv_cache(fixture("safetensors/shapes.safetensors")); },
              ThrowsMessage<std::runtime_error>(HasSubstr("shapes.safetensors: this is not the state of a cache: "
                                                          "format in the metadata must be saccade.kv_cache, but "
                                                          "it is 'np'")));
  EXPECT_THAT([] { load_kv_cache(fixture("npy/f4.npy")); },
              ThrowsMessage<std::runtime_error>(HasSubstr("[load_safetensors]")));
  EXPECT_THAT([] { load_kv_cache("/nonexistent/c"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("nonexistent")));
}

TEST(KvCacheFile, LeavesAnOldFileUnchangedWhereWritingFails) {
  EXPECT_THAT([] { save_kv_cache("/nonexistent/c.safetensors", small_cache(DType::i8, 0)); },
              ThrowsMessage<std::runtime_error>(HasSubstr("/nonexistent/c.safetensors")));
}

}  // namespace
}  // namespace saccade::test
