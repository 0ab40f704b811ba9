// The dropout of attention() and decode(), bit for bit: the weights given by dropout_keeps.
#include <gtest/gtest.h>

#include <cmath>

#include "saccade/attention.h"
#include "saccade/decode.h"
#include "saccade/random.h"
#include "support/each_isa.h"

namespace saccade::test {
namespace {

constexpr std::int64_t kHeads = 2, kRows = 13, kKeys = 5000, kColumns = 300, kFirst = kKeys - kColumns;

struct Draw {
  std::uint64_t seed;
  std::uint32_t offset;
  double p;
};

constexpr Draw kDraws[] = {{0, 0, 0.1},
                           {0x0123456789abcdef, 0xfedcba98, 0.5},
                           {0xffffffffffffffff, 0xffffffff, 0.9},
                           {1, 2, 0x1p-40},
                           {3, 4, 1 - 0x1p-40},
                           {5, 6, 1 - 0x1p-53}};

/// Gives equal weights to the visible ones of the last kColumns keys. Value j is 1 in dimension j % kColumns only,
/// so that o shows each weight separately.
class DropoutOnIsa : public EachIsa {
 protected:
  DropoutOnIsa() : v_(DType::f32, {1, kHeads, kKeys, kColumns}) {
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (std::int64_t key = 0; key < kKeys; ++key) v_.at<float>(0, head, key, key % kColumns) = 1;
  }

  template <class Function>
  void check(const Function& function, const Draw& draw, const Tensor& v) {
    const DType dtype = v.dtype();
    const Tensor q(dtype, {1, kHeads, kRows, 8}), k(dtype, {1, kHeads, kKeys, 8});
    const std::int64_t offset = kKeys - kRows;  // row i sees keys up to offset + i
    const Tensor o = Tensor::copy_of(function(q, k, v,
                                              AttentionOptions{.causal = Causal::top_left,
                                                               .query_offset = offset,
                                                               .window_left = kColumns - kRows,
                                                               .dropout_p = draw.p,
                                                               .dropout_seed = draw.seed,
                                                               .dropout_offset = draw.offset}),
                                     DType::f64);
    for (std::int64_t head = 0; head < kHeads; ++head)
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t key = kFirst; key < kKeys; ++key) {
          const std::int64_t distance = offset + row - key;
          const bool visible = distance >= 0 && distance <= kColumns - kRows;
          const bool kept =
              visible && dropout_keeps(draw.seed, draw.offset, static_cast<std::uint32_t>(head),
                                       static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(key), draw.p);
          ASSERT_EQ(o.at<double>(0, head, row, key % kColumns) != 0.0, kept)
              << name_of(dtype) << ", p " << draw.p << ", head " << head << ", row " << row << ", key " << key;
        }
  }

  Tensor v_;
};
SACCADE_FOR_EACH_ISA(DropoutOnIsa);

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

TEST_P(DropoutOnIsa, OfAttentionIsThatOfDropoutKeeps) {
  for (const DType dtype : kTypes) {
    const Tensor v = Tensor::copy_of(v_, dtype);
    for (const Draw& draw : kDraws)
      check([](const auto&... arguments) { return attention(arguments...); }, draw, v);
  }
}

TEST_P(DropoutOnIsa, OfDecodeIsThatOfDropoutKeeps) {
  for (const DType dtype : kTypes) {
    const Tensor v = Tensor::copy_of(v_, dtype);
    for (const Draw& draw : kDraws) check([](const auto&... arguments) { return decode(arguments...); }, draw, v);
  }
}

TEST_P(DropoutOnIsa, OfWeightsIsThatOfDropoutKeeps) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Draw& draw : kDraws) {
      const Tensor q(dtype, {kHeads, kRows, 8}), k(dtype, {kHeads, 333, 8});
      Tensor o(dtype, {kHeads, kRows, 8}), weights(dtype, {kHeads, kRows, 333});
      attention(q, k, k, o,
                {.dropout_p = draw.p,
                 .dropout_seed = draw.seed,
                 .dropout_offset = draw.offset,
                 .weights = weights,
                 .weights_after_dropout = true});
      const Tensor seen = Tensor::copy_of(weights, DType::f64);
      for (std::uint32_t head = 0; head < kHeads; ++head)
        for (std::uint32_t row = 0; row < kRows; ++row)
          for (std::uint32_t column = 0; column < 333; ++column)
            ASSERT_EQ(seen.at<double>(head, row, column) != 0.0,
                      dropout_keeps(draw.seed, draw.offset, head, row, column, draw.p))
                << name_of(dtype) << ", p " << draw.p << ", head " << head << ", row " << row << ", column "
                << column;
    }
  }
}

}  // namespace
}  // namespace saccade::test
