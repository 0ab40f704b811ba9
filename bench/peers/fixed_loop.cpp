// Two loops of a fixed number of steps, whose time shows whether something disturbs a processor. script/bench
// compiles them into a library of their own: the process of a peer must not load saccade's threads.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace {

using Vector = float __attribute__((vector_size(32)));

constexpr int kParts = 4;  // of which the fastest counts: one interrupt does not matter

template <class Loop>
double fastest_part(const Loop& loop) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int part = 0; part < kParts; ++part) {
    const auto start = std::chrono::steady_clock::now();
    loop();
    fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return fastest;
}

}  // namespace

/// Seconds of a fixed number of independent multiply-adds on registers, some 0.05 milliseconds on Zen 5. They
/// occupy the units that the core's hyperthreads share: a busy neighbour makes them take longer, as a lower clock
/// does.
extern "C" double seconds_of_multiply_adds() {
  return fastest_part([] {
    constexpr int kSteps = 30000, kChains = 12;
    Vector chains[kChains];
    for (int i = 0; i < kChains; ++i) chains[i] = Vector{} + static_cast<float>(i);  // equal ones would be merged
    const Vector factor = Vector{} + 0.5f, term = Vector{} + 0.25f;
    for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
      for (Vector& chain : chains) chain = chain * factor + term;
    }
    for (Vector& chain : chains) asm volatile("" : : "m"(chain));
  });
}

/// The clock rate of this processor in hertz, from multiplications that wait for each other: a multiplication
/// takes three clocks on the x86-64 processors of AMD since Zen and of Intel since Nehalem. 0 elsewhere.
extern "C" double clock_rate() {
#if defined(__x86_64__)
  constexpr int kSteps = 50000;
  return 3.0 * kSteps / fastest_part([] {
           std::uint64_t product = 3;
           for (int step = 0; step < kSteps; ++step) asm volatile("imul %0, %0" : "+r"(product) : : "cc");
         });
#else
  return 0.0;
#endif
}
