// decode_states() and merge_decode_states(): the bits of decode() over all keys, whatever the parts of the cache
// are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "saccade/decode.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::int64_t kSplit = kDecodeSplitKeys, kKeys = 13000, kBatch = 2, kHeads = 4, kKvHeads = 2, kRows = 3;

/// A problem of few rows over several pieces of keys.
struct Cache {
  Tensor q, k, v;
  explicit Cache(DType dtype, std::int64_t dim = 24, std::int64_t dim_v = 20, std::int64_t keys = kKeys)
      : q(random_tensor({kBatch, kHeads, kRows, dim}, 1, dtype)),
        k(random_tensor({kBatch, kKvHeads, keys, dim}, 2, dtype)),
        v(random_tensor({kBatch, kKvHeads, keys, dim_v}, 3, dtype)) {}

  std::int64_t keys() const { return k.shape(2); }
  Shape rows() const { return {kBatch, kHeads, kRows}; }
  DType exact() const { return q.dtype() == DType::f64 ? DType::f64 : DType::f32; }
};

struct Outcome {
  Tensor o, lse;
};

Outcome whole(const Cache& cache, AttentionOptions options) {
  Tensor lse(cache.exact(), cache.rows());
  options.lse = lse;
  return {decode(cache.q, cache.k, cache.v, options), lse};
}

Tensor at_most(const TensorView& numbers, std::int64_t most) {
  Tensor result = Tensor::copy_of(numbers);
  for (std::int64_t& x : result.values<std::int64_t>()) x = std::min(x, most);
  return result;
}

/// The options of a call over keys [begin, end): masks and numbers of keys are cut, everything else counts from
/// the origin. `numbers` owns what is cut.
AttentionOptions options_of_part(AttentionOptions options, std::int64_t begin, std::int64_t end,
                                 std::deque<Tensor>& numbers) {
  options.origin.key = begin;
  if (options.kv_lengths) options.kv_lengths = numbers.emplace_back(at_most(options.kv_lengths, end));
  if (options.kv_starts) options.kv_starts = numbers.emplace_back(at_most(options.kv_starts, end));
  if (options.mask) options.mask = options.mask.slice(options.mask.rank - 1, begin, end);
  if (options.block_mask) {
    const std::int64_t blocks = (end + options.block_mask_k - 1) / options.block_mask_k;
    options.block_mask = options.block_mask.slice(options.block_mask.rank - 1, 0, blocks);
  }
  return options;
}

/// The same by parts that end at `ends`.
Outcome by_parts(const Cache& cache, const AttentionOptions& options, const std::vector<std::int64_t>& ends) {
  std::vector<Tensor> parts;
  std::deque<Tensor> numbers;
  std::int64_t begin = 0, pieces = 0;
  Tensor o(cache.q.dtype(), {kBatch, kHeads, kRows, cache.v.shape(3)}), lse(cache.exact(), cache.rows());
  for (const std::int64_t end : ends) {
    const TensorView k = cache.k.view().slice(2, begin, end), v = cache.v.view().slice(2, begin, end);
    parts.push_back(decode_states(cache.q, k, v, options_of_part(options, begin, end, numbers)));
    pieces += parts.back().shape(0);
    begin = end;
  }
  Shape shape = parts.front().shape();
  shape[0] = pieces;
  Tensor states(parts.front().dtype(), shape);
  for (std::int64_t at = 0; const Tensor& part : parts) {
    copy(part, MutableTensorView(states).slice(0, at, at + part.shape(0)));
    at += part.shape(0);
  }
  const std::int64_t first = ends.size() > 1 ? ends[ends.size() - 2] : 0;
  AttentionOptions of_last = options_of_part(options, first, ends.back(), numbers);
  of_last.lse = lse;
  merge_decode_states(cache.q, cache.k.view().slice(2, first, ends.back()),
                      cache.v.view().slice(2, first, ends.back()), states, o, of_last);
  return {o, lse};
}

void expect_same_bits(const Cache& cache, const AttentionOptions& options, const std::string& what) {
  const Outcome expected = whole(cache, options);
  const std::int64_t n = cache.keys();
  std::vector<std::vector<std::int64_t>> divisions{
      {kSplit, 3 * kSplit, n}, {kSplit, 2 * kSplit, 2 * kSplit, n}, {n}, {kSplit, n}, {2 * kSplit, n}};
  if (kIsSlow) divisions.resize(2);
  for (const std::vector<std::int64_t>& ends : divisions) {
    const Outcome actual = by_parts(cache, options, ends);
    EXPECT_TRUE(same_bits(actual.o, expected.o)) << what << ", " << ends.size() << " parts";
    EXPECT_TRUE(same_bits(actual.lse, expected.lse)) << what << ", " << ends.size() << " parts";
  }
}

