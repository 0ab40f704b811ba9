// How a score program computes a tile and its derivatives.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "score_program.h"
#include "score_scratch.h"

namespace saccade::python {
namespace {

/// Numbers of scores that are computed at a time: those of some registers stay in the L1 cache.
constexpr std::int64_t kAtATime = 1024;

constexpr std::int64_t kNoOffset = 0;
const double kZero = 0;  // also as a float and as an integer
const ScoreNumbers kZeros{const_cast<double*>(&kZero), 0, 0};

template <class T>
void fill(void* to, std::int64_t count, double value) {
  std::fill_n(static_cast<T*>(to), count, static_cast<T>(value));
}
void fill(Lane lane, void* to, std::int64_t count, double value) {
  if (lane == Lane::f32) return fill<float>(to, count, value);
  lane == Lane::f64 ? fill<double>(to, count, value) : fill<std::int32_t>(to, count, value);
}

template <class T>
void count_down(void* to, std::int64_t count, double first, double step) {
  for (std::int64_t i = 0; i < count; ++i)
    static_cast<T*>(to)[i] = static_cast<T>(first - step * static_cast<double>(i));
}

std::int64_t size_of(Lane lane) { return lane == Lane::f64 ? 8 : 4; }

/// to = from[base + offsets], or from[base + i] where the offsets rise by 1.
template <class From, class To>
void gather(const void* from, std::int64_t base, const std::int64_t* offsets, bool is_run, std::int64_t count,
            void* to) {
  const From* const source = static_cast<const From*>(from) + base;
  To* const target = static_cast<To*>(to);
  if (is_run)
    for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[offsets[0] + i]);
  else
    for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[offsets[i]]);
}
using Gather = decltype(&gather<float, float>);

/// nullptr: a program has no such load.
Gather gather_for(DType from, Lane to) {
  if (from == DType::f32 && to == Lane::f32) return &gather<float, float>;
  if (from == DType::f64 && to == Lane::f64) return &gather<double, double>;
  if (from == DType::i32 && to == Lane::i32) return &gather<std::int32_t, std::int32_t>;
  if (from == DType::boolean && to == Lane::i32) return &gather<bool, std::int32_t>;
  if (from == DType::i64)
    return to == Lane::i32 ? &gather<std::int64_t, std::int32_t> : &gather<std::int64_t, double>;
  return nullptr;
}

}  // namespace

// ---- registers

void ScoreProgram::begin(Scratch& s, const ScoreTile& tile, bool with_derivatives) const {
  s.tile = &tile;
  s.first = 0;
  s.rows = std::clamp<std::int64_t>(kAtATime / std::max<std::int64_t>(tile.keys, 1), 1,
                                    std::max<std::int64_t>(tile.rows, 1));
  const std::size_t registers = instructions_.size() + kInputs;
  s.values.resize(registers);
  s.derivatives.resize(registers);
  std::size_t end = 0;
  const auto place = [&](std::size_t& at, std::int64_t bytes) {
    at = end;
    end += static_cast<std::size_t>((bytes + 63) / 64 * 64);
  };
  for (std::size_t i = 0; i < registers; ++i) {
    const int register_ = static_cast<int>(i);
    place(s.values[i], i == 0 ? 0 : s.count(extent_of(register_)) * size_of(lane_of(register_)));
    if (with_derivatives && lane_of(register_) != Lane::i32)
      place(s.derivatives[i], s.count(Extent::all) * size_of(lane_of(register_)));
  }
  if (s.memory.size() < end + 64) s.memory.resize(end + 64);
  s.begin = s.memory.data() + (64 - reinterpret_cast<std::uintptr_t>(s.memory.data()) % 64) % 64;
  *static_cast<std::int32_t*>(s.value(1)) = static_cast<std::int32_t>(tile.batch);
  *static_cast<std::int32_t*>(s.value(2)) = static_cast<std::int32_t>(tile.head);
  std::iota(static_cast<std::int32_t*>(s.value(3)), static_cast<std::int32_t*>(s.value(3)) + tile.rows,
            static_cast<std::int32_t>(tile.first_row));
  std::iota(static_cast<std::int32_t*>(s.value(4)), static_cast<std::int32_t*>(s.value(4)) + tile.keys,
            static_cast<std::int32_t>(tile.first_key));
}

