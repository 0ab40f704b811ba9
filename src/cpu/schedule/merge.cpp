#include <algorithm>

#include "core/ceil_div.h"
#include "core/parallel.h"
#include "cpu/schedule/schedules.h"

namespace saccade::cpu {

void run_merge(const MergeKernels& kernels, const MergeParams& p) {
  const std::int64_t rows = p.batch * p.heads * p.rows, numbers = p.dim * (p.count + 1);
  const std::int64_t block = rows_of_block(numbers), blocks = ceil_div(rows, block);
  parallel_for(threads_for_numbers(blocks, rows * numbers), blocks, kernels.scratch(p),
               [&](std::int64_t item, std::byte* scratch) {
                 kernels.rows(p, item * block, std::min(rows, (item + 1) * block), scratch);
               });
}

}  // namespace saccade::cpu
