// The C interface against the C++ one, whose bits it has, with every option set by its name.
#include "saccade/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "cases/gradient_case.h"
#include "cases/random_case.h"
#include "saccade/attention_options.h"
#include "saccade/decode.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/operations.h"
#include "saccade/rope.h"
#include "saccade/runtime.h"
#include "support/c_api_views.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// A score modifier of C++, called by C.
struct Forwarded {
  AttentionOptions options;

  static ScoreTile tile_of(const saccade_score_tile& tile) {
    ScoreTile result;
    result.batch = tile.batch, result.head = tile.head, result.first_row = tile.first_row;
    result.first_key = tile.first_key, result.rows = tile.rows, result.keys = tile.keys;
    result.offset = tile.offset, result.scores = tile.scores, result.stride = tile.stride;
    result.dtype = static_cast<DType>(tile.dtype);
    return result;
  }
  static void modify(void* self, const saccade_score_tile* tile) {
    const auto& o = static_cast<Forwarded*>(self)->options;
    o.score_modifier(o.score_context, tile_of(*tile));
  }
  static void go_back(void* self, const saccade_score_tile* scores, const saccade_score_tile* gradients) {
    const auto& o = static_cast<Forwarded*>(self)->options;
    o.score_modifier_backward(o.score_context, tile_of(*scores), tile_of(*gradients));
  }
  static std::int32_t effect(void* self, const saccade_score_tile* block) {
    const auto& o = static_cast<Forwarded*>(self)->options;
    return static_cast<std::int32_t>(o.score_block_effect(o.score_context, tile_of(*block)));
  }
};

/// Sets every option that differs from its default, by name.
void copy_options(const AttentionOptions& from, COptions& to, Forwarded& forwarded) {
  for (const AttentionOption& row : kAttentionOptions) {
    const std::string name(row.name);
    std::visit(
        [&](auto member) {
          using Member = decltype(member);
          if constexpr (std::is_same_v<Member, OptionPair>) {
            const std::size_t comma = name.find(", ");
            to.set(name.substr(0, comma).c_str(), from.*member.first);
            to.set(name.substr(comma + 2).c_str(), from.*member.second);
          } else {
            using T = std::remove_cvref_t<decltype(from.*member)>;
            const T& value = from.*member;
            if constexpr (std::is_enum_v<T>) {
              to.set(name.c_str(), std::string(option_name(value)).c_str());
            } else if constexpr (std::is_base_of_v<TensorView, T>) {
              to.set(name.c_str(), value);
            } else if constexpr (std::is_integral_v<T>) {
              to.set(name.c_str(), static_cast<std::int64_t>(value));
            } else if constexpr (std::is_same_v<T, double>) {
              to.set(name.c_str(), value);
            } else if constexpr (std::is_same_v<T, std::optional<double>> ||
                                 std::is_same_v<T, std::optional<std::int64_t>>) {
              if (value) to.set(name.c_str(), *value);
            } else if constexpr (std::is_same_v<T, Origin>) {
              to.set("origin_batch", value.batch).set("origin_head", value.head).set("origin_row", value.row);
              to.set("origin_num_heads", value.num_heads).set("origin_key", value.key);
            }
          }
        },
        row.member);
  }
  forwarded.options = from;
  if (from.score_modifier)
    expect_ok(saccade_options_set_score_modifier(
        to, Forwarded::modify, from.score_modifier_backward ? Forwarded::go_back : nullptr,
        from.score_block_effect ? Forwarded::effect : nullptr, &forwarded));
}

Tensor bits_of(const TensorView& view) { return view ? Tensor::copy_of(view) : Tensor(); }

/// Fills with zeros, so that only a call that writes a result can have its bits.
void clear(const MutableTensorView& view) {
  if (view) copy(Tensor(view.dtype, Shape(view.dims().begin(), view.dims().end())), view);
}

TEST(CApi, HasTheBitsOfCPlusPlus) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    cases::AttentionCase c = cases::draw_case(seed);
    SCOPED_TRACE(cases::describe(c));
    if (c.k.view().dtype == DType::i4 || c.v.view().dtype == DType::i4) continue;  // C has caches of it only
    CViews views;
    COptions options;
    Forwarded forwarded;
    copy_options(c.options, options, forwarded);
    const auto results = [&] {
      return std::vector{bits_of(c.o.view()), bits_of(c.options.lse), bits_of(c.options.weights),
                         bits_of(c.options.scores)};
    };
    for (const bool decodes : {false, true}) {
      if (decodes && !c.has_few_rows) continue;
      decodes ? decode(c.q.view(), c.k.view(), c.v.view(), c.o.view(), c.options)
              : attention(c.q.view(), c.k.view(), c.v.view(), c.o.view(), c.options);
      const std::vector<Tensor> wanted = results();
      for (const MutableTensorView& result : {c.o.view(), c.options.lse, c.options.weights, c.options.scores})
        clear(result);
      expect_ok((decodes ? saccade_decode : saccade_attention)(views(c.q.view()), views(c.k.view()),
                                                               views(c.v.view()), views(c.o.view()), options));
      const std::vector<Tensor> got = results();
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << i;
    }
  }
}

