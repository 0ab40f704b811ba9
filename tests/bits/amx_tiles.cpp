// Compares AMX's product of tiles, and the weights that its kernels compute with AVX-512, with their twins in
// plain C++, bit for bit, on random tiles. script/compare_amx calls it, on a processor with AMX.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cpu/prelude.h"

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")
#define SACCADE_ISA_NAMESPACE instructions
#include "cpu/simd_amx.h"
#undef SACCADE_ISA_NAMESPACE
#define SACCADE_ISA_NAMESPACE twin
#include "cpu/simd_amx_twin.h"

namespace saccade::cpu {
namespace {

using Numbers = std::mt19937_64;

struct Inputs {
  alignas(64) std::uint16_t a[512], b[512];
  alignas(64) float c[256], scores[512];
  float factor, offset;
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
  for (float& x : in.c)
    x = std::bit_cast<float>(static_cast<std::uint32_t>(bfloat() << 16 | (numbers() & 0xffff)));
  std::normal_distribution<float> normal(0.0F, similar ? 10.0F : 1000.0F);
  for (float& x : in.scores) x = numbers() % 32 == 0 ? -std::numeric_limits<float>::infinity() : normal(numbers);
  in.factor = 369.0F * static_cast<float>(1 + numbers() % 8) / 8;
  in.offset = kWeightBias - 256.0F * static_cast<float>(numbers() % 64);
}

template <class Tiles>
__attribute__((noinline)) void multiply(const Inputs& in, float* c) {
  Tiles tiles;
  tiles.template load<0>(in.c, 64);
  tiles.template load<4>(in.a, 64);
  tiles.template load<6>(in.b, 64);
  tiles.template multiply<0, 4, 6>();
  tiles.template store<0>(c, 64);
}

template <class Weights>
__attribute__((noinline)) bool weigh(const Inputs& in, bfloat16* to) {
  Weights weights(in.factor);
  weights.reset();
  for (int row = 0; row < 16; ++row) weights.of_row(in.scores + row * 32, in.offset, to + row * 32);
  return weights.overflowed();
}

bool are_equal_products(const Inputs& in) {
  alignas(64) float c[2][256];
  multiply<instructions::Tiles>(in, c[0]);
  multiply<twin::Tiles>(in, c[1]);
  return std::memcmp(c[0], c[1], sizeof c[0]) == 0;
}

bool are_equal_weights(const Inputs& in) {
  alignas(64) bfloat16 weights[2][512];
  const bool overflowed = weigh<instructions::Weights>(in, weights[0]);
  const bool twin_overflowed = weigh<twin::Weights>(in, weights[1]);
  return std::memcmp(weights[0], weights[1], sizeof weights[0]) == 0 && overflowed == twin_overflowed;
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
  const long tiles = count > 1 ? std::atol(arguments[1]) : 1000;
  Numbers numbers(1);
  long products = 0, weights = 0;  // that differ
  Inputs in;
  for (long i = 0; i < tiles; ++i) {
    draw(in, numbers);
    products += has_amx && !are_equal_products(in);
    weights += !are_equal_weights(in);
  }
  if (has_amx) std::printf("%ld products of tiles: %ld differ\n", tiles, products);
  std::printf("%ld tiles of weights: %ld differ\n", tiles, weights);
  if (!has_amx) std::puts("this processor has no AMX: no products of tiles were compared");
  return products + weights > 0 ? 1 : has_amx ? 0 : 2;
}
