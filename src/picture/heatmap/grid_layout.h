// The positions of everything in a grid of heat maps: panels, cells, labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "picture/heatmap/matrix.h"
#include "picture/svg.h"

namespace saccade::picture {

/// The space above a panel: for its title and the names of the query axis and of the color bar.
inline constexpr double kHeadroom = 26;
/// The distance of their middle from the panel.
inline constexpr double kNameRise = 15;

/// The rotation of the labels of the key axis.
enum class Turn : std::uint8_t { level, slanted, upright };

struct Mark {
  double at;  // along the axis, from the panel's edge
  std::string text;
};

/// One axis of every panel: the size of its cells and the labels beside them.
struct Axis {
  double cell = 0;
  double side = 0;
  double font_size = 0;
  bool tick_lines = false;
  Turn turn = Turn::level;
  std::vector<Mark> marks;
  double widest = 0;  // of the labels

  double label_height() const {  ///< below a panel, if this is the key axis
    switch (turn) {
      case Turn::level:
        return font_size + 4;
      case Turn::slanted:
        return (widest + font_size) * 0.71 + 4;
      case Turn::upright:
        return widest + 4;
    }
    return 0;
  }
};

/// The whole picture, in document units.
struct GridLayout {
  Cells cells;
  Scale scale;
  Axis query, key;
  std::int64_t grid_columns = 1, grid_rows = 1;
  double gap = 0, panel_title = 0;
  double left = 0, top = 0;  // of the first panel
  double title_size = 0;     // font size of the panel titles
  double value_size = 0;     // font size of the numbers in the cells; 0: none
  std::string query_name;

  double panel_x(std::int64_t head) const {
    return left + static_cast<double>(head % grid_columns) * (key.side + gap);
  }
  double panel_y(std::int64_t head) const {
    return top + static_cast<double>(head / grid_columns) * (query.side + panel_title + gap);
  }
  double grid_width() const { return static_cast<double>(grid_columns) * (key.side + gap) - gap; }
  double grid_height() const {
    return static_cast<double>(grid_rows) * (query.side + panel_title + gap) - gap - panel_title;
  }
};

/// The layout for a checked input; the caller sets `top`, depending on what is above.
GridLayout grid_layout(const Input& input, const HeatmapOptions& options);

/// The number in a cell.
std::string value_text(const GridLayout& layout, double value);

}  // namespace saccade::picture
