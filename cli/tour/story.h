// The tour: chapters of steps, each with printed and computed numbers.
#pragma once

#include <saccade/heatmap.h>
#include <saccade/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"

namespace saccade::cli {

enum class Language { english, chinese };

/// The largest allowed difference of a computed from a printed number: absolute + relative * |printed|.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
};

/// Published numbers, and the same numbers computed by the library.
struct Check {
  std::string path;  ///< of the printed numbers in published_examples.json, as a JSON pointer
  Tensor printed;    ///< f64 [rows, columns]; NaN where nothing was printed
  Tensor computed;   ///< f64 [rows, columns]
  std::vector<std::string> row_names;
  std::vector<std::string> column_names;  ///< may be empty
  int decimals = 0;                       ///< digits after the point that were printed
  bool scientific = false;                ///< printed as 1.9558e-01
  Tolerance tolerance;

  bool is_printed(std::int64_t row, std::int64_t column) const;
  bool holds_at(std::int64_t row, std::int64_t column) const;
  std::int64_t count() const;         ///< printed numbers
  std::int64_t count_wrong() const;   ///< those whose computed number is not within the tolerance
  double largest_difference() const;  ///< relative where the tolerance is
};

/// A condition that must hold, other than equal numbers, and what was observed.
struct Claim {
  std::string text;
  std::string seen;
  bool holds = false;
};

struct Picture {
  Tensor weights;
  HeatmapOptions options;
};

/// One sentence, its formula, and the checks that prove it.
struct Step {
  std::string text;
  std::string formula;
  std::vector<Check> checks;
  std::vector<Claim> claims;
  std::optional<Picture> picture;
};

struct Chapter {
  std::string title;
  std::vector<Step> steps;
};

struct Tour {
  std::vector<Chapter> chapters;
  std::vector<std::string> inputs;  ///< paths of the input numbers

  std::int64_t count() const;        ///< all checked numbers
  std::int64_t count_wrong() const;  ///< numbers beyond their tolerance
  std::int64_t count_failed_claims() const;
  bool holds() const { return count_wrong() == 0 && count_failed_claims() == 0; }
};

/// Computes everything.
Tour make_tour(Language language);

/// The tour as text for a terminal.
std::string tour_text(const Tour& tour, Language language, const Terminal& terminal);

/// The tour as JSON.
Json tour_json(const Tour& tour);

}  // namespace saccade::cli
