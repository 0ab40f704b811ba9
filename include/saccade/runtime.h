// What the processor offers and how much of it we use: instruction sets and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace saccade {

/// The instruction sets that kernels are compiled for, slowest first. Each level needs all of the features
/// named with it; `scalar` is plain C++ and runs everywhere.
enum class Isa : std::uint8_t {
  scalar,
  avx2,        ///< AVX2, FMA, F16C
  avx512,      ///< AVX-512 F, BW, DQ, VL
  avx512bf16,  ///< AVX-512 and products of bf16 pairs
};

/// "scalar", "avx2", "avx512", "avx512bf16".
std::string_view name_of(Isa isa);

/// Whether the level multiplies pairs of bf16 as they are, with the weights of a softmax rounded to bf16 (see
/// attention()).
bool multiplies_bf16(Isa isa);

/// The levels this library was built with, slowest first.
std::vector<Isa> built_isas();

/// The built levels that this processor and operating system can run, slowest first.
std::vector<Isa> available_isas();

/// The level that calls use: the one last given to set_active_isa, else the environment variable
/// `SACCADE_ISA`, else the best available. Throws std::invalid_argument when `SACCADE_ISA` names a level
/// that does not exist or that this machine lacks; so does every call that computes.
Isa active_isa();

/// Makes all further calls, of every thread, use this level. Throws std::invalid_argument when this machine
/// lacks it. Meant for tests and measurements: results differ between levels in the last bits.
void set_active_isa(Isa isa);

/// The processor's name as it gives it itself, e.g. "AMD EPYC 9354"; empty when it has none.
std::string cpu_name();

/// Threads that a call uses when it asks for none: the last set_num_threads, else OpenMP's default
/// (`OMP_NUM_THREADS`, or one a core).
int num_threads();

/// Sets the default for further calls of every thread; 0 returns to OpenMP's. Throws std::invalid_argument
/// for a negative number. Results do not depend on it.
void set_num_threads(int threads);

/// Frees the scratch memory that is kept between calls. Calls in progress keep theirs.
void release_workspaces();

/// The library's version, e.g. "0.1.0".
std::string_view version();

}  // namespace saccade
