// How far a long command has come, in one line of the terminal that is written over again.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace saccade::cli {

/// How far something has come in `seconds`.
struct Progress {
  std::int64_t done = 0, total = 0;
  std::int64_t done_before = 0;  ///< of `done`, before the seconds began
  double seconds = 0;
};

/// Shows itself on standard error while it exists, if that is a terminal; otherwise it does nothing.
class ProgressBar {
 public:
  /// `done_before`: what was done before this command began, and does not count for the time that is left.
  explicit ProgressBar(std::int64_t total, std::int64_t done_before = 0);
  ~ProgressBar() { hide(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total are done; `remark` stands behind the time that is left. Draws at most ten times a second.
  void show(std::int64_t done, const std::string& remark);

  /// The same as a line of text, for what is no terminal.
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

/// The bar by itself: "[=====>    ] 512 of 1000, 12 s left, no failure".
std::string progress_line(const Progress& progress, const std::string& remark);

}  // namespace saccade::cli
