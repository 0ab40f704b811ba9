#include "cases/scattered_tensor.h"

#include <algorithm>
#include <cstring>

namespace saccade::cases {
namespace {

constexpr int kUnwritten = 0xFF;  // value of each byte: a NaN in every floating-point type

}  // namespace

ScatteredTensor::ScatteredTensor(DType dtype, Shape shape, const std::vector<int>& order, std::int64_t gap)
    : shape_(std::move(shape)), strides_(shape_.size(), 1), dtype_(dtype) {
  std::int64_t stride = shape_.back() + gap;
  for (std::size_t i = order.size(); i-- > 0;) {
    const auto dim = static_cast<std::size_t>(order[i]);
    strides_[dim] = stride;
    stride *= std::max<std::int64_t>(shape_[dim], 1);
    stride += gap;
  }
  memory_ = Tensor(dtype, {stride + 64});
  clear();
}

ScatteredTensor::ScatteredTensor(const QuantizedTensor& numbers)
    : shape_(numbers.shape), dtype_(numbers.dtype), memory_(numbers.numbers) {
  const TensorView view = numbers.view();
  strides_.assign(view.strides.begin(), view.strides.begin() + view.rank);
}

void ScatteredTensor::clear() { std::memset(memory_.data(), kUnwritten, memory_.bytes()); }

std::int64_t ScatteredTensor::written() const {
  const auto* const bytes = static_cast<const unsigned char*>(memory_.data());
  const std::size_t size = size_of(memory_.dtype());
  std::int64_t count = 0;
  for (std::size_t i = 0; i < memory_.bytes(); i += size)
    count += !std::all_of(bytes + i, bytes + i + size, [](unsigned char byte) { return byte == kUnwritten; });
  return count;
}

void draw_numbers(const MutableTensorView& view, double scale, Random& random) {
  const bool is_wide = view.dtype == DType::f64;
  Tensor numbers(is_wide ? DType::f64 : DType::f32, Shape(view.dims().begin(), view.dims().end()));
  if (is_wide) {
    for (double& number : numbers.values<double>()) number = scale * random.bell();
  } else {
    for (float& number : numbers.values<float>()) number = static_cast<float>(scale * random.bell());
  }
  copy(numbers, view);
}

void fill(const MutableTensorView& view, double number) {
  const std::vector<std::int64_t> strides(view.rank, 0);
  copy(TensorView(&number, DType::f64, view.dims(), strides), view);
}

}  // namespace saccade::cases