/// A register's numbers for the rows that are computed now.
ScoreNumbers ScoreProgram::numbers(Scratch& s, int register_) const {
  if (register_ < 0) return kZeros;
  const std::int64_t size = size_of(lane_of(register_));
  const auto at = [&](void* data, std::int64_t begin) { return static_cast<std::byte*>(data) + begin * size; };
  if (register_ == 0) return {at(s.tile->scores, s.first * s.tile->stride), s.tile->stride, 1};
  void* const data = s.value(register_);
  switch (extent_of(register_)) {
    case Extent::none:
      return {data, 0, 0};
    case Extent::row:
      return {at(data, s.first), 1, 0};
    case Extent::key:
      return {data, 0, 1};
    case Extent::distance:
      return {at(data, s.tile->rows - 1 - s.first), -1, 1};
    default:
      return {data, s.tile->keys, 1};
  }
}

/// The same of a register with fewer numbers, all of them.
ScoreNumbers ScoreProgram::line(Scratch& s, int register_) const {
  if (register_ < 0) return kZeros;
  void* const data = s.value(register_);
  return {data, 0, extent_of(register_) == Extent::none ? 0 : 1};
}

// ---- values

/// Runs the instructions that have a number for each score, or the others.
void ScoreProgram::run(Scratch& s, bool all, bool with_mask) {
  for (std::size_t i = 0; i < instructions_.size(); ++i)
    if ((instructions_[i].extent == Extent::all) == all && (with_mask || !instructions_[i].of_mask)) compute(s, i);
}

void ScoreProgram::compute(Scratch& s, std::size_t i) {
  const Instruction& instruction = instructions_[i];
  const int register_ = static_cast<int>(i) + kInputs;
  const bool all = instruction.extent == Extent::all;
  const auto view = [&](int x) { return all ? numbers(s, x) : line(s, x); };
  const std::int64_t rows = all ? s.rows : 1, keys = all ? s.tile->keys : s.count(instruction.extent);
  const ScoreNumbers to = view(register_);
  if (instruction.operation == ScoreOperation::constant)
    return fill(instruction.lane, to.data, 1, instruction.value);
  if (instruction.operation == ScoreOperation::distance) {
    const std::int64_t first = s.tile->first_row - s.tile->first_key + s.tile->rows - 1;
    const double largest = instruction.factor * static_cast<double>(first) + instruction.value;
    return instruction.lane == Lane::i32 ? count_down<std::int32_t>(to.data, keys, largest, instruction.factor)
                                         : count_down<double>(to.data, keys, largest, instruction.factor);
  }
  if (instruction.operation == ScoreOperation::load) return load(s, instruction, to, rows, keys);
  ScoreCall call{instruction.operation, {}, instruction.lane, rows, keys, to, {}, {}};
  call.from = lane_of(instruction.operands[instruction.operation == ScoreOperation::select ? 1 : 0]);
  for (std::size_t k = 0; k < 3; ++k) call.operands[k] = view(instruction.operands[k]);
  loops_.compute(call);
}

