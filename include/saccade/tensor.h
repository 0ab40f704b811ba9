// TensorView: somebody's numbers, seen as an n-dimensional array. Tensor: numbers of our own.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "saccade/dtype.h"

namespace saccade {

/// The most dimensions a tensor can have.
inline constexpr int kMaxRank = 6;

/// The lengths of a tensor's dimensions, outermost first.
using Shape = std::vector<std::int64_t>;

/// The element count of a shape. Throws std::invalid_argument when a length is negative, the rank is above
/// kMaxRank, or the count, or the count times `bytes_per_element`, does not fit in 63 bits.
std::int64_t element_count(std::span<const std::int64_t> shape, std::size_t bytes_per_element = 1);

/// "[2, 6, 3]", as messages print shapes.
std::string to_string(std::span<const std::int64_t> shape);

/// A read-only view of numbers that somebody else owns: pointer, element type, shape and strides.
///
/// Strides count elements, not bytes; they may be 0 (broadcast) or negative. A default view is empty:
/// `if (view)` is false, and as an optional argument it means "not given". Copying a view copies no numbers.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::uint8_t rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};

  TensorView() = default;

  /// Contiguous (C order) numbers of the given shape. Throws std::invalid_argument as element_count does.
  TensorView(const void* data, DType dtype, std::span<const std::int64_t> shape);

  /// Numbers of the given shape and strides. Throws std::invalid_argument when their ranks differ.
  TensorView(const void* data, DType dtype, std::span<const std::int64_t> shape,
             std::span<const std::int64_t> strides);

  /// `TensorView(pointer, {2, 6, 3})`: the element type is the pointer's, the layout contiguous.
  template <class T>
    requires(!std::is_void_v<T>)
  TensorView(const T* data, std::initializer_list<std::int64_t> shape)
      : TensorView(data, dtype_of<T>, std::span(shape.begin(), shape.size())) {}

  /// `TensorView(pointer, {2, 6, 3}, {64, 8, 1})`: the same with strides.
  template <class T>
    requires(!std::is_void_v<T>)
  TensorView(const T* data, std::initializer_list<std::int64_t> shape,
             std::initializer_list<std::int64_t> strides)
      : TensorView(data, dtype_of<T>, std::span(shape.begin(), shape.size()),
                   std::span(strides.begin(), strides.size())) {}

  explicit operator bool() const { return rank != 0; }

  std::span<const std::int64_t> dims() const { return {shape.data(), rank}; }
  std::int64_t size() const;      ///< number of elements
  bool is_contiguous() const;     ///< C order without gaps (dimensions of length 1 may have any stride)

  /// The pointer as `const T*`. Throws std::invalid_argument when T is not the element type.
  template <class T>
  const T* as() const {
    require_dtype(dtype_of<T>);
    return static_cast<const T*>(data);
  }

  /// The view with dimensions a and b exchanged; no number moves. Negative dimensions count from the end.
  TensorView transposed(int a, int b) const;

  /// The view at one index of a dimension, which disappears. Throws std::out_of_range.
  TensorView select(int dim, std::int64_t index) const;

  /// The view of indices [begin, end) of a dimension. Throws std::out_of_range.
  TensorView slice(int dim, std::int64_t begin, std::int64_t end) const;

  /// The view of the same numbers in another shape. Throws std::invalid_argument when the element counts
  /// differ or the view is not contiguous.
  TensorView reshaped(std::span<const std::int64_t> shape) const;
  TensorView reshaped(std::initializer_list<std::int64_t> shape) const {
    return reshaped(std::span(shape.begin(), shape.size()));
  }

 protected:
  void require_dtype(DType wanted) const;
};

/// A TensorView whose numbers may be written: what functions take for their results.
struct MutableTensorView : TensorView {
  MutableTensorView() = default;
  MutableTensorView(void* data, DType dtype, std::span<const std::int64_t> shape)
      : TensorView(data, dtype, shape) {}
  MutableTensorView(void* data, DType dtype, std::span<const std::int64_t> shape,
                    std::span<const std::int64_t> strides)
      : TensorView(data, dtype, shape, strides) {}
  template <class T>
    requires(!std::is_void_v<T> && !std::is_const_v<T>)
  MutableTensorView(T* data, std::initializer_list<std::int64_t> shape) : TensorView(data, shape) {}
  template <class T>
    requires(!std::is_void_v<T> && !std::is_const_v<T>)
  MutableTensorView(T* data, std::initializer_list<std::int64_t> shape,
                    std::initializer_list<std::int64_t> strides)
      : TensorView(data, shape, strides) {}

  void* mutable_data() const { return const_cast<void*>(data); }

  template <class T>
  T* as() const {
    require_dtype(dtype_of<T>);
    return static_cast<T*>(mutable_data());
  }

