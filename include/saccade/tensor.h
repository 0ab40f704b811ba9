// TensorView: a non-owning view of memory as an n-dimensional array. Tensor: an array that owns its memory.
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

#pragma GCC visibility push(default)
namespace saccade {

/// The most dimensions a tensor can have.
inline constexpr int kMaxRank = 6;

/// The longest dimension that functions on tensors accept: 2^40.
inline constexpr std::int64_t kMaxLength = std::int64_t{1} << 40;

/// Where a tensor's memory is.
enum class Device : std::uint8_t { cpu };

/// The lengths of a tensor's dimensions, outermost first.
using Shape = std::vector<std::int64_t>;

/// The element count of a shape; 1 for rank 0. Throws std::invalid_argument when a length is negative, the rank is
/// above kMaxRank, or the bytes of the array, bytes_per_element for each element, do not fit in 63 bits (also when
/// another length is 0).
std::int64_t element_count(std::span<const std::int64_t> shape, std::size_t bytes_per_element = 1);

/// A shape as "[2, 6, 3]", the form that messages use.
std::string to_string(std::span<const std::int64_t> shape);

namespace detail {
[[noreturn]] void refuse_stride_count(std::size_t lengths, std::size_t strides);
[[noreturn]] void refuse_dtype(DType wanted, DType got);
[[noreturn]] void refuse_ragged_rows(std::size_t wanted, std::size_t got);
}  // namespace detail

/// A read-only, non-owning view of an array: pointer, element type, shape and strides.
///
/// Strides count elements, not bytes; they may be 0 (broadcast) or negative. A default view is empty:
/// `if (view)` is false, and as an optional argument it means "not given". Copying a view copies no numbers.
struct TensorView {
  const void* data = nullptr;                    ///< the element at index 0, 0, ...
  DType dtype = DType::f32;                      ///< of the elements
  std::uint8_t rank = 0;                         ///< how many dimensions
  Device device = Device::cpu;                   ///< where the memory is
  std::array<std::int64_t, kMaxRank> shape{};    ///< lengths of the first `rank` dimensions
  std::array<std::int64_t, kMaxRank> strides{};  ///< elements from one index to the next

  TensorView() = default;

  /// Contiguous (C order) numbers of the given type and lengths. Throws std::invalid_argument as element_count
  /// does.
  TensorView(const void* numbers, DType type, std::span<const std::int64_t> lengths)
      : TensorView(lengths, numbers, type) {
    std::int64_t stride = 1;
    for (std::size_t dim = lengths.size(); dim-- > 0;) {
      shape[dim] = lengths[dim];
      strides[dim] = stride;
      stride *= lengths[dim];
    }
  }

  /// Numbers of the given type, lengths and strides, `steps`. Throws std::invalid_argument as element_count does,
  /// and when the number of strides differs from the rank.
  TensorView(const void* numbers, DType type, std::span<const std::int64_t> lengths,
             std::span<const std::int64_t> steps)
      : TensorView(lengths, numbers, type) {
    if (steps.size() != lengths.size()) detail::refuse_stride_count(lengths.size(), steps.size());
    for (std::size_t dim = 0; dim < lengths.size(); ++dim) {
      shape[dim] = lengths[dim];
      strides[dim] = steps[dim];
    }
  }

  /// `TensorView(pointer, {2, 6, 3})`: the element type is the pointer's, the layout contiguous.
  template <class T>
  requires(!std::is_void_v<T>) TensorView(const T* numbers, std::initializer_list<std::int64_t> lengths)
      : TensorView(numbers, dtype_of<T>, std::span(lengths.begin(), lengths.size())) {}

  /// `TensorView(pointer, {2, 6, 3}, {64, 8, 1})`: the same with strides.
  template <class T>
  requires(!std::is_void_v<T>) TensorView(const T* numbers, std::initializer_list<std::int64_t> lengths,
                                          std::initializer_list<std::int64_t> steps)
      : TensorView(numbers, dtype_of<T>, std::span(lengths.begin(), lengths.size()),
                   std::span(steps.begin(), steps.size())) {}

  explicit operator bool() const { return rank != 0; }

  std::span<const std::int64_t> dims() const { return {shape.data(), rank}; }

  /// The number of elements; 0 for a default view.
  std::int64_t size() const {
    std::int64_t count = data != nullptr || rank != 0 ? 1 : 0;
    for (const std::int64_t length : dims()) count *= length;
    return count;
  }

