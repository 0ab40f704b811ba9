// Back ends: what computes a call. "cpu", the processor's kernels, is used unless another one is asked for;
// "reference" computes attention and matrix products in double precision by the code that is written to be read
// (reference.h), which answers whether a number is right. Layers and optimizers use the processor's kernels
// anyway.
//
// A back end can be chosen for one call (AttentionOptions::backend), for a thread's calls during a scope
// (BackendScope), for the process (set_active_backend()), or by the environment variable SACCADE_BACKEND; the
// first of these that is set applies. A name may be a list, "reference,cpu": each call uses the first back end in
// it that supports the call. If none does, the call throws std::invalid_argument: there is no fallback beyond the
// list.
#pragma once

#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace saccade {

class Backend;

/// A back end of this build.
struct BackendInfo {
  std::string_view name;         ///< as set_active_backend() takes it: "cpu"
  std::string_view description;  ///< a few words
};

/// Every back end of this build, "cpu" first.
std::vector<BackendInfo> available_backends();

/// The name, or the list of names, that calls of this thread use now. Throws std::invalid_argument where
/// SACCADE_BACKEND names a back end that does not exist.
std::string_view active_backend_name();

/// Chooses the back end of all calls outside a BackendScope: a name, or a list of names. Throws
/// std::invalid_argument that lists the valid names for one that does not exist.
void set_active_backend(std::string_view names);

/// The back ends of a call, by name. A default-constructed choice leaves it to the scope, the process or the
/// environment.
class BackendChoice {
 public:
  constexpr BackendChoice() = default;
  /// "reference", or several in order, "reference,cpu"; "": the default choice. Throws std::invalid_argument that
  /// lists the valid names for one that does not exist.
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
/// Scopes nest: destroy them in reverse order, on the thread that made them.
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
#pragma GCC visibility pop
