// What this processor has, and its operating system lets programs use, of the instructions that kernels need.
#pragma once

namespace saccade::cpu {

#ifdef SACCADE_X86
/// Groups of instructions of x86-64. Each is false if the system does not keep its registers when threads take
/// turns.
struct Features {
  bool avx2 = false;    ///< with FMA and F16C
  bool avx512 = false;  ///< F, BW, DQ and VL, and `avx2`
  bool avx512vnni = false, avx512vbmi = false, avx512bf16 = false;
  bool amx = false;  ///< tiles of bf16 and bytes; the system may still refuse them, see may_use_tiles()
  bool amx_fp16 = false;
};

/// Asks the operating system for the tiles of AMX, 8 KiB of registers, once for all threads of this process.
/// Returns whether it grants them.
bool may_use_tiles();
#endif

#ifdef SACCADE_ARM64
/// Groups of instructions of 64-bit Arm.
struct Features {
  bool neon = false;
  bool dot_product = false;        ///< of bytes
  bool matrices_of_bytes = false;  ///< I8MM
  bool products_of_bf16 = false;   ///< BF16
};
#endif

#if defined(SACCADE_X86) || defined(SACCADE_ARM64)
/// What this machine has.
Features machine_features();
#endif

}  // namespace saccade::cpu
