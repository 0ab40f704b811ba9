#include "distributed/flow/keys.h"

#include "distributed/plan/runs.h"

namespace saccade::distributed {
namespace {

std::vector<TensorView> tensors_of(const LocalTensors& local) {
  std::vector<TensorView> all = local.key_rows.tensors;
  all.insert(all.end(), local.value_rows.tensors.begin(), local.value_rows.tensors.end());
  return all;
}

}  // namespace

Needs needed_keys(const Call& call) {
  const Plan* const plan = call.plan.get();
  return {
      .plan = plan, .sharding = &plan->division().keys, .heads = 1, .rows = [plan](int rank, std::int64_t step) {
        return plan->keys(rank, step);
      }};
}

Keys::Keys(Call& call) : call_(call), fetch_(call.messages, needed_keys(call), tensors_of(call.local)) {}

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
  return call_.local.key_rows.numbers_of(as_call(fetch_.rows(0, step, keys), call_.is_packed()));
}
TensorView Keys::v(std::int64_t step, Run keys) const {
  const std::size_t at = call_.local.key_rows.tensors.size();
  return call_.local.value_rows.numbers_of(as_call(fetch_.rows(at, step, keys), call_.is_packed()));
}

// Scales have the axes [heads, rows, columns] in a packed batch too.
std::vector<TensorView> Keys::rows(std::int64_t step, Run keys, std::size_t begin, std::size_t end) const {
  std::vector<TensorView> result;
  for (std::size_t i = begin; i < end; ++i) {
    const TensorView rows = fetch_.rows(i, step, keys);
    result.push_back(call_.is_packed() ? rows : with_rank(rows, 4));
  }
  return result;
}

TensorView Keys::channels_of(const KeyRows& of, std::int64_t step) const {
  if (!of.channels) return {};
  const Plan::Unit unit = call_.unit(step);
  const TensorView channels = of.channels.select(0, unit.batch).slice(0, unit.kv_head, unit.kv_head + 1);
  return call_.is_packed() ? channels : with_rank(channels, 4);
}

void Keys::describe(std::int64_t step, Run keys, AttentionOptions& options) const {
  const KeyRows &k = call_.local.key_rows, &v = call_.local.value_rows;
  const std::size_t of_k = k.tensors.size(), all = of_k + v.tensors.size();
  k.describe(rows(step, keys, 0, of_k), channels_of(k, step), options.k_scale, options.k_multipliers);
  v.describe(rows(step, keys, of_k, all), channels_of(v, step), options.v_scale, options.v_multipliers);
}

}  // namespace saccade::distributed
