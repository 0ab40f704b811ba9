// The keys that a query of the reference sees. With queries of zeros all scores are 0, so a row has equal weights
// for all keys that it sees; with the identity as values, o equals the weights. The expected pictures can be
// checked by eye.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "saccade/reference.h"

namespace saccade::test {
namespace {

using reference::AttentionResult;

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();

Tensor zeros(Shape shape) { return Tensor(DType::f32, std::move(shape)); }

/// One line for each query, "x" for a key that it sees and "." for one that it does not. Checks that the weights
/// of the visible keys are equal, and that o and lse agree with them.
std::string seen(const AttentionOptions& options, std::int64_t seqlen_q, std::int64_t seqlen_k,
                 std::int64_t batch = 1, std::int64_t entry = 0, std::int64_t num_heads = 1,
                 std::int64_t head = 0) {
  const Tensor q = zeros({batch, num_heads, seqlen_q, 2});
  const Tensor k = zeros({batch, num_heads, seqlen_k, 2});
  Tensor v = zeros({batch, num_heads, seqlen_k, seqlen_k});
  for (std::int64_t j = 0; j < seqlen_k; ++j) v.at<float>(entry, head, j, j) = 1;
  const AttentionResult result = reference::attention(q, k, v, options);
  std::string picture;
  for (std::int64_t i = 0; i < seqlen_q; ++i) {
    int count = 0;
    for (std::int64_t j = 0; j < seqlen_k; ++j) count += result.weights.at<double>(entry, head, i, j) > 0 ? 1 : 0;
    for (std::int64_t j = 0; j < seqlen_k; ++j) {
      const double weight = result.weights.at<double>(entry, head, i, j);
      EXPECT_DOUBLE_EQ(weight, weight > 0 ? 1.0 / count : 0) << "row " << i << " column " << j;
      EXPECT_EQ(result.o.at<double>(entry, head, i, j), weight) << "row " << i << " column " << j;
      picture += weight > 0 ? 'x' : '.';
    }
    EXPECT_DOUBLE_EQ(result.lse.at<double>(entry, head, i), std::log(count));
    picture += i + 1 < seqlen_q ? " " : "";
  }
  return picture;
}

TEST(Visible, EverythingByDefault) { EXPECT_EQ(seen({}, 2, 3), "xxx xxx"); }

TEST(Visible, CausalFromTheTopLeft) {
  const AttentionOptions options{.causal = Causal::top_left};
  EXPECT_EQ(seen(options, 3, 3), "x.. xx. xxx");
  EXPECT_EQ(seen(options, 2, 4), "x... xx..");
  EXPECT_EQ(seen(options, 4, 2), "x. xx xx xx");
}

TEST(Visible, CausalFromTheBottomRight) {
  const AttentionOptions options{.causal = Causal::bottom_right};
  EXPECT_EQ(seen(options, 3, 3), "x.. xx. xxx");
  EXPECT_EQ(seen(options, 2, 4), "xxx. xxxx");
  EXPECT_EQ(seen(options, 4, 2), ".. .. x. xx");
}

TEST(Visible, QueryOffsetGoesBeforeTheAlignment) {
  for (const Causal causal : {Causal::top_left, Causal::bottom_right}) {
    EXPECT_EQ(seen({.causal = causal, .query_offset = 1}, 2, 4), "xx.. xxx.");
    EXPECT_EQ(seen({.causal = causal, .query_offset = 0}, 2, 4), "x... xx..");
    EXPECT_EQ(seen({.causal = causal, .query_offset = -1}, 2, 4), ".... x...");
    EXPECT_EQ(seen({.causal = causal, .query_offset = std::int64_t{1} << 62}, 2, 4), "xxxx xxxx");
    EXPECT_EQ(seen({.causal = causal, .query_offset = -(std::int64_t{1} << 62)}, 2, 4), ".... ....");
  }
}

TEST(Visible, QueryOffsetWorksWithoutCausal) {
  EXPECT_EQ(seen({.query_offset = -5}, 2, 4), "xxxx xxxx");
  EXPECT_EQ(seen({.query_offset = 2, .window_left = 1, .window_right = 0}, 2, 4), ".xx. ..xx");
}

TEST(Visible, QueryOffsetsOfEachBatchEntry) {
  const Tensor offsets = Tensor::of<std::int32_t>({2, -1});
  const AttentionOptions options{.causal = Causal::bottom_right, .query_offsets = offsets};
  EXPECT_EQ(seen(options, 2, 4, 2, 0), "xxx. xxxx");
  EXPECT_EQ(seen(options, 2, 4, 2, 1), ".... x...");
}

TEST(Visible, WindowIsInclusive) {
  EXPECT_EQ(seen({.window_left = 1, .window_right = 1}, 4, 4), "xx.. xxx. .xxx ..xx");
  EXPECT_EQ(seen({.window_left = 0, .window_right = 0}, 3, 3), "x.. .x. ..x");
  EXPECT_EQ(seen({.window_left = 1}, 3, 3), "xxx xxx .xx");
  EXPECT_EQ(seen({.window_right = 1}, 3, 3), "xx. xxx xxx");
  EXPECT_EQ(seen({.window_left = kFar, .window_right = kFar}, 2, 3), "xxx xxx");
}

TEST(Visible, WindowGoesWithThePosition) {
  EXPECT_EQ(seen({.causal = Causal::top_left, .window_left = 1, .window_right = 1}, 4, 4), "x... xx.. .xx. ..xx");
  EXPECT_EQ(seen({.causal = Causal::bottom_right, .window_left = 1}, 2, 4), ".xx. ..xx");
  EXPECT_EQ(seen({.causal = Causal::bottom_right, .window_left = 0}, 3, 2), ".. x. .x");
}

TEST(Visible, KvLengthsOfEachBatchEntry) {
  const Tensor lengths = Tensor::of<std::int64_t>({3, 0, 4});
  const AttentionOptions plain{.kv_lengths = lengths};
  EXPECT_EQ(seen(plain, 2, 4, 3, 0), "xxx. xxx.");
  EXPECT_EQ(seen(plain, 2, 4, 3, 1), ".... ....");
  EXPECT_EQ(seen(plain, 2, 4, 3, 2), "xxxx xxxx");
  const AttentionOptions bottom_right{.causal = Causal::bottom_right, .kv_lengths = lengths};
  EXPECT_EQ(seen(bottom_right, 2, 4, 3, 0), "xx.. xxx.");
  EXPECT_EQ(seen(bottom_right, 2, 4, 3, 2), "xxx. xxxx");
  const AttentionOptions top_left{.causal = Causal::top_left, .kv_lengths = lengths};
  EXPECT_EQ(seen(top_left, 4, 4, 3, 0), "x... xx.. xxx. xxx.");
}

TEST(Visible, KvStartsOfEachBatchEntry) {
  const Tensor starts = Tensor::of<std::int64_t>({1, 4, 0}), lengths = Tensor::of<std::int64_t>({3, 4, 4});
  EXPECT_EQ(seen({.kv_starts = starts}, 2, 4, 3, 0), ".xxx .xxx");
  EXPECT_EQ(seen({.kv_starts = starts}, 2, 4, 3, 1), ".... ....");
  EXPECT_EQ(seen({.kv_starts = starts}, 2, 4, 3, 2), "xxxx xxxx");
  const AttentionOptions bottom_right{.causal = Causal::bottom_right, .kv_lengths = lengths, .kv_starts = starts};
  EXPECT_EQ(seen(bottom_right, 2, 4, 3, 0), ".x.. .xx.");
  const AttentionOptions window{.causal = Causal::top_left, .window_left = 1, .kv_starts = starts};
  EXPECT_EQ(seen(window, 4, 4, 3, 0), ".... .x.. .xx. ..xx");
}

TEST(Visible, BoolMasksBroadcastFromTheRight) {
  const Tensor of_keys = Tensor::of<bool>({true, false, true});
  EXPECT_EQ(seen({.mask = of_keys}, 2, 3), "x.x x.x");
  const Tensor of_pairs = Tensor::of<bool>({{true, false, true}, {false, false, false}});
  EXPECT_EQ(seen({.mask = of_pairs}, 2, 3), "x.x ...");
  EXPECT_EQ(seen({.causal = Causal::top_left, .mask = of_pairs}, 2, 3), "x.. ...");
  const Tensor of_queries = Tensor::of<bool>({{false}, {true}});
  EXPECT_EQ(seen({.mask = of_queries}, 2, 3), "... xxx");
  const Tensor of_heads = of_pairs.reshaped({2, 1, 3});
  EXPECT_EQ(seen({.mask = of_heads}, 2, 3, 1, 0, 2, 0), "x.x x.x");
  EXPECT_EQ(seen({.mask = of_heads}, 2, 3, 1, 0, 2, 1), "... ...");
  const Tensor of_batch = of_pairs.reshaped({2, 1, 1, 3});
  EXPECT_EQ(seen({.mask = of_batch}, 2, 3, 2, 0, 2, 1), "x.x x.x");
  EXPECT_EQ(seen({.mask = of_batch}, 2, 3, 2, 1, 2, 1), "... ...");
}

TEST(Visible, MasksHaveAnyStrides) {
  const Tensor mask = Tensor::of<bool>({{true, false}, {true, true}, {false, true}});
  EXPECT_EQ(seen({.mask = mask.view().transposed(0, 1)}, 2, 3), "xx. .xx");
  const bool* numbers = mask.values<bool>().data();
  EXPECT_EQ(seen({.mask = TensorView(numbers, {2, 3}, {0, 1})}, 2, 3), "x.x x.x");
  EXPECT_EQ(seen({.mask = TensorView(numbers + 2, {3}, {-1})}, 2, 3), "x.x x.x");
  EXPECT_EQ(seen({.mask = TensorView(numbers, {1, 1, 2, 3}, {7, 9, 2, 1})}, 2, 3), "x.x xx.");
}

TEST(Visible, MinusInfinityInAFloatMaskHides) {
  const auto infinity = std::numeric_limits<float>::infinity();
  const Tensor single = Tensor::of<float>({{0, -infinity, 0}, {-infinity, -infinity, -infinity}});
  EXPECT_EQ(seen({.mask = single}, 2, 3), "x.x ...");
  const Tensor wide = Tensor::copy_of(single, DType::f64);
  EXPECT_EQ(seen({.mask = wide}, 2, 3), "x.x ...");
}

}  // namespace
}  // namespace saccade::test
