#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "console.h"

namespace saccade::cli {

namespace {

/// "512 of 1000, 12 s left, no failure"
std::string progress_text(const Progress& progress, const std::string& remark) {
  if (progress.total == 0) return fmt::format("{} done, {}", progress.done, remark);
  const std::int64_t made = progress.done - progress.done_before, left = progress.total - progress.done;
  const std::string time = made > 0 ? fmt::format(", {:.0f} s left", progress.seconds * static_cast<double>(left) /
                                                                         static_cast<double>(made))
                                    : "";
  return fmt::format("{} of {}{}, {}", progress.done, progress.total, time, remark);
}

}  // namespace

ProgressBar::ProgressBar(std::int64_t total, std::int64_t done_before)
    : is_terminal_(console::is_terminal(console::Stream::error)), total_(total), done_before_(done_before) {}

Progress ProgressBar::progress_at(std::int64_t done) const {
  return {.done = done,
          .total = total_,
          .done_before = done_before_,
          .seconds = std::chrono::duration<double>(Clock::now() - start_).count()};
}

void ProgressBar::show(std::int64_t done, const std::string& remark) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ || now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  is_shown_ = true;
  std::fputs(("\r\x1b[K" + progress_line(progress_at(done), remark)).c_str(), stderr);
  std::fflush(stderr);
}

std::string ProgressBar::plain(std::int64_t done, const std::string& remark) const {
  return progress_text(progress_at(done), remark);
}

void ProgressBar::hide() {
  if (!is_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

std::string progress_line(const Progress& progress, const std::string& remark) {
  if (progress.total == 0) return progress_text(progress, remark);
  constexpr std::size_t kWidth = 24;
  const double share = static_cast<double>(progress.done) / static_cast<double>(progress.total);
  const std::size_t filled = std::min(static_cast<std::size_t>(share * kWidth), kWidth);
  std::string bar(filled, '=');
  if (filled < kWidth) bar += '>';
  bar.resize(kWidth, ' ');
  return fmt::format("[{}] {}", bar, progress_text(progress, remark));
}

}  // namespace saccade::cli
