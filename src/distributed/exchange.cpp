#include "distributed/exchange.h"

#include <algorithm>

#include "distributed/runs.h"

namespace saccade::distributed {
namespace {

std::vector<Run> runs_of_group(const Plan& plan, int rank) {
  if (plan.group_size() == 1) return plan.division().rows.runs(rank);
  std::vector<Run> runs;
  for (int i = 0; i < plan.group_size(); ++i) {
    const std::vector<Run>& of_rank = plan.division().rows.runs(plan.first_of_group(rank) + i);
    runs.insert(runs.end(), of_rank.begin(), of_rank.end());
  }
  return merged(runs);
}

}  // namespace

void Room::resize(DType dtype, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  const std::size_t bytes = static_cast<std::size_t>(heads * rows * dim) * size_of(dtype);
  if (!memory || bytes > bytes_) memory = make_buffer(bytes_ = bytes);
  numbers = MutableTensorView(memory.get(), dtype, std::array{heads, rows, dim});
}

std::int64_t RowIndex::rows() const { return size_of(runs_); }

std::int64_t RowIndex::operator[](std::int64_t row) const {
  std::int64_t before = 0;
  for (const Run& run : runs_) {
    if (row < run.end) return before + row - run.begin;
    before += run.size();
  }
  return before;
}

Exchange::Exchange(Messages& messages, const Plan& plan, std::vector<TensorView> keys,
                   std::vector<TensorView> rows)
    : messages_(messages),
      plan_(plan),
      keys_(std::move(keys)),
      rows_(std::move(rows)),
      rank_(messages.rank()),
      group_(rows_[0].shape[1] / std::max<std::int64_t>(keys_[0].shape[1], 1)),
      row_index_(runs_of_group(plan, messages.rank())) {
  for (Slot& one : slots_) {
    one.keys.resize(keys_.size());
    one.rows.resize(rows_.size());
  }
}

void Exchange::post(std::int64_t step) {
  messages_.wait(slot(step).sends, text_of(step));
  make_room(step);
  for (int i = 1; i < messages_.size(); ++i) {
    receive(step, (rank_ + messages_.size() - i) % messages_.size());
    send(step, (rank_ + i) % messages_.size());
  }
  take_own(step);
}

void Exchange::wait(std::int64_t step) { messages_.wait(slot(step).receives, text_of(step)); }

void Exchange::finish() {
  for (Slot& one : slots_) messages_.wait(one.sends, "receivers of the last keys");
  messages_.wait(returns_, "the last results");
  for (const Result& result : results_) copy(result.from, result.to);
  results_.clear();
}

std::string Exchange::text_of(std::int64_t step) const {
  const Plan::Unit unit = plan_.unit(rank_, step);
  return "keys of kv head " + std::to_string(unit.kv_head) + " of batch entry " + std::to_string(unit.batch);
}

void Exchange::make_room(std::int64_t step) {
  const Plan::Unit unit = plan_.unit(rank_, step);
  if (!unit.exists) return;
  const std::vector<Run> keys = plan_.keys(rank_, step);
  Run all = keys.empty() ? Run{} : Run{keys.front().begin, keys.back().end};
  // The kernels' calls begin a little before the keys.
  for (const Plan::Piece& piece : plan_.pieces(rank_, unit.batch))
    if (const Run call = plan_.keys_of_call(piece, all); call.size() > 0)
      all.begin = std::min(all.begin, call.begin);
  Slot& one = slot(step);
  one.first_key = all.begin;
  for (std::size_t i = 0; i < keys_.size(); ++i)
    one.keys[i].resize(keys_[i].dtype, 1, all.size(), keys_[i].shape[3]);
  for (std::size_t i = 0; i < rows_.size() && shares_rows() && unit.part == 0; ++i)
    one.rows[i].resize(rows_[i].dtype, group_, row_index_.rows(), rows_[i].shape[3]);
}

std::vector<Run> Exchange::keys_from(int holder, int rank, std::int64_t step) const {
  return overlap_of(plan_.keys(rank, step), plan_.division().keys.runs(holder));
}

TensorView Exchange::own_keys(const TensorView& tensor, const Plan::Unit& unit, Run keys) const {
  const std::int64_t row = plan_.division().keys.local_row(rank_, keys.begin);
  return rows_of(tensor, unit.batch, unit.kv_head).slice(0, row, row + keys.size());
}

MutableTensorView Exchange::place_of_keys(std::int64_t step, std::size_t i, Run keys) {
  Slot& one = slot(step);
  return one.keys[i].numbers.select(0, 0).slice(0, keys.begin - one.first_key, keys.end - one.first_key);
}

void Exchange::receive(std::int64_t step, int from) {
  const Plan::Unit unit = plan_.unit(rank_, step);
  if (!unit.exists) return;
  Slot& one = slot(step);
  for (const Run& keys : keys_from(from, rank_, step)) {
    for (std::size_t i = 0; i < keys_.size(); ++i)
      messages_.receive(one.receives, from, place_of_keys(step, i, keys), one.keys[i].memory);
  }
  if (!shares_rows() || !is_in_group(from)) return;
  for (const Run& run : plan_.division().rows.runs(from)) {
    const std::int64_t row = row_index_[run.begin];
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::int64_t head = 0; head < group_; ++head)
        messages_.receive(one.receives, from, one.rows[i].numbers.select(0, head).slice(0, row, row + run.size()),
                          one.rows[i].memory);
    }
  }
}