/// Where the numbers of a load are in a tensor with `strides`: sums for the indices of each extent. Returns
/// whether all indices lie in the tensor.
bool ScoreProgram::find_offsets(Scratch& s, const Instruction& instruction,
                                std::span<const std::int64_t> strides) {
  const TensorView& tensor = tensors_[instruction.tensor].view();
  for (std::size_t e = 0; e < s.offsets.size(); ++e) {
    const auto extent = static_cast<Extent>(e);
    const auto count = static_cast<std::size_t>(s.count(extent));
    const auto is_its = [&](int index) { return extent_of(index) == extent; };
    s.offsets[e].assign(extent == Extent::none || std::ranges::any_of(instruction.indices, is_its) ? count : 0, 0);
  }
  for (std::size_t dim = 0; dim < instruction.indices.size(); ++dim) {
    const int register_ = instruction.indices[dim];
    std::vector<std::int64_t>& to = s.offsets[static_cast<std::size_t>(extent_of(register_))];
    const std::int64_t length = tensor.shape[dim], stride = strides[dim];
    const auto add = [&]<class T>(const T* numbers) {
      for (std::size_t j = 0; j < to.size(); ++j) {
        const auto index = static_cast<std::int64_t>(numbers[j]);
        if (index < -length || index >= length) return report(index, dim, length), false;
        to[j] += (index < 0 ? index + length : index) * stride;
      }
      return true;
    };
    const void* const data = line(s, register_).data;
    if (!(lane_of(register_) == Lane::f64 ? add(static_cast<const double*>(data))
                                          : add(static_cast<const std::int32_t*>(data))))
      return false;
  }
  return true;
}

/// The offsets of row i (counted from the first that is computed now) of a load with a number for each score, or
/// of all numbers of another, without the ones that are equal for all of them: `base`.
const std::int64_t* ScoreProgram::offsets_of(Scratch& s, Extent extent, std::int64_t i, std::int64_t& base) const {
  const auto& [none, row, key, distance, all] = s.offsets;
  base = none[0];
  if (extent == Extent::none) return &kNoOffset;
  if (extent != Extent::all) return s.offsets[static_cast<std::size_t>(extent)].data();
  if (!row.empty()) base += row[static_cast<std::size_t>(s.first + i)];
  const std::int64_t* const parts[] = {
      key.empty() ? nullptr : key.data(),
      distance.empty() ? nullptr : distance.data() + s.tile->rows - 1 - s.first - i,
      all.empty() ? nullptr : all.data() + i * s.tile->keys};
  const std::int64_t* only = nullptr;
  int count = 0;
  for (const std::int64_t* part : parts)
    if (part) only = part, ++count;
  if (count == 1) return only;
  s.sums_of_offsets.assign(static_cast<std::size_t>(s.tile->keys), 0);
  for (const std::int64_t* part : parts)
    if (part)
      for (std::size_t j = 0; j < s.sums_of_offsets.size(); ++j) s.sums_of_offsets[j] += part[j];
  return s.sums_of_offsets.data();
}

void ScoreProgram::report(std::int64_t index, std::size_t dim, std::int64_t length) {
  const std::scoped_lock lock(mutex_);
  error_ = "score_mod: index " + std::to_string(index) + " is beyond dimension " + std::to_string(dim) +
           " of a tensor of length " + std::to_string(length);
}

void ScoreProgram::load(Scratch& s, const Instruction& instruction, const ScoreNumbers& to, std::int64_t rows,
                        std::int64_t keys) {
  const TensorView& tensor = tensors_[instruction.tensor].view();
  const Gather read = gather_for(tensor.dtype, instruction.lane);
  if (!find_offsets(s, instruction, tensor.strides) || !read) {
    fill(instruction.lane, to.data, rows * keys, 0);
    return;
  }
  const bool may_run = s.offsets[static_cast<std::size_t>(Extent::distance)].empty() &&
                       s.offsets[static_cast<std::size_t>(Extent::all)].empty();
  bool is_run = false;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::int64_t base = 0;
    const std::int64_t* const offsets = offsets_of(s, instruction.extent, i, base);
    if (i == 0 && may_run) {
      is_run = true;
      for (std::int64_t j = 0; j < keys; ++j) is_run = is_run && offsets[j] == offsets[0] + j;
    }
    void* const line = static_cast<std::byte*>(to.data) + i * to.row_step * size_of(instruction.lane);
    read(tensor.data, base, offsets, is_run, keys, line);
  }
}

// ---- results

