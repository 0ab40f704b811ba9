// The loops of score programs for AVX-512 F, BW, DQ and VL. Only the target region is compiled for them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "score_operations.h"

#ifdef __x86_64__

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#endif

#define SACCADE_LOOPS_NAMESPACE score_loops_avx512
#include "score_loops.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace saccade::python {
const ScoreLoops kScoreLoopsAvx512 = score_loops_avx512::score_loops_table();
}

#endif
