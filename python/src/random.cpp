#include "saccade/random.h"

#include <mutex>
#include <random>

#include "array.h"
#include "bind.h"

namespace saccade::python {
namespace {

/// The seeds of calls without one. The first seed comes from the operating system.
struct SeedSequence {
  std::mutex mutex;
  std::uint64_t seed = (static_cast<std::uint64_t>(std::random_device()()) << 32) | std::random_device()();
  std::uint64_t drawn = 0;
};

SeedSequence& seeds() {
  static SeedSequence sequence;
  return sequence;
}

void manual_seed(nb::handle seed) {
  const auto value = python::seed(seed);
  const std::scoped_lock lock(seeds().mutex);
  seeds().seed = value;
  seeds().drawn = 0;
}

std::int64_t draw_seed() {
  const std::scoped_lock lock(seeds().mutex);
  return static_cast<std::int64_t>(derived_seed(seeds().seed, seeds().drawn++) >> 1);
}

}  // namespace

void bind_random(nb::module_& module) {
  module.def("manual_seed", &manual_seed, nb::arg("seed").none());
  module.def("draw_seed", &draw_seed);
}

}  // namespace saccade::python
