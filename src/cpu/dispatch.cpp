// Which kernels this machine can run, and which one calls use.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu/kernels.h"
#include "saccade/runtime.h"

#ifdef SACCADE_X86
#include <cpuid.h>
#endif
#ifdef SACCADE_ARM64
#include <sys/auxv.h>
#endif

namespace saccade {
namespace cpu {
namespace {

constexpr std::array kKernels = {
    &kScalarKernels,
#ifdef SACCADE_X86
    &kAvx2Kernels,
    &kAvx512Kernels,
    &kAvx512Bf16Kernels,
#elif defined(SACCADE_NEON_BF16)
    &kNeonKernels,
    &kNeonBf16Kernels,
#elif defined(SACCADE_ARM64)
    &kNeonKernels,
#endif
};

#ifdef SACCADE_X86
// Clang 14's __builtin_cpu_supports does not know these names.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool has_avx512bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvx512Bf16 = 1u << 5;  // leaf 7, subleaf 1, EAX
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvx512Bf16) != 0;
}
#endif

#ifdef SACCADE_ARM64
constexpr unsigned long kHwcap2Bf16 = 1ul << 14;  // older headers lack HWCAP2_BF16
#endif

bool machine_has(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return true;
#ifdef SACCADE_X86
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::avx512:
      return machine_has(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512bf16:
      return machine_has(Isa::avx512) && has_avx512bf16();
#endif
#ifdef SACCADE_ARM64
    case Isa::neon:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
    case Isa::neonbf16:
      return machine_has(Isa::neon) && (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0;
#endif
    default:
      return false;
  }
  return false;
}

std::string join(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(name_of(isa));
  return text;
}

const KernelSet& kernels_named(std::string_view name) {
  for (const KernelSet* kernels : kKernels) {
    if (name_of(kernels->isa) != name) continue;
    if (machine_has(kernels->isa)) return *kernels;
    throw std::invalid_argument("[SACCADE_ISA] this machine cannot run " + std::string(name) + "; it has " +
                                join(available_isas()));
  }
  throw std::invalid_argument("[SACCADE_ISA] wanted one of " + join(built_isas()) + ", but it is '" +
                              std::string(name) + "'");
}

}  // namespace

std::atomic<const KernelSet*> active = nullptr;

std::span<const KernelSet* const> all_kernels() { return kKernels; }

const KernelSet& choose_kernels() {
  const char* wanted = std::getenv("SACCADE_ISA");
  const KernelSet& chosen =
      kernels_named(wanted && *wanted ? std::string_view(wanted) : name_of(available_isas().back()));
  const KernelSet* expected = nullptr;
  active.compare_exchange_strong(expected, &chosen, std::memory_order_acq_rel);
  return *active.load(std::memory_order_acquire);
}

}  // namespace cpu

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512bf16:
      return "avx512bf16";
    case Isa::neon:
      return "neon";
    case Isa::neonbf16:
      return "neonbf16";
  }
  return "unknown";
}

bool multiplies_bf16(Isa isa) {
  return std::ranges::any_of(cpu::all_kernels(), [isa](const cpu::KernelSet* kernels) {
    return kernels->isa == isa && kernels->pairs != nullptr;
  });
}

std::vector<Isa> built_isas() {
  std::vector<Isa> isas;
  for (const cpu::KernelSet* kernels : cpu::all_kernels()) isas.push_back(kernels->isa);
  return isas;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (Isa isa : built_isas())
    if (cpu::machine_has(isa)) isas.push_back(isa);
  return isas;
}

Isa active_isa() { return cpu::active_kernels().isa; }

void set_active_isa(Isa isa) {
  for (const cpu::KernelSet* kernels : cpu::all_kernels()) {
    if (kernels->isa != isa || !cpu::machine_has(isa)) continue;
    cpu::active.store(kernels, std::memory_order_release);
    return;
  }
  throw std::invalid_argument("[set_active_isa] this machine cannot run " + std::string(name_of(isa)) +
                              "; it has " + cpu::join(available_isas()));
}

}  // namespace saccade
