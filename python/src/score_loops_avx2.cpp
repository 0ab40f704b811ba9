// The loops of score programs for AVX2 and FMA. Only the target region is compiled for them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "score_operations.h"

#ifdef __x86_64__

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define SACCADE_LOOPS_NAMESPACE score_loops_avx2
#include "score_loops.h"

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace saccade::python {
const ScoreLoops kScoreLoopsAvx2 = score_loops_avx2::score_loops_table();
}

#endif
