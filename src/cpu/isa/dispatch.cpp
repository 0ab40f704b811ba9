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
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef SACCADE_ARM64
#include <sys/auxv.h>
#endif

namespace saccade {
namespace cpu {
namespace {

constexpr std::array kKernels = {
#ifndef SACCADE_SMALL
    &kScalarKernels,
#endif
#ifdef SACCADE_X86
    &kAvx2Kernels,   &kAvx512Kernels, &kAvx512Bf16Kernels, &kAvx512AmxKernels,
#elif defined(SACCADE_NEON_PRODUCTS)
    &kNeonKernels,
    &kNeonBf16Kernels,
#elif defined(SACCADE_ARM64)
    &kNeonKernels,
#elif defined(SACCADE_WASM)
    &kWasm128Kernels,
#endif
};

#ifdef SACCADE_X86
// Clang 14's __builtin_cpu_supports does not know these names.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool has_avx512vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvx512Vnni = 1u << 11;  // leaf 7, subleaf 0, ECX
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kAvx512Vnni) != 0;
}
bool has_avx512vbmi() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvx512Vbmi = 1u << 1;  // leaf 7, subleaf 0, ECX
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kAvx512Vbmi) != 0;
}
bool has_avx512bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvx512Bf16 = 1u << 5;  // leaf 7, subleaf 1, EAX
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvx512Bf16) != 0;
}

bool has_amx_fp16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxFp16 = 1u << 21;  // leaf 7, subleaf 1, EAX
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAmxFp16) != 0;
}

// A process must ask the operating system for the tiles, 8 KiB of registers, once for all of its threads. It
// refuses if an alternate signal stack is too small for them (Linux, Documentation/arch/x86/xstate.rst).
bool may_use_amx() {
  if (std::getenv("SACCADE_EMULATE") != nullptr) return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kXsave = 1u << 27, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25,
                     kVbmi = 1u << 1;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kVbmi) == 0 || (edx & kAmxBf16) == 0 ||
      (edx & kAmxTile) == 0 || (edx & kAmxInt8) == 0)
    return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

#ifdef SACCADE_ARM64
// Older headers lack these.
constexpr unsigned long kHwcapDotProduct = 1ul << 20, kHwcap2I8mm = 1ul << 13, kHwcap2Bf16 = 1ul << 14;
bool has_dot_product() { return (getauxval(AT_HWCAP) & kHwcapDotProduct) != 0; }
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
    case Isa::avx512bf16:  // Cooper Lake lacks VBMI
      return machine_has(Isa::avx512) && has_avx512bf16() && has_avx512vnni() && has_avx512vbmi();
    case Isa::avx512amx: {
      static const bool has_amx = machine_has(Isa::avx512bf16) && may_use_amx();
      return has_amx;
    }
#endif
#ifdef SACCADE_ARM64
    case Isa::neon:
      return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
    case Isa::neonbf16: {  // so far, every processor with products of bf16 has those of matrices of bytes
      constexpr unsigned long kNeeded = kHwcap2Bf16 | kHwcap2I8mm;
      return machine_has(Isa::neon) && (getauxval(AT_HWCAP2) & kNeeded) == kNeeded;
    }
#endif
#ifdef SACCADE_WASM
    case Isa::wasm128:  // else the module would not have been loaded
      return true;
#endif
    default:
      return false;
  }
  return false;
}

#ifdef SACCADE_EMULATE_AMX
/// Emulated tiles multiply f16 if the processor's do, so that both have the same bits, or if they are told to.
bool emulates_amx_fp16() {
  const char* const wanted = std::getenv("SACCADE_EMULATE");
  return has_amx_fp16() || (wanted && std::string_view(wanted) == "amx_fp16");
}
#endif

/// The kernels that run a level on this machine, emulated if need be; nullptr if it cannot run.
const KernelSet* kernels_of(Isa isa) {
#ifdef SACCADE_X86
  if (isa == Isa::avx512amx && machine_has(isa) && has_amx_fp16()) return &kAvx512AmxFp16Kernels;
  if (isa == Isa::avx512 && machine_has(isa) && has_avx512vnni() && !machine_has(Isa::avx512bf16))
    return has_avx512vbmi() ? &kAvx512VbmiKernels : &kAvx512VnniKernels;
#endif
#ifdef SACCADE_NEON_PRODUCTS
  if (isa == Isa::neon && has_dot_product() && !machine_has(Isa::neonbf16)) return &kNeonDotKernels;
#endif
  for (const KernelSet* kernels : kKernels)
    if (kernels->isa == isa && machine_has(isa)) return kernels;
#ifdef SACCADE_EMULATE_AMX
  if (isa == Isa::avx512amx && machine_has(Isa::avx2)) return &emulated_amx_kernels();
#endif
  return nullptr;
}

