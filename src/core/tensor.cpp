#include "saccade/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/memory.h"

namespace saccade {
namespace {

constexpr std::size_t kAlignment = 64;

/// The index of dimension `dim`; negative values count from the end.
int resolved_dim(int dim, int rank, const char* function) {
  const int resolved = dim < 0 ? dim + rank : dim;
  if (resolved < 0 || resolved >= rank) {
    throw std::out_of_range("[" + std::string(function) + "] dimension " + std::to_string(dim) +
                            " does not exist in rank " + std::to_string(rank));
  }
  return resolved;
}

const std::byte* advanced(const TensorView& view, const void* from, int dim, std::int64_t index) {
  return static_cast<const std::byte*>(from) +
         bytes_of(view.dtype, index * view.strides[static_cast<std::size_t>(dim)]);
}

// Aligns by hand and stores the pointer to free in front of the elements. malloc caches small blocks, but aligned
// allocations bypass that cache, which made a module's call on six tokens a third slower (Zen 4, glibc 2.36).
std::byte* allocate(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) throw std::bad_alloc();
  auto* raw = static_cast<std::byte*>(::operator new[](bytes + kAlignment));
  std::byte* aligned = raw + kAlignment - reinterpret_cast<std::uintptr_t>(raw) % kAlignment;
  static_assert(__STDCPP_DEFAULT_NEW_ALIGNMENT__ >= sizeof raw);  // so the pointer fits in front
  std::memcpy(aligned - sizeof raw, &raw, sizeof raw);
  request_huge_pages(aligned, bytes);
  return aligned;
}

}  // namespace

// ---- Shapes --------------------------------------------------------------------------------------------------

std::int64_t element_count(std::span<const std::int64_t> shape, std::size_t bytes_per_element) {
  if (shape.size() > kMaxRank) {
    throw std::invalid_argument("[element_count] rank " + std::to_string(shape.size()) + " is above " +
                                std::to_string(kMaxRank));
  }
  auto bytes = static_cast<std::int64_t>(std::max<std::size_t>(bytes_per_element, 1));
  std::int64_t count = 1;
  for (const std::int64_t length : shape) {
    if (length < 0) throw std::invalid_argument("[element_count] negative length in shape " + to_string(shape));
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(length, 1), &bytes)) {
      throw std::invalid_argument("[element_count] shape " + to_string(shape) + " does not fit in memory");
    }
    count *= length;
  }
  if (static_cast<std::uint64_t>(bytes) > std::numeric_limits<std::size_t>::max())  // of 32 bits in WebAssembly
    throw std::invalid_argument("[element_count] shape " + to_string(shape) + " does not fit in memory");
  return count;
}

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (dim != 0) text += ", ";
    text += std::to_string(shape[dim]);
  }
  return text + "]";
}

namespace detail {

void refuse_stride_count(std::size_t lengths, std::size_t strides) {
  throw std::invalid_argument("[TensorView] " + std::to_string(strides) + " strides for a shape of rank " +
                              std::to_string(lengths));
}

void refuse_dtype(DType wanted, DType got) {
  refuse("TensorView::as", "the tensor has elements of ", name_of(got), ", not ", name_of(wanted));
}

void refuse_ragged_rows(std::size_t wanted, std::size_t got) {
  throw std::invalid_argument("[Tensor::of] a row has " + std::to_string(got) + " numbers, the first one " +
                              std::to_string(wanted));
}

}  // namespace detail

// ---- TensorView ----------------------------------------------------------------------------------------------

bool TensorView::is_contiguous() const {
  if (size() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t dim = rank; dim-- > 0;) {
    if (shape[dim] != 1 && strides[dim] != expected) return false;
    expected *= shape[dim];
  }
  return true;
}

TensorView TensorView::transposed(int a, int b) const {
  const int first = resolved_dim(a, rank, "TensorView::transposed");
  const int second = resolved_dim(b, rank, "TensorView::transposed");
  TensorView result = *this;
  std::swap(result.shape[static_cast<std::size_t>(first)], result.shape[static_cast<std::size_t>(second)]);
  std::swap(result.strides[static_cast<std::size_t>(first)], result.strides[static_cast<std::size_t>(second)]);
  return result;
}

TensorView TensorView::select(int dim, std::int64_t index) const {
  const int resolved = resolved_dim(dim, rank, "TensorView::select");
  const auto at = static_cast<std::size_t>(resolved);
  if (index < 0 || index >= shape[at]) {
    throw std::out_of_range("[TensorView::select] index " + std::to_string(index) + " is outside dimension " +
                            std::to_string(resolved) + " of shape " + to_string(dims()));
  }
  TensorView result = *this;
  result.data = advanced(*this, data, resolved, index);
  for (std::size_t d = at; d + 1 < rank; ++d) {
    result.shape[d] = shape[d + 1];
    result.strides[d] = strides[d + 1];
  }
  --result.rank;
  result.shape[result.rank] = 0;
  result.strides[result.rank] = 0;
  return result;
}

