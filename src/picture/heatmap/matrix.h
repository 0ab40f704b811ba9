// The contents of a picture: the checked input, pooled to a visible size, and the scale from values to colors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "saccade/heatmap.h"

namespace saccade::picture {

/// The input after all checks.
struct Input {
  TensorView weights;  // [heads, seqlen_q, seqlen_k]
  std::int64_t heads = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t queries = 0, keys = 0;                 // the numbers that rows and columns represent
  std::vector<std::string> query_labels, key_labels;  // cleaned; empty: positions
  std::vector<std::string> panel_titles;              // cleaned; empty: none

  bool is_map() const { return queries != seqlen_q || keys != seqlen_k; }
};

/// Checks everything that heatmap.h documents; messages begin with `function`.
Input checked(const TensorView& weights, const HeatmapOptions& options, std::string_view function);

/// The cells of all panels. A cell covers block_q x block_k weights (fewer at the lower and right edge).
struct Cells {
  std::int64_t heads = 0, rows = 0, columns = 0, block_q = 1, block_k = 1;
  std::vector<double> values{};             // [heads, rows, columns]: the largest of the block, or NaN
  std::int64_t seqlen_q = 0, seqlen_k = 0;  // of the matrix, before pooling
  std::int64_t queries = 0, keys = 0;       // the numbers that it represents
  double smallest = 0;                      // of all finite weights, before pooling; +inf without any
  bool has_nan = false, has_zero = false, has_minus_infinity = false;  // among `values`

  double at(std::int64_t head, std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>((head * rows + row) * columns + column)];
  }
  bool pooled() const { return block_q > 1 || block_k > 1; }
  bool is_map() const { return queries != seqlen_q || keys != seqlen_k; }
  /// The first query and key of a cell.
  std::int64_t query_of(std::int64_t row) const { return row * block_q * queries / seqlen_q; }
  std::int64_t key_of(std::int64_t column) const { return column * block_k * keys / seqlen_k; }
};

Cells pooled(const Input& input, std::int64_t block_q, std::int64_t block_k);

enum class Kind : std::uint8_t { value, masked, nan };

/// The color scale of one picture.
struct Scale {
  double low = 0, high = 1;
  bool logarithmic = false;
  bool zero_is_masked = true;
  int decimals = 2;  // for the values in the cells

  Kind kind(double value) const;
  double position(double value) const;  ///< 0 (palest) to 1 (darkest); not for masked and NaN

  struct Tick {
    double position;
    std::string text;
  };
  /// About `count` round values on the scale, from low to high.
  std::vector<Tick> ticks(int count) const;
};

Scale scale_of(const Cells& cells, const HeatmapOptions& options, std::string_view function);

/// "Each cell is the largest of 4 x 4 weights." (for a map: "cells of the map"); empty for a matrix without
/// pooling.
std::string pooling_note(const Cells& cells);

/// "masked or 0" or "masked": the meaning of the cells without a value; empty if there are none.
std::string masked_note(const Cells& cells, const Scale& scale);

/// The smallest of 1, 2, 5, 10, 20, 50, ... that is at least `wanted`.
std::int64_t round_step(double wanted);

}  // namespace saccade::picture
