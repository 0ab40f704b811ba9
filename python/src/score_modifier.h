// A score modifier written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <exception>
#include <string_view>

#include "saccade/attention.h"

namespace saccade::python {

namespace nb = nanobind;

/// Calls the Python function score_mod(scores, batch, head, q_idx, kv_idx) for each tile and, for gradients, its
/// derivative score_mod_backward(scores, gradients, batch, head, q_idx, kv_idx). Both get copies of a tile,
/// [rows, keys], batch and head as integers, and the indices as arrays [rows, 1] and [1, keys]; their result
/// replaces the tile.
///
/// Kernels must not throw, so the first exception is kept, no further tile is passed to Python, and rethrow()
/// throws it after the call. A result that does not fit is a std::invalid_argument that names the function.
class PythonScoreModifier {
 public:
  PythonScoreModifier(nb::object forward, nb::object backward);

  void add_to(AttentionOptions& options);
  void rethrow();

  /// The call holds a lock on this object until it ends.
  void set_locked(const void* object) { locked_ = object; }

  /// Whether this thread runs a function whose call, or an enclosing call, holds a lock on the object.
  static bool is_called_under_lock_of(const void* object);

 private:
  static void modify(void* context, const ScoreTile& tile);
  static void differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients);

  template <class Call>
  void replace(const ScoreTile& tile, std::string_view name, Call call);

  nb::object forward_, backward_;
  const void* locked_ = nullptr;
  const PythonScoreModifier* const around_;  // whose function made this call
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;  // guarded by the GIL
};

}  // namespace saccade::python
