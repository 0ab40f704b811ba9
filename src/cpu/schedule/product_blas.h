// Matrix products by a BLAS, in builds with the CMake option SACCADE_BLAS.
#pragma once

#include "backend/layer_params.h"

namespace saccade::cpu {

/// Whether BLAS can compute the product (rows must not overlap) and it is large enough to benefit.
bool suits_blas(const ProductParams& p);

/// Computes the product, on the threads that the BLAS chooses.
void product_by_blas(const ProductParams& p);

}  // namespace saccade::cpu
