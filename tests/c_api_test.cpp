// The C interface against the C++ one, whose bits it has, with every option set by its name; and wrong calls, each
// of which has a status and a message.
#include "saccade/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "cases/gradient_case.h"
#include "cases/random_case.h"
#include "saccade/attention_options.h"
#include "saccade/decode.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"
#include "saccade/rope.h"
#include "saccade/runtime.h"
#include "tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

/// The C view of a tensor; it shares the shape of `view`, which must live as long.
saccade_tensor c_view(const TensorView& view) {
  return {.data = const_cast<void*>(view.data),
          .dtype = static_cast<saccade_dtype>(view.dtype),
          .rank = view.rank,
          .shape = view.shape.data(),
          .strides = view.strides.data()};
}

/// Views that live as long as the list.
class CViews {
 public:
  const saccade_tensor* operator()(const TensorView& view) {
    if (!view) return nullptr;
    views_.push_back(std::make_unique<std::pair<TensorView, saccade_tensor>>(view, saccade_tensor{}));
    views_.back()->second = c_view(views_.back()->first);
    return &views_.back()->second;
  }

 private:
  std::vector<std::unique_ptr<std::pair<TensorView, saccade_tensor>>> views_;
};

void expect_ok(saccade_status status) { EXPECT_EQ(status, SACCADE_OK) << saccade_last_error(); }

/// Options of C that destroy themselves.
class COptions {
 public:
  explicit COptions(saccade_options_kind kind = SACCADE_ATTENTION_OPTIONS) {
    expect_ok(saccade_options_create(kind, &options_));
  }
  ~COptions() { saccade_options_destroy(options_); }
  COptions(const COptions&) = delete;
  COptions& operator=(const COptions&) = delete;
  operator saccade_options*() { return options_; }

  COptions& set(const char* name, std::int64_t value) {
    expect_ok(saccade_options_set_i64(options_, name, value));
    return *this;
  }
  COptions& set(const char* name, double value) {
    expect_ok(saccade_options_set_f64(options_, name, value));
    return *this;
  }
  COptions& set(const char* name, const char* value) {
    expect_ok(saccade_options_set_text(options_, name, value));
    return *this;
  }
  COptions& set(const char* name, const TensorView& value) {
    if (!value) return *this;
    const saccade_tensor view = c_view(value);
    expect_ok(saccade_options_set_tensor(options_, name, &view));
    return *this;
  }

 private:
  saccade_options* options_ = nullptr;
};

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

TEST(CApi, HasTheBitsOfCPlusPlus) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    cases::AttentionCase c = cases::draw_case(seed);
    SCOPED_TRACE(cases::describe(c));
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
      copy(Tensor(wanted[0].dtype(), wanted[0].shape()), c.o.view());
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
    for (std::size_t i = 0; i < gradients.of_options.size(); ++i) {
      Tensor& gradient = gradients.of_options[i];
      std::ranges::fill(
          gradient.bytes() == 0
              ? std::span<std::byte>()
              : std::span(static_cast<std::byte*>(gradient.mutable_view().mutable_data()), gradient.bytes()),
          std::byte{1});
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
    expect_ok(saccade_kv_cache_append(c_cache, 1, views(new_k), views(new_v), "bhld"));
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
}

