#include "distributed/flow/rows.h"

#include <algorithm>

namespace saccade::distributed {
namespace {

Needs needed_rows(const Call& call) {
  const Plan* const plan = call.plan.get();
  return {.plan = plan,
          .sharding = &plan->division().rows,
          .heads = call.group(),
          .rows = [plan](int rank, std::int64_t step) { return plan->rows(rank, step); }};
}

std::vector<DType> dtypes_of(const std::vector<MutableTensorView>& tensors) {
  std::vector<DType> dtypes;
  for (const MutableTensorView& tensor : tensors) dtypes.push_back(tensor.dtype);
  return dtypes;
}

template <class View>
View own_rows(const Call& call, const View& tensor, std::int64_t step, Run rows) {
  const Plan::Unit unit = call.unit(step);
  const Run heads = call.query_heads(unit);
  const std::int64_t row = call.plan->division().rows.local_row(call.rank(), rows.begin);
  return tensor.select(0, unit.batch).slice(0, heads.begin, heads.end).slice(1, row, row + rows.size());
}

}  // namespace

Rows::Rows(Call& call, std::vector<TensorView> tensors)
    : call_(call), tensors_(std::move(tensors)), fetch_(call.messages, needed_rows(call), tensors_) {}

void Rows::post(std::int64_t step) {
  if (call_.plan->shares_rows()) fetch_.post(step);
}

void Rows::wait(std::int64_t step) {
  if (call_.plan->shares_rows()) fetch_.wait(step);
}

TensorView Rows::rows(std::size_t i, std::int64_t step, Run rows) const {
  return call_.plan->shares_rows() ? fetch_.rows(i, step, rows) : own_rows(call_, tensors_[i], step, rows);
}

Results::Results(Call& call, std::vector<MutableTensorView> tensors)
    : call_(call),
      tensors_(std::move(tensors)),
      give_(call.messages, needed_rows(call), tensors_, dtypes_of(tensors_)),
      rooms_(tensors_.size()) {}

void Results::begin(std::int64_t step) {
  if (!call_.plan->shares_rows()) return;
  const std::vector<Run> rows = call_.plan->rows(call_.rank(), step);
  first_ = rows.empty() ? 0 : rows.front().begin;
  for (std::size_t i = 0; i < rooms_.size(); ++i)
    rooms_[i].resize(tensors_[i].dtype, call_.group(), rows.empty() ? 0 : rows.back().end - first_,
                     tensors_[i].shape[3]);
}

MutableTensorView Results::rows(std::size_t i, std::int64_t step, Run rows) const {
  if (!call_.plan->shares_rows()) return own_rows(call_, tensors_[i], step, rows);
  return rooms_[i].numbers.slice(1, rows.begin - first_, rows.end - first_);
}

void Results::post(std::int64_t step) {
  if (!call_.plan->shares_rows()) return;
  std::vector<TensorView> results;
  for (const ReceiveBuffer& room : rooms_) results.push_back(room.numbers);
  give_.post(step, results, first_);
}

void Results::wait(std::int64_t step) {
  if (call_.plan->shares_rows()) give_.wait(step);
}

}  // namespace saccade::distributed
