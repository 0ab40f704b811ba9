// The loops of score programs for every machine, and the choice among them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "saccade/runtime.h"

#define SACCADE_LOOPS_NAMESPACE score_loops_plain
#include "score_loops.h"

namespace saccade::python {

const ScoreLoops kScoreLoops = score_loops_plain::score_loops_table();

const ScoreLoops& score_loops() {
#ifdef __x86_64__
  const Isa isa = active_isa();
  if (isa >= Isa::avx512 && isa <= Isa::avx512amx && !is_emulated(isa)) return kScoreLoopsAvx512;
  if (isa >= Isa::avx2 && isa <= Isa::avx512amx) return kScoreLoopsAvx2;
#endif
  return kScoreLoops;
}

}  // namespace saccade::python
