// Instruction sets and threads: what the processor has and what the library uses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace saccade {

/// The instruction sets that kernels are compiled for, slowest first in each processor family. Each level needs
/// all of the features named with it; `scalar` is plain C++ and runs everywhere.
enum class Isa : std::uint8_t {
  scalar,
  avx2,        ///< AVX2, FMA, F16C
  avx512,      ///< AVX-512 F, BW, DQ, VL; decode() over i8 and i4 has other bits with VNNI and no bf16 products
  avx512bf16,  ///< AVX-512 with VNNI, VBMI and products of bf16 pairs
  avx512amx,   ///< all of that, and AMX tiles of bf16 and bytes; of f16 too if it has AMX-FP16
  neon,        ///< NEON of 64-bit Arm; decode() over i8 and i4 has other bits with SDOT and no bf16 products
  neonbf16,    ///< NEON and products of bf16 pairs (FEAT_BF16) and of matrices of bytes (FEAT_I8MM)
  wasm128,     ///< the 128-bit vectors of WebAssembly
};

/// The name of `isa`: "scalar", "avx2", "avx512", "avx512bf16", "avx512amx", "neon", "neonbf16",
/// "wasm128".
std::string_view name_of(Isa isa);

/// Whether the level `isa` multiplies pairs of bf16 directly, with the weights of a softmax rounded to bf16 (see
/// attention()).
bool multiplies_bf16(Isa isa);

/// Whether the level `isa`, on this machine, multiplies pairs of f16 directly: avx512amx on a processor that
/// reports AMX-FP16, or emulated with `SACCADE_EMULATE=amx_fp16`. Its last bits of f16 then differ from those of a
/// machine without.
bool multiplies_f16(Isa isa);

/// The levels this library was built with, slowest first.
std::vector<Isa> built_isas();

/// The built levels that this processor and operating system can run, slowest first; and an emulated one if
/// `SACCADE_ISA` names it.
std::vector<Isa> available_isas();

/// Whether this machine only emulates the level `isa` in software, for tests: slowly, with the same bits in
/// forward attention of bf16. So far only avx512amx, on machines with AVX2. It is used if `SACCADE_ISA` or
/// set_active_isa() names it. A machine with AMX emulates it if the environment variable `SACCADE_EMULATE` is set
/// when the program starts; if it is `amx_fp16`, AMX-FP16 is emulated too.
bool is_emulated(Isa isa);

/// The level that calls use: the last argument of set_active_isa, else the environment variable `SACCADE_ISA`,
/// else the best available level. Throws std::invalid_argument when `SACCADE_ISA` names a level that does not
/// exist or that this machine lacks; every call that computes then throws too.
Isa active_isa();

/// Makes all further calls, in every thread, use the level `isa`. Throws std::invalid_argument when this machine
/// lacks it. Meant for tests and measurements: results differ between levels in the last bits.
void set_active_isa(Isa isa);

/// The name that the processor reports, e.g. "AMD EPYC 9354"; empty if it reports none.
std::string cpu_name();

/// What starts the threads of calls, chosen when the library was built (`SACCADE_THREADS` of CMake):
///
/// - "openmp": the compiler's OpenMP, whose threads other libraries of the program may share.
/// - "std": threads of the standard library. They sleep between calls, and a call gets no more than there are
///   processors, whatever num_threads() is.
/// - "none": nothing. The thread that makes a call does all of its work, unless set_parallel_for() names others.
///
/// Results do not depend on it.
std::string_view threading_layer();

/// The threads that a call uses by default: the last set_num_threads, else the number in the environment variable
/// `OMP_NUM_THREADS`, else one for each processor that the process may use. The threading layer "std" takes no
/// more from the variable; "none" ignores it and has one.
int num_threads();

/// Makes `threads` the default for later calls in every thread; 0 restores the one before the first call. Throws
/// std::invalid_argument for a negative number. Results do not depend on it.
void set_num_threads(int threads);

/// A host program's loop: calls task(0), ..., task(tasks - 1), each once, in any order, on any threads, and
/// returns when all have returned. The tasks throw nothing. They share the items of work: a task that begins late
/// finds less to do, and one thread that calls them in turn does all of it.
using ParallelFor = std::function<void(int tasks, const std::function<void(int task)>& task)>;

/// Makes later calls, in every thread, run by `parallel_for`, on the threads of a host program in place of the
/// library's own; an empty one restores those. A call with num_threads threads makes that many tasks, so the
/// default, num_threads(), should be the size of the host's pool. Calls made within a task do not call it. What it
/// throws, the call throws; a call throws std::logic_error where fewer or more tasks were run. A ProgressHook is
/// then called between pieces of work of tasks that run on its own thread only. Results do not depend on it.
void set_parallel_for(ParallelFor parallel_for);

/// During its lifetime, calls that this thread makes (attention(), attention_backward(), decode(), inspect(),
/// linear(), layers, ...) call `function` between pieces of work, for example to poll MPI: always in this thread,
/// also while it waits for the call's other threads, at most about 5 ms and at least 0.5 ms apart. Shorter calls
/// may not call it; pieces of a product computed by a BLAS, or with `SACCADE_ISA=scalar`, may take longer. Results
/// have the same bits.
///
/// Saccade calls made inside `function` do not call it again. If it throws, that call does not call it again and
/// rethrows the exception when its threads are done; the results are then unspecified. An inner hook replaces an
/// outer one. Destroy hooks in reverse order, in the thread that made them, and not inside `function`. Throws
/// std::invalid_argument when `function` is empty.
class ProgressHook {
 public:
  explicit ProgressHook(std::function<void()> function);
  ~ProgressHook();
  ProgressHook(const ProgressHook&) = delete;
  ProgressHook& operator=(const ProgressHook&) = delete;

 private:
  friend bool call_progress_hook() noexcept;
  friend std::exception_ptr take_progress_error() noexcept;

  std::function<void()> function_;
  std::chrono::steady_clock::time_point last_end_;  // of a call of the function
  std::exception_ptr error_;                        // from the function
  ProgressHook* outer_;                             // to restore
};

/// Frees the scratch memory kept between calls. Calls in progress keep theirs.
void release_workspaces();

/// The library's version: "0.2.0", or "0.2.0-dev" before that is released.
std::string_view version();

}  // namespace saccade
#pragma GCC visibility pop
