#include "measure.h"

#include <algorithm>

namespace saccade::cli::bench {

Timing measure(const Effort& effort, const std::function<void()>& work, const std::function<double()>& yardstick) {
  constexpr std::size_t kMost = 200;
  work();
  std::vector<double> seconds, shares;
  for (double spent = 0.0; seconds.size() < effort.fewest || (spent < effort.seconds && seconds.size() < kMost);) {
    double limit = 0.0;
    spent += seconds_of([&] { limit = yardstick(); });
    seconds.push_back(seconds_of(work));
    spent += seconds.back();
    shares.push_back(limit / seconds.back());
  }
  return {median(seconds), median(shares)};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace saccade::cli::bench