void Exchange::send(std::int64_t step, int to) {
  const Plan::Unit unit = plan_.unit(to, step);
  if (!unit.exists) return;
  Batch& sends = slot(step).sends;
  for (const Run& keys : keys_from(rank_, to, step)) {
    for (const TensorView& tensor : keys_) messages_.send(sends, to, own_keys(tensor, unit, keys));
  }
  if (!shares_rows() || !is_in_group(to)) return;
  const Run heads = query_heads(unit);
  std::int64_t row = 0;
  for (const Run& run : plan_.division().rows.runs(rank_)) {
    for (const TensorView& tensor : rows_) {
      for (std::int64_t head = heads.begin; head < heads.end; ++head)
        messages_.send(sends, to, rows_of(tensor, unit.batch, head).slice(0, row, row + run.size()));
    }
    row += run.size();
  }
}

void Exchange::take_own(std::int64_t step) {
  const Plan::Unit unit = plan_.unit(rank_, step);
  if (!unit.exists) return;
  for (const Run& keys : keys_from(rank_, rank_, step)) {
    for (std::size_t i = 0; i < keys_.size(); ++i)
      copy(own_keys(keys_[i], unit, keys), place_of_keys(step, i, keys));
  }
  if (!shares_rows()) return;
  const Run heads = query_heads(unit);
  std::int64_t row = 0;
  for (const Run& run : plan_.division().rows.runs(rank_)) {
    const std::int64_t place = row_index_[run.begin];
    for (std::size_t i = 0; i < rows_.size(); ++i)
      copy(rows_[i].select(0, unit.batch).slice(0, heads.begin, heads.end).slice(1, row, row + run.size()),
           slot(step).rows[i].numbers.slice(1, place, place + run.size()));
    row += run.size();
  }
}

TensorView Exchange::rows(std::size_t i, std::int64_t step) const {
  if (shares_rows()) return slot(step).rows[i].numbers;
  const Plan::Unit unit = plan_.unit(rank_, step);
  const Run heads = query_heads(unit);
  return rows_[i].select(0, unit.batch).slice(0, heads.begin, heads.end);
}

void Exchange::return_rows(std::int64_t step, const TensorView& from, const MutableTensorView& to) {
  const int first = plan_.first_of_group(rank_);
  for (int i = 1; i < plan_.group_size(); ++i) {
    const int other = first + (rank_ - first + i) % plan_.group_size();
    if (!plan_.unit(rank_, step).exists) break;
    for (const Run& run : plan_.division().rows.runs(other)) {
      const std::int64_t row = row_index_[run.begin];
      for (std::int64_t head = 0; head < from.shape[0]; ++head)
        messages_.send(returns_, other, from.select(0, head).slice(0, row, row + run.size()));
    }
  }
  for (int i = 1; i < plan_.group_size(); ++i) {
    const int other = first + (rank_ - first + plan_.group_size() - i) % plan_.group_size();
    const Plan::Unit unit = plan_.unit(other, step);
    if (!unit.exists) continue;
    const Run heads = query_heads(unit);
    std::int64_t row = 0;
    for (const Run& run : plan_.division().rows.runs(rank_)) {
      for (std::int64_t head = heads.begin; head < heads.end; ++head) {
        const MutableTensorView place = to.select(0, unit.batch).select(0, head).slice(0, row, row + run.size());
        const Buffer memory = make_buffer(static_cast<std::size_t>(place.size()) * size_of(place.dtype));
        results_.push_back({memory, MutableTensorView(memory.get(), place.dtype, place.dims()), place});
        messages_.receive(returns_, other, results_.back().from, memory);
      }
      row += run.size();
    }
  }
  const Plan::Unit unit = plan_.unit(rank_, step);
  if (!unit.exists) return;
  const Run heads = query_heads(unit);
  std::int64_t row = 0;
  for (const Run& run : plan_.division().rows.runs(rank_)) {
    const std::int64_t place = row_index_[run.begin];
    copy(from.slice(1, place, place + run.size()),
         to.select(0, unit.batch).slice(0, heads.begin, heads.end).slice(1, row, row + run.size()));
    row += run.size();
  }
}

std::vector<Batch*> Exchange::open() {
  return {&slots_[0].receives, &slots_[0].sends, &slots_[1].receives, &slots_[1].sends, &returns_};
}

}  // namespace saccade::distributed
