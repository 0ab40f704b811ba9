#include "saccade/dtype.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace saccade {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint16_t kInfinity16 = 0x7C00;
constexpr std::uint16_t kInfinityB16 = 0x7F80;

const std::vector<DType> kAll = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::boolean,
                                 DType::i8,  DType::i16, DType::i32, DType::i64,    DType::u8,
                                 DType::u16, DType::u32, DType::u64, DType::f8e4m3, DType::i4};

TEST(DTypeName, ReadsBackAsTheType) {
  for (const DType dtype : kAll) EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype) << name_of(dtype);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::boolean), "bool");
}

TEST(DTypeName, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT([] { dtype_from_name("float"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(
                  "[dtype_from_name] name must be that of an element type, such as f32, but it is \"float\"")));
  EXPECT_THROW(dtype_from_name(""), std::invalid_argument);
}

TEST(DType, KnowsSizeAndKindOfTheTypes) {
  static_assert(size_of(DType::f64) == 8 && size_of(DType::u32) == 4 && size_of(DType::bf16) == 2);
  static_assert(size_of(DType::boolean) == 1 && size_of(DType::boolean) == sizeof(bool));
  static_assert(is_floating(DType::f16) && is_floating(DType::bf16) && !is_floating(DType::i32));
  static_assert(dtype_of<float> == DType::f32 && dtype_of<bfloat16> == DType::bf16);
  static_assert(dtype_of<bool> == DType::boolean && dtype_of<std::int64_t> == DType::i64);
  static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
}

/// The value of the bits of a binary16, from its definition.
double meaning_of_binary16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int fraction = bits & 0x03FF;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// The value of the bits of e4m3, from its definition.
double meaning_of_e4m3(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 0x0F, fraction = bits & 0x07;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Float8E4m3, WidensEveryValueExactly) {
  for (int bits = 0; bits <= 0xFF; ++bits) {
    const auto value = static_cast<float>(float8_e4m3::from_bits(static_cast<std::uint8_t>(bits)));
    if ((bits & 0x7F) == 0x7F)
      EXPECT_TRUE(std::isnan(value)) << bits;
    else
      EXPECT_EQ(static_cast<double>(value), meaning_of_e4m3(static_cast<std::uint8_t>(bits))) << bits;
  }
}

TEST(Float8E4m3, RoundsToTheNearestNumberAndTiesToEven) {
  for (int bits = 0; bits < 0x7E; ++bits) {  // each interval between two neighbors
    const auto low = static_cast<std::uint8_t>(bits), high = static_cast<std::uint8_t>(bits + 1);
    const double a = meaning_of_e4m3(low), b = meaning_of_e4m3(high), middle = (a + b) / 2;
    const std::uint8_t even = bits % 2 == 0 ? low : high;
    EXPECT_EQ(float8_e4m3(static_cast<float>(a)).bits, low);
    EXPECT_EQ(float8_e4m3(static_cast<float>(middle)).bits, even) << bits;
    EXPECT_EQ(float8_e4m3(std::nextafter(static_cast<float>(middle), 0.0F)).bits, low) << bits;
    EXPECT_EQ(float8_e4m3(std::nextafter(static_cast<float>(middle), 1e9F)).bits, high) << bits;
    EXPECT_EQ(float8_e4m3(-static_cast<float>(b)).bits, high | 0x80);
  }
  EXPECT_EQ(float8_e4m3(464.0F).bits, 0x7E);  // a tie with the number that NaN replaces
  EXPECT_EQ(float8_e4m3(std::nextafter(464.0F, 1e9F)).bits, 0x7F);
  EXPECT_EQ(float8_e4m3(-std::numeric_limits<float>::infinity()).bits, 0xFF);
  EXPECT_EQ(float8_e4m3(std::numeric_limits<float>::quiet_NaN()).bits & 0x7F, 0x7F);
  EXPECT_EQ(float8_e4m3(-0.0F).bits, 0x80);
}

TEST(Float16, WidensEveryValueExactly) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto value = float16::from_bits(static_cast<std::uint16_t>(bits));
    if ((bits & 0x7FFF) < kInfinity16) {
      ASSERT_EQ(static_cast<double>(static_cast<float>(value)), meaning_of_binary16(value.bits)) << bits;
    }
  }
  EXPECT_EQ(static_cast<float>(float16::from_bits(0x7C00)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(float16::from_bits(0xFC00)), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(static_cast<float>(float16::from_bits(0x7C01))));
}

