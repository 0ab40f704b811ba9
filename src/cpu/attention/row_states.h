// Query rows between two blocks of keys: what AttentionState keeps of them (HeadState), for the multiply-add
// kernels. For each row O, then l with its kSumLanes sums, then m.
#pragma once

#include "cpu/attention/softmax.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

class RowStates {
 public:
  /// No states.
  RowStates() = default;
  RowStates(const AttentionParams& p, const HeadState& head)
      : o_size_(round_up(p.head_dim_v, kTileColumns)),
        rows_(reinterpret_cast<Scalar*>(head.memory)),
        marks_(head.marks) {}

  static std::size_t bytes(const AttentionParams& p, std::int64_t rows) {
    return static_cast<std::size_t>(rows * row_size(round_up(p.head_dim_v, kTileColumns))) * sizeof(Scalar);
  }

  explicit operator bool() const { return rows_ != nullptr; }

  /// Whether the row has been stored, and so has an O.
  bool has(std::int64_t row) const { return (marks_[row] & HeadState::kRow) != 0; }

  /// Copies `row` to row i of a tile, where O has runs of kTileColumns columns.
  void load(std::int64_t row, int i, RowState& state, Scalar* tile) const {
    const Scalar* const from = rows_ + row * row_size(o_size_);
    for (std::int64_t d = 0; d < o_size_; d += kTileColumns)
      std::copy_n(from + d, kTileColumns, tile + d * kTileRows + i * kTileColumns);
    state.continue_sum(i, from + o_size_);
    state.m[i] = from[o_size_ + kSumLanes];
  }

  void store(std::int64_t row, int i, const RowState& state, const Scalar* tile) const {
    Scalar* const to = rows_ + row * row_size(o_size_);
    for (std::int64_t d = 0; d < o_size_; d += kTileColumns)
      std::copy_n(tile + d * kTileRows + i * kTileColumns, kTileColumns, to + d);
    state.keep_sum(i, to + o_size_);
    to[o_size_ + kSumLanes] = state.m[i];
    marks_[row] |= HeadState::kRow;
  }

  /// Stores a row that other kernels have computed so far. `natural`: of ScoreUnit.
  void put(std::int64_t row, const PartialRow& part, std::int64_t columns, Scalar natural) const {
    Scalar* const to = rows_ + row * row_size(o_size_);
    const Scalar m = static_cast<Scalar>(part.m / static_cast<double>(natural));
    const double shift =
        std::exp(part.m - static_cast<double>(m) * static_cast<double>(natural));  // for the rounding of m
    std::fill_n(to, row_size(o_size_), Scalar{0});
    for (std::int64_t d = 0; d < columns; ++d)
      to[d] = static_cast<Scalar>(static_cast<double>(part.o[d / part.run * part.run_stride + d % part.run]) *
                                  part.o_factor * shift);
    to[o_size_] = static_cast<Scalar>(part.l * shift);
    to[o_size_ + kSumLanes] = m;
    marks_[row] |= HeadState::kRow;
  }

  /// Whether all of row i's O in a tile is finite.
  bool is_finite(int i, const Scalar* tile) const {
    Vec sum = zero();  // stays 0 unless something is NaN or infinite
    for (std::int64_t d = 0; d < o_size_; d += kTileColumns)
      for (int c = 0; c < kTileColumns; c += kWidth)
        sum = fma(load_at(tile + d * kTileRows + i * kTileColumns + c), zero(), sum);
    return !any(is_nan(sum));
  }

 private:
  static Vec load_at(const Scalar* x) { return SACCADE_ISA_NAMESPACE::load(x); }
  static std::int64_t row_size(std::int64_t o_size) { return o_size + 2 * kSumLanes; }

  std::int64_t o_size_ = 0;
  Scalar* rows_ = nullptr;
  std::uint8_t* marks_ = nullptr;
};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
