// Matrix products by a BLAS, in builds with the CMake option SACCADE_BLAS.
#pragma once

#include "nn/params.h"

namespace saccade::cpu {

/// Whether a BLAS takes the product and it is large enough to be worth its while. It takes no rows that overlap.
bool suits_blas(const ProductParams& p);

/// The product, on the threads that the BLAS chooses.
void product_by_blas(const ProductParams& p);

}  // namespace saccade::cpu
