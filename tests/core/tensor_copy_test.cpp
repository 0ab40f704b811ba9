// Copies of contiguous and strided views: conversions have the bits of dtype.h on every instruction set.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "saccade/tensor.h"
#include "support/each_isa.h"
#include "support/system.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

class CopyOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(CopyOnIsa);

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint32_t bits_of(float16 x) { return x.bits; }
std::uint32_t bits_of(bfloat16 x) { return x.bits; }

/// Converts numbers by copy() and one by one.
template <class To, class From>
void expect_bits_of_one_by_one(const std::vector<From>& numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  const Tensor copied = Tensor::copy_of(TensorView(numbers.data(), {count}), dtype_of<To>);
  for (std::int64_t i = 0; i < count; ++i) {
    const From from = numbers[static_cast<std::size_t>(i)];
    ASSERT_EQ(bits_of(copied.at<To>(i)), bits_of(static_cast<To>(from))) << std::hex << bits_of(from);
  }
}

TEST_P(CopyOnIsa, WidensEveryNumberOf16Bits) {
  std::vector<float16> halves;
  std::vector<bfloat16> bfloats;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    halves.push_back(float16::from_bits(static_cast<std::uint16_t>(bits)));
    bfloats.push_back(bfloat16::from_bits(static_cast<std::uint16_t>(bits)));
  }
  expect_bits_of_one_by_one<float>(halves);
  expect_bits_of_one_by_one<float>(bfloats);
}

TEST_P(CopyOnIsa, RoundsAsOneByOne) {
  std::vector<float> numbers;  // every sign, exponent and leading fraction bits, around rounding boundaries
  for (std::uint32_t upper = 0; upper <= 0xFFFF; ++upper)
    for (const std::uint32_t lower : {0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000,
                                      0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF})
      numbers.push_back(std::bit_cast<float>(upper << 16 | lower));
  expect_bits_of_one_by_one<float16>(numbers);
  expect_bits_of_one_by_one<bfloat16>(numbers);
}

TEST_P(CopyOnIsa, WritesNoMoreThanItsNumbers) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      const Tensor numbers = random_tensor({80}, 1, from);
      const Tensor converted = Tensor::copy_of(numbers, to);
      for (std::int64_t begin : {0, 1, 3}) {
        for (std::int64_t count = 0; count < 70; ++count) {
          Tensor target(to, {80});
          copy(numbers.view().slice(0, begin, begin + count),
               target.mutable_view().slice(0, begin, begin + count));
          for (std::int64_t i = 0; i < 80; ++i) {
            const bool is_copied = i >= begin && i < begin + count;
            ASSERT_EQ(value_at(target, std::array{i}), is_copied ? value_at(converted, std::array{i}) : 0.0)
                << name_of(from) << " to " << name_of(to) << ", " << count << " from " << begin << ", at " << i;
          }
        }
      }
    }
  }
}

/// Copies `from` into a view and compares number by number.
void expect_copied(const TensorView& from, const MutableTensorView& to) {
  copy(from, to);
  std::array<std::int64_t, 4> i{};
  for (i[0] = 0; i[0] < from.shape[0]; ++i[0])
    for (i[1] = 0; i[1] < from.shape[1]; ++i[1])
      for (i[2] = 0; i[2] < from.shape[2]; ++i[2])
        for (i[3] = 0; i[3] < from.shape[3]; ++i[3])
          ASSERT_EQ(value_at(to, i), value_at(from, i)) << to_string(i) << " of " << to_string(from.dims());
}

TEST_P(CopyOnIsa, TakesAnyStrides) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor tensor = Tensor::copy_of(random_tensor({3, 4, 6, 18}, 1, DType::bf16), dtype);
    const TensorView all = tensor;
    std::vector<TensorView> views{all,
                                  all.transposed(2, 3),
                                  all.transposed(0, 1),
                                  all.slice(1, 1, 3),
                                  all.slice(2, 2, 5),
                                  all.slice(3, 1, 18),
                                  all.slice(2, 2, 3),
                                  all.slice(3, 4, 5),
                                  all.slice(0, 1, 2).transposed(0, 2)};
    views.push_back(all);  // the same numbers for every index of dimension 1, the last one reversed
    views.back().strides[1] = 0;
    views.back().data = static_cast<const std::byte*>(all.data) + 17 * size_of(dtype);
    views.back().strides[3] = -1;
    for (const TensorView& view : views) {
      const Shape shape(view.dims().begin(), view.dims().end());
      Tensor plain(DType::f32, shape), wide(DType::f32, {shape[0], shape[1] + 2, shape[2], shape[3] + 3}),
          swapped(DType::f32, {shape[0], shape[2], shape[1], shape[3]});
      expect_copied(view, plain.mutable_view());
      expect_copied(view, wide.mutable_view().slice(1, 1, 1 + shape[1]).slice(3, 0, shape[3]));
      expect_copied(view, wide.mutable_view().slice(1, 1, 1 + shape[1]).slice(3, 3, 3 + shape[3]));
      expect_copied(view, swapped.mutable_view().transposed(1, 2));
    }
  }
}

TEST(Copy, ConvertsWhereTheInstructionSetAskedForIsNotThere) {
#ifdef SACCADE_EMULATED
  GTEST_SKIP() << "this test starts its program again, and the system cannot run it without the emulator";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process that has not chosen kernels yet
  EXPECT_EXIT(
      {
        set_variable("SACCADE_ISA", "none");
        const Tensor copied = Tensor::copy_of(Tensor::of<float>({1, 2}), DType::bf16);
        std::exit(copied.at<bfloat16>(1).bits == 0x4000 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace saccade::test