TEST(CApi, HasTheGradientsOfCPlusPlus) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    cases::AttentionCase c = cases::draw_case(seed);
    if (!cases::has_gradients(c)) continue;
    cases::CheckedGradients gradients(c, seed);
    gradients.compute();
    const std::vector<Tensor> wanted = gradients.results();
    CViews views;
    COptions options;
    Forwarded forwarded;
    copy_options(c.options, options, forwarded);
    const AttentionOutcome outcome = gradients.outcome();
    options.set("dlse", outcome.dlse);
    for (cases::ScatteredTensor* const gradient : {&gradients.dq, &gradients.dk, &gradients.dv})
      clear(gradient->view());
    for (std::size_t i = 0; i < gradients.of_options.size(); ++i) {
      Tensor& gradient = gradients.of_options[i];
      clear(gradient.mutable_view());
      options.set(std::string(kOptionGradients<Tensor>[i].name).c_str(), gradient.view());
    }
    expect_ok(saccade_attention_backward(views(c.q.view()), views(c.k.view()), views(c.v.view()), views(outcome.o),
                                         views(outcome.lse), views(outcome.dout), views(gradients.dq.view()),
                                         views(gradients.dk.view()), views(gradients.dv.view()), options));
    const std::vector<Tensor> got = gradients.results();
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], wanted[i])) << i;
    ++compared;
  }
  EXPECT_GT(compared, 60);
}

TEST(CApi, KeepsCaches) {
  for (const std::int64_t page_size : {0, 4}) {
    const Tensor k = random_tensor({2, 2, 9, 8}, 1), v = random_tensor({2, 2, 9, 8}, 2),
                 q = random_tensor({2, 4, 1, 8}, 3);
    const Rope rope(8, {.base = 500.0});
    KvCache cache({.batch = 2, .num_kv_heads = 2, .head_dim = 8, .page_size = page_size, .rope = rope});
    cache.append(k, v);
    cache.truncate(1, 7), cache.set_start(1, 2), cache.share_prefix(0, 1, 5), cache.clear(1);
    cache.append(1, random_tensor({2, 3, 8}, 4), random_tensor({2, 3, 8}, 5));
    const Tensor wanted = decode(q, cache, {.softcap = 3.0});

    CViews views;
    COptions of_rope(SACCADE_ROPE_OPTIONS), of_cache(SACCADE_KV_CACHE_OPTIONS), options;
    of_rope.set("base", std::int64_t{500}).set("pairs", "half");
    of_cache.set("batch", std::int64_t{2}).set("num_kv_heads", std::int64_t{2}).set("head_dim", std::int64_t{8});
    of_cache.set("dtype", "f32").set("page_size", page_size);
    options.set("softcap", 3.0);
    saccade_rope* c_rope = nullptr;
    expect_ok(saccade_rope_create(8, of_rope, &c_rope));
    saccade_kv_cache* c_cache = nullptr;
    expect_ok(saccade_kv_cache_create(of_cache, c_rope, &c_cache));
    expect_ok(saccade_kv_cache_append(c_cache, -1, views(k), views(v), nullptr));
    expect_ok(saccade_kv_cache_truncate(c_cache, 1, 7));
    expect_ok(saccade_kv_cache_set_start(c_cache, 1, 2));
    std::int64_t length = 0, first = 0, start = 0, bytes = 0, pages = 0;
    expect_ok(saccade_kv_cache_state(c_cache, 1, &length, &first, &start, &bytes, &pages));
    EXPECT_EQ(std::tuple(length, first, start), std::tuple(7, 0, 2));
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(pages > 0, page_size > 0);
    expect_ok(saccade_kv_cache_share_prefix(c_cache, 0, 1, 5));
    expect_ok(saccade_kv_cache_truncate(c_cache, 1, 0));
    const Tensor new_k = random_tensor({2, 3, 8}, 4), new_v = random_tensor({2, 3, 8}, 5);
    expect_ok(saccade_kv_cache_append(c_cache, 1, views(new_k), views(new_v), "bhsd"));
    Tensor o(DType::f32, {2, 4, 1, 8});
    expect_ok(saccade_decode_over_cache(views(q), c_cache, views(o), options));
    EXPECT_TRUE(same_bits(o, wanted));
    expect_ok(saccade_attention_over_cache(views(q), c_cache, views(o), options));
    EXPECT_TRUE(same_bits(o, attention(q, cache, {.softcap = 3.0})));
    std::int64_t positions[4] = {};
    expect_ok(saccade_kv_cache_positions(c_cache, 2, positions));
    EXPECT_THAT(positions, ::testing::ElementsAre(7, 8, 1, 2));
    Tensor rotated(DType::f32, q.shape()), expected(DType::f32, q.shape());
    expect_ok(saccade_rope_rotate(c_rope, views(q), views(rotated), nullptr, 5, nullptr));
    rope.rotate(q, expected, 5);
    EXPECT_TRUE(same_bits(rotated, expected));
    saccade_kv_cache_destroy(c_cache);
    saccade_rope_destroy(c_rope);
  }
}

