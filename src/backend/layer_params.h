// Kernel parameters of products, layers and optimizers: plain structs. The public functions check and fill them;
// kernels check nothing.
#pragma once

#include <cstdint>

#include "saccade/dtype.h"
#include "saccade/functional.h"

namespace saccade {

/// A matrix product c = a b, added to 0, to a bias for each column, or to the contents of c.
struct ProductParams {
  std::int64_t rows = 0, depth = 0, columns = 0;  // a: [rows, depth], b: [depth, columns], c: [rows, columns]
  DType dtype = DType::f32;                       // of a and b: f32, bf16 or f16
  const void* a = nullptr;
  std::int64_t a_row_stride = 0, a_depth_stride = 0;  // one of the two is 1
  const void* b = nullptr;
  std::int64_t b_depth_stride = 0, b_column_stride = 0;  // one of the two is 1
  const float* bias = nullptr;                           // [columns]
  bool adds = false;                                     // adds to the contents of c
  DType c_dtype = DType::f32;                            // or that of a and b, if c is not added to
  void* c = nullptr;
  std::int64_t c_stride = 0;
  Activation activation = Activation::none;  // of c, in a product with a packed b
};

/// Rows [row, row_end) and columns [column, column_end) of c.
struct ProductBlock {
  std::int64_t row = 0, row_end = 0, column = 0, column_end = 0;
};

// The layers: rows of `dim` numbers, contiguous unless there is a stride.

struct LayerNormParams {
  std::int64_t dim = 0;
  double eps = 0.0;
  const float* x = nullptr;  // [rows, dim]
  std::int64_t x_stride = 0;
  const float* scale = nullptr;  // [dim]
  const float* shift = nullptr;  // [dim]
  float* y = nullptr;            // [rows, dim]
  std::int64_t y_stride = 0;
  float* normalised = nullptr;  // [rows, dim]; nullptr: neither this nor inverse is requested
  float* inverse = nullptr;     // [rows]: 1 / sqrt(variance + eps)
};

struct LayerNormBackwardParams {
  std::int64_t dim = 0;
  const float* normalised = nullptr;  // [rows, dim]
  const float* inverse = nullptr;     // [rows]
  const float* scale = nullptr;       // [dim]
  const float* dout = nullptr;        // [rows, dim]
  float* dx = nullptr;                // [rows, dim]
};

struct RmsNormParams {
  std::int64_t dim = 0;
  double eps = 0.0;
  const float* x = nullptr;  // [rows, dim]
  std::int64_t x_stride = 0;
  const float* scale = nullptr;  // [dim]
  float* y = nullptr;            // [rows, dim]
  std::int64_t y_stride = 0;
};

struct DropoutParams {
  std::int64_t dim = 0;
  double p = 0.0;  // above 0
  std::uint64_t seed = 0;
  std::uint32_t offset = 0;
  const float* x = nullptr;  // [rows, dim]
  float* y = nullptr;        // [rows, dim]
};

/// The denominator of the softmax of one row: the sum of exp(x - maximum).
struct SoftmaxSum {
  float maximum = 0.0f, sum = 0.0f;
};

// Optimizers, see optim.h.

struct AdamWParams {
  float keep = 1.0f;  // the factor by which weight decay multiplies a parameter
  float one_minus_beta1 = 0.0f, beta2 = 0.0f, one_minus_beta2 = 0.0f;
  float step_size = 0.0f, root_of_correction2 = 1.0f, eps = 0.0f;
};

struct SgdParams {
  float lr = 0.0f, weight_decay = 0.0f, momentum = 0.0f, one_minus_dampening = 1.0f;
  bool nesterov = false;
  bool is_first = false;  // there is no momentum yet
};

}  // namespace saccade
