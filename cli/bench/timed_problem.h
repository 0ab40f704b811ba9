// A problem of cases/problem.h with its tensors, for timing.
#pragma once

#include <string>
#include <vector>

#include "cases/problem.h"
#include "report.h"

namespace saccade::cli::bench {

class TimedProblem {
 public:
  explicit TimedProblem(const cases::Problem& problem);

  /// Calls attention(), or decode() if the problem is for it.
  void run(int threads);

  /// Floating-point operations, and bytes of k and v, with the lengths that were drawn.
  double flops() const { return flops_; }
  double kv_bytes() const { return kv_bytes_; }

  /// The seconds that its operations would take at the peak of its element type, measured now.
  double seconds_at_peak(int threads) const;

  /// The seconds that reading k and v once would take at the bandwidth of main memory, measured now.
  double seconds_of_reading(int threads) const;

  /// Whether the last run agrees with the reference in the first, middle and last row of the last head. The
  /// reference would take minutes for all rows.
  bool agrees();

 private:
  cases::Problem problem_;
  cases::AttentionCase drawn_;
  double flops_, kv_bytes_ = 0.0;
};

/// Lines of a problem under a name: GFLOP/s and the share of the peak.
std::vector<Line> measure_beside_peak(const std::string& name, const cases::Problem& problem,
                                      const Conditions& conditions);

/// "batch 1, heads 8, seqlen 1024, head_dim 128, causal": the sizes of self-attention in words.
std::string words_of(const cases::Problem& problem);

}  // namespace saccade::cli::bench
