// The measurements of `saccade bench`, in sections of lines, and their output.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "measure.h"

namespace saccade::cli::bench {

/// How to measure.
struct Conditions {
  std::vector<int> threads;  ///< numbers of threads to measure with, ascending
  Effort effort = kUsual;
};

/// One number of a line.
struct Figure {
  std::string key;  ///< in JSON
  double value = 0.0;
  int decimals = 1;
};

/// One measurement.
struct Line {
  std::string problem;
  int threads = 1;
  double seconds = 0.0;
  std::vector<Figure> figures{};
  bool agrees = true;  ///< whether the compared rows agree with the reference
};

/// A function that measures one problem: a line for each number of threads.
using Item = std::function<std::vector<Line>(const Conditions&)>;

/// Problems whose lines have the same figures.
struct Section {
  std::string name;                   ///< of --only
  std::string title;                  ///< above the problems
  std::vector<std::string> headings;  ///< of the figures
  std::vector<Item> items;
};

/// A section's lines.
struct Results {
  const Section* section = nullptr;
  std::vector<Line> lines;
};

/// The peaks of the machine with this number of threads.
struct Limits {
  int threads = 1;
  double flops = 0.0, bf16_flops = 0.0, read_bytes = 0.0;  ///< a second
};

Limits measure_limits(int threads);

/// The report as text, as Markdown or as JSON.
void print_text(const std::vector<Limits>& limits, const std::vector<Results>& results);
void print_markdown(const std::vector<Limits>& limits, const std::vector<Results>& results);
Json report_json(const std::vector<Limits>& limits, const std::vector<Results>& results);

}  // namespace saccade::cli::bench