/// One thread computes all keys of a row.
template <class T>
void ScoreProgram::raise_maximum(const ScoreTile& tile, std::int64_t row) {
  const MutableTensorView maxima = maxima_.mutable_view();
  const std::int64_t offset =
      tile.batch * maxima.strides[0] + tile.head * maxima.strides[1] + (tile.first_row + row) * maxima.strides[2];
  T& to = static_cast<T*>(maxima.mutable_data())[offset];
  const T* const scores = tile.row<T>(row);
  for (std::int64_t j = 0; j < tile.keys; ++j)
    if (scores[j] > to || std::isnan(scores[j])) to = scores[j];
}

/// Writes the scores of the rows that are computed now, and hides keys.
void ScoreProgram::write_rows(Scratch& s, const ScoreTile& tile, bool with_mask) {
  static constexpr std::int32_t kHides = 0;
  const ScoreNumbers score = numbers(s, score_), mask = numbers(s, mask_);
  const std::int64_t size = size_of(score_lane_);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const std::int64_t row = s.first + i;
    auto* const to = static_cast<std::byte*>(tile.scores) + row * tile.stride * size;
    const std::byte* const from =
        score_ == 0 ? nullptr : static_cast<std::byte*>(score.data) + i * score.row_step * size;
    for (std::int64_t j = 0, end; j < tile.keys; j = end) {
      const std::int64_t key = tile.first_key + j;
      end = with_mask && blocks_.view().data ? std::min(tile.keys, j + block_k_ - key % block_k_) : tile.keys;
      const BlockEffect effect = with_mask ? effect_at(tile, tile.first_row + row, key) : BlockEffect::full;
      const bool asks = effect == BlockEffect::partial && mask_ >= 0;
      const std::int32_t* const visible = asks ? mask.row<std::int32_t>(i) + j * mask.key_step
                                          : effect == BlockEffect::skip ? &kHides
                                                                        : nullptr;
      loops_.write(score_lane_, to + j * size, from ? from + j * score.key_step * size : nullptr, score.key_step,
                   visible, asks ? mask.key_step : 0, end - j);
    }
    if (maxima_.view().data)
      score_lane_ == Lane::f64 ? raise_maximum<double>(tile, row) : raise_maximum<float>(tile, row);
  }
}

void ScoreProgram::modify(void* context, const ScoreTile& tile) {
  auto& self = *static_cast<ScoreProgram*>(context);
  thread_local Scratch s;
  const bool with_mask = self.effect_on(tile) != BlockEffect::full;
  self.begin(s, tile, false);
  self.run(s, false, with_mask);
  for (const std::int64_t step = s.rows; s.first < tile.rows; s.first += step) {
    s.rows = std::min(step, tile.rows - s.first);
    self.run(s, true, with_mask);
    self.write_rows(s, tile, with_mask);
  }
}

// ---- derivatives

/// The derivatives of all registers with respect to one, for the rows that are computed now.
void ScoreProgram::derive(Scratch& s, const Depends& depends, int from) const {
  fill(lane_of(from), s.derivative(from), s.count(Extent::all), 1);
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& instruction = instructions_[i];
    const int to = static_cast<int>(i) + kInputs;
    if (to == from || !depends[static_cast<std::size_t>(to)] || instruction.of_mask) continue;
    const std::int64_t keys = s.tile->keys;
    ScoreCall call{instruction.operation, {}, instruction.lane, s.rows, keys, {s.derivative(to), keys, 1}, {}, {}};
    call.from = lane_of(instruction.operands[instruction.operation == ScoreOperation::select ? 1 : 0]);
    for (std::size_t k = 0; k < 3; ++k) {
      const int operand = instruction.operands[k];
      call.operands[k] = numbers(s, operand);
      const bool is_zero = operand < 0 || !depends[static_cast<std::size_t>(operand)];
      call.derivatives[k] = is_zero ? kZeros : ScoreNumbers{s.derivative(operand), keys, 1};
    }
    loops_.derive(call);
  }
}