TEST(CApi, Inspects) {
  const Tensor q = random_tensor({2, 9, 8}, 1), k = random_tensor({2, 9, 8}, 2);
  const Inspection wanted = inspect(q, k,
                                    {.rows = {3, 1},
                                     .top_k = 2,
                                     .index_dtype = DType::i32,
                                     .entropy = true,
                                     .pool_rows = 3,
                                     .pool_keys = 3,
                                     .pooling = Pooling::max},
                                    {.causal = Causal::top_left});
  CViews views;
  const std::int64_t rows[] = {3, 1};
  COptions asked(SACCADE_INSPECT_OPTIONS), options;
  asked.set("rows", TensorView(rows, {2})).set("top_k", std::int64_t{2}).set("entropy", std::int64_t{1});
  asked.set("index_dtype", "i32").set("pooling", "max");
  asked.set("pool_rows", std::int64_t{3}).set("pool_keys", std::int64_t{3});
  options.set("causal", "top_left");
  saccade_inspection* found = nullptr;
  expect_ok(saccade_inspect(views(q), views(k), asked, options, &found));
  const auto result = [&](const char* name) {
    saccade_tensor view;
    expect_ok(saccade_inspection_get(found, name, &view));
    return Tensor::copy_of(TensorView(view.data, static_cast<DType>(view.dtype),
                                      std::span(view.shape, static_cast<std::size_t>(view.rank))));
  };
  EXPECT_TRUE(same_bits(result("rows"), wanted.rows));
  EXPECT_TRUE(same_bits(result("top_keys"), wanted.top_keys));
  EXPECT_TRUE(same_bits(result("top_weights"), wanted.top_weights));
  EXPECT_TRUE(same_bits(result("entropy"), wanted.entropy));
  EXPECT_TRUE(same_bits(result("pooled"), wanted.pooled));
  saccade_tensor none;
  expect_ok(saccade_inspection_get(found, "received", &none));
  EXPECT_EQ(none.rank, 0);
  saccade_inspection_destroy(found);

  saccade_kv_cache* cache = nullptr;
  COptions of_cache(SACCADE_KV_CACHE_OPTIONS);
  of_cache.set("num_kv_heads", std::int64_t{2}).set("head_dim", std::int64_t{8}).set("page_size", std::int64_t{4});
  expect_ok(saccade_kv_cache_create(of_cache, nullptr, &cache));
  expect_ok(saccade_kv_cache_append(cache, -1, views(k), views(k), nullptr));
  const Tensor batch_of_q =
      Tensor::copy_of(TensorView(q.data(), DType::f32, std::array<std::int64_t, 4>{1, 2, 9, 8}));
  expect_ok(saccade_inspect_over_cache(views(batch_of_q), cache, asked, nullptr, &found));
  EXPECT_TRUE(
      std::ranges::equal(result("top_keys").values<std::int32_t>(), wanted.top_keys.values<std::int32_t>()));
  EXPECT_TRUE(std::ranges::equal(result("entropy").values<float>(), wanted.entropy.values<float>()));
  saccade_inspection_destroy(found);
  saccade_kv_cache_destroy(cache);
}