class DecodeStates : public EachIsa {};
SACCADE_FOR_EACH_ISA(DecodeStates);

/// Depends on the coordinates and the score.
void bend(void*, const ScoreTile& tile) {
  const auto change = [&](auto type) {
    for (std::int64_t i = 0; i < tile.rows; ++i)
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        auto& score = tile.row<decltype(type)>(i)[j];
        const std::int64_t key = tile.first_key + j;
        if ((key + tile.head) % 5 == 0) score = score / 2 + static_cast<decltype(type)>(key % 7);
      }
  };
  tile.dtype == DType::f64 ? change(double{}) : change(float{});
}

TEST_P(DecodeStates, HaveTheBitsOfOneCallUnderEveryOption) {
  const Tensor slopes = alibi_slopes(kHeads), sinks = random_tensor({kHeads}, 4);
  const Tensor lengths = Tensor::of<std::int64_t>({kKeys - 4000, 5000}),
               starts = Tensor::of<std::int64_t>({70, 4500});
  const Tensor added = random_tensor({kHeads, 1, kKeys}, 5);
  Tensor seen(DType::boolean, {kBatch, 1, kRows, kKeys}), blocks(DType::boolean, {1, (kKeys + 127) / 128});
  for (std::int64_t i = 0; i < seen.size(); ++i) seen.values<bool>()[static_cast<std::size_t>(i)] = i % 3 != 0;
  for (std::int64_t i = 0; i < blocks.size(); ++i) blocks.values<bool>()[static_cast<std::size_t>(i)] = i % 5 < 3;
  const std::pair<const char*, AttentionOptions> cases[] = {
      {"plain", {}},
      {"causal", {.causal = Causal::top_left, .query_offset = kKeys - kRows}},
      {"early rows", {.causal = Causal::top_left, .query_offset = 5000}},
      {"window", {.causal = Causal::top_left, .query_offset = kKeys - kRows, .window_left = 6000}},
      {"narrow window", {.query_offset = 4095, .window_left = 1, .window_right = 1}},
      {"ALiBi", {.query_offset = kKeys - kRows, .alibi_slopes = slopes}},
      {"sinks", {.sinks = sinks}},
      {"softcap", {.softcap = 5.0}},
      {"bool mask", {.mask = seen}},
      {"float mask", {.mask = added}},
      {"block mask", {.block_mask = blocks}},
      {"modifier", {.score_modifier = bend}},
      {"dropout", {.dropout_p = 0.4, .dropout_seed = 9}},
      {"lengths and starts", {.kv_lengths = lengths, .kv_starts = starts}},
      {"scale", {.scale = -0.3}},
      {"many",
       {.softcap = 20.0,
        .causal = Causal::top_left,
        .query_offset = 9000,
        .window_left = 5000,
        .mask = added,
        .kv_lengths = lengths,
        .alibi_slopes = slopes,
        .sinks = sinks,
        .dropout_p = 0.2,
        .dropout_seed = 5}}};
  // Each option with bf16, whose products differ from level to level, and by turns with another type.
  constexpr std::array kOthers{DType::f32, DType::f16, DType::f64};
  for (std::size_t turn = static_cast<std::size_t>(GetParam()); const auto& [name, of_case] : cases) {
    ++turn;
    const std::array two{kOthers[turn % 3], DType::bf16};
    for (const DType dtype : one_if_slow(two, turn)) {
      const Cache cache(dtype);
      const Tensor slopes_64 = Tensor::copy_of(slopes, cache.exact()),
                   sinks_64 = Tensor::copy_of(sinks, cache.exact()),
                   added_64 = Tensor::copy_of(added, cache.exact());
      AttentionOptions options = of_case;
      if (options.alibi_slopes) options.alibi_slopes = slopes_64;
      if (options.sinks) options.sinks = sinks_64;
      if (options.mask && options.mask.dtype != DType::boolean) options.mask = added_64;
      expect_same_bits(cache, options, std::string(name_of(dtype)) + ", " + name);
    }
  }
}

TEST_P(DecodeStates, HaveTheBitsOfOneCallForLargerHeads) {
  for (const DType dtype : {DType::f32, DType::bf16}) expect_same_bits(Cache(dtype, 64, 128), {}, "64 and 128");
}

