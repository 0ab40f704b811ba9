// Python's arrays as tensor views: NumPy's, and whatever else has __dlpack__.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>

#include "saccade/tensor.h"

namespace saccade::python {

namespace nb = nanobind;

/// Exactly a NumPy array. An argument of this type makes nanobind try the next overload for anything else.
class NumpyArray : public nb::object {
 public:
  NB_OBJECT_DEFAULT(NumpyArray, nb::object, "numpy.ndarray", is_one)

 private:
  static bool is_one(nb::handle object);
};

/// An array argument, held for as long as this object lives. Has to be made and destroyed with the GIL.
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&&) = default;
  Array& operator=(Array&&) = default;

  /// Reads an array; what is none, such as a list, goes through numpy.asarray first. The numbers are not copied
  /// unless they are not aligned. Throws std::invalid_argument that names the argument for None, for what is no
  /// array, is not in this machine's memory or has an element type that no tensor has.
  Array(nb::handle object, std::string_view name);

  /// The same, or an empty view for None.
  static Array optional(nb::handle object, std::string_view name);

  /// An array of the caller's that results are written to. Throws std::invalid_argument also when it may not be
  /// written to, or has elements that share memory.
  static Array writable(nb::handle object, std::string_view name);

  const TensorView& view() const { return view_; }

  /// The caller's memory, also where view() is of a copy.
  const TensorView& given() const { return given_ ? *given_ : view_; }
  MutableTensorView mutable_view() const;

  /// The same numbers in rows without gaps, as attention() wants them: copied where they are not.
  void make_rows_contiguous();

  /// A copy of the numbers: whoever changes the array during a call does not change the call.
  void copy_numbers();

  /// The same numbers as another type: copied where they are not, but not repeated where the view repeats them.
  void convert_to(DType dtype);

 private:
  bool import(nb::handle object);
  bool import_bfloat16(nb::handle object);
  void take(const nb::dlpack::dltensor& array, std::string_view name);
  void look_at(Tensor copy);

  nb::ndarray<nb::ro> owner_;
  nb::object object_;  // instead of owner_, for what is read through the exchange interface
  std::optional<Tensor> copy_;
  TensorView view_;
  std::optional<TensorView> given_;
};

/// Where results go: the caller's array itself or, where its rows have gaps, a tensor that is copied to it at the
/// end.
class Result {
 public:
  Result() = default;

  /// None for nowhere; otherwise throws as Array::writable does.
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

/// Whether two views may share memory: what lies from the first to the last element of each does.
bool overlap(const TensorView& a, const TensorView& b);

/// A tensor of our own as a NumPy array, without copying it.
nb::object numpy_array(Tensor tensor);

/// Numbers that `owner` holds as a NumPy array that can be written to.
nb::object numpy_view(const MutableTensorView& view, nb::handle owner);

/// Throws std::invalid_argument("[function] name: text").
[[noreturn]] void refuse(std::string_view name, std::string_view text);

/// What an argument of another kind says. Throw std::invalid_argument that names the argument for what it is not.
double number(nb::handle object, std::string_view name);
std::int64_t integer(nb::handle object, std::string_view name);
bool boolean(nb::handle object, std::string_view name);
std::uint64_t seed(nb::handle object);
std::string text(nb::handle object, std::string_view name);

/// str(object) and repr(object) in UTF-8, whatever the string holds. For messages: of an object that has neither
/// they say what kind_of says.
std::string text_of(nb::handle object);
std::string shown(nb::handle object);

/// "a list", "a str": for messages.
std::string kind_of(nb::handle object);

}  // namespace saccade::python
