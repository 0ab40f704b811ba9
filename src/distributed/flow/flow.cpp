#include "distributed/flow/flow.h"

#include <algorithm>
#include <cstring>

#include "distributed/plan/runs.h"

namespace saccade::distributed {
namespace {

std::string text_of(const Plan::Unit& unit, std::string_view what) {
  return std::string(what) + " of kv head " + std::to_string(unit.kv_head) + ", batch entry " +
         std::to_string(unit.batch);
}

/// to += from, or to = from for the rows that have no summand yet.
template <class T>
void add_rows(const TensorView& from, const MutableTensorView& to, std::vector<bool>& has_summand,
              std::int64_t first) {
  for (std::int64_t head = 0; head < from.shape[0]; ++head) {
    for (std::int64_t i = 0; i < from.shape[1]; ++i) {
      const T* const x = from.select(0, head).select(0, i).as<T>();
      T* const sum = static_cast<T*>(to.select(0, head).select(0, first + i).mutable_data());
      if (has_summand[static_cast<std::size_t>(first + i)])
        for (std::int64_t d = 0; d < from.shape[2]; ++d) sum[d] += x[d];
      else
        std::copy_n(x, from.shape[2], sum);
    }
  }
  std::fill_n(has_summand.begin() + first, from.shape[1], true);
}

}  // namespace

void ReceiveBuffer::resize(DType dtype, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  const std::size_t bytes = static_cast<std::size_t>(heads * rows * dim) * size_of(dtype);
  if (!memory || bytes > bytes_) memory = make_buffer(bytes_ = bytes);
  numbers = MutableTensorView(memory.get(), dtype, std::array{heads, rows, dim});
}

std::vector<Run> Needs::rows_from(int holder, int rank, std::int64_t step) const {
  return overlap_of(rows(rank, step), sharding->runs(holder));
}

// ---- Gather
// -----------------------------------------------------------------------------------------------------

Gather::Gather(Messages& messages, Needs needs, std::vector<TensorView> tensors)
    : messages_(messages), needs_(std::move(needs)), tensors_(std::move(tensors)) {
  for (Slot& one : slots_) one.rooms.resize(tensors_.size());
}

void Gather::post(std::int64_t step, Run room) {
  Slot& one = slot(step);
  const int rank = messages_.rank(), size = messages_.size();
  messages_.wait(one.sends, text_of(needs_.plan->unit(rank, step), "receivers of rows"));
  const std::vector<Run> rows = needs_.rows(rank, step);
  if (!rows.empty()) room = hull_of(room, {rows.front().begin, rows.back().end});
  one.first = room.begin;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    one.rooms[i].resize(tensors_[i].dtype, needs_.heads, room.size(), tensors_[i].shape[3]);
  if (needs_.clears_gaps) clear_gaps(step, room, rows);
  for (int i = 1; i < size; ++i) {
    receive(step, (rank + size - i) % size);
    send(step, (rank + i) % size);
  }
  const Plan::Unit unit = needs_.plan->unit(rank, step);
  for (const Run& run : needs_.rows_from(rank, rank, step)) {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      copy(needs_.part_of(tensors_[i], rank, unit, run), place(i, step, run));
  }
}

void Gather::clear_gaps(std::int64_t step, Run room, const std::vector<Run>& rows) {
  std::int64_t end = room.begin;
  for (std::size_t run = 0; run <= rows.size(); ++run) {
    const Run gap{end, run < rows.size() ? rows[run].begin : room.end};
    for (std::size_t i = 0; i < tensors_.size() && gap.size() > 0; ++i) {
      for (std::int64_t head = 0; head < needs_.heads; ++head) {
        const MutableTensorView part = place(i, step, gap).select(0, head);
        std::memset(part.mutable_data(), 0, static_cast<std::size_t>(part.size()) * size_of(part.dtype));
      }
    }
    if (run < rows.size()) end = rows[run].end;
  }
}

MutableTensorView Gather::place(std::size_t i, std::int64_t step, Run rows) {
  const Slot& one = slot(step);
  return one.rooms[i].numbers.slice(1, rows.begin - one.first, rows.end - one.first);
}

void Gather::receive(std::int64_t step, int from) {
  Slot& one = slot(step);
  for (const Run& run : needs_.rows_from(from, messages_.rank(), step)) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      for (std::int64_t head = 0; head < needs_.heads; ++head)
        messages_.receive(one.receives, from, place(i, step, run).select(0, head), one.rooms[i].memory);
    }
  }
}

void Gather::send(std::int64_t step, int to) {
  const Plan::Unit unit = needs_.plan->unit(to, step);
  for (const Run& run : needs_.rows_from(messages_.rank(), to, step)) {
    for (const TensorView& tensor : tensors_) {
      const TensorView part = needs_.part_of(tensor, messages_.rank(), unit, run);
      for (std::int64_t head = 0; head < needs_.heads; ++head)
        messages_.send(slot(step).sends, to, part.select(0, head));
    }
  }
}

