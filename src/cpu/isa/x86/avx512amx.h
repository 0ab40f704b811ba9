// Compiles the kernels on AMX tiles, of which each source that includes this takes a part.
#pragma once

#include "cpu/simd/prelude.h"

#include "cpu/amx/tables.h"

SACCADE_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,fma,f16c")

#define SACCADE_ISA_NAMESPACE avx512amx
#define SACCADE_AMX
#include "cpu/amx/tiles.h"

#include "cpu/simd/exp2/polynomial.h"

#include "cpu/amx/words.h"

#include "cpu/isa/amx_table.h"

SACCADE_TARGET_END
