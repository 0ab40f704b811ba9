// Kernels allocate nothing: attention() and decode() over many keys make as many allocations as over few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "support/allocations.h"
#include "support/each_isa.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// The fewest allocations of several calls: the first ones allocate memory that is kept for the next.
std::size_t allocations_of(const std::function<void()>& call) {
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (int i = 0; i < 4; ++i) {
    allocations = 0;
    call();
    fewest = std::min(fewest, allocations.load());
  }
  return fewest;
}

/// A problem whose kv heads are processed together, since the keys of all heads lie side by side.
struct Problem {
  Problem(DType dtype, std::int64_t rows, std::int64_t keys)
      : q(random_tensor({1, rows, 4, 64}, 1, dtype)),
        k(random_tensor({1, keys, 4, 64}, 2, dtype)),
        v(random_tensor({1, keys, 4, 64}, 3, dtype)),
        o(dtype, q.shape()) {}

  AttentionOptions options() const { return {.layout = Layout::bshd, .num_threads = 1}; }

  Tensor q, k, v, o;
};

class KernelAllocations : public EachIsa {
 protected:
  /// `call` takes a Problem.
  static void expect_as_many(std::int64_t rows, std::int64_t few, std::int64_t many,
                             const std::function<void(Problem&)>& call) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      Problem small(dtype, rows, few), large(dtype, rows, many);
      EXPECT_EQ(allocations_of([&] { call(large); }), allocations_of([&] { call(small); })) << name_of(dtype);
    }
  }
};
SACCADE_FOR_EACH_ISA(KernelAllocations);

TEST_P(KernelAllocations, OfDecodeDoNotGrowWithKeys) {
  expect_as_many(1, kDecodeSplitKeys + 1, 4 * kDecodeSplitKeys,
                 [](Problem& p) { decode(p.q, p.k, p.v, p.o, p.options()); });
}

TEST_P(KernelAllocations, OfAttentionDoNotGrowWithKeys) {
  expect_as_many(40, 300, 1200, [](Problem& p) { attention(p.q, p.k, p.v, p.o, p.options()); });
}

/// Memory of several sizes is kept, whichever of them a call asks for first.
TEST_P(KernelAllocations, OfGradientsDoNotGrowWithHeads) {
  const auto allocations_with = [](std::int64_t heads) {
    const Tensor q = random_tensor({heads, 16, 64}, 1), dout = random_tensor({heads, 16, 64}, 2);
    Tensor o(DType::f32, q.shape()), lse(DType::f32, {heads, 16});
    Tensor dq(DType::f32, q.shape()), dk(DType::f32, q.shape()), dv(DType::f32, q.shape());
    attention(q, q, q, o, {.lse = lse, .num_threads = 1});
    return allocations_of([&] {
      attention_backward(q, q, q, {.o = o, .lse = lse, .dout = dout}, {.dq = dq, .dk = dk, .dv = dv},
                         {.num_threads = 1});
    });
  };
  EXPECT_EQ(allocations_with(128), allocations_with(1));
}

}  // namespace
}  // namespace saccade::test