TEST(CApi, MergesParts) {
  const Tensor q = random_tensor({2, 3, 8}, 1), k = random_tensor({2, 9, 8}, 2), v = random_tensor({2, 9, 8}, 3);
  CViews views;
  Tensor states(DType::f32, {1, 1, 2, 3, 11}), o(DType::f32, {2, 3, 8}), whole(DType::f32, {2, 3, 8});
  expect_ok(saccade_decode_states(views(q), views(k), views(v), views(states), nullptr));
  expect_ok(saccade_merge_decode_states(views(q), views(k), views(v), views(states), views(o), nullptr));
  expect_ok(saccade_decode(views(q), views(k), views(v), views(whole), nullptr));
  EXPECT_TRUE(same_bits(o, whole));

  const Tensor lse_a = random_tensor({2, 3}, 4), lse_b = random_tensor({2, 3}, 5);
  Tensor merged(DType::f32, {2, 3, 8}), lse(DType::f32, {2, 3}), wanted = merged, wanted_lse = lse;
  const saccade_tensor o_parts[] = {*views(q), *views(o), *views(k.view().slice(1, 0, 3))};
  const saccade_tensor lse_parts[] = {*views(lse_a), *views(lse_b), *views(lse_a)};
  expect_ok(saccade_merge_states(3, o_parts, lse_parts, views(merged), views(lse), nullptr));
  const PartialResult parts[] = {{q, lse_a}, {o, lse_b}, {k.view().slice(1, 0, 3), lse_a}};
  merge_states(parts, wanted, wanted_lse);
  EXPECT_TRUE(same_bits(merged, wanted) && same_bits(lse, wanted_lse));
}

TEST(CApi, TakesKeysInParts) {
  const Tensor q = random_tensor({2, 3, 8}, 1), k = random_tensor({2, 5000, 8}, 2),
               v = random_tensor({2, 5000, 4}, 3);
  Tensor o(DType::f32, {2, 3, 4}), lse(DType::f32, {2, 3}), wanted = o, wanted_lse = lse;
  attention(q, k, v, wanted, {.softcap = 2.0, .lse = wanted_lse});
  CViews views;
  COptions options, of_finish;
  options.set("softcap", 2.0);
  of_finish.set("lse", lse);
  saccade_attention_state* state = nullptr;
  expect_ok(saccade_attention_state_create(-1, &state));
  for (std::int64_t first = 0; first < 5000; first += SACCADE_ORIGIN_ALIGNMENT) {
    const std::int64_t end = std::min<std::int64_t>(5000, first + SACCADE_ORIGIN_ALIGNMENT);
    options.set("origin_key", first);
    expect_ok(saccade_attention_state_add(state, views(q), views(k.view().slice(1, first, end)),
                                          views(v.view().slice(1, first, end)), options));
  }
  expect_ok(saccade_attention_state_finish(state, views(o), of_finish));
  saccade_attention_state_destroy(state);
  EXPECT_TRUE(same_bits(o, wanted) && same_bits(lse, wanted_lse));
}

TEST(CApi, CallsAHookBetweenPiecesOfWork) {
  const Tensor x = random_tensor({4, 2000, 64}, 1);
  Tensor o(DType::f32, {4, 2000, 64});
  CViews views;
  struct Calls {
    int left, resets = 0;
  } calls{.left = 1};
  expect_ok(saccade_set_progress_hook(
      [](void* context) -> std::int32_t {
        auto& own = *static_cast<Calls*>(context);
        own.resets += saccade_set_progress_hook(nullptr, nullptr) == SACCADE_INVALID_ARGUMENT;
        return own.left-- == 0;
      },
      &calls));
  EXPECT_EQ(saccade_attention(views(x), views(x), views(x), views(o), nullptr), SACCADE_INTERRUPTED);
  EXPECT_THAT(saccade_last_error(), HasSubstr("progress hook"));
  EXPECT_EQ(calls.left, -1);
  EXPECT_EQ(calls.resets, 2);
  expect_ok(saccade_set_progress_hook(nullptr, nullptr));
  expect_ok(saccade_attention(views(x), views(x), views(x), views(o), nullptr));
  EXPECT_EQ(calls.left, -1);
}

TEST(CApi, OutlivesAHookThatThrows) {
  const Tensor x = random_tensor({4, 2000, 64}, 1);
  Tensor o(DType::f32, {4, 2000, 64});
  CViews views;
  expect_ok(saccade_set_progress_hook([](void*) -> std::int32_t { throw std::runtime_error("tired"); }, nullptr));
  EXPECT_EQ(saccade_attention(views(x), views(x), views(x), views(o), nullptr), SACCADE_FAILED);
  EXPECT_STREQ(saccade_last_error(), "tired");
  expect_ok(saccade_set_progress_hook(nullptr, nullptr));
}