void Gather::wait(std::int64_t step) {
  messages_.wait(slot(step).receives, text_of(needs_.plan->unit(messages_.rank(), step), "rows"));
}

void Gather::finish() {
  for (Slot& one : slots_) messages_.wait(one.sends, "receivers of the last rows");
}

TensorView Gather::rows(std::size_t i, std::int64_t step, Run rows) const {
  const Slot& one = slot(step);
  if (rows.size() == 0) return one.rooms[i].numbers.slice(1, 0, 0);
  return one.rooms[i].numbers.slice(1, rows.begin - one.first, rows.end - one.first);
}

// ---- Reduce ----------------------------------------------------------------------------------------------------

Reduce::Reduce(Messages& messages, Needs needs, std::vector<MutableTensorView> tensors, std::vector<DType> dtypes)
    : messages_(messages), needs_(std::move(needs)), tensors_(std::move(tensors)), dtypes_(std::move(dtypes)) {}

Reduce::Part Reduce::make_part(int rank, std::size_t tensor, Run rows) const {
  const std::array shape{needs_.heads, rows.size(), tensors_[tensor].shape[3]};
  const DType dtype = dtypes_[tensor];
  const Buffer memory = make_buffer(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]) * size_of(dtype));
  return {rank, tensor, rows, memory, MutableTensorView(memory.get(), dtype, shape)};
}

void Reduce::post(std::int64_t step, const std::vector<TensorView>& results, std::int64_t first) {
  Slot& one = slot(step);
  const int rank = messages_.rank(), size = messages_.size();
  messages_.wait(one.sends, text_of(needs_.plan->unit(rank, step), "receivers of results"));
  const auto result = [&](std::size_t i, Run run) {
    return results[i].slice(1, run.begin - first, run.end - first);
  };
  for (int i = 1; i < size; ++i) {
    const int from = (rank + size - i) % size, to = (rank + i) % size;
    for (const Run& run : needs_.rows_from(rank, from, step)) {
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        one.parts.push_back(make_part(from, t, run));
        messages_.receive(one.receives, from, one.parts.back().numbers, one.parts.back().memory);
      }
    }
    for (const Run& run : needs_.rows_from(to, rank, step)) {
      for (std::size_t t = 0; t < tensors_.size(); ++t) messages_.send(one.sends, to, result(t, run));
    }
  }
  for (const Run& run : needs_.rows_from(rank, rank, step)) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      one.parts.push_back(make_part(rank, t, run));
      copy(result(t, run), one.parts.back().numbers);
    }
  }
}

void Reduce::wait(std::int64_t step) {
  Slot& one = slot(step);
  messages_.wait(one.receives, text_of(needs_.plan->unit(messages_.rank(), step), "results"));
  std::ranges::stable_sort(one.parts, {}, &Part::rank);
  std::vector<std::pair<std::int64_t, std::int64_t>> done;
  for (int rank = 0; rank < messages_.size(); ++rank) {
    const Plan::Unit unit = needs_.plan->unit(rank, step);
    if (!unit.exists || std::ranges::count(done, std::pair(unit.batch, unit.kv_head)) > 0) continue;
    done.emplace_back(unit.batch, unit.kv_head);
    for (std::size_t t = 0; t < tensors_.size(); ++t) add(one, t, unit, step);
  }
  one.parts.clear();
}

void Reduce::finish() {
  for (Slot& one : slots_) messages_.wait(one.sends, "receivers of the last results");
}

void Reduce::add(const Slot& one, std::size_t tensor, const Plan::Unit& unit, std::int64_t step) {
  const MutableTensorView& to = tensors_[tensor];
  Tensor sum(dtypes_[tensor], {needs_.heads, to.shape[2], to.shape[3]});
  std::vector<bool> has_summand(static_cast<std::size_t>(to.shape[2]));
  for (const Part& part : one.parts) {
    const Plan::Unit of_part = needs_.plan->unit(part.rank, step);
    if (part.tensor != tensor || of_part.kv_head != unit.kv_head || of_part.batch != unit.batch) continue;
    const std::int64_t first = needs_.sharding->local_row(messages_.rank(), part.rows.begin);
    if (part.numbers.dtype == DType::f32)
      add_rows<float>(part.numbers, sum.mutable_view(), has_summand, first);
    else if (part.numbers.dtype == DType::f64)
      add_rows<double>(part.numbers, sum.mutable_view(), has_summand, first);
    else  // rows in 16-bit types have a single summand
      copy(part.numbers, sum.mutable_view().slice(1, first, first + part.rows.size()));
  }
  const Run heads = needs_.heads_of(unit);
  copy(sum, to.select(0, unit.batch).slice(0, heads.begin, heads.end));
}

}  // namespace saccade::distributed