std::string join(const std::vector<Isa>& isas) {
  std::string text;
  for (Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(name_of(isa));
  return text;
}

const KernelSet& kernels_named(std::string_view name) {
  for (const KernelSet* kernels : kKernels) {
    if (name_of(kernels->isa) != name) continue;
    if (const KernelSet* const found = kernels_of(kernels->isa)) return *found;
    throw std::invalid_argument("[SACCADE_ISA] this machine cannot run " + std::string(name) + "; it has " +
                                join(available_isas()));
  }
  throw std::invalid_argument("[SACCADE_ISA] expected one of " + join(built_isas()) + ", but it is '" +
                              std::string(name) + "'");
}

}  // namespace

#ifdef SACCADE_EMULATE_AMX
const KernelSet& emulated_amx_kernels() {
  static const KernelSet emulated = [] {
    KernelSet kernels = kAvx2Kernels;
    for (const KernelSet* level : {&kAvx512Kernels, &kAvx512Bf16Kernels})
      if (machine_has(level->isa)) kernels = *level;
    kernels.isa = Isa::avx512amx;
    kernels.amx = emulates_amx_fp16() ? &kAmxFp16TwinKernels : &kAmxTwinKernels;
    kernels.bytes = &kAmxTwinByteKernels;
    kernels.float8 = &kAmxTwinFloat8Kernels;
    return kernels;
  }();
  return emulated;
}
#endif

#ifdef SACCADE_SMALL
const AttentionKernels kScalarKernelsF64{};  // saccade.js computes doubles by the reference
#endif

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

const LayerKernels& layer_kernels() { return cpu::active_kernels().layers; }

const Conversions& conversions() noexcept {
  try {
    return cpu::active_kernels().conversions;
  } catch (...) {
    return cpu::all_kernels().front()->conversions;
  }
}

const QuantizeKernels& quantize_kernels() noexcept {
  try {
    return cpu::active_kernels().quantize;
  } catch (...) {
    return cpu::all_kernels().front()->quantize;
  }
}

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
    case Isa::avx512amx:
      return "avx512amx";
    case Isa::neon:
      return "neon";
    case Isa::neonbf16:
      return "neonbf16";
    case Isa::wasm128:
      return "wasm128";
  }
  return "unknown";
}

bool multiplies_bf16(Isa isa) {
  return std::ranges::any_of(cpu::all_kernels(), [isa](const cpu::KernelSet* kernels) {
    return kernels->isa == isa && (kernels->pairs || kernels->amx);
  });
}

bool multiplies_f16(Isa isa) {
#ifdef SACCADE_X86
  const cpu::KernelSet* const kernels = cpu::kernels_of(isa);
#ifdef SACCADE_EMULATE_AMX
  if (kernels && kernels->amx == &cpu::kAmxFp16TwinKernels) return true;
#endif
  return kernels && kernels->amx == &cpu::kAmxFp16Kernels;
#else
  return static_cast<void>(isa), false;
#endif
}

std::vector<Isa> built_isas() {
  std::vector<Isa> isas;
  for (const cpu::KernelSet* kernels : cpu::all_kernels()) isas.push_back(kernels->isa);
  return isas;
}

std::vector<Isa> available_isas() {
  const char* const wanted = std::getenv("SACCADE_ISA");
  std::vector<Isa> isas;
  for (Isa isa : built_isas())
    if (cpu::machine_has(isa) || (is_emulated(isa) && wanted && name_of(isa) == wanted)) isas.push_back(isa);
  return isas;
}

bool is_emulated(Isa isa) { return !cpu::machine_has(isa) && cpu::kernels_of(isa) != nullptr; }

Isa active_isa() { return cpu::active_kernels().isa; }

void set_active_isa(Isa isa) {
  if (const cpu::KernelSet* const kernels = cpu::kernels_of(isa))
    return cpu::active.store(kernels, std::memory_order_release);
  throw std::invalid_argument("[set_active_isa] this machine cannot run " + std::string(name_of(isa)) +
                              "; it has " + cpu::join(available_isas()));
}

}  // namespace saccade
