#include "distributed/keys.h"

#include <algorithm>

namespace saccade::distributed {

Needs needed_keys(const Call& call) {
  const Plan* const plan = call.plan.get();
  return {
      .plan = plan, .sharding = &plan->division().keys, .heads = 1, .rows = [plan](int rank, std::int64_t step) {
        return plan->keys(rank, step);
      }};
}

Keys::Keys(Call& call) : call_(call), fetch_(call.messages, needed_keys(call), {call.local.k, call.local.v}) {}

void Keys::post(std::int64_t step) {
  const Plan::Unit unit = call_.unit(step);
  std::int64_t first = call_.plan->division().keys.length();
  if (unit.exists) {
    for (const Run& keys : call_.plan->keys(call_.rank(), step)) {
      for (const Plan::Piece& piece : call_.plan->pieces(call_.rank(), unit.batch))
        if (const Run held = call_.plan->keys_of_call(piece, keys); held.size() > 0)
          first = std::min(first, held.begin);
    }
  }
  fetch_.post(step, first);
}

TensorView Keys::k(std::int64_t step, Run keys) const {
  return as_call(fetch_.rows(0, step, keys), call_.is_packed());
}
TensorView Keys::v(std::int64_t step, Run keys) const {
  return as_call(fetch_.rows(1, step, keys), call_.is_packed());
}

}  // namespace saccade::distributed
