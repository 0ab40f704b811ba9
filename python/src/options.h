// The keyword arguments that attention and its relatives share.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <string_view>

#include "array.h"
#include "saccade/attention.h"
#include "score_modifier.h"

namespace saccade::python {

/// AttentionOptions from a dict of Python's, which leaves out what is not given or has None for it, and the arrays
/// that their views look at. python/saccade/_options.py says what each entry may be.
class Options {
 public:
  /// Throws std::invalid_argument that names the entry for a value that is not what it wants, and nb::type_error
  /// for an entry that does not exist.
  explicit Options(const nb::dict& given);

  AttentionOptions value;

  /// Holds another array for as long as this object lives.
  const TensorView& hold(Array array);
  MutableTensorView hold_writable(Array array);
  void hold_modifier(nb::handle forward);

  /// Throws what the score modifier has thrown.
  void rethrow() const;

 private:
  std::deque<Array> held_;
  nb::object modifier_backward_ = nb::none();
  std::unique_ptr<PythonScoreModifier> modifier_;
};

/// "bhld" or "blhd".
Layout layout_named(nb::handle name);

}  // namespace saccade::python