TEST(CApi, MergesParts) {
  const Tensor q = random_tensor({2, 3, 8}, 1), k = random_tensor({2, 9, 8}, 2), v = random_tensor({2, 9, 8}, 3);
  CViews views;
  Tensor states(DType::f32, {1, 1, 2, 3, 10}), o(DType::f32, {2, 3, 8}), whole(DType::f32, {2, 3, 8});
  expect_ok(saccade_decode_states(views(q), views(k), views(v), views(states), nullptr));
  expect_ok(saccade_merge_decode_states(views(q), views(k), views(v), views(states), views(o), nullptr));
  expect_ok(saccade_decode(views(q), views(k), views(v), views(whole), nullptr));
  EXPECT_TRUE(same_bits(o, whole));
  Tensor o_a = o, lse_a(DType::f32, {2, 3}), merged(DType::f32, {2, 3, 8}), lse(DType::f32, {2, 3});
  Tensor wanted(DType::f32, {2, 3, 8}), wanted_lse(DType::f32, {2, 3});
  expect_ok(
      saccade_merge_states(views(o_a), views(lse_a), views(o), views(lse_a), views(merged), views(lse), nullptr));
  merge_states(o_a, lse_a, o, lse_a, wanted, wanted_lse);
  EXPECT_TRUE(same_bits(merged, wanted) && same_bits(lse, wanted_lse));
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

// ---- Wrong calls -----------------------------------------------------------------------------------------------

std::string error_of(saccade_status status) {
  EXPECT_EQ(status, SACCADE_INVALID_ARGUMENT);
  return saccade_last_error();
}

TEST(CApi, SaysWhatIsWrong) {
  COptions options, of_cache(SACCADE_KV_CACHE_OPTIONS);
  CViews views;
  const Tensor x(DType::f32, {2, 3, 8}), other(DType::f32, {2, 3, 7});
  EXPECT_THAT(error_of(saccade_attention(nullptr, views(x), views(x), views(x), nullptr)),
              HasSubstr("[saccade_attention] q must be given, but it is NULL"));
  EXPECT_THAT(error_of(saccade_attention(views(x), views(other), views(x), views(x), nullptr)),
              HasSubstr("head_dim"));
  EXPECT_THAT(error_of(saccade_attention(views(x), views(x), views(x), views(x), of_cache)),
              HasSubstr("options must be of kind SACCADE_ATTENTION_OPTIONS"));
  EXPECT_THAT(error_of(saccade_options_set_i64(options, "windw_left", 1)),
              AllOf(HasSubstr("attention has no option 'windw_left'; it has layout, scale"), HasSubstr("dmask")));
  EXPECT_THAT(error_of(saccade_options_set_text(options, "scale", "big")),
              HasSubstr("scale must be a number, but a text was given"));
  EXPECT_THAT(error_of(saccade_options_set_f64(options, "window_left", 1.5)),
              HasSubstr("window_left must be a whole number, but a number was given"));
  EXPECT_THAT(error_of(saccade_options_set_text(options, "causal", "left")),
              HasSubstr("causal must be one of none, top_left, bottom_right, but it is 'left'"));
  EXPECT_THAT(error_of(saccade_options_set_i64(options, "dropout_offset", -1)), HasSubstr("must be from 0 to"));
  EXPECT_THAT(error_of(saccade_options_set_i64(of_cache, "causal", 2)), HasSubstr("must be from 0 to 1"));
  EXPECT_THAT(error_of(saccade_options_set_i64(options, nullptr, 2)), HasSubstr("name must be given"));
  EXPECT_THAT(error_of(saccade_options_set_i64(nullptr, "scale", 2)), HasSubstr("options must be given"));
  EXPECT_THAT(error_of(saccade_options_set_i64(options, "score_modifier", 2)),
              HasSubstr("is set by saccade_options_set_score_modifier()"));
  saccade_options* none = nullptr;
  EXPECT_THAT(error_of(saccade_options_create(9, &none)), HasSubstr("kind must be from 0 to 3, but it is 9"));
  EXPECT_EQ(none, nullptr);
  saccade_kv_cache* cache = nullptr;
  EXPECT_THAT(error_of(saccade_kv_cache_create(nullptr, nullptr, &cache)), HasSubstr("head_dim"));
  EXPECT_THAT(error_of(saccade_set_active_isa("sse")), HasSubstr("there is no instruction set 'sse'"));
  EXPECT_THAT(error_of(saccade_set_num_threads(-1)), HasSubstr("-1"));
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

TEST(CApi, KeepsTheErrorOfEachThread) {
  EXPECT_EQ(saccade_options_create(9, nullptr), SACCADE_INVALID_ARGUMENT);
  const std::string here = saccade_last_error();
  std::thread([] {
    EXPECT_STREQ(saccade_last_error(), "");
    EXPECT_EQ(saccade_set_active_isa(nullptr), SACCADE_INVALID_ARGUMENT);
  }).join();
  EXPECT_EQ(saccade_last_error(), here);
}

TEST(CApi, SaysWhatItIs) {
  EXPECT_EQ(saccade_version(), version());
  EXPECT_EQ(saccade_active_isa(), name_of(active_isa()));
  EXPECT_EQ(saccade_num_threads(), num_threads());
  saccade_release_workspaces();
}

TEST(CApi, RefusesRandomWrongCalls) {
  // Tensors with a wrong pointer, type, rank, shape or stride in one place, of a call that is otherwise right.
  std::mt19937_64 random(7);
  const auto draw = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  const auto anything = [&] {
    static constexpr std::int64_t kNumbers[] = {-1, 0, 1,       2,         3,         7,
                                                8,  9, 1 << 20, INT64_MAX, INT64_MIN, INT64_MIN + 1};
    return kNumbers[draw(std::size(kNumbers))];
  };
  std::vector<float> memory(4096);
  int refused = 0;
  for (int call = 0; call < 5000; ++call) {
    std::int64_t shapes[7][6], strides[7][6];
    saccade_tensor tensors[7];
    for (int t = 0; t < 7; ++t) {
      const std::int64_t shape[] = {2, 3, 8}, contiguous[] = {24, 8, 1};
      const bool is_lse = t == 4;
      for (int d = 0; d < 6; ++d)
        shapes[t][d] = d < 3 ? shape[d] : 1,
        strides[t][d] = d < 3 ? (is_lse && d < 2 ? (d == 0 ? 3 : 1) : contiguous[d]) : 1;
      tensors[t] = {memory.data() + 100 * t, SACCADE_F32, is_lse ? 2 : 3, shapes[t],
                    draw(2) ? strides[t] : nullptr};
    }
    saccade_tensor& damaged = tensors[draw(4)];
    const std::int64_t before = damaged.rank, place = draw(3);
    const int kind = static_cast<int>(draw(6));
    bool is_wrong = true;
    if (kind == 0) damaged.data = nullptr;
    if (kind == 1) damaged.data = static_cast<std::byte*>(damaged.data) + 1;
    if (kind == 2) damaged.dtype = static_cast<std::int32_t>(draw(2) ? 13 + draw(100) : -1 - draw(100));
    if (kind == 3) damaged.rank = static_cast<std::int32_t>(draw(2) ? 7 + draw(100) : -draw(3));
    if (kind == 4) {
      std::int64_t& length = const_cast<std::int64_t*>(damaged.shape)[place];
      const std::int64_t old = length;
      length = anything();
      is_wrong = length != old && length != 0;
      if (!is_wrong) continue;  // an empty sequence, for one, is no error
      // Another number of heads or keys may fit; only lengths that overflow or are negative are wrong for certain.
      is_wrong = length < 0 || length > (1 << 20);
      if (!is_wrong) continue;
    }
    if (kind == 5) {
      if (damaged.strides == nullptr) damaged.strides = strides[&damaged - tensors];
      const_cast<std::int64_t*>(damaged.strides)[2] = 2 + draw(5);
    }
    EXPECT_TRUE(before == 3);
    const saccade_status status =
        draw(2) ? saccade_attention(&tensors[0], &tensors[1], &tensors[2], &tensors[3], nullptr)
                : saccade_attention_backward(&tensors[0], &tensors[1], &tensors[2], &tensors[3], &tensors[4],
                                             &tensors[5], &tensors[6], nullptr, nullptr, nullptr);
    ASSERT_NE(status, SACCADE_OK) << "kind " << kind;
    ASSERT_STRNE(saccade_last_error(), "");
    ++refused;
  }
  EXPECT_GT(refused, 4000);
}

}  // namespace
}  // namespace saccade::test