  /// C order without gaps; dimensions of length 1, and every dimension of an empty view, may have any stride.
  bool is_contiguous() const;

  /// The pointer as `const T*`. Throws std::invalid_argument when T is not the element type.
  template <class T>
  const T* as() const {
    require_dtype(dtype_of<T>);
    return static_cast<const T*>(data);
  }

  /// The view with dimensions a and b exchanged; copies nothing. Negative dimensions count from the end.
  TensorView transposed(int a, int b) const;

  /// The view at one index of dimension `dim`, without that dimension. Throws std::out_of_range.
  TensorView select(int dim, std::int64_t index) const;

  /// The view of indices [begin, end) of dimension `dim`. Throws std::out_of_range.
  TensorView slice(int dim, std::int64_t begin, std::int64_t end) const;

  /// The view of the same numbers with other lengths. Throws std::invalid_argument when the element counts differ
  /// or the view is not contiguous.
  TensorView reshaped(std::span<const std::int64_t> lengths) const;
  TensorView reshaped(std::initializer_list<std::int64_t> lengths) const {
    return reshaped(std::span(lengths.begin(), lengths.size()));
  }

 protected:
  void require_dtype(DType wanted) const {
    if (dtype != wanted) detail::refuse_dtype(wanted, dtype);
  }

 private:
  // The common part. Up to six lengths below 2^10 times 8 bytes stay below 2^63, so most views skip the exact
  // check. That matters for attention on a few tokens, which takes about 100 ns.
  TensorView(std::span<const std::int64_t> lengths, const void* numbers, DType type)
      : data(numbers), dtype(type), rank(static_cast<std::uint8_t>(lengths.size())) {
    std::uint64_t all_bits = 0;
    for (const std::int64_t length : lengths) all_bits |= static_cast<std::uint64_t>(length);
    if (lengths.size() > kMaxRank || all_bits >= 1024) element_count(lengths, size_of(type));
  }
};

/// A TensorView that can be written to: the type of result arguments. Its constructors and functions are those of
/// TensorView: from numbers, their type, lengths and steps.
struct MutableTensorView : TensorView {
  MutableTensorView() = default;
  MutableTensorView(void* numbers, DType type, std::span<const std::int64_t> lengths)
      : TensorView(numbers, type, lengths) {}
  MutableTensorView(void* numbers, DType type, std::span<const std::int64_t> lengths,
                    std::span<const std::int64_t> steps)
      : TensorView(numbers, type, lengths, steps) {}
  template <class T>
  requires(!std::is_void_v<T> && !std::is_const_v<T>)
      MutableTensorView(T* numbers, std::initializer_list<std::int64_t> lengths)
      : TensorView(numbers, lengths) {}
  template <class T>
  requires(!std::is_void_v<T> && !std::is_const_v<T>)
      MutableTensorView(T* numbers, std::initializer_list<std::int64_t> lengths,
                        std::initializer_list<std::int64_t> steps)
      : TensorView(numbers, lengths, steps) {}

  void* mutable_data() const { return const_cast<void*>(data); }

  template <class T>
  T* as() const {
    require_dtype(dtype_of<T>);
    return static_cast<T*>(mutable_data());
  }

  /// As TensorView's: dimensions a and b exchanged.
  MutableTensorView transposed(int a, int b) const { return MutableTensorView(TensorView::transposed(a, b)); }
  /// As TensorView's: at one index of dimension `dim`.
  MutableTensorView select(int dim, std::int64_t index) const {
    return MutableTensorView(TensorView::select(dim, index));
  }
  /// As TensorView's: the indices [begin, end) of dimension `dim`.
  MutableTensorView slice(int dim, std::int64_t begin, std::int64_t end) const {
    return MutableTensorView(TensorView::slice(dim, begin, end));
  }
  /// As TensorView's: with other lengths.
  MutableTensorView reshaped(std::span<const std::int64_t> lengths) const {
    return MutableTensorView(TensorView::reshaped(lengths));
  }
  MutableTensorView reshaped(std::initializer_list<std::int64_t> lengths) const {
    return MutableTensorView(TensorView::reshaped(lengths));
  }

 private:
  explicit MutableTensorView(const TensorView& view) : TensorView(view) {}
};

/// A contiguous (C order) array that owns its numbers, aligned to 64 bytes. Copying copies the numbers; moving is
/// cheap and leaves an empty tensor behind. Converts to a view wherever a function accepts one.
class Tensor {
 public:
  /// An empty tensor of rank 0 without numbers; as a view it means "not given".
  Tensor() = default;