TensorView TensorView::slice(int dim, std::int64_t begin, std::int64_t end) const {
  const int resolved = resolved_dim(dim, rank, "TensorView::slice");
  const auto at = static_cast<std::size_t>(resolved);
  if (begin < 0 || begin > end || end > shape[at]) {
    throw std::out_of_range("[TensorView::slice] [" + std::to_string(begin) + ", " + std::to_string(end) +
                            ") is outside dimension " + std::to_string(resolved) + " of shape " +
                            to_string(dims()));
  }
  TensorView result = *this;
  if (begin != end) result.data = advanced(*this, data, resolved, begin);
  result.shape[at] = end - begin;
  return result;
}

TensorView TensorView::reshaped(std::span<const std::int64_t> lengths) const {
  if (!is_contiguous()) {
    throw std::invalid_argument("[TensorView::reshaped] the view of shape " + to_string(dims()) +
                                " is not contiguous");
  }
  if (element_count(lengths) != size()) {
    throw std::invalid_argument("[TensorView::reshaped] shape " + to_string(dims()) + " cannot become " +
                                to_string(lengths));
  }
  return {data, dtype, lengths};
}

// ---- Tensor --------------------------------------------------------------------------------------------------

void Tensor::Release::operator()(std::byte* bytes) const {
  std::byte* raw = nullptr;
  std::memcpy(&raw, bytes - sizeof raw, sizeof raw);
  ::operator delete[](raw);
}

Tensor::Tensor(DType dtype, Shape shape) : Tensor(uninitialized(dtype, std::move(shape))) {
  if (size_ != 0) std::memset(data_.get(), 0, bytes());
}

Tensor Tensor::uninitialized(DType dtype, Shape shape) {
  Tensor result;
  result.dtype_ = dtype;
  result.size_ = element_count(shape, size_of(dtype));
  result.shape_ = std::move(shape);
  result.data_.reset(allocate(result.bytes()));
  return result;
}

Tensor::Tensor(const Tensor& other) : dtype_(other.dtype_), shape_(other.shape_), size_(other.size_) {
  if (other.data_ == nullptr) return;
  data_.reset(allocate(bytes()));
  if (size_ != 0) std::memcpy(data_.get(), other.data_.get(), bytes());
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

Tensor::Tensor(Tensor&& other) noexcept
    : data_(std::move(other.data_)),
      dtype_(other.dtype_),
      shape_(std::exchange(other.shape_, {})),
      size_(std::exchange(other.size_, 0)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  data_ = std::move(other.data_);
  dtype_ = other.dtype_;
  shape_ = std::exchange(other.shape_, {});
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Tensor Tensor::copy_of(const TensorView& view) { return copy_of(view, view.dtype); }

Tensor Tensor::copy_of(const TensorView& view, DType dtype) {
  if (view.rank == 0 && view.data == nullptr) return {};
  check_data("Tensor::copy_of", "view", view);
  Tensor result = uninitialized(dtype, Shape(view.dims().begin(), view.dims().end()));
  copy(view, result);
  return result;
}

std::int64_t Tensor::shape(int dim) const {
  return shape_[static_cast<std::size_t>(resolved_dim(dim, rank(), "Tensor::shape"))];
}

Tensor Tensor::reshaped(Shape shape) const& { return Tensor(*this).reshaped(std::move(shape)); }

Tensor Tensor::reshaped(Shape shape) && {
  if (data_ == nullptr || element_count(shape) != size_) {
    throw std::invalid_argument("[Tensor::reshaped] shape " + to_string(shape_) + " cannot become " +
                                to_string(shape));
  }
  Tensor result = std::move(*this);
  result.shape_ = std::move(shape);
  return result;
}

std::size_t Tensor::offset_of(std::initializer_list<std::int64_t> index) const {
  bool is_inside = index.size() == shape_.size();
  std::int64_t offset = 0;
  for (std::size_t dim = 0; is_inside && dim < shape_.size(); ++dim) {
    const std::int64_t i = index.begin()[dim];
    is_inside = i >= 0 && i < shape_[dim];
    if (is_inside) offset = offset * shape_[dim] + i;
  }
  if (!is_inside || data_ == nullptr) {
    throw std::out_of_range("[Tensor::at] " + to_string(std::span(index.begin(), index.size())) +
                            " is no index of shape " + to_string(shape_));
  }
  return static_cast<std::size_t>(offset);
}

}  // namespace saccade