TEST(CApi, RunsOnTheThreadsOfItsHost) {
  const Tensor x = random_tensor({4, 300, 64}, 1);
  const Tensor wanted = attention(x, x, x);
  Tensor o(DType::f32, {4, 300, 64});
  CViews views;
  COptions options;
  options.set("num_threads", std::int64_t{3});
  std::vector<std::int32_t> calls;  // the tasks of each
  expect_ok(saccade_set_parallel_for(
      [](void* context, std::int32_t tasks, saccade_task task, void* task_context) {
        static_cast<std::vector<std::int32_t>*>(context)->push_back(tasks);
        std::vector<std::thread> threads;
        for (std::int32_t i = 0; i < tasks; ++i) threads.emplace_back([=] { task(task_context, i); });
        for (std::thread& thread : threads) thread.join();
      },
      &calls));
  expect_ok(saccade_attention(views(x), views(x), views(x), views(o), options));
  EXPECT_TRUE(same_bits(o, wanted));
  EXPECT_THAT(calls, Not(IsEmpty()));
  EXPECT_THAT(calls, Each(3));
  expect_ok(saccade_set_parallel_for(
      [](void*, std::int32_t, saccade_task task, void* task_context) { task(task_context, 0); }, nullptr));
  EXPECT_EQ(saccade_attention(views(x), views(x), views(x), views(o), options), SACCADE_FAILED);
  EXPECT_THAT(saccade_last_error(),
              HasSubstr("must run each of its 3 tasks once before it returns, but it ran 1"));
  expect_ok(saccade_set_parallel_for(nullptr, nullptr));
  const std::size_t before = calls.size();
  expect_ok(saccade_attention(views(x), views(x), views(x), views(o), options));
  EXPECT_TRUE(same_bits(o, wanted));
  EXPECT_EQ(calls.size(), before);
}

TEST(CApi, CountsOperations) {
  const Tensor x(DType::f32, {2, 3, 8});
  CViews views;
  COptions options;
  options.set("causal", "top_left");
  double operations = 0.0;
  expect_ok(saccade_attention_operations(views(x), views(x), views(x), options, &operations));
  EXPECT_EQ(operations, attention_operations(x, x, x, {.causal = Causal::top_left}));
}

TEST(CApi, HasSlopes) {
  float slopes[12];
  expect_ok(saccade_alibi_slopes(12, slopes));
  EXPECT_EQ(slopes[11], alibi_slopes(12).at<float>(11));
}

/// DLPack's struct, as a framework fills it.
struct DlTensor {
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};

TEST(CApi, TakesTensorsOfDlpack) {
  float numbers[7] = {0, 1, 2, 3, 4, 5, 6};
  std::int64_t shape[] = {2, 3};
  DlTensor from{numbers, 1, 0, 2, 2, 32, 1, shape, nullptr, 4};
  saccade_tensor to{};
  expect_ok(saccade_tensor_from_dlpack(&from, &to));
  EXPECT_EQ(to.data, numbers + 1);
  EXPECT_EQ(to.dtype, SACCADE_F32);
  EXPECT_EQ(to.rank, 2);
  from.device_type = 2;
  EXPECT_EQ(saccade_tensor_from_dlpack(&from, &to), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("device type 2"));
  from.device_type = 1, from.lanes = 4;
  EXPECT_EQ(saccade_tensor_from_dlpack(&from, &to), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("4 lanes"));
}

TEST(CApi, UnsetsOptions) {
  COptions options;
  CViews views;
  const Tensor x = random_tensor({2, 3, 8}, 1), mask(DType::f32, {9, 9});
  Tensor o(DType::f32, {2, 3, 8});
  options.set("mask", mask.view()).set("softcap", -1.0);
  EXPECT_EQ(saccade_attention(views(x), views(x), views(x), views(o), options), SACCADE_INVALID_ARGUMENT);
  expect_ok(saccade_options_unset(options, "mask"));
  expect_ok(saccade_options_unset(options, "softcap"));
  expect_ok(saccade_attention(views(x), views(x), views(x), views(o), options));
  EXPECT_TRUE(same_bits(o, attention(x, x, x)));
}

TEST(CApi, SaysWhatItIs) {
  std::size_t count = 0;
  for (const char* const* name = saccade_available_isas(); *name != nullptr; ++name)
    EXPECT_EQ(*name, name_of(available_isas().at(count++)));
  EXPECT_EQ(count, available_isas().size());
  EXPECT_EQ(saccade_version(), version());
  EXPECT_EQ(saccade_active_isa(), name_of(active_isa()));
  EXPECT_EQ(saccade_num_threads(), num_threads());
  saccade_release_workspaces();
}

}  // namespace
}  // namespace saccade::test