void ScoreProgram::differentiate_tile(const ScoreTile& scores, const ScoreTile& gradients) {
  thread_local Scratch s;
  begin(s, scores, true);
  run(s, false, false);
  s.sums.resize(learnt_.size());
  for (std::size_t n = 0; n < learnt_.size(); ++n)
    s.sums[n].assign(static_cast<std::size_t>(s.count(extent_of(learnt_[n].first))), 0.0);
  const std::int64_t size = size_of(score_lane_);
  const bool depends = of_score_[static_cast<std::size_t>(score_)] != 0;
  for (const std::int64_t step = s.rows; s.first < scores.rows; s.first += step) {
    s.rows = std::min(step, scores.rows - s.first);
    run(s, true, false);
    for (std::size_t n = 0; n < learnt_.size(); ++n) {
      derive(s, learnt_[n].second, learnt_[n].first);
      add_products(s, gradients, n);
      if (extent_of(learnt_[n].first) == Extent::all) add_to_gradient(s, n);
    }
    if (depends) derive(s, of_score_, 0);
    for (std::int64_t i = 0; i < s.rows; ++i) {
      void* const row = static_cast<std::byte*>(gradients.scores) + (s.first + i) * gradients.stride * size;
      if (depends)
        loops_.scale(score_lane_, row, static_cast<std::byte*>(s.derivative(score_)) + i * scores.keys * size,
                     scores.keys);
      else
        fill(score_lane_, row, scores.keys, 0);
    }
  }
  for (std::size_t n = 0; n < learnt_.size(); ++n)
    if (extent_of(learnt_[n].first) != Extent::all) add_to_gradient(s, n);
}

/// Adds what the rows that are computed now contribute to the gradients of a load's numbers.
void ScoreProgram::add_products(Scratch& s, const ScoreTile& gradients, std::size_t n) const {
  thread_local std::vector<double> of_row;
  const Extent extent = extent_of(learnt_[n].first);
  const std::int64_t keys = s.tile->keys, size = size_of(score_lane_);
  double* const sums = s.sums[n].data();
  if (extent == Extent::all) std::ranges::fill(s.sums[n], 0.0);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const void* const gradient =
        static_cast<std::byte*>(gradients.scores) + (s.first + i) * gradients.stride * size;
    const void* const factors = static_cast<std::byte*>(s.derivative(score_)) + i * keys * size;
    of_row.assign(static_cast<std::size_t>(keys), 0.0);
    double* const to = extent == Extent::key        ? sums
                       : extent == Extent::distance ? sums + s.tile->rows - 1 - s.first - i
                       : extent == Extent::all      ? sums + i * keys
                                                    : of_row.data();
    loops_.add_products(score_lane_, to, gradient, factors, keys);
    if (to == of_row.data())
      sums[extent == Extent::row ? s.first + i : 0] += std::accumulate(of_row.begin(), of_row.end(), 0.0);
  }
}

void ScoreProgram::add_to_gradient(Scratch& s, std::size_t n) {
  const int register_ = learnt_[n].first;
  const Instruction& load = instructions_[static_cast<std::size_t>(register_ - kInputs)];
  const MutableTensorView to = gradients_[load.tensor].mutable_view();
  if (!find_offsets(s, load, to.strides)) return;
  const bool all = load.extent == Extent::all;
  const std::int64_t rows = all ? s.rows : 1, count = all ? s.tile->keys : s.count(load.extent);
  const std::scoped_lock lock(mutex_);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::int64_t base = 0;
    const std::int64_t* const offsets = offsets_of(s, load.extent, i, base);
    for (std::int64_t j = 0; j < count; ++j)
      static_cast<double*>(to.mutable_data())[base + offsets[j]] +=
          s.sums[n][static_cast<std::size_t>(i * count + j)];
  }
}

void ScoreProgram::differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients) {
  static_cast<ScoreProgram*>(context)->differentiate_tile(scores, gradients);
}

}  // namespace saccade::python
