// Wrong calls of the C interface: each has a status and a message, and none does harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "saccade/c_api.h"
#include "support/c_api_views.h"
#include "support/fault_count.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

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

TEST(CApi, KeepsTheErrorOfEachThread) {
  EXPECT_EQ(saccade_options_create(9, nullptr), SACCADE_INVALID_ARGUMENT);
  const std::string here = saccade_last_error();
  std::thread([] {
    EXPECT_STREQ(saccade_last_error(), "");
    EXPECT_EQ(saccade_set_active_isa(nullptr), SACCADE_INVALID_ARGUMENT);
  }).join();
  EXPECT_EQ(saccade_last_error(), here);
}

/// Handles of every kind, for calls that must fail: two sequences of three tokens, two heads of 8.
class Handles {
 public:
  Handles() {
    expect_ok(saccade_rope_create(8, nullptr, &rope));
    of_cache.set("batch", std::int64_t{2}).set("num_kv_heads", std::int64_t{2}).set("head_dim", std::int64_t{8});
    expect_ok(saccade_kv_cache_create(of_cache, rope, &cache));
    const Tensor tokens = random_tensor({2, 2, 3, 8}, 1);
    CViews views;
    expect_ok(saccade_kv_cache_append(cache, -1, views(tokens), views(tokens), nullptr));
    const Tensor x = random_tensor({2, 3, 8}, 2);
    expect_ok(saccade_attention_state_create(-1, &state));
    expect_ok(saccade_attention_state_add(state, views(x), views(x), views(x), nullptr));
    of_inspection.set("entropy", std::int64_t{1});
    expect_ok(saccade_inspect(views(tokens), views(tokens), of_inspection, nullptr, &inspection));
  }
  ~Handles() {
    saccade_inspection_destroy(inspection);
    saccade_attention_state_destroy(state);
    saccade_kv_cache_destroy(cache);
    saccade_rope_destroy(rope);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  saccade_rope* rope = nullptr;
  saccade_kv_cache* cache = nullptr;
  saccade_attention_state* state = nullptr;
  saccade_inspection* inspection = nullptr;
  COptions options, of_cache{SACCADE_KV_CACHE_OPTIONS}, of_inspection{SACCADE_INSPECT_OPTIONS};
};

using Random = std::mt19937_64;

template <class T>
T one_of(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random() % choices.size()];
}

using Views = std::span<const saccade_tensor* const>;

/// A call that is right as long as its tensors are.
struct CallOfTensors {
  std::vector<Shape> shapes;
  std::function<saccade_status(Views)> call;
  std::size_t required;  // the tensors after these may be NULL
};

std::vector<CallOfTensors> calls_of_tensors(Handles& handles) {
  const Shape x{2, 3, 8}, lse{2, 3}, states{1, 1, 2, 3, 10}, tokens{2, 2, 1, 8}, cached{2, 2, 3, 8};
  return {
      {{x, x, x, x}, [](Views t) { return saccade_attention(t[0], t[1], t[2], t[3], nullptr); }, 4},
      {{x, x, x, x}, [](Views t) { return saccade_decode(t[0], t[1], t[2], t[3], nullptr); }, 4},
      {{x, x, x, x, lse, x, x, x, x},
       [](Views t) {
         return saccade_attention_backward(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], nullptr);
       },
       6},
      {{x, lse, x, lse}, [](Views t) { return saccade_merge_states(1, t[0], t[1], t[2], t[3], nullptr); }, 4},
      {{x, x, x},
       [&](Views t) { return saccade_attention_state_add(handles.state, t[0], t[1], t[2], nullptr); },
       3},
      {{x}, [&](Views t) { return saccade_attention_state_finish(handles.state, t[0], nullptr); }, 1},
      {{x, x, x},
       [](Views t) {
         double operations;
         return saccade_attention_operations(t[0], t[1], t[2], nullptr, &operations);
       },
       3},
      {{x, x, x, states}, [](Views t) { return saccade_decode_states(t[0], t[1], t[2], t[3], nullptr); }, 4},
      {{x, x, x, states, x},
       [](Views t) { return saccade_merge_decode_states(t[0], t[1], t[2], t[3], t[4], nullptr); },
       5},
      {{x, x}, [&](Views t) { return saccade_rope_rotate(handles.rope, t[0], t[1], nullptr, 0, nullptr); }, 2},
      {{tokens, tokens},
       [&](Views t) { return saccade_kv_cache_append(handles.cache, -1, t[0], t[1], nullptr); },
       2},
      {{tokens, tokens},
       [&](Views t) { return saccade_attention_over_cache(t[0], handles.cache, t[1], nullptr); },
       2},
      {{tokens, tokens},
       [&](Views t) { return saccade_decode_over_cache(t[0], handles.cache, t[1], nullptr); },
       2},
      {{cached}, [&](Views t) { return saccade_kv_cache_dequantize_k(handles.cache, t[0]); }, 1},
      {{cached}, [&](Views t) { return saccade_kv_cache_dequantize_v(handles.cache, t[0]); }, 1},
      {{x, x},
       [&](Views t) {
         saccade_inspection* found = nullptr;
         const saccade_status status = saccade_inspect(t[0], t[1], handles.of_inspection, nullptr, &found);
         saccade_inspection_destroy(found);
         return status;
       },
       2},
      {{tokens},
       [&](Views t) {
         saccade_inspection* found = nullptr;
         return saccade_inspect_over_cache(t[0], handles.cache, handles.of_inspection, nullptr, &found);
       },
       1},
      {{x}, [&](Views t) { return saccade_options_set_tensor(handles.options, "mask", t[0]); }, 1},
  };
}

