// Where one hostile number reaches in attention, on every instruction set.
#include <string>
#include <utility>
#include <vector>

#include "hostile/number_reach.h"
#include "saccade/attention_state.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/inspect.h"
#include "saccade/kv_cache.h"

namespace saccade::test {
namespace {

using NumberReachInAttention = NumberReach;
SACCADE_FOR_EACH_ISA(NumberReachInAttention);

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kRows = 37, kKeys = 37, kDim = 40, kDimV = 24;
const AttentionOptions kCausal{.causal = Causal::top_left, .num_threads = 1};

std::vector<Tensor> tensors_of(DType q, DType kv) {
  return {random_tensor({2, kHeads, kRows, kDim}, 1, q), random_tensor({2, kKvHeads, kKeys, kDim}, 2, kv),
          random_tensor({2, kKvHeads, kKeys, kDimV}, 3, kv)};
}

/// Whether a number of q, or of k or v, reaches row `row` of a head in causal attention.
bool reaches_row(std::size_t input, const Place& at, std::int64_t batch, std::int64_t head, std::int64_t row) {
  if (at[0] != batch) return false;
  if (input == 0) return at[1] == head && at[2] == row;
  return at[1] == head / (kHeads / kKvHeads) && at[2] <= row;
}

/// Of o: a NaN of v reaches its own column only.
Reach reach_of_o(std::size_t input, const Place& at, std::size_t, const Place& of) {
  if (!reaches_row(input, at, of[0], of[1], of[2])) return Reach::nothing;
  return input < 2 || at[3] == of[3] ? Reach::makes_nan : Reach::may_change;
}

std::vector<std::pair<DType, DType>> types_of_attention() {
  return {{DType::f32, DType::f32},
          {DType::bf16, DType::bf16},
          {DType::f16, DType::f16},
          {DType::f64, DType::f64},
          {DType::f32, DType::bf16}};
}

TEST_P(NumberReachInAttention, OfAttention) {
  std::vector<Function> functions;
  for (const auto& [q, kv] : types_of_attention()) {
    const std::string types = " of " + std::string(name_of(q)) + " and " + std::string(name_of(kv));
    functions.push_back({"attention" + types, tensors_of(q, kv),
                         [](const auto& t) { return std::vector{attention(t[0], t[1], t[2], kCausal)}; },
                         reach_of_o});
    functions.push_back({"decode" + types, tensors_of(q, kv),
                         [](const auto& t) { return std::vector{decode(t[0], t[1], t[2], kCausal)}; },
                         reach_of_o});
    functions.push_back({"AttentionState" + types, tensors_of(q, kv),
                         [](const auto& t) {
                           AttentionState state;
                           Tensor o(t[0].dtype(), {2, kHeads, kRows, kDimV});
                           for (const std::int64_t key : {0, 20}) {
                             AttentionOptions options = kCausal;
                             options.origin.key = key;
                             const std::int64_t end = key == 0 ? 20 : kKeys;
                             state.add(t[0], t[1].view().slice(2, key, end), t[2].view().slice(2, key, end),
                                       options);
                           }
                           state.finish(o);
                           return std::vector{o};
                         },
                         reach_of_o});
  }
  expect_reaches(functions);
}

// A mask hides nothing of a row that causality shows; slopes and sinks are read by every row of their head.
TEST_P(NumberReachInAttention, OfBiases) {
  std::vector<Function> functions;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    std::vector<Tensor> tensors = tensors_of(dtype, dtype);
    tensors.push_back(random_tensor({kHeads, kRows, kKeys}, 5));
    tensors.push_back(random_tensor({kHeads}, 6));
    tensors.push_back(random_tensor({kHeads}, 7));
    const auto call = [=](auto compute) {
      return [=](const std::vector<Tensor>& t) {
        Tensor lse(dtype == DType::f64 ? DType::f64 : DType::f32, {2, kHeads, kRows});
        AttentionOptions options = kCausal;
        options.mask = t[3], options.alibi_slopes = t[4], options.sinks = t[5], options.lse = lse;
        const Tensor o = compute(t[0], t[1], t[2], options);
        return std::vector{o, lse};
      };
    };
    const auto reach = [](std::size_t input, const Place& at, std::size_t result, const Place& of) {
      if (input == 3) return nan_if(at[0] == of[1] && at[1] == of[2] && at[2] <= at[1]);
      if (input > 3) return nan_if(at[0] == of[1]);
      if (result == 0) return reach_of_o(input, at, result, of);
      const bool reaches = reaches_row(input, at, of[0], of[1], of[2]);
      return input == 2 ? change_if(reaches) : nan_if(reaches);  // of v: tiles may round lse otherwise
    };
    const std::string type = " of " + std::string(name_of(dtype));
    functions.push_back(
        {"attention with biases" + type, tensors, call([](auto&... a) { return attention(a...); }), reach});
    functions.push_back(
        {"decode with biases" + type, tensors, call([](auto&... a) { return decode(a...); }), reach});
  }
  expect_reaches(functions);
}

TEST_P(NumberReachInAttention, OfInspection) {
  std::vector<Function> functions;
  for (const auto& [q, kv] : types_of_attention()) {
    std::vector<Tensor> tensors = tensors_of(q, kv);
    tensors.pop_back();
    functions.push_back({"inspect", tensors,
                         [](const auto& t) {
                           Inspection found = inspect(t[0], t[1], {.entropy = true, .max_weight = true}, kCausal);
                           return std::vector{found.entropy, found.max_weight};
                         },
                         [](std::size_t input, const Place& at, std::size_t, const Place& of) {
                           return nan_if(reaches_row(input, at, of[0], of[1], of[2]));
                         }});
  }
  expect_reaches(functions);
}

/// Of dq, dk and dv, from q, k, v, o, lse and dout. The weights are exp(score - lse), so a key's NaN reaches the
/// weights of no other key. dv needs neither v nor o, and of dout its own column; tiles may round it otherwise.
Reach reach_of_gradients(std::size_t input, const Place& at, std::size_t result, const Place& of) {
  enum { q, k, v, o, lse, dout };
  enum { dq, dk, dv };
  const bool is_key = input == k || input == v, of_key = result != dq;
  const std::int64_t group = kHeads / kKvHeads, kv_head = is_key ? at[1] : at[1] / group;
  if (at[0] != of[0] || kv_head != (of_key ? of[1] : of[1] / group)) return Reach::nothing;
  const bool is_needed =
      result != dv || input == q || input == k || input == lse || (input == dout && at[3] == of[3]);
  const bool reaches = is_key ? (of_key ? at[2] == of[2] : at[2] <= of[2])
                              : (of_key ? of[2] <= at[2] : at[1] == of[1] && at[2] == of[2]);
  return is_needed ? nan_if(reaches) : change_if(reaches);
}

TEST_P(NumberReachInAttention, OfGradients) {
  std::vector<Function> functions;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    std::vector<Tensor> tensors = tensors_of(dtype, dtype);
    const DType of_lse = dtype == DType::f64 ? DType::f64 : DType::f32;
    Tensor lse(of_lse, {2, kHeads, kRows});
    AttentionOptions options = kCausal;
    options.lse = lse;
    tensors.push_back(attention(tensors[0], tensors[1], tensors[2], options));
    tensors.push_back(lse);
    tensors.push_back(random_tensor({2, kHeads, kRows, kDimV}, 4, dtype));
    functions.push_back({"attention_backward of " + std::string(name_of(dtype)), tensors,
                         [](const auto& t) {
                           std::vector<Tensor> gradients{Tensor(t[0].dtype(), t[0].shape()),
                                                         Tensor(t[0].dtype(), t[1].shape()),
                                                         Tensor(t[0].dtype(), t[2].shape())};
                           attention_backward(t[0], t[1], t[2], {t[3], t[4], t[5]},
                                              {gradients[0], gradients[1], gradients[2]}, kCausal);
                           return gradients;
                         },
                         reach_of_gradients});
  }
  expect_reaches(functions);
}