  MutableTensorView transposed(int a, int b) const { return MutableTensorView(TensorView::transposed(a, b)); }
  MutableTensorView select(int dim, std::int64_t index) const {
    return MutableTensorView(TensorView::select(dim, index));
  }
  MutableTensorView slice(int dim, std::int64_t begin, std::int64_t end) const {
    return MutableTensorView(TensorView::slice(dim, begin, end));
  }
  MutableTensorView reshaped(std::span<const std::int64_t> shape) const {
    return MutableTensorView(TensorView::reshaped(shape));
  }
  MutableTensorView reshaped(std::initializer_list<std::int64_t> shape) const {
    return MutableTensorView(TensorView::reshaped(shape));
  }

 private:
  explicit MutableTensorView(const TensorView& view) : TensorView(view) {}
};

/// A contiguous (C order) array that owns its numbers, aligned to 64 bytes. Copying copies the numbers;
/// moving is cheap and leaves an empty tensor behind. Converts to a view wherever one is taken.
class Tensor {
 public:
  /// An empty tensor of rank 0, which views as "not given".
  Tensor() = default;

  /// Zeros. Throws std::invalid_argument for a shape that element_count refuses, std::bad_alloc without memory.
  Tensor(DType dtype, Shape shape);

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  /// A rank-1 or rank-2 tensor of the numbers written out: `Tensor::of<float>({{1, 2}, {3, 4}})`.
  /// Throws std::invalid_argument when rows have different lengths.
  template <class T>
  static Tensor of(std::initializer_list<T> values);
  template <class T>
  static Tensor of(std::initializer_list<std::initializer_list<T>> rows);

  /// A tensor with a copy of the viewed numbers, converted to `dtype` where they differ.
  static Tensor copy_of(const TensorView& view);
  static Tensor copy_of(const TensorView& view, DType dtype);

  DType dtype() const { return dtype_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  const Shape& shape() const { return shape_; }
  std::int64_t shape(int dim) const;  ///< one length; negative dimensions count from the end
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }

  TensorView view() const;
  MutableTensorView mutable_view();
  operator TensorView() const { return view(); }        // NOLINT: a tensor goes wherever a view does
  operator MutableTensorView() { return mutable_view(); }  // NOLINT

  const void* data() const { return data_.get(); }
  void* data() { return data_.get(); }

  /// All numbers in C order. Throws std::invalid_argument when T is not the element type.
  template <class T>
  std::span<const T> values() const {
    return {view().as<T>(), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<T> values() {
    return {mutable_view().as<T>(), static_cast<std::size_t>(size_)};
  }

  /// One number, by a full set of indices. Throws std::out_of_range, std::invalid_argument for another T.
  template <class T, std::integral... Index>
  T& at(Index... index) {
    return values<T>()[offset_of({static_cast<std::int64_t>(index)...})];
  }
  template <class T, std::integral... Index>
  const T& at(Index... index) const {
    return values<T>()[offset_of({static_cast<std::int64_t>(index)...})];
  }

  /// This tensor in another shape of the same size (the numbers move over, not copied, from an rvalue).
  Tensor reshaped(Shape shape) const&;
  Tensor reshaped(Shape shape) &&;

 private:
  struct Release {
    void operator()(std::byte* bytes) const;
  };

  std::size_t offset_of(std::initializer_list<std::int64_t> index) const;

  std::unique_ptr<std::byte[], Release> data_;
  DType dtype_ = DType::f32;
  Shape shape_;
  std::int64_t size_ = 0;
};

/// Copies `from` into `to`, element by element, converting between element types (round to nearest even;
/// to an integer, toward zero; to boolean, "not zero"). Throws std::invalid_argument when the shapes differ.
void copy(const TensorView& from, const MutableTensorView& to);

/// One number of a view, whatever its element type, as a double (64-bit integers may round).
/// `index` has one entry a dimension. Throws std::out_of_range.
double value_at(const TensorView& view, std::span<const std::int64_t> index);

/// How print shows numbers.
struct PrintOptions {
  int precision = 4;           ///< digits after the point
  int edge_items = 3;          ///< items shown at each end of a long dimension
  std::int64_t threshold = 1000;  ///< tensors with more elements are shortened with "..."
};

/// The numbers as nested brackets, aligned in columns, one row a line:
///
///     [[0.4300, 0.1500, 0.8900],
///      [0.5500, 0.8700, 0.6600]]
std::string to_string(const TensorView& view, const PrintOptions& options = {});

template <class T>
Tensor Tensor::of(std::initializer_list<T> values) {
  return copy_of(TensorView(values.begin(), {static_cast<std::int64_t>(values.size())}));
}

template <class T>
Tensor Tensor::of(std::initializer_list<std::initializer_list<T>> rows) {
  void refuse_ragged_rows(std::size_t wanted, std::size_t got);
  const std::size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  Tensor result(dtype_of<T>, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)});
  T* out = result.values<T>().data();
  for (const auto& row : rows) {
    if (row.size() != columns) refuse_ragged_rows(columns, row.size());
    for (const T& value : row) *out++ = value;
  }
  return result;
}

}  // namespace saccade
