// Kernels allocate nothing: calls over more keys make as many allocations as calls over few.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/inspect.h"
#include "support/allocations.h"
#include "support/each_isa.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

/// The allocations of a call, when calls before it have left their memory to it.
std::size_t allocations_of(const std::function<void()>& call) {
  call();
  allocations = 0;
  call();
  return allocations;
}

/// A problem whose kv heads are processed together where keys of all heads lie side by side.
struct Problem {
  Problem(DType dtype, std::int64_t rows, std::int64_t keys)
      : q(random_tensor({1, rows, 4, 64}, 1, dtype)),
        k(random_tensor({1, keys, 4, 64}, 2, dtype)),
        v(random_tensor({1, keys, 4, 64}, 3, dtype)),
        o(dtype, q.shape()),
        lse(dtype == DType::f64 ? dtype : DType::f32, {1, 4, rows}) {}

  AttentionOptions options() const { return {.layout = Layout::blhd, .num_threads = 1}; }

  Tensor q, k, v, o, lse;
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

TEST_P(KernelAllocations, OfInspectionDoNotGrowWithKeys) {
  expect_as_many(40, 300, 1200, [](Problem& p) {
    inspect(p.q, p.k, {.top_k = 5, .entropy = true, .distance = true}, p.options());
  });
}

TEST_P(KernelAllocations, OfGradientsDoNotGrowWithKeys) {
  expect_as_many(40, 300, 1200, [](Problem& p) {
    AttentionOptions options = p.options();
    options.lse = p.lse;
    attention(p.q, p.k, p.v, p.o, options);
    Tensor dq(p.q.dtype(), p.q.shape()), dk(p.k.dtype(), p.k.shape()), dv(p.v.dtype(), p.v.shape());
    attention_backward(p.q, p.k, p.v, {.o = p.o, .lse = p.lse, .dout = p.q}, {.dq = dq, .dk = dk, .dv = dv},
                       p.options());
  });
}

}  // namespace
}  // namespace saccade::test
