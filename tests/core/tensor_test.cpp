#include "saccade/tensor.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/numbers.h"

namespace saccade {
namespace {

using test::numbers_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

const std::vector<DType> kAll = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::boolean,
                                 DType::i8,  DType::i16, DType::i32, DType::i64,  DType::u8,
                                 DType::u16, DType::u32, DType::u64};

/// 0, 1, 2, ... in the given shape.
Tensor counted(Shape shape) {
  Tensor tensor(DType::f32, std::move(shape));
  std::iota(tensor.values<float>().begin(), tensor.values<float>().end(), 0.0F);
  return tensor;
}

double converted(const Tensor& from, DType to) {
  return value_at(Tensor::copy_of(from, to), std::array<std::int64_t, 1>{0});
}

// ---- Shapes --------------------------------------------------------------------------------------------------

TEST(ElementCount, MultipliesTheLengths) {
  EXPECT_EQ(element_count(Shape{2, 6, 3}), 36);
  EXPECT_EQ(element_count(Shape{2, 0, 3}), 0);
  EXPECT_EQ(element_count(Shape{0, kHuge}), 0);
  EXPECT_EQ(element_count(Shape{}), 1);
  EXPECT_EQ(element_count(Shape{kHuge}), kHuge);
}

TEST(ElementCount, RefusesWhatDoesNotFit) {
  EXPECT_THROW(element_count(Shape{kHuge, 2}), std::invalid_argument);
  EXPECT_THROW(element_count(Shape{kHuge, kHuge, kHuge, kHuge}), std::invalid_argument);
  EXPECT_THROW(element_count(Shape{kHuge}, 2), std::invalid_argument);
  EXPECT_THROW(element_count(Shape{std::int64_t{1} << 60}, 8), std::invalid_argument);
  EXPECT_EQ(element_count(Shape{(std::int64_t{1} << 60) - 1}, 8), (std::int64_t{1} << 60) - 1);
  EXPECT_THROW(element_count(Shape{0, kHuge, kHuge}), std::invalid_argument);
  EXPECT_THROW(element_count(Shape{kHuge, kHuge, 0}), std::invalid_argument);
  EXPECT_THAT([] { element_count(Shape{3, -1}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("[3, -1]")));
  EXPECT_THROW(element_count(Shape{0, -1}), std::invalid_argument);
  EXPECT_THROW(element_count(Shape(7, 1)), std::invalid_argument);
}

TEST(TensorView, RefusesTheSameShapes) {
  const float number = 0;
  EXPECT_THROW(TensorView(&number, {-1}), std::invalid_argument);
  EXPECT_THROW(TensorView(&number, {kHuge, kHuge}), std::invalid_argument);
  EXPECT_THROW(TensorView(&number, {std::int64_t{1} << 31, std::int64_t{1} << 30}), std::invalid_argument);
  EXPECT_THROW(TensorView(&number, {1, 1, 1, 1, 1, 1, 1}), std::invalid_argument);
  EXPECT_THROW(TensorView(&number, {kHuge, kHuge}, {0, 0}), std::invalid_argument);
  EXPECT_THAT(
      [&] {
        TensorView(&number, {2, 3}, {1});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("1 strides for a shape of rank 2")));
  EXPECT_THROW(Tensor(DType::f32, {-1}), std::invalid_argument);
  EXPECT_THROW(Tensor(DType::f64, {std::int64_t{1} << 60}), std::invalid_argument);
}

TEST(TensorView, TakesLongDimensionsToo) {
  const float number = 0;
  const TensorView view(&number, {1024, 2048, 4096});
  EXPECT_EQ(view.size(), std::int64_t{1} << 33);
  EXPECT_EQ(view.strides[0], std::int64_t{1} << 23);
}

// ---- Views ---------------------------------------------------------------------------------------------------

TEST(TensorView, IsNotGivenByDefault) {
  EXPECT_FALSE(TensorView());
  EXPECT_FALSE(MutableTensorView());
  EXPECT_EQ(TensorView().size(), 0);
  EXPECT_TRUE(TensorView(static_cast<const float*>(nullptr), {0, 3}));
}

TEST(TensorView, KnowsTypeShapeAndStridesOfAPointer) {
  const std::vector<double> numbers(36);
  const TensorView view(numbers.data(), {2, 6, 3});
  EXPECT_EQ(view.dtype, DType::f64);
  EXPECT_THAT(view.dims(), ElementsAre(2, 6, 3));
  EXPECT_EQ(view.strides[0], 18);
  EXPECT_EQ(view.strides[1], 3);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_EQ(view.size(), 36);
  EXPECT_EQ(view.as<double>(), numbers.data());
  EXPECT_THAT([&] { view.as<float>(); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("elements of f64, not f32")));
}

TEST(TensorView, SeesWhetherNumbersAreContiguous) {
  const Tensor tensor = counted({4, 6});
  const TensorView view = tensor;
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_FALSE(view.transposed(0, 1).is_contiguous());
  EXPECT_TRUE(view.slice(0, 1, 3).is_contiguous());
  EXPECT_FALSE(view.slice(1, 1, 3).is_contiguous());
  EXPECT_TRUE(view.slice(0, 1, 2).slice(1, 2, 4).is_contiguous());
  EXPECT_TRUE(view.slice(1, 2, 2).is_contiguous());
  EXPECT_FALSE(TensorView(tensor.values<float>().data(), {4}, {0}).is_contiguous());
}

TEST(TensorView, TransposesSelectsAndSlices) {
  const Tensor tensor = counted({2, 3, 4});
  const TensorView view = tensor;
  EXPECT_THAT(numbers_of(view.select(0, 1).select(0, 2)), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(numbers_of(view.select(-1, 3)), ElementsAre(3, 7, 11, 15, 19, 23));
  EXPECT_THAT(numbers_of(view.select(0, 0).transposed(0, 1)), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
  EXPECT_THAT(numbers_of(view.slice(1, 1, 3).slice(2, 1, 2)), ElementsAre(5, 9, 17, 21));
  EXPECT_THAT(view.transposed(0, -1).dims(), ElementsAre(4, 3, 2));
  EXPECT_THAT(view.slice(-2, 3, 3).dims(), ElementsAre(2, 0, 4));
  EXPECT_THAT(view.reshaped({6, 4}).select(0, 5).dims(), ElementsAre(4));
}

TEST(TensorView, RefusesIndicesOutside) {
  const Tensor tensor = counted({2, 3});
  const TensorView view = tensor;
  EXPECT_THROW(view.select(0, 2), std::out_of_range);
  EXPECT_THROW(view.select(0, -1), std::out_of_range);
  EXPECT_THROW(view.select(2, 0), std::out_of_range);
  EXPECT_THROW(view.select(-3, 0), std::out_of_range);
  EXPECT_THROW(view.slice(1, 0, 4), std::out_of_range);
  EXPECT_THROW(view.slice(1, 2, 1), std::out_of_range);
  EXPECT_THROW(view.slice(1, -1, 1), std::out_of_range);
  EXPECT_THROW(view.transposed(0, 2), std::out_of_range);
  EXPECT_THROW(view.reshaped({7}), std::invalid_argument);
  EXPECT_THROW(view.transposed(0, 1).reshaped({6}), std::invalid_argument);
}

TEST(MutableTensorView, WritesWhereItsViewsLook) {
  Tensor tensor(DType::i32, {2, 3});
  *tensor.mutable_view().transposed(0, 1).select(0, 2).slice(0, 1, 2).as<std::int32_t>() = 7;
  EXPECT_THAT(numbers_of(tensor), ElementsAre(0, 0, 0, 0, 0, 7));
}

// ---- Tensors -------------------------------------------------------------------------------------------------

TEST(Tensor, OwnsAlignedZeros) {
  for (const std::int64_t size : {0, 1, 3, 1000}) {
    const Tensor tensor(DType::f32, {size});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
    EXPECT_EQ(tensor.bytes(), static_cast<std::size_t>(size) * 4);
    EXPECT_THAT(numbers_of(tensor), ::testing::Each(0.0));
  }
}

TEST(Tensor, IsNotGivenByDefault) {
  const Tensor tensor;
  EXPECT_FALSE(tensor.view());
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_TRUE(tensor.values<float>().empty());
  EXPECT_FALSE(Tensor::copy_of(tensor).view());
}

TEST(Tensor, HoldsASingleNumberInRankZero) {
  Tensor tensor(DType::f64, {});
  tensor.at<double>() = 3;
  EXPECT_EQ(tensor.size(), 1);
  EXPECT_EQ(Tensor::copy_of(tensor, DType::i32).at<std::int32_t>(), 3);
  EXPECT_EQ(tensor.reshaped({1, 1}).at<double>(0, 0), 3);
}

TEST(Tensor, CopiesNumbersAndMovesMemory) {
  Tensor original = Tensor::of<float>({1, 2, 3});
  Tensor copy = original;
  copy.at<float>(0) = 9;
  EXPECT_EQ(original.at<float>(0), 1);
  copy = original;
  EXPECT_EQ(copy.at<float>(0), 1);
  const Tensor& itself = copy;
  copy = itself;
  EXPECT_THAT(numbers_of(copy), ElementsAre(1, 2, 3));

  const void* memory = original.data();
  Tensor moved = std::move(original);
  EXPECT_EQ(moved.data(), memory);
  EXPECT_EQ(original.size(), 0);  // NOLINT: the moved-from state is guaranteed
  EXPECT_EQ(original.rank(), 0);
  EXPECT_TRUE(original.values<float>().empty());
  copy = std::move(moved);
  EXPECT_EQ(copy.data(), memory);
  EXPECT_EQ(moved.size(), 0);  // NOLINT
}

TEST(Tensor, TakesNumbersWrittenOut) {
  const Tensor matrix = Tensor::of<float>({{1, 2, 3}, {4, 5, 6}});
  EXPECT_THAT(matrix.shape(), ElementsAre(2, 3));
  EXPECT_EQ(matrix.shape(-1), 3);
  EXPECT_EQ(matrix.at<float>(1, 0), 4);
  EXPECT_THAT(Tensor::of<bool>({true, false}).shape(), ElementsAre(2));
  EXPECT_THAT(
      [] {
        Tensor::of<float>({{1, 2}, {3}});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("[Tensor::of] a row has 1 numbers, the first one 2")));
}

TEST(Tensor, RefusesWrongIndicesAndTypes) {
  const Tensor matrix = counted({2, 3});
  EXPECT_THAT([&] { matrix.at<float>(0, 3); }, ThrowsMessage<std::out_of_range>(HasSubstr("[0, 3]")));
  EXPECT_THROW(matrix.at<float>(-1, 0), std::out_of_range);
  EXPECT_THROW(matrix.at<float>(1), std::out_of_range);
  EXPECT_THROW(matrix.at<float>(0, 0, 0), std::out_of_range);
  EXPECT_THROW(Tensor().at<float>(), std::out_of_range);
  EXPECT_THROW(matrix.at<double>(0, 0), std::invalid_argument);
  EXPECT_THROW(matrix.values<std::int32_t>(), std::invalid_argument);
  EXPECT_THROW(matrix.shape(2), std::out_of_range);
}

TEST(Tensor, ReshapesInPlaceWhenMoved) {
  Tensor tensor = counted({2, 6});
  const Tensor copy = tensor.reshaped({3, 4});
  EXPECT_EQ(copy.at<float>(2, 3), 11);
  const void* memory = tensor.data();
  const Tensor moved = std::move(tensor).reshaped({12});
  EXPECT_EQ(moved.data(), memory);
  EXPECT_THROW(moved.reshaped({13}), std::invalid_argument);
  EXPECT_THROW(Tensor().reshaped({1}), std::invalid_argument);
}

// ---- Copying and converting ----------------------------------------------------------------------------------

TEST(Copy, FollowsAnyStrides) {
  const Tensor tensor = counted({2, 3});
  const float* numbers = tensor.values<float>().data();
  EXPECT_THAT(numbers_of(TensorView(numbers, {2, 3}, {0, 1})), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(numbers_of(TensorView(numbers + 5, {2, 3}, {-3, -1})), ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(numbers_of(TensorView(numbers, {4}, {0})), ElementsAre(0, 0, 0, 0));

  Tensor target(DType::f64, {3, 4});
  copy(tensor.view().transposed(0, 1), target.mutable_view().slice(1, 1, 3));
  EXPECT_THAT(numbers_of(target), ElementsAre(0, 0, 3, 0, 0, 1, 4, 0, 0, 2, 5, 0));
  EXPECT_THAT([&] { copy(tensor, target); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("[2, 3] but to has shape [3, 4]")));
}

TEST(Copy, ConvertsBetweenAllTypes) {
  const Tensor numbers = Tensor::of<double>({0, 1, 2, 100});
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      const Tensor result = Tensor::copy_of(Tensor::copy_of(numbers, from), to);
      EXPECT_EQ(result.dtype(), to);
      const bool is_bool = from == DType::boolean || to == DType::boolean;
      const std::vector<double> wanted =
          is_bool ? std::vector<double>{0, 1, 1, 1} : std::vector<double>{0, 1, 2, 100};
      EXPECT_EQ(numbers_of(result), wanted) << name_of(from) << " to " << name_of(to);
    }
  }
}

TEST(Copy, RoundsOnceTo16Bits) {
  // In each case rounding to f32 first gives the middle between two 16-bit numbers, and then the wrong one.
  EXPECT_EQ(converted(Tensor::of<double>({1 + 0x1p-11 + 0x1p-40}), DType::f16), 1 + 0x1p-10);
  EXPECT_EQ(converted(Tensor::of<double>({1 + 3 * 0x1p-11 - 0x1p-40}), DType::f16), 1 + 0x1p-10);
  EXPECT_EQ(converted(Tensor::of<double>({-1 - 0x1p-8 - 0x1p-40}), DType::bf16), -1 - 0x1p-7);
  EXPECT_EQ(converted(Tensor::of<double>({0x1p-25 + 0x1p-60}), DType::f16), 0x1p-24);
  EXPECT_EQ(converted(Tensor::of<double>({65520 - 0x1p-20}), DType::f16), 65504);
  const std::int64_t odd = (std::int64_t{1} << 60) + (std::int64_t{1} << 52) + 1;
  EXPECT_EQ(converted(Tensor::of<std::int64_t>({odd}), DType::bf16), 0x1p60 + 0x1p53);
  EXPECT_EQ(converted(Tensor::of<std::int64_t>({-odd}), DType::bf16), -0x1p60 - 0x1p53);
  EXPECT_EQ(converted(Tensor::of<std::int64_t>({odd - 1}), DType::bf16), 0x1p60);
  EXPECT_EQ(converted(Tensor::of<std::int32_t>({(1 << 24) + (1 << 16) + 1}), DType::bf16), 0x1p24 + 0x1p17);
}

TEST(Copy, RoundsOverflowToInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(converted(Tensor::of<double>({1e300}), DType::f32), infinity);
  EXPECT_EQ(converted(Tensor::of<double>({-1e300}), DType::bf16), -infinity);
  EXPECT_EQ(converted(Tensor::of<double>({65520.0}), DType::f16), infinity);
  EXPECT_EQ(converted(Tensor::of<std::uint64_t>({~std::uint64_t{0}}), DType::f16), infinity);
  EXPECT_EQ(converted(Tensor::of<double>({1e-300}), DType::f16), 0);
  for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_TRUE(std::isnan(converted(Tensor::of<double>({std::nan("")}), to))) << name_of(to);
    EXPECT_EQ(converted(Tensor::of<double>({-infinity}), to), -infinity) << name_of(to);
  }
}

TEST(Copy, ConvertsToIntegersTowardZeroAndIntoTheirRange) {
  const Tensor numbers = Tensor::of<double>({-1.9, 1.9, 1e30, -1e30, std::nan("")});
  EXPECT_THAT(numbers_of(Tensor::copy_of(numbers, DType::i8)), ElementsAre(-1, 1, 127, -128, 0));
  EXPECT_THAT(numbers_of(Tensor::copy_of(numbers, DType::u16)), ElementsAre(0, 1, 65535, 0, 0));
  EXPECT_THAT(
      Tensor::copy_of(numbers, DType::i64).values<std::int64_t>(),
      ElementsAre(-1, 1, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(), 0));
  EXPECT_EQ(Tensor::copy_of(numbers, DType::u64).at<std::uint64_t>(2), ~std::uint64_t{0});
  EXPECT_THAT(numbers_of(Tensor::copy_of(Tensor::of<std::int64_t>({-1, 300}), DType::u8)), ElementsAre(0, 255));
  EXPECT_EQ(Tensor::copy_of(Tensor::of<std::uint64_t>({~std::uint64_t{0}}), DType::i64).at<std::int64_t>(0),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(converted(Tensor::of<double>({2147483647.5}), DType::i32), 2147483647);
}

TEST(Copy, TakesWhatIsNotZeroForTrue) {
  const Tensor numbers = Tensor::of<float>({0.0F, -0.0F, 1e-40F, -3.0F, std::nanf("")});
  EXPECT_THAT(Tensor::copy_of(numbers, DType::boolean).values<bool>(),
              ElementsAre(false, false, true, true, true));
  const std::vector<std::uint8_t> bytes = {0, 1, 2, 255};  // as a file may have them
  EXPECT_THAT(numbers_of(TensorView(bytes.data(), DType::boolean, Shape{4})), ElementsAre(0, 1, 1, 1));
}

TEST(ValueAt, ReadsOneNumberOfAnyType) {
  const Tensor matrix = Tensor::copy_of(counted({2, 3}), DType::bf16);
  EXPECT_EQ(value_at(matrix, Shape{1, 2}), 5);
  EXPECT_EQ(value_at(matrix.view().transposed(0, 1), Shape{2, 0}), 2);
  EXPECT_THROW(value_at(matrix, Shape{2, 0}), std::out_of_range);
  EXPECT_THROW(value_at(matrix, Shape{1}), std::out_of_range);
  EXPECT_THROW(value_at(TensorView(), Shape{}), std::out_of_range);
}

// ---- Printing ------------------------------------------------------------------------------------------------

TEST(ToString, AlignsColumns) {
  EXPECT_EQ(to_string(Tensor::of<float>({{0.43F, 0.15F, 0.89F}, {0.55F, 0.87F, 0.66F}})),
            "[[0.4300, 0.1500, 0.8900],\n"
            " [0.5500, 0.8700, 0.6600]]");
  EXPECT_EQ(to_string(Tensor::of<double>({{-1.5, 10}, {100, 0}}), {.precision = 1}),
            "[[ -1.5,  10.0],\n"
            " [100.0,   0.0]]");
  EXPECT_EQ(to_string(Tensor::of<std::int64_t>({7, -12345678901234})), "[              7, -12345678901234]");
  EXPECT_EQ(to_string(Tensor::of<std::uint64_t>({~std::uint64_t{0}})), "[18446744073709551615]");
  EXPECT_EQ(to_string(Tensor::of<bool>({true, false})), "[ true, false]");
}

TEST(ToString, NestsBrackets) {
  EXPECT_EQ(to_string(Tensor::copy_of(counted({2, 2, 2}), DType::i32)),
            "[[[0, 1],\n"
            "  [2, 3]],\n"
            "\n"
            " [[4, 5],\n"
            "  [6, 7]]]");
  EXPECT_EQ(to_string(counted({2, 2}).view().transposed(0, 1), {.precision = 0}),
            "[[0, 2],\n"
            " [1, 3]]");
}

TEST(ToString, ShowsSpecialNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_string(Tensor::of<double>({0.5, std::nan(""), infinity, -infinity}), {.precision = 2}),
            "[0.50,  nan,  inf, -inf]");
}

TEST(ToString, TakesScientificNotationForTheVeryLargeAndSmall) {
  EXPECT_EQ(to_string(Tensor::of<double>({1, 2e9}), {.precision = 1}), "[1.0e+00, 2.0e+09]");
  EXPECT_EQ(to_string(Tensor::of<double>({0, -3e-7}), {.precision = 1}), "[ 0.0e+00, -3.0e-07]");
  EXPECT_EQ(to_string(Tensor::of<double>({1, 3e-7}), {.precision = 1}), "[1.0, 0.0]");
}

TEST(ToString, ShortensLongDimensions) {
  EXPECT_EQ(to_string(Tensor::copy_of(counted({1001}), DType::i32)), "[   0,    1,    2, ...,  998,  999, 1000]");
  EXPECT_EQ(to_string(Tensor::copy_of(counted({4, 3}), DType::i32), {.edge_items = 1, .threshold = 11}),
            "[[ 0, ...,  2],\n"
            " ...,\n"
            " [ 9, ..., 11]]");
  EXPECT_EQ(to_string(Tensor::copy_of(counted({2}), DType::i32), {.edge_items = 1, .threshold = 1}), "[0, 1]");
}

TEST(ToString, ShortensWhatHasNoNumbers) {
  EXPECT_EQ(to_string(TensorView(static_cast<const float*>(nullptr), {2, 0})), "[[],\n []]");
  const TensorView rows(static_cast<const float*>(nullptr), {std::int64_t{1} << 40, 0});
  EXPECT_EQ(to_string(rows, {.edge_items = 1}), "[[],\n ...,\n []]");
  EXPECT_EQ(to_string(rows, {.edge_items = 1 << 30, .threshold = std::int64_t{1} << 60}), to_string(rows));
  const TensorView blocks(static_cast<const float*>(nullptr), {900, 900, 0});
  EXPECT_EQ(to_string(blocks, {.edge_items = 1}), "[[[],\n  ...,\n  []],\n\n ...,\n\n [[],\n  ...,\n  []]]");
}

TEST(ToString, ShowsThatNothingIsThere) {
  EXPECT_EQ(to_string(Tensor()), "[]");
  EXPECT_EQ(to_string(Tensor(DType::f32, {0, 3})), "[]");
  EXPECT_EQ(to_string(Tensor(DType::f32, {2, 0})), "[[],\n []]");
  EXPECT_EQ(to_string(Tensor(DType::f32, {})), "0.0000");
  EXPECT_EQ(to_string(Shape{2, 6, 3}), "[2, 6, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

}  // namespace
}  // namespace saccade