TEST(Float16, GivesEveryValueBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto value = float16::from_bits(static_cast<std::uint16_t>(bits));
    const float16 again(static_cast<float>(value));
    if ((bits & 0x7FFF) <= kInfinity16) {
      ASSERT_EQ(again.bits, value.bits);
    } else {
      ASSERT_TRUE(std::isnan(static_cast<float>(again))) << bits;
      ASSERT_EQ(again.bits & 0x8000, value.bits & 0x8000) << bits;
    }
  }
}

/// Checks the rounding of all numbers between the neighbours `low` and `low + 1` (as bits): the middle goes to the
/// even one, everything else to the nearer one. `middle` is exact as a float.
template <class Half>
void check_rounding_between(std::uint16_t low, float middle) {
  const auto high = static_cast<std::uint16_t>(low + 1);
  const std::uint16_t even = low % 2 == 0 ? low : high;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::uint16_t sign : {0x0000, 0x8000}) {
    const float signed_middle = sign == 0 ? middle : -middle;
    ASSERT_EQ(Half(signed_middle).bits, sign | even) << low;
    ASSERT_EQ(Half(std::nextafter(signed_middle, 0.0F)).bits, sign | low) << low;
    ASSERT_EQ(Half(std::nextafter(signed_middle, sign == 0 ? infinity : -infinity)).bits, sign | high) << low;
  }
}

TEST(Float16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (std::uint16_t low = 0; low < kInfinity16; ++low) {
    const double next =
        low + 1 == kInfinity16 ? 65536.0 : meaning_of_binary16(static_cast<std::uint16_t>(low + 1));
    check_rounding_between<float16>(low, static_cast<float>((meaning_of_binary16(low) + next) / 2));
  }
}

TEST(Float16, RoundsWhatIsOutOfRange) {
  EXPECT_EQ(float16(65504.0F).bits, 0x7BFF);
  EXPECT_EQ(float16(65520.0F).bits, kInfinity16);
  EXPECT_EQ(float16(-1e30F).bits, 0x8000 | kInfinity16);
  EXPECT_EQ(float16(std::numeric_limits<float>::infinity()).bits, kInfinity16);
  EXPECT_EQ(float16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(float16(-0.0F).bits, 0x8000);
}

TEST(Float16, KeepsEveryNan) {
  for (const std::uint32_t bits : {0x7F800001U, 0x7FC00000U, 0xFF801FFFU, 0x7FFFFFFFU}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(float16(std::bit_cast<float>(bits))))) << bits;
  }
}

TEST(BFloat16, WidensEveryValueExactlyAndBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto value = bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const float wide = static_cast<float>(value);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), bits << 16);
    if ((bits & 0x7FFF) <= kInfinityB16) {
      ASSERT_EQ(bfloat16(wide).bits, value.bits);
    } else {
      ASSERT_TRUE(std::isnan(static_cast<float>(bfloat16(wide)))) << bits;
    }
  }
}

TEST(BFloat16, RoundsToNearestEvenBetweenAllNeighbours) {
  for (std::uint16_t low = 0; low < kInfinityB16; ++low) {
    const std::uint32_t middle = (static_cast<std::uint32_t>(low) << 16) | 0x8000;
    check_rounding_between<bfloat16>(low, std::bit_cast<float>(middle));
  }
}

TEST(BFloat16, KeepsEveryNan) {
  for (const std::uint32_t bits : {0x7F800001U, 0x7F80FFFFU, 0xFF808000U, 0x7FFFFFFFU}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(bits))))) << bits;
  }
}

}  // namespace
}  // namespace saccade
