// Back ends: what computes a call. "cpu", the processor's kernels, is used unless another one is asked for;
// "reference" computes attention and matrix products in double precision by the code that is written to be read
// (reference.h), which answers whether a number is right. Layers and optimizers use the processor's kernels anyway.
//
// A back end is named for one call (AttentionOptions::backend), for what a thread calls while an object lives
// (BackendScope), for the process (set_active_backend()), or by the environment variable SACCADE_BACKEND, in this
// order. A name may be a list, "reference,cpu": each call takes the first back end of it that supports the call. A
// call that none of them supports throws std::invalid_argument: nothing falls back unless the list says so.
#pragma once

#include <string_view>
#include <vector>

namespace [[gnu::visibility("default")]] saccade {

class Backend;

/// A back end of this build.
struct BackendInfo {
  std::string_view name, description;
};

/// Every back end of this build, "cpu" first.
std::vector<BackendInfo> available_backends();

/// The name, or the list of names, that calls of this thread use now. Throws std::invalid_argument where
/// SACCADE_BACKEND names a back end that does not exist.
std::string_view active_backend_name();

/// Chooses the back end of all calls outside a BackendScope: a name, or a list of names. Throws
/// std::invalid_argument, which lists the names, for one that does not exist.
void set_active_backend(std::string_view names);

/// The back ends of a call, by name. A default one leaves the choice to the scope, the process or the environment.
class BackendChoice {
 public:
  constexpr BackendChoice() = default;
  /// "reference", or several in order, "reference,cpu"; "": as a default one. Throws std::invalid_argument, which
  /// lists the names, for one that does not exist.
  BackendChoice(std::string_view names);
  BackendChoice(const char* names) : BackendChoice(std::string_view(names)) {}

  /// The names; "cpu" for a list that begins with it.
  std::string_view names() const;
  constexpr explicit operator bool() const { return backend_ != nullptr; }
  constexpr bool operator==(const BackendChoice&) const = default;

 private:
  friend class BackendScope;
  const Backend* backend_ = nullptr;
};

/// While the object lives, calls that this thread starts use these back ends; a default choice changes nothing.
/// Scopes nest, and end in the reverse order, on the thread that made them.
class BackendScope {
 public:
  explicit BackendScope(BackendChoice choice) : inner_(choice.backend_) {
    if (inner_) enter();
  }
  ~BackendScope() {
    if (inner_) leave();
  }
  BackendScope(const BackendScope&) = delete;
  BackendScope& operator=(const BackendScope&) = delete;

 private:
  void enter();
  void leave();

  const Backend* inner_;
  const Backend* outer_ = nullptr;  // of the scope around this one
};

}  // namespace saccade
