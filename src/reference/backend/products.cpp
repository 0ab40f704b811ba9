#include <cmath>
#include <numbers>
#include <vector>

#include "core/progress.h"
#include "reference/backend/call.h"
#include "reference/backend/functions.h"

namespace saccade::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0.0 ? 0.0 : x;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return x * sigmoid(2.0 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (x + 0.044715 * x * x * x));
    case Activation::quick_gelu:
      return x * sigmoid(1.702 * x);
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::tanh:
      return std::tanh(x);
  }
  return x;
}

/// A matrix whose elements are `row_stride` and `column_stride` apart, in f64.
std::vector<double> matrix_of(const void* data, DType dtype, std::int64_t rows, std::int64_t columns,
                              std::int64_t row_stride, std::int64_t column_stride) {
  std::vector<double> numbers(static_cast<std::size_t>(rows * columns));
  copy(TensorView(data, dtype, std::array{rows, columns}, std::array{row_stride, column_stride}),
       MutableTensorView(numbers.data(), {rows, columns}));
  return numbers;
}

/// c = f(a b), where a and b are in f64 already.
void multiply(const ProductParams& p, const std::vector<double>& a, const std::vector<double>& b) {
  const StridedHeads<void> c{p.c, p.c_dtype, 0, 0, p.c_stride};
  for (std::int64_t i = 0; i < p.rows; ++i) {
    poll_progress();
    for (std::int64_t j = 0; j < p.columns; ++j) {
      double sum = p.bias ? static_cast<double>(p.bias[j]) : 0.0;
      if (p.adds) sum += number_at(c, 0, 0, i, j);
      for (std::int64_t d = 0; d < p.depth; ++d)
        sum += a[static_cast<std::size_t>(i * p.depth + d)] * b[static_cast<std::size_t>(d * p.columns + j)];
      store(activated(p.activation, sum), c, 0, 0, i, j);
    }
  }
}

class ReferencePackedProduct final : public PackedProduct {
 public:
  explicit ReferencePackedProduct(const ProductParams& p)
      : depth_(p.depth),
        columns_(p.columns),
        b_(matrix_of(p.b, p.dtype, p.depth, p.columns, p.b_depth_stride, p.b_column_stride)) {}

  void run(const ProductParams& params) const override {
    ProductParams p = params;  // which does not repeat what b has
    p.depth = depth_;
    p.columns = columns_;
    multiply(p, matrix_of(p.a, DType::f32, p.rows, p.depth, p.a_row_stride, p.a_depth_stride), b_);
  }
  void unpack(float* to) const override {
    for (const double number : b_) *to++ = static_cast<float>(number);
  }
  std::size_t bytes() const override { return b_.size() * sizeof(double); }

 private:
  std::int64_t depth_, columns_;
  std::vector<double> b_;  // [depth, columns]
};

}  // namespace

void run_product(const ProductParams& p) {
  multiply(p, matrix_of(p.a, p.dtype, p.rows, p.depth, p.a_row_stride, p.a_depth_stride),
           matrix_of(p.b, p.dtype, p.depth, p.columns, p.b_depth_stride, p.b_column_stride));
}

std::unique_ptr<PackedProduct> new_packed_product(const ProductParams& p) {
  return std::make_unique<ReferencePackedProduct>(p);
}

}  // namespace saccade::reference