TEST_P(DecodeStates, LeaveOutWhatIsHiddenAndKeepWhatIsSeen) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    Cache clean(dtype);
    const AttentionOptions options{.causal = Causal::top_left, .query_offset = 9000};  // sees keys up to 9002
    const Outcome expected = whole(clean, options);
    // NaN in the last piece that is seen, next to the last key; hidden from some rows; beyond all of them.
    for (const std::int64_t key : {std::int64_t{9003}, std::int64_t{9001}, std::int64_t{12500}}) {
      for (const float x : {kNan, kInf}) {
        Cache cache = clean;
        const Tensor bad = Tensor::copy_of(Tensor::of<float>({x}), dtype);
        for (std::int64_t d = 0; d < cache.v.shape(3); ++d)
          copy(bad.view().select(0, 0),
               MutableTensorView(cache.v).select(0, 0).select(0, 1).select(0, key).select(0, d));
        const Outcome one = whole(cache, options);
        for (const std::vector<std::int64_t>& ends :
             {std::vector<std::int64_t>{kSplit, kKeys}, {kSplit, 2 * kSplit, kKeys}}) {
          const Outcome parts = by_parts(cache, options, ends);
          EXPECT_TRUE(same_bits(parts.o, one.o)) << name_of(dtype) << ' ' << key << ' ' << x;
          EXPECT_TRUE(same_bits(parts.lse, expected.lse)) << name_of(dtype) << ' ' << key << ' ' << x;
          EXPECT_EQ(same_bits(parts.o, expected.o), key != 9001) << name_of(dtype) << ' ' << key << ' ' << x;
        }
      }
    }
  }
}

TEST_P(DecodeStates, DoNotDependOnThreadsNorOnPiecesThatNoRowSees) {
  const Cache cache(DType::f32);
  AttentionOptions options{.query_offset = 9000, .window_left = 4000, .window_right = 0, .num_threads = 1};
  const Tensor states = decode_states(cache.q, cache.k, cache.v, options);
  options.num_threads = 3;
  EXPECT_TRUE(same_bits(decode_states(cache.q, cache.k, cache.v, options), states));
  Tensor o(DType::f32, {kBatch, kHeads, kRows, 20});
  merge_decode_states(cache.q, cache.k, cache.v, Tensor::copy_of(states.view().slice(0, 1, 3)), o, options);
  EXPECT_TRUE(same_bits(o, decode(cache.q, cache.k, cache.v, options)));
}

TEST_P(DecodeStates, OfNothingAreRowsWithoutKeys) {
  const Cache cache(DType::f32, 24, 20, 0);
  const Tensor states = decode_states(cache.q, cache.k, cache.v);
  EXPECT_EQ(states.shape(), (Shape{0, kBatch, kHeads, kRows, 23}));
  Tensor o = random_tensor({kBatch, kHeads, kRows, 20}, 1), lse(DType::f32, cache.rows());
  merge_decode_states(cache.q, cache.k, cache.v, states, o, {.lse = lse});
  EXPECT_TRUE(same_bits(o, Tensor(DType::f32, o.shape())));
  EXPECT_EQ(lse.at<float>(1, 1, 1), -kInf);
}

void expect_refusal(const std::string& message, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error, but expected: " << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), message);
  }
}

TEST(DecodeStatesErrors, NameWhatDoesNotFit) {
  const Cache cache(DType::f32, 24, 20, 5000);
  const Tensor &q = cache.q, &k = cache.k, &v = cache.v;
  Tensor states(DType::f32, {2, kBatch, kHeads, kRows, 23}), small(DType::f32, {1, kBatch, kHeads, kRows, 23}),
      narrow(DType::f32, {2, kBatch, kHeads, kRows, 20}), doubles(DType::f64, states.shape()),
      o(DType::f32, {kBatch, kHeads, kRows, 20});
  expect_refusal("[decode_states] states must have shape [2, 2, 4, 3, 23], but it has shape [1, 2, 4, 3, 23]",
                 [&] { decode_states(q, k, v, small); });
  expect_refusal("[decode_states] states must be f32 for a q of f32, but it is f64",
                 [&] { decode_states(q, k, v, doubles); });
  expect_refusal("[decode_states] origin.key must be a multiple of 4096, got 64",
                 [&] { decode_states(q, k, v, states, {.origin = {.key = 64}}); });
  Tensor weights(DType::f32, {kBatch, kHeads, kRows, 5000});
  expect_refusal("[merge_decode_states] weights was given: states do not have them",
                 [&] { merge_decode_states(q, k, v, states, o, {.weights = weights}); });
  expect_refusal(
      "[merge_decode_states] states must have shape [2, 2, 4, 3, 23], but it has shape [2, 2, 4, 3, 20]",
      [&] { merge_decode_states(q, k, v, narrow, o); });
  expect_refusal("[decode_states] k has head_dim 24 but q has 20", [&] { decode_states(o, k, v, states); });
}

}  // namespace
}  // namespace saccade::test
