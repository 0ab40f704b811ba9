// What one thread computes a score program with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "score_program.h"

namespace saccade::python {

inline constexpr int kInputs = 5;  // registers: score, batch, head, row, key

struct ScoreProgram::Scratch {
  const ScoreTile* tile = nullptr;
  std::int64_t first = 0, rows = 0;                  // the rows of the tile that are computed at a time
  std::vector<std::byte> memory;                     // of all registers
  std::byte* begin = nullptr;                        // in it, at a multiple of 64 bytes
  std::vector<std::size_t> values, derivatives;      // where a register's numbers are in it
  std::array<std::vector<std::int64_t>, 5> offsets;  // of a load, by the extent of its indices
  std::vector<std::int64_t> sums_of_offsets;
  std::vector<std::vector<double>> sums;  // gradients of tensors

  /// How many numbers a register has.
  std::int64_t count(Extent extent) const {
    switch (extent) {
      case Extent::none:
        return 1;
      case Extent::row:
        return tile->rows;
      case Extent::key:
        return tile->keys;
      case Extent::distance:
        return tile->rows + tile->keys - 1;
      default:
        return rows * tile->keys;
    }
  }
  void* value(int register_) { return begin + values[static_cast<std::size_t>(register_)]; }
  void* derivative(int register_) { return begin + derivatives[static_cast<std::size_t>(register_)]; }
};

}  // namespace saccade::python
