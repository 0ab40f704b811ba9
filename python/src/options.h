// The keyword arguments of attention and related functions.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "array.h"
#include "saccade/attention.h"
#include "score_modifier.h"

namespace saccade::python {

/// AttentionOptions from a Python dict, and the arrays that their views refer to. An entry that is missing or None
/// keeps its default. python/saccade/_options.py describes the entries.
class Options {
 public:
  /// Throws std::invalid_argument that names the entry for a wrong value, and nb::type_error for an unknown entry.
  explicit Options(const nb::dict& given);

  AttentionOptions value;

  /// Holds another array for as long as this object lives.
  const TensorView& hold(Array array);
  void hold_scores(nb::handle scores);
  void hold_modifier(nb::handle forward);

  using Operand = std::pair<std::string_view, const Array*>;

  /// Throws std::invalid_argument where the output or `scores` shares memory with an array that the call reads.
  void require_apart(const Result& out, std::initializer_list<Operand> operands) const;

  /// Tells the score modifier that its call holds a read lock on this object.
  void set_locked(const void* object);

  /// Completes `scores`. Needs no GIL.
  void finish() { scores_.finish(); }

  /// Throws the exception of the score modifier, if there was one.
  void rethrow() const;

 private:
  std::deque<Array> held_;
  std::vector<std::string_view> names_;  // of the entries of held_
  Result scores_;
  nb::object modifier_backward_ = nb::none();
  std::unique_ptr<PythonScoreModifier> modifier_;
  nb::object program_;  // a ScoreProgram, or nothing
};

/// Which alignment is which, for messages about causal=True.
inline constexpr const char* kCausalChoices =
    "'top_left' aligns row 0 with key 0, as PyTorch's is_causal and JAX do, 'bottom_right' the last row with the "
    "last "
    "key, as flash-attn does from 2.1 on";

/// None, "top_left" or "bottom_right". Refuses a bool, and says what each name means.
Causal causal_named(nb::handle object);

/// "bhsd" or "bshd".
Layout layout_named(nb::handle name);

/// The rows of kAttentionOptions: the names in C++, in Python, on the command line and in problem text, "" for
/// none; and the default, None where there is none.
nb::list option_table();

}  // namespace saccade::python