  /// Zeros of type `dtype`. Throws std::invalid_argument for a shape that element_count rejects, std::bad_alloc if
  /// memory runs out.
  Tensor(DType dtype, Shape shape);

  /// A tensor of that dtype and shape with uninitialized memory, for results that will be overwritten completely:
  /// zeroing them first took a tenth of a training step.
  static Tensor uninitialized(DType dtype, Shape shape);

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;

  /// A rank-1 or rank-2 tensor of the given values or rows: `Tensor::of<float>({{1, 2}, {3, 4}})`. Throws
  /// std::invalid_argument when rows have different lengths.
  template <class T>
  static Tensor of(std::initializer_list<T> values);
  template <class T>
  static Tensor of(std::initializer_list<std::initializer_list<T>> rows);

  /// A copy of the numbers of `view`, converted to `dtype` where that differs.
  static Tensor copy_of(const TensorView& view);
  static Tensor copy_of(const TensorView& view, DType dtype);

  DType dtype() const { return dtype_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  const Shape& shape() const { return shape_; }
  std::int64_t shape(int dim) const;  ///< the length of dimension `dim`; negative ones count from the end
  std::int64_t size() const { return size_; }
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }

  TensorView view() const { return {data_.get(), dtype_, std::span(shape_)}; }
  MutableTensorView mutable_view() { return {data_.get(), dtype_, std::span<const std::int64_t>(shape_)}; }
  operator TensorView() const { return view(); }           // NOLINT: a tensor goes wherever a view does
  operator MutableTensorView() { return mutable_view(); }  // NOLINT

  const void* data() const { return data_.get(); }
  void* data() { return data_.get(); }

  /// All elements in C order. Throws std::invalid_argument when T is not the element type.
  template <class T>
  std::span<const T> values() const {
    return {view().as<T>(), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<T> values() {
    return {mutable_view().as<T>(), static_cast<std::size_t>(size_)};
  }

  /// One number, by a full set of indices, `index`. Throws std::out_of_range, std::invalid_argument for another T.
  template <class T, std::integral... Index>
  T& at(Index... index) {
    return values<T>()[offset_of({static_cast<std::int64_t>(index)...})];
  }
  template <class T, std::integral... Index>
  const T& at(Index... index) const {
    return values<T>()[offset_of({static_cast<std::int64_t>(index)...})];
  }

  /// This tensor in another shape of the same size. From an rvalue the numbers are moved, not copied.
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

/// Copies `from` into `to`, element by element, and converts between element types. To a floating-point type: one
/// rounding, to nearest even. To an integer: toward zero, then to the nearest value of the type; NaN becomes 0. To
/// boolean: "not zero". Throws std::invalid_argument when the shapes differ. The two must not overlap.
void copy(const TensorView& from, const MutableTensorView& to);

/// One number of a view of any element type, as a double (64-bit integers may round). `index` has one entry
/// per dimension. Throws std::out_of_range, and std::invalid_argument for i4, whose numbers need scales.
double value_at(const TensorView& view, std::span<const std::int64_t> index);

/// How to_string shows numbers. A view without numbers shows its brackets, at most as many as by default.
struct PrintOptions {
  int precision = 4;              ///< digits after the point, 0 to 17
  int edge_items = 3;             ///< items shown at each end of a long dimension
  std::int64_t threshold = 1000;  ///< tensors with more elements are shortened with "..."
};

/// The numbers of `view` as nested brackets, aligned in columns, one row per line, with an empty line between
/// matrices:
///
///     [[0.4300, 0.1500, 0.8900],
///      [0.5500, 0.8700, 0.6600]]
///
/// All floating-point numbers use scientific notation when one of them would be wide (from 1e8 on) or all would
/// print as zeros. Independent of the locale.
std::string to_string(const TensorView& view, const PrintOptions& options = {});

/// From values.
template <class T>
Tensor Tensor::of(std::initializer_list<T> values) {
  return copy_of(TensorView(values.begin(), {static_cast<std::int64_t>(values.size())}));
}

/// From rows.
template <class T>
Tensor Tensor::of(std::initializer_list<std::initializer_list<T>> rows) {
  const std::size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  Tensor result(dtype_of<T>, {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)});
  T* out = result.values<T>().data();
  for (const auto& row : rows) {
    if (row.size() != columns) detail::refuse_ragged_rows(columns, row.size());
    for (const T& value : row) *out++ = value;
  }
  return result;
}

}  // namespace saccade
#pragma GCC visibility pop
