// The list of back ends.
#pragma once

#include "backend/backend.h"

namespace saccade {

/// Makes a back end known by its name while the object lives: one that a test or a program brings itself. Those of
/// this build are listed in registry.cpp.
class BackendRegistration {
 public:
  /// Throws std::invalid_argument if its name is taken, empty, or contains a comma.
  explicit BackendRegistration(const Backend& backend);
  ~BackendRegistration();
  BackendRegistration(const BackendRegistration&) = delete;
  BackendRegistration& operator=(const BackendRegistration&) = delete;

 private:
  const Backend& backend_;
};

// Each is defined by its back end.
#define SACCADE_DECLARE(name) const Backend& name##_backend();
/// Every back end of this build, "cpu" first: a line here makes one known.
#define SACCADE_BACKENDS(X) \
  X(cpu)                    \
  X(reference)
SACCADE_BACKENDS(SACCADE_DECLARE)
#undef SACCADE_DECLARE

}  // namespace saccade
