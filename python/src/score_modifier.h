// A score modifier written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <exception>
#include <string_view>

#include "saccade/attention.h"

namespace saccade::python {

namespace nb = nanobind;

/// Calls score_mod(scores, batch, head, q_idx, kv_idx) of Python for each tile, and what is given as its
/// derivative, score_mod_backward(scores, gradients, batch, head, q_idx, kv_idx). Both get copies of a tile,
/// [rows, keys], batch and head as integers, and the indices as arrays [rows, 1] and [1, keys]; what they return
/// takes the tile's place.
///
/// The kernels know no exceptions, so the first one is kept, no further tile is shown to Python, and rethrow()
/// throws it when the call is over. What is returned and does not fit is an std::invalid_argument that names the
/// function.
class PythonScoreModifier {
 public:
  PythonScoreModifier(nb::object forward, nb::object backward);

  void add_to(AttentionOptions& options);
  void rethrow();

  /// The call has locked this object for as long as it takes.
  void set_locked(const void* object) { locked_ = object; }

  /// Whether this thread is in a function that a call has called, directly or not, which has locked the object.
  static bool is_called_under_lock_of(const void* object);

 private:
  static void modify(void* context, const ScoreTile& tile);
  static void differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients);

  template <class Call>
  void replace(const ScoreTile& tile, std::string_view name, Call call);

  nb::object forward_, backward_;
  const void* locked_ = nullptr;
  const PythonScoreModifier* const around_;  // whose function has made this call
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;  // guarded by the GIL
};

}  // namespace saccade::python
