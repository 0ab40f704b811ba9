// Sets of rows or keys: ascending runs.
#pragma once

#include <algorithm>
#include <vector>

#include "saccade/distributed.h"

namespace saccade::distributed {

inline Run overlap_of(const Run& a, const Run& b) {
  return {std::max(a.begin, b.begin), std::max(std::max(a.begin, b.begin), std::min(a.end, b.end))};
}

/// The shortest run that contains both; empty runs do not count.
inline Run hull_of(const Run& a, const Run& b) {
  if (a.size() <= 0) return b;
  return b.size() <= 0 ? a : Run{std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

/// The intersection of two sets; adjacent runs of `b` are not joined.
inline std::vector<Run> overlap_of(const std::vector<Run>& a, const std::vector<Run>& b) {
  std::vector<Run> result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (const Run run = overlap_of(a[i], b[j]); run.size() > 0) result.push_back(run);
    ++(a[i].end < b[j].end ? i : j);
  }
  return result;
}

/// The union of runs, which may be unordered, overlap or be empty.
inline std::vector<Run> merged(std::vector<Run> runs) {
  std::erase_if(runs, [](const Run& run) { return run.size() <= 0; });
  std::ranges::sort(runs, {}, &Run::begin);
  std::vector<Run> result;
  for (const Run& run : runs) {
    if (!result.empty() && run.begin <= result.back().end)
      result.back().end = std::max(result.back().end, run.end);
    else
      result.push_back(run);
  }
  return result;
}

inline std::int64_t size_of(const std::vector<Run>& runs) {
  std::int64_t size = 0;
  for (const Run& run : runs) size += run.size();
  return size;
}

}  // namespace saccade::distributed
