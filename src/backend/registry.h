// The list of back ends.
#pragma once

#include "backend/backend.h"

namespace saccade {

/// Registers a back end of a test or a program under its name while the object lives. SACCADE_BACKENDS below lists
/// those of this build. Choices that name it must not be used after its end; others stay valid.
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

// Each back end defines its own function.
#define SACCADE_DECLARE(name) const Backend& name##_backend();
/// Every back end of this build, "cpu" first: a line here registers one.
#define SACCADE_BACKENDS(X) \
  X(cpu)                    \
  X(reference)
SACCADE_BACKENDS(SACCADE_DECLARE)
#undef SACCADE_DECLARE

}  // namespace saccade
