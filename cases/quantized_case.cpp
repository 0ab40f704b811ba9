#include "cases/quantized_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <saccade/quantize.h>

#include "cases/random.h"

namespace saccade::cases {
namespace {

class QuantizedDrawing {
 public:
  QuantizedDrawing(AttentionCase& c, std::uint64_t seed, const Simplification& simpler)
      : c_(c), random_(seed ^ 0x5ca1e5), simpler_(simpler) {}

  void draw(const std::function<void(std::string_view, Random&)>& begin) {
    AttentionOptions& o = c_.options;
    const bool keys = random_.chance(0.2), values = random_.chance(keys ? 0.8 : 0.05);
    const auto keeps = [&](const char* name) { return !simpler_.leaves_out(name); };
    if (keys && keeps("k_scale")) quantize_tensor(c_.k, 0, o.k_scale, o.k_multipliers);
    begin("v_scale", random_);
    if (values && keeps("v_scale")) quantize_tensor(c_.v, 1, o.v_scale, o.v_multipliers);
    begin("rotated", random_);
    o.k_rotated = random_.chance(keys ? 0.3 : 0.02) && keeps("k_rotated");
    o.v_rotated = random_.chance(values ? 0.3 : 0.02) && keeps("v_rotated");
  }

 private:
  void quantize_tensor(ScatteredTensor& tensor, std::size_t index, TensorView& scale, TensorView& multipliers) {
    const DType dtype = random_.pick({DType::i8, DType::i8, DType::i4, DType::f8e4m3});
    if (dtype != DType::i4 && random_.chance(0.3)) return draw_static_scales(tensor, dtype, index, scale);
    const QuantizedTensor quantized = quantize(std::as_const(tensor).view(), dtype);
    if (dtype == DType::i4)
      tensor = ScatteredTensor(quantized);
    else
      scatter(tensor, dtype, quantized.numbers);
    scale = c_.scales[index] = in_bhsd(quantized.scale);
    if (dtype == DType::i4) multipliers = c_.scales[index + 2] = in_bhsd(quantized.multipliers);
  }

  /// Numbers of the type itself, with scales that broadcast.
  void draw_static_scales(ScatteredTensor& tensor, DType dtype, std::size_t index, TensorView& scale) {
    const double step = 0.03;
    Tensor numbers = Tensor::copy_of(std::as_const(tensor).view(), DType::f32);
    for (float& x : numbers.values<float>()) x = static_cast<float>(std::rint(static_cast<double>(x) / step));
    scatter(tensor, dtype, numbers);
    if (dtype == DType::f8e4m3 && random_.chance(0.3)) return;
    const TensorView view = in_bhsd_view(std::as_const(tensor).view());
    Shape shape(view.dims().begin(), view.dims().end());
    const std::size_t rows = shape.size() - 2, dims = shape.size() - 1;
    shape[random_.chance(0.5) ? rows : dims] = 1;
    for (std::int64_t& length : shape)
      if (random_.chance(0.5)) length = 1;
    if (c_.options.block_table && shape[dims] > 1) shape[0] = 1;  // all pages have the same scales of channels
    Tensor& scales = c_.scales[index] = Tensor(DType::f32, shape);
    for (float& x : scales.values<float>()) x = static_cast<float>(step * (0.5 + random_.unit()));
    scale = scales;
  }

  /// Replaces a tensor by one of another type with the same shape, in another order of memory.
  void scatter(ScatteredTensor& tensor, DType dtype, const TensorView& numbers) {
    const std::span<const std::int64_t> dims = numbers.dims();
    std::vector<int> order(dims.size() - 1);
    std::iota(order.begin(), order.end(), 0);
    if (random_.chance(0.5)) random_.shuffle(order);
    std::int64_t gap = random_.chance(0.5) ? 0 : 3;
    if (simpler_.contiguous) std::ranges::sort(order), gap = 0;
    ScatteredTensor to(dtype, Shape(dims.begin(), dims.end()), order, gap);
    copy(numbers, to.view());
    tensor = std::move(to);
  }

  TensorView in_bhsd_view(const TensorView& view) const {
    const bool rows_go_first = c_.options.cu_seqlens_q || c_.options.layout == Layout::bshd;
    return rows_go_first && view.rank > 2 ? view.transposed(-3, -2) : view;
  }
  Tensor in_bhsd(const TensorView& view) const { return Tensor::copy_of(in_bhsd_view(view)); }

  AttentionCase& c_;
  Random random_;
  const Simplification& simpler_;
};

}  // namespace

void quantize_randomly(AttentionCase& c, std::uint64_t seed, const Simplification& simpler,
                       const std::function<void(std::string_view, Random&)>& begin) {
  QuantizedDrawing(c, seed, simpler).draw(begin);
}

}  // namespace saccade::cases
