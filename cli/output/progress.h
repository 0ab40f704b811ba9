// The progress of a long command, in one line of the terminal that is overwritten.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace saccade::cli {

/// The progress after `seconds`.
struct Progress {
  std::int64_t done = 0, total = 0;  ///< total 0: nobody knows how many there will be
  std::int64_t done_before = 0;      ///< the part of `done` from before the seconds began
  double seconds = 0;
};

/// A progress bar on standard error, shown while the object exists; does nothing if that is not a terminal.
class ProgressBar {
 public:
  /// `total`: 0 if it goes on until it is interrupted. `done_before`: done before this command began, and not
  /// counted in the estimate of the remaining time.
  explicit ProgressBar(std::int64_t total, std::int64_t done_before = 0);
  ~ProgressBar() { hide(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows that `done` of the total are done; `remark` follows the remaining time. Draws at most ten times a
  /// second.
  void show(std::int64_t done, const std::string& remark);

  /// The same as a line of text, for output that is not a terminal.
  std::string plain(std::int64_t done, const std::string& remark) const;
  bool is_on_terminal() const { return is_terminal_; }

  /// Clears the line, so that something else can be printed.
  void hide();

 private:
  using Clock = std::chrono::steady_clock;

  Progress progress_at(std::int64_t done) const;

  bool is_terminal_;
  std::int64_t total_, done_before_;
  Clock::time_point start_ = Clock::now(), drawn_ = start_ - std::chrono::hours(1);
  bool is_shown_ = false;
};

/// The text of the bar: "[=====>    ] 512 of 1000, 12 s left, no failure".
std::string progress_line(const Progress& progress, const std::string& remark);

}  // namespace saccade::cli
