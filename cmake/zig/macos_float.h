// Included before every source for macOS, because Zig 0.17.1's headers contradict each other: <cmath> includes
// <cfloat> for INFINITY and NAN alone, and then <cfloat> defines nothing more; and the other way round.
#include <float.h>
#define __need_infinity_nan
#include <__float_infinity_nan.h>
#undef __need_infinity_nan