/// Makes a call with one tensor damaged. Returns its status.
saccade_status damaged_call(const CallOfTensors& which, Random& random) {
  static std::vector<float> memory(4096);
  std::vector<saccade_tensor> tensors;
  std::vector<const saccade_tensor*> given;
  std::vector<Shape> shapes = which.shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    tensors.push_back({.data = memory.data() + 128 * i,
                       .dtype = SACCADE_F32,
                       .rank = static_cast<std::int32_t>(shapes[i].size()),
                       .shape = shapes[i].data(),
                       .strides = nullptr});
  for (const saccade_tensor& tensor : tensors) given.push_back(&tensor);
  const std::size_t place = random() % tensors.size();
  saccade_tensor& damaged = tensors[place];
  switch (random() % (place < which.required ? 7 : 6)) {
    case 0:
      damaged.data = nullptr;
      break;
    case 1:
      damaged.data = static_cast<std::byte*>(damaged.data) + 1 + random() % 3;
      break;
    case 2:
      damaged.dtype = one_of(random, {-1, 14, 100, INT32_MAX, INT32_MIN});
      break;
    case 3:
      damaged.rank = one_of(random, {-1, 0, 7, 100, INT32_MAX, INT32_MIN});
      break;
    case 4:
      damaged.shape = nullptr;
      break;
    case 5:
      shapes[place][random() % shapes[place].size()] =
          one_of<std::int64_t>(random, {-1, -8, INT64_MIN, INT64_MAX, INT64_MAX / 2});
      break;
    case 6:
      given[place] = nullptr;
      break;
    default:
      break;
  }
  return which.call(given);
}

