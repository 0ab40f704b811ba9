#include "distributed/flow/keys.h"

#include "distributed/plan/runs.h"

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
  Run room;
  if (unit.exists) {
    std::vector<Run> runs = call_.plan->keys(call_.rank(), step);
    if (runs.empty()) runs.push_back({});
    for (const Run& keys : runs) {
      for (const Plan::Piece& piece : call_.plan->pieces(call_.rank(), unit.batch))
        room = hull_of(room, call_.plan->keys_of_call(piece, keys));
    }
  }
  fetch_.post(step, room);
}

TensorView Keys::k(std::int64_t step, Run keys) const {
  return as_call(fetch_.rows(0, step, keys), call_.is_packed());
}
TensorView Keys::v(std::int64_t step, Run keys) const {
  return as_call(fetch_.rows(1, step, keys), call_.is_packed());
}

}  // namespace saccade::distributed
