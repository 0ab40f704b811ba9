#include "saccade/limits.h"

#include <algorithm>
#include <chrono>

#include "core/check.h"
#include "core/parallel.h"
#include "cpu/kernels.h"

namespace saccade {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

double measure_peak_flops(int threads, double seconds, DType dtype) {
  if (threads < 1) refuse("measure_peak_flops", "threads must be at least 1, got ", threads);
  if (!(seconds > 0.0)) refuse("measure_peak_flops", "seconds must be positive, got ", seconds);
  const cpu::KernelSet& kernels = cpu::active_kernels();
  auto chains = kernels.multiply_add_chains;
  std::int64_t flops = kernels.chain_flops;
  if (dtype == DType::bf16 && kernels.amx)
    chains = kernels.amx->chains, flops = kernels.amx->chain_flops;
  else if (dtype == DType::bf16 && kernels.pairs)
    chains = kernels.pairs->chains, flops = kernels.pairs->chain_flops;
  const std::int64_t steps = 20000 * kernels.chain_flops / flops;  // 70 microseconds or less
  double best = 0.0;
  for (const double start = now(); now() - start < seconds;) {
    const double begin = now();
    double operations = 0.0, elapsed = 0.0;
    do {
      run_on_threads(threads, [&](int) {
        for (int i = 0; i < 10; ++i) chains(steps);
      });
      operations += static_cast<double>(10 * steps * flops) * threads;
      elapsed = now() - begin;
    } while (elapsed < seconds / 20);  // for clocks of browsers, which tick in 0.1 ms
    best = std::max(best, operations / elapsed);
  }
  return best;
}

double measure_read_bandwidth(int threads, std::size_t bytes) {
  if (threads < 1) refuse("measure_read_bandwidth", "threads must be at least 1, got ", threads);
  if (bytes < (std::size_t{1} << 20))
    refuse("measure_read_bandwidth", "bytes must be at least 1 MiB, got ", bytes);
  const cpu::KernelSet& kernels = cpu::active_kernels();
  const std::size_t share = bytes / sizeof(float) / static_cast<std::size_t>(threads) / 1024 * 1024;
  const Workspace memory(share * static_cast<std::size_t>(threads) * sizeof(float));
  float* const numbers = reinterpret_cast<float*>(memory.data());
  std::fill_n(numbers, share * static_cast<std::size_t>(threads), 1.0f);
  double best = 0.0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double begin = now();
    run_on_threads(threads, [&](int thread) {
      kernels.read_all(numbers + static_cast<std::size_t>(thread) * share, static_cast<std::int64_t>(share));
    });
    best = std::max(best, static_cast<double>(share * sizeof(float)) * threads / (now() - begin));
  }
  return best;
}

}  // namespace saccade
