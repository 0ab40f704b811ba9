// Which kernels this machine can run, and which one calls use.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cpu/isa/features.h"
#include "cpu/kernels.h"
#include "saccade/runtime.h"

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

#if defined(SACCADE_X86) || defined(SACCADE_ARM64)
const Features& features() {
  static const Features found = machine_features();
  return found;
}
#endif

bool machine_has(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return true;
#ifdef SACCADE_X86
    case Isa::avx2:
      return features().avx2;
    case Isa::avx512:
      return features().avx512;
    case Isa::avx512bf16:  // Cooper Lake lacks VBMI
      return features().avx512bf16 && features().avx512vnni && features().avx512vbmi;
    case Isa::avx512amx: {
      static const bool has_amx = machine_has(Isa::avx512bf16) && features().amx &&
                                  std::getenv("SACCADE_EMULATE") == nullptr && may_use_tiles();
      return has_amx;
    }
#endif
#ifdef SACCADE_ARM64
    case Isa::neon:
      return features().neon;
    case Isa::neonbf16:  // so far, every processor with products of bf16 has those of matrices of bytes
      return features().neon && features().products_of_bf16 && features().matrices_of_bytes;
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
  return features().amx_fp16 || (wanted && std::string_view(wanted) == "amx_fp16");
}
#endif

/// The kernels that run a level on this machine, emulated if need be; nullptr if it cannot run.
const KernelSet* kernels_of(Isa isa) {
#ifdef SACCADE_X86
  if (isa == Isa::avx512amx && machine_has(isa) && features().amx_fp16) return &kAvx512AmxFp16Kernels;
  if (isa == Isa::avx512 && machine_has(isa) && features().avx512vnni && !machine_has(Isa::avx512bf16))
    return features().avx512vbmi ? &kAvx512VbmiKernels : &kAvx512VnniKernels;
#endif
#ifdef SACCADE_NEON_PRODUCTS
  if (isa == Isa::neon && features().dot_product && !machine_has(Isa::neonbf16)) return &kNeonDotKernels;
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