/// Calls without tensors, each wrong in a way that is drawn.
std::vector<std::function<saccade_status(Random&)>> calls_of_numbers(Handles& handles) {
  const auto no_sequence = [](Random& random) {
    return one_of<std::int64_t>(random, {-2, 2, 3, INT64_MAX, INT64_MIN});
  };
  const auto no_length = [](Random& random) {
    return one_of<std::int64_t>(random, {-1, 4, 1 << 20, INT64_MAX, INT64_MIN});
  };
  const auto no_name = [](Random& random) {
    return one_of<const char*>(random,
                               {nullptr, "", "windw_left", "origin", "\xff\xfe", "score_modifier", "scale "});
  };
  const auto other_kind = [&](Random& random) {
    return one_of<saccade_options*>(random, {handles.of_cache, handles.of_inspection});
  };
  return {
      [](Random& random) {
        saccade_options* none = nullptr;
        return saccade_options_create(one_of(random, {-1, 4, INT32_MAX, INT32_MIN}), &none);
      },
      [](Random& random) {
        return saccade_options_create(one_of(random, {0, 1, 2, 3}), nullptr);
      },
      [&, no_name](Random& random) {
        return saccade_options_set_i64(handles.options, no_name(random), static_cast<std::int64_t>(random()));
      },
      [&, no_name](Random& random) { return saccade_options_set_f64(handles.options, no_name(random), 0.5); },
      [&, no_name](Random& random) { return saccade_options_set_text(handles.options, no_name(random), "none"); },
      [&, no_name](Random& random) { return saccade_options_unset(handles.options, no_name(random)); },
      [&](Random& random) {  // numbers and texts of another type or range
        return one_of(random, {saccade_options_set_i64(handles.of_inspection, "entropy", 2),
                               saccade_options_set_i64(handles.options, "causal", 1),
                               saccade_options_set_i64(handles.options, "num_threads", INT64_MAX),
                               saccade_options_set_f64(handles.options, "window_left", 1.0),
                               saccade_options_set_text(handles.of_cache, "dtype", "f8"),
                               saccade_options_set_text(handles.options, "scale", "1"),
                               saccade_options_set_text(handles.options, "layout", nullptr)});
      },
      [&, other_kind](Random& random) {
        const Tensor x = random_tensor({2, 3, 8}, 1);
        CViews views;
        return saccade_attention(views(x), views(x), views(x), views(x), other_kind(random));
      },
      [&, other_kind](Random& random) {
        return saccade_options_set_score_modifier(other_kind(random), nullptr, nullptr, nullptr, nullptr);
      },
      [](Random& random) {
        saccade_attention_state* none = nullptr;
        return saccade_attention_state_create(one_of(random, {-2, 13, INT32_MAX}), &none);
      },
      [](Random& random) {
        const Tensor x = random_tensor({2, 3, 8}, 1), lse = random_tensor({2, 3}, 1);
        CViews views;
        const std::int64_t count = one_of<std::int64_t>(random, {-1, INT64_MIN, INT64_MAX});
        return saccade_merge_states(count, views(x), views(lse), views(x), views(lse), nullptr);
      },
      [](Random& random) {
        float slopes[1];
        return saccade_alibi_slopes(one_of<std::int64_t>(random, {0, -1, INT64_MIN, INT64_MAX}), slopes);
      },
      [](Random&) { return saccade_alibi_slopes(4, nullptr); },
      [](Random& random) {
        saccade_rope* none = nullptr;
        return saccade_rope_create(one_of<std::int64_t>(random, {-2, 7, INT64_MIN, INT64_MAX}), nullptr, &none);
      },
      [&](Random& random) {
        saccade_kv_cache* none = nullptr;
        return saccade_kv_cache_create(one_of<saccade_options*>(random, {nullptr, handles.options}), nullptr,
                                       &none);
      },
      [&, no_sequence](Random& random) {
        const Tensor x = random_tensor({2, 1, 8}, 1);
        CViews views;
        return saccade_kv_cache_append(handles.cache, no_sequence(random), views(x), views(x), nullptr);
      },
      [&, no_sequence](Random& random) {
        std::int64_t length = 0;
        return saccade_kv_cache_state(handles.cache, no_sequence(random), &length, nullptr, nullptr, nullptr,
                                      nullptr);
      },
      [&, no_sequence](Random& random) {
        return saccade_kv_cache_set_start(handles.cache, no_sequence(random), 0);
      },
      [&, no_length](Random& random) { return saccade_kv_cache_set_start(handles.cache, 0, no_length(random)); },
      [&, no_sequence](Random& random) {
        return saccade_kv_cache_truncate(handles.cache, no_sequence(random), 0);
      },
      [&, no_length](Random& random) { return saccade_kv_cache_truncate(handles.cache, 1, no_length(random)); },
      [&, no_sequence, no_length](Random& random) {
        return random() % 2 == 0 ? saccade_kv_cache_share_prefix(handles.cache, no_sequence(random), 1, 1)
                                 : saccade_kv_cache_share_prefix(handles.cache, 0, 1, no_length(random));
      },
      [&](Random& random) {
        std::int64_t positions[2];
        return saccade_kv_cache_positions(handles.cache, one_of<std::int64_t>(random, {-1, INT64_MIN, INT64_MAX}),
                                          positions);
      },
      [&](Random&) { return saccade_kv_cache_positions(handles.cache, 1, nullptr); },
      [&, no_name](Random& random) {
        saccade_tensor result;
        return saccade_inspection_get(handles.inspection, no_name(random), &result);
      },
      [&](Random&) { return saccade_inspection_get(handles.inspection, "entropy", nullptr); },
      [](Random& random) {
        return saccade_set_num_threads(one_of(random, {-1, INT32_MIN}));
      },
      [no_name](Random& random) { return saccade_set_active_isa(no_name(random)); },
      [](Random&) {
        saccade_tensor result;
        return saccade_tensor_from_dlpack(nullptr, &result);
      },
  };
}

TEST(CApiRefusals, HaveAStatusAndAMessage) {
  Handles handles;
  const std::vector<CallOfTensors> of_tensors = calls_of_tensors(handles);
  const auto of_numbers = calls_of_numbers(handles);
  Random random(7);
  constexpr std::size_t kCalls = 20'000;
  for (std::size_t i = 0; i < kCalls; ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(saccade_set_active_isa("the error before"), SACCADE_INVALID_ARGUMENT);
    const std::string before = saccade_last_error();
    const std::size_t which = random() % (2 * of_numbers.size());
    const saccade_status status = which < of_numbers.size()
                                      ? of_numbers[which](random)
                                      : damaged_call(of_tensors[random() % of_tensors.size()], random);
    ASSERT_NE(status, SACCADE_OK) << which;
    ASSERT_THAT(saccade_last_error(), AllOf(HasSubstr("["), testing::Ne(before)));
  }
  count_faults(kCalls);
  // What failed has left the cache as it was.
  std::int64_t length = 0;
  expect_ok(saccade_kv_cache_state(handles.cache, 0, &length, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(length, 3);
}

}  // namespace
}  // namespace saccade::test
