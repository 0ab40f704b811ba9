// How far a long command has come, in one line of the terminal that is written over again.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace saccade::cli {

/// Shows itself on standard error while it exists, if that is a terminal; otherwise it does nothing.
class ProgressBar {
 public:
  explicit ProgressBar(std::int64_t total);
  ~ProgressBar() { hide(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total are done; `remark` stands behind the time that is left. Draws at most ten times a second.
  void show(std::int64_t done, const std::string& remark);

  /// Clears the line, so that something else can be printed.
  void hide();

 private:
  using Clock = std::chrono::steady_clock;

  bool is_terminal_;
  std::int64_t total_;
  Clock::time_point start_ = Clock::now(), drawn_ = start_ - std::chrono::hours(1);
  bool is_shown_ = false;
};

/// The bar by itself: "[=====>    ] 512 of 1000, 12 s left, no failure".
std::string progress_line(std::int64_t done, std::int64_t total, double seconds, const std::string& remark);

}  // namespace saccade::cli
