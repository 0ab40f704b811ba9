// Compares AMX's product of tiles, and the words that its kernels compute with AVX-512, with their twins in
// plain C++, bit for bit, on random tiles. script/compare_amx calls it, on a processor with AMX.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "count.h"
#include "cpu/simd/prelude.h"

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")
#define SACCADE_ISA_NAMESPACE instructions
#include "cpu/amx/tiles.h"
#undef SACCADE_ISA_NAMESPACE
#define SACCADE_ISA_NAMESPACE twin
#include "cpu/amx/twin.h"

namespace saccade::cpu {
namespace {

using Numbers = std::mt19937_64;

struct Inputs {
  alignas(64) std::uint16_t a[512], b[512], a_f16[512], b_f16[512];
  alignas(64) float c[256], scores[512];
  float factor, offset, term_offset;
};

/// Finite numbers of all magnitudes, or of similar ones, with zeros and denormal numbers among them.
void draw(Inputs& in, Numbers& numbers) {
  const bool similar = numbers() % 2 == 0;
  const auto bfloat = [&] {
    const std::uint64_t bits = numbers();
    const std::uint64_t exponent = bits % 16 == 0 ? 0 : similar ? 115 + bits / 16 % 20 : 1 + bits / 16 % 200;
    return static_cast<std::uint16_t>((bits >> 40 & 0x807f) | exponent << 7);
  };
  for (std::uint16_t& x : in.a) x = bfloat();
  for (std::uint16_t& x : in.b) x = bfloat();
  const auto half = [&] {
    const std::uint64_t bits = numbers();
    const std::uint64_t exponent = bits % 16 == 0 ? 0 : similar ? 10 + bits / 16 % 10 : bits / 16 % 31;
    return static_cast<std::uint16_t>((bits >> 40 & 0x83ff) | exponent << 10);
  };
  for (std::uint16_t& x : in.a_f16) x = half();
  for (std::uint16_t& x : in.b_f16) x = half();
  for (float& x : in.c)
    x = std::bit_cast<float>(static_cast<std::uint32_t>(bfloat() << 16 | (numbers() & 0xffff)));
  std::normal_distribution<float> normal(0.0F, similar ? 10.0F : 1000.0F);
  for (float& x : in.scores) x = numbers() % 32 == 0 ? -std::numeric_limits<float>::infinity() : normal(numbers);
  in.factor = 369.0F * static_cast<float>(1 + numbers() % 8) / 8;
  const float exponent = static_cast<float>(numbers() % 64);
  in.offset = kWeightBias - 256.0F * exponent, in.term_offset = -exponent;
}

template <class Tiles, DType kType>
__attribute__((noinline)) void multiply(const Inputs& in, float* c) {
  Tiles tiles;
  tiles.template load<0>(in.c, 64);
  tiles.template load<4>(kType == DType::f16 ? in.a_f16 : in.a, 64);
  tiles.template load<6>(kType == DType::f16 ? in.b_f16 : in.b, 64);
  tiles.template multiply<0, 4, 6, kType>();
  tiles.template store<0>(c, 64);
}

/// What AVX-512 computes beside the products: weights, in one and in several parts, and numbers in parts.
struct Words {
  std::uint32_t weights[16][16], term_weights[16][3][16], parts[16][3][16], rounded[16][16];
  std::uint32_t rows[3][512], pairs[3][512], rounded_rows[512], rounded_pairs[512];
  float sums[16][16], unrounded_sums[16][16];
  std::uint32_t overflowed;
};

template <class Weights, class SplitWeights, class Bf16Split, class RoundedTerm>
__attribute__((noinline)) void weigh(const Inputs& in, Words& to) {
  Weights weights(in.factor);
  SplitWeights term_weights(in.factor / 256);
  weights.reset(), term_weights.reset();
  for (int row = 0; row < 16; ++row) {
    const float* const scores = in.scores + row * 32;
    weights.of_row(scores, in.offset, to.weights[row]);
    weights.sums_of_row(scores, in.term_offset, to.unrounded_sums[row]);
    term_weights.of_row(scores, in.term_offset, to.term_weights[row][0], 16, to.sums[row]);
    Bf16Split{}.split(in.c, in.c + 16 * row, to.parts[row][0], 16);
    RoundedTerm{}.split(in.c, in.c + 16 * row, to.rounded[row], 16);
  }
  for (int pair = 0; pair < 4; ++pair) {
    const float* const even = in.c + pair * 64;
    Bf16Split{}.split_rows(even, even + 32, to.rows[0] + pair * 32, to.pairs[0] + pair * 16, 512);
    RoundedTerm{}.split_rows(even, even + 32, to.rounded_rows + pair * 32, to.rounded_pairs + pair * 16, 512);
  }
  to.overflowed = weights.overflowed() + 2U * term_weights.overflowed();
}

template <DType kType>
bool are_equal_products(const Inputs& in) {
  alignas(64) float c[2][256];
  multiply<instructions::Tiles, kType>(in, c[0]);
  multiply<twin::Tiles, kType>(in, c[1]);
  return std::memcmp(c[0], c[1], sizeof c[0]) == 0;
}

bool are_equal_weights(const Inputs& in) {
  alignas(64) Words words[2] = {};
  weigh<instructions::Weights, instructions::SplitWeights<3>, instructions::Bf16Split<3>,
        instructions::Bf16Split<1>>(in, words[0]);
  weigh<twin::Weights, twin::SplitWeights<3>, twin::Bf16Split<3>, twin::Bf16Split<1>>(in, words[1]);
  return std::memcmp(&words[0], &words[1], sizeof words[0]) == 0;
}

}  // namespace
}  // namespace saccade::cpu

SACCADE_TARGET_END

// Usage: amx_tiles COUNT. The exit status is 1 if bits differ, 2 if the processor has no AMX; then it compares the
// weights only.
int main(int count, char** arguments) {
  using namespace saccade::cpu;
  const bool has_amx = !saccade::is_emulated(saccade::Isa::avx512amx);
  if (!has_amx && !__builtin_cpu_supports("avx512vbmi")) return 2;
  const bool has_f16 = has_amx && saccade::multiplies_f16(saccade::Isa::avx512amx);
  const long tiles = saccade::bits::count_of(count, arguments, 1000);
  Numbers numbers(1);
  long products = 0, products_of_f16 = 0, weights = 0;  // that differ
  Inputs in;
  for (long i = 0; i < tiles; ++i) {
    draw(in, numbers);
    products += has_amx && !are_equal_products<saccade::DType::bf16>(in);
    products_of_f16 += has_f16 && !are_equal_products<saccade::DType::f16>(in);
    weights += !are_equal_weights(in);
  }
  if (has_amx) std::printf("%ld products of tiles: %ld differ\n", tiles, products);
  if (has_f16) std::printf("%ld products of tiles of f16: %ld differ\n", tiles, products_of_f16);
  std::printf("%ld tiles of weights: %ld differ\n", tiles, weights);
  if (!has_amx) std::puts("this processor has no AMX: no products of tiles were compared");
  return products + products_of_f16 + weights > 0 ? 1 : has_amx ? 0 : 2;
}
