#include "cpu/schedule/product_blas.h"

#include <cblas.h>

#include <algorithm>
#include <limits>

namespace saccade::cpu {
namespace {

/// Whether BLAS accepts the row stride of a matrix with `columns` contiguous numbers per row.
bool has_blas_stride(std::int64_t stride, std::int64_t columns) {
  return stride >= std::max<std::int64_t>(1, columns) && stride <= std::numeric_limits<int>::max();
}

}  // namespace

bool suits_blas(const ProductParams& p) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max(), kLeast = std::int64_t{1} << 16;
  if (p.dtype != DType::f32 || p.c_dtype != DType::f32 || p.rows > kMost || p.depth > kMost || p.columns > kMost)
    return false;
  if (p.depth == 0 || p.rows * p.depth < kLeast / p.columns) return false;
  return has_blas_stride(p.c_stride, p.columns) &&
         (p.a_depth_stride == 1 ? has_blas_stride(p.a_row_stride, p.depth)
                                : has_blas_stride(p.a_depth_stride, p.rows)) &&
         (p.b_column_stride == 1 ? has_blas_stride(p.b_depth_stride, p.columns)
                                 : has_blas_stride(p.b_column_stride, p.depth));
}

void product_by_blas(const ProductParams& p) {
  float* const c = static_cast<float*>(p.c);
  const bool transposed_a = p.a_depth_stride != 1, transposed_b = p.b_column_stride != 1;
  if (p.bias)
    for (std::int64_t row = 0; row < p.rows; ++row) std::copy_n(p.bias, p.columns, c + row * p.c_stride);
  cblas_sgemm(CblasRowMajor, transposed_a ? CblasTrans : CblasNoTrans, transposed_b ? CblasTrans : CblasNoTrans,
              static_cast<int>(p.rows), static_cast<int>(p.columns), static_cast<int>(p.depth), 1.0f,
              static_cast<const float*>(p.a), static_cast<int>(transposed_a ? p.a_depth_stride : p.a_row_stride),
              static_cast<const float*>(p.b),
              static_cast<int>(transposed_b ? p.b_column_stride : p.b_depth_stride),
              p.bias || p.adds ? 1.0f : 0.0f, c, static_cast<int>(p.c_stride));
}

}  // namespace saccade::cpu
