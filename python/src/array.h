// Tensor views of Python arrays: NumPy's, and others with __dlpack__.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/tensor.h"

namespace saccade::python {

namespace nb = nanobind;

/// An array argument, held for as long as this object lives. Must be created and destroyed with the GIL.
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;

  /// Reads an array without copying it; numpy.asarray converts other objects, such as lists. Throws
  /// std::invalid_argument with the argument's name for None, for objects that cannot be converted, and for arrays
  /// that are not aligned, not in this machine's memory or of an element type that no tensor has.
  Array(nb::handle object, std::string_view name);

  /// The same, or an empty view for None.
  static Array optional(nb::handle object, std::string_view name);

  /// An array of the caller for results. Also throws std::invalid_argument if it is read-only or has elements that
  /// share memory.
  static Array writable(nb::handle object, std::string_view name);

  const TensorView& view() const { return view_; }

  /// The caller's memory, even if view() is of a copy.
  const TensorView& given() const { return given_ ? *given_ : view_; }
  MutableTensorView mutable_view() const;

  /// Copies the numbers if their rows have gaps, which attention() does not accept.
  void make_rows_contiguous();

  /// Copies the numbers, so that a change of the array during a call does not affect the call.
  void copy_numbers();

  /// Converts the numbers to another type, in a copy if necessary. Repeated numbers (stride 0) are copied once.
  void convert_to(DType dtype);

 private:
  bool import(nb::handle object);
  std::optional<DType> import_bits(nb::handle object);
  void take(const nb::dlpack::dltensor& array, std::string_view name);
  void look_at(Tensor copy);

  nb::ndarray<nb::ro> owner_;
  nb::object object_;  // instead of owner_, for arrays that nanobind did not read
  std::optional<Tensor> copy_;
  TensorView view_;
  std::optional<TensorView> given_;
};

/// The destination of results: the caller's array itself or, if its rows have gaps, a tensor that finish() copies
/// to it.
class Result {
 public:
  Result() = default;

  /// None: there is no destination. Throws as Array::writable does.
  Result(nb::handle object, std::string_view name);

  MutableTensorView view();
  void finish();

  /// Throws std::invalid_argument for an array that the call also reads.
  void require_apart_from(const TensorView& input, std::string_view input_name) const;

 private:
  std::string_view name_;
  Array array_;
  std::optional<Tensor> dense_;
};

/// Whether two views may share memory: whether their ranges from the first to the last element overlap.
bool overlap(const TensorView& a, const TensorView& b);

/// A tensor as a NumPy array. Only small tensors are copied.
nb::object numpy_array(Tensor tensor);

/// A writable NumPy array of numbers that `owner` keeps alive.
nb::object numpy_view(const MutableTensorView& view, nb::handle owner);

/// Throws std::invalid_argument("name: text").
[[noreturn]] void refuse(std::string_view name, std::string_view text);

/// Read arguments of other types. Throw std::invalid_argument with the argument's name for a wrong type.
double number(nb::handle object, std::string_view name);
std::int64_t integer(nb::handle object, std::string_view name);
bool boolean(nb::handle object, std::string_view name);
std::uint64_t seed(nb::handle object);
std::string text(nb::handle object, std::string_view name);
/// A str to be shown, such as a title, or a sequence of them; refuses what UTF-8 cannot encode. (The conversions
/// of nanobind end the program where there is no memory.)
std::string shown_text(nb::handle object, std::string_view name);
std::vector<std::string> shown_texts(nb::handle sequence, std::string_view name);

/// str(object) and repr(object) in UTF-8, for messages. If Python fails, the result of kind_of.
std::string text_of(nb::handle object);
std::string shown(nb::handle object);

/// "a list", "a str": for messages.
std::string kind_of(nb::handle object);

}  // namespace saccade::python
