// Memory that runs out in the C interface: the status and the message, and handles as they were.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "faults/allocation_faults.h"
#include "saccade/io.h"
#include "support/c_api_views.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// Turns a status back into the exception that it stands for.
void in_c(saccade_status status) {
  if (status == SACCADE_OK) return;
  if (status == SACCADE_OUT_OF_MEMORY && std::strcmp(saccade_last_error(), "out of memory") == 0)
    throw std::bad_alloc();
  throw std::runtime_error(saccade_last_error());
}

/// A handle of C, NULL at first.
template <class T, void (*destroy)(T*)>
struct Handle {
  Handle() = default;
  ~Handle() { destroy(it); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  T* it = nullptr;
};

using Options = Handle<saccade_options, saccade_options_destroy>;
using Cache = Handle<saccade_kv_cache, saccade_kv_cache_destroy>;
using RopeHandle = Handle<saccade_rope, saccade_rope_destroy>;
using State = Handle<saccade_attention_state, saccade_attention_state_destroy>;
using Inspected = Handle<saccade_inspection, saccade_inspection_destroy>;

struct Operands {
  Tensor q = random_tensor({1, 4, 200, 64}, 1), k = random_tensor({1, 2, 200, 64}, 2),
         v = random_tensor({1, 2, 200, 64}, 3);
  Tensor o{DType::f32, {1, 4, 200, 64}};
  CViews views{};
  const saccade_tensor *cq = views(q), *ck = views(k), *cv = views(v), *co = views(o);
};

/// A function that makes a handle, which stays NULL when it fails.
template <class H, class Create>
void expect_creation_survives(const Create& create) {
  expect_survives([&]() -> Operation {
    const auto handle = std::make_shared<H>();
    const auto is_null = [handle] { return std::string(handle->it == nullptr ? "NULL" : "made"); };
    return {.run = [&, handle] { in_c(create(&handle->it)); }, .result = is_null, .state = is_null};
  });
}

TEST(AllocationFaults, OfCallsFromC) {
  const Operands p;
  const auto o = [&] { return bits_of(p.o); };
  COptions options;
  options.set("causal", "top_left").set("num_threads", std::int64_t{3});
  expect_survives([&]() -> Operation {
    return {.run = [&] { in_c(saccade_attention(p.cq, p.ck, p.cv, p.co, options)); }, .result = o};
  });
  expect_survives([&]() -> Operation {
    return {.run = [&] { in_c(saccade_decode(p.cq, p.ck, p.cv, p.co, options)); }, .result = o};
  });
}

TEST(AllocationFaults, OfHandlesOfC) {
  expect_creation_survives<Options>(
      [](saccade_options** made) { return saccade_options_create(SACCADE_ATTENTION_OPTIONS, made); });
  expect_creation_survives<RopeHandle>([](saccade_rope** made) { return saccade_rope_create(32, nullptr, made); });
  expect_creation_survives<State>(
      [](saccade_attention_state** made) { return saccade_attention_state_create(SACCADE_F32, made); });
  COptions of_cache(SACCADE_KV_CACHE_OPTIONS);
  of_cache.set("head_dim", std::int64_t{32}).set("dtype", "i4").set("page_size", std::int64_t{4});
  expect_creation_survives<Cache>(
      [&](saccade_kv_cache** made) { return saccade_kv_cache_create(of_cache, nullptr, made); });
  const Operands p;
  COptions wanted(SACCADE_INSPECT_OPTIONS);
  wanted.set("top_k", std::int64_t{3}).set("entropy", std::int64_t{1});
  expect_creation_survives<Inspected>(
      [&](saccade_inspection** made) { return saccade_inspect(p.cq, p.ck, wanted, nullptr, made); });
}

/// An option is set, or what it was.
TEST(AllocationFaults, OfOptionsOfC) {
  const Tensor x = random_tensor({1, 1, 9, 32}, 1), y(DType::f32, x.shape());
  Tensor frequencies(DType::f64, {16});
  CViews views;
  const saccade_tensor *const from = views(x), *const to = views(y), *const given = views(frequencies);
  expect_survives([&]() -> Operation {
    const auto options = std::make_shared<COptions>(SACCADE_ROPE_OPTIONS);
    const auto rotated = [=, &y] {
      RopeHandle rope;
      in_c(saccade_rope_create(32, *options, &rope.it));
      in_c(saccade_rope_rotate(rope.it, from, to, nullptr, 7, nullptr));
      return bits_of(y);
    };
    return {.run = [=] { in_c(saccade_options_set_tensor(*options, "frequencies", given)); },
            .result = rotated,
            .state = rotated};
  });
}

TEST(AllocationFaults, OfCachesOfC) {
  const Tensor x = random_tensor({1, 1, 9, 32}, 1);
  CViews views;
  const saccade_tensor *const all = views(x), *const tokens = views(x.view().select(0, 0));
  COptions of_cache(SACCADE_KV_CACHE_OPTIONS);
  of_cache.set("head_dim", std::int64_t{32}).set("dtype", "i8").set("page_size", std::int64_t{4});
  const auto bits = [](const std::shared_ptr<Cache>& cache) {
    return [cache] {
      std::array<std::int64_t, 4> shape{};
      in_c(saccade_kv_cache_shapes(cache->it, shape.data(), nullptr));
      Tensor k(DType::f32, Shape(shape.begin(), shape.end()));
      CViews of_k;
      in_c(saccade_kv_cache_dequantize_k(cache->it, of_k(k)));
      return bits_of(k);
    };
  };
  const auto made = [&] {
    auto cache = std::make_shared<Cache>();
    in_c(saccade_kv_cache_create(of_cache, nullptr, &cache->it));
    in_c(saccade_kv_cache_append(cache->it, -1, all, all, nullptr));
    return cache;
  };
  expect_survives([&]() -> Operation {
    const std::shared_ptr<Cache> cache = made();
    return {.run = [=] { in_c(saccade_kv_cache_append(cache->it, 0, tokens, tokens, nullptr)); },
            .result = bits(cache),
            .state = bits(cache)};
  });
  const std::filesystem::path folder = new_temporary_folder();
  const std::string path = (folder / "cache").string();
  const auto contents = [=] {
    using Files = std::filesystem::directory_iterator;
    const std::vector<std::byte> bytes = read_file(path);
    return std::to_string(std::distance(Files(folder), Files())) +
           " file: " + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  expect_survives([&]() -> Operation {
    const std::shared_ptr<Cache> cache = made();
    write_file(path, "an old file");
    return {.run = [=] { in_c(saccade_kv_cache_save(cache->it, path.c_str())); },
            .result = contents,
            .state = contents};
  });
  expect_creation_survives<Cache>([&](saccade_kv_cache** to) { return saccade_kv_cache_load(path.c_str(), to); });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace saccade::test
