// The measured limits of this machine, as reference values for benchmarks.
#pragma once

#include <cstddef>

#include "saccade/dtype.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Floating-point operations per second (a multiply-add counts as two) of independent multiply-adds on registers,
/// with the active instruction set, on `threads` threads together. `dtype` bf16: of products of bf16 pairs or
/// tiles, if the instruction set has them; otherwise, and for every other type, of f32 multiply-adds. Runs for
/// about `seconds`. Throws std::invalid_argument for less than one thread or for seconds that are not positive.
double measure_peak_flops(int threads, double seconds = 0.02, DType dtype = DType::f32);

/// Bytes per second that `threads` threads together read in order from `bytes` of memory (in huge pages where the
/// system provides them). Memory well beyond the last-level cache measures main memory. Throws
/// std::invalid_argument as above, and for less than 1 MiB; std::bad_alloc.
double measure_read_bandwidth(int threads, std::size_t bytes = std::size_t{256} << 20);

}  // namespace saccade
#pragma GCC visibility pop
