#include "cpu/isa/features.h"

#ifdef SACCADE_X86

#include <cpuid.h>

namespace saccade::cpu {
namespace {

struct Words {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// What CPUID says; zeros if the processor does not know the leaf.
Words cpuid(unsigned leaf, unsigned subleaf) {
  Words words;
  if (__get_cpuid_count(leaf, subleaf, &words.eax, &words.ebx, &words.ecx, &words.edx) == 0) return {};
  return words;
}

bool has(unsigned word, int bit) { return (word >> bit & 1) != 0; }

/// The registers that the system saves: bits of XCR0.
unsigned saved_registers() {
  constexpr int kOsxsave = 27;
  if (!has(cpuid(1, 0).ecx, kOsxsave)) return 0;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

}  // namespace

Features machine_features() {
  constexpr unsigned kYmm = 0x6, kZmm = 0xe6, kTiles = 3u << 17;  // with those below them
  const unsigned saved = saved_registers();
  const auto saves = [saved](unsigned registers) { return (saved & registers) == registers; };
  const Words one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  Features features;
  features.avx2 = saves(kYmm) && has(seven.ebx, 5) && has(one.ecx, 12) && has(one.ecx, 29);  // AVX2, FMA, F16C
  features.avx512 = features.avx2 && saves(kZmm) && has(seven.ebx, 16) && has(seven.ebx, 17) &&
                    has(seven.ebx, 30) && has(seven.ebx, 31);  // F, DQ, BW, VL
  features.avx512vnni = features.avx512 && has(seven.ecx, 11);
  features.avx512vbmi = features.avx512 && has(seven.ecx, 1);
  features.avx512bf16 = features.avx512 && has(seven_one.eax, 5);
  features.amx =
      features.avx512 && saves(kTiles) && has(seven.edx, 22) && has(seven.edx, 24) && has(seven.edx, 25);
  features.amx_fp16 = has(seven_one.eax, 21);
  return features;
}

}  // namespace saccade::cpu

#endif
