#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace saccade::cli {

ProgressBar::ProgressBar(std::int64_t total) : is_terminal_(::isatty(STDERR_FILENO) != 0), total_(total) {}

void ProgressBar::show(std::int64_t done, const std::string& remark) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ || now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  is_shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::fputs(("\r\x1b[K" + progress_line(done, total_, seconds, remark)).c_str(), stderr);
  std::fflush(stderr);
}

void ProgressBar::hide() {
  if (!is_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

std::string progress_line(std::int64_t done, std::int64_t total, double seconds, const std::string& remark) {
  constexpr std::size_t kWidth = 24;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  const std::size_t filled = std::min(static_cast<std::size_t>(share * kWidth), kWidth);
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  const std::string left = done > 0 ? fmt::format(", {:.0f} s left", seconds / share - seconds) : "";
  return fmt::format("[{}] {} of {}{}, {}", bar, done, total, left, remark);
}

}  // namespace saccade::cli