TEST_P(NumberReachInAttention, OfCaches) {
  std::vector<Function> functions;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::i4, DType::f8e4m3}) {
    for (const std::int64_t page_size : {0, 16}) {
      const auto cache_of = [=](const std::vector<Tensor>& t) {
        KvCache cache({.batch = 2,
                       .num_kv_heads = kKvHeads,
                       .head_dim = kDim,
                       .head_dim_v = kDimV,
                       .dtype = dtype,
                       .page_size = page_size});
        cache.append(t[1].view().slice(2, 0, 30), t[2].view().slice(2, 0, 30));
        cache.append(t[1].view().slice(2, 30, kKeys), t[2].view().slice(2, 30, kKeys));
        return cache;
      };
      // A quantized row with a NaN or an infinity reads as NaN as a whole.
      const auto reach = [=](std::size_t input, const Place& at, std::size_t result, const Place& of) {
        const Reach of_plain = reach_of_o(input, at, result, of);
        return is_quantized(dtype) && of_plain == Reach::may_change ? Reach::makes_nan : of_plain;
      };
      functions.push_back({"KvCache of " + std::string(name_of(dtype)), tensors_of(DType::f32, DType::f32),
                           [=](const auto& t) {
                             const KvCache cache = cache_of(t);
                             return std::vector{attention(t[0], cache), decode(t[0], cache)};
                           },
                           reach});
    }
  }
  expect_reaches(functions);
}

}  // namespace
}  // namespace saccade::test
