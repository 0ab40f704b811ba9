#include "story.h"

#include <algorithm>
#include <cmath>

namespace saccade::cli {
namespace {

// Calls visit(row, column) for every printed number.
template <class Visit>
void for_each_printed(const Check& check, Visit visit) {
  for (std::int64_t row = 0; row < check.printed.shape(0); ++row) {
    for (std::int64_t column = 0; column < check.printed.shape(1); ++column) {
      if (check.is_printed(row, column)) visit(row, column);
    }
  }
}

template <class Count>
std::int64_t sum_over_checks(const Tour& tour, Count count) {
  std::int64_t sum = 0;
  for (const Chapter& chapter : tour.chapters) {
    for (const Step& step : chapter.steps) {
      for (const Check& check : step.checks) sum += count(check);
    }
  }
  return sum;
}

}  // namespace

bool Check::is_printed(std::int64_t row, std::int64_t column) const {
  return !std::isnan(printed.at<double>(row, column));
}

bool Check::holds_at(std::int64_t row, std::int64_t column) const {
  const double wanted = printed.at<double>(row, column);
  return std::abs(computed.at<double>(row, column) - wanted) <=
         tolerance.absolute + tolerance.relative * std::abs(wanted);
}

std::int64_t Check::count() const {
  std::int64_t numbers = 0;
  for_each_printed(*this, [&](auto, auto) { ++numbers; });
  return numbers;
}

std::int64_t Check::count_wrong() const {
  std::int64_t wrong = 0;
  for_each_printed(*this, [&](auto row, auto column) { wrong += holds_at(row, column) ? 0 : 1; });
  return wrong;
}

double Check::largest_difference() const {
  double largest = 0.0;
  for_each_printed(*this, [&](auto row, auto column) {
    const double wanted = printed.at<double>(row, column);
    const double difference = std::abs(computed.at<double>(row, column) - wanted);
    largest = std::fmax(largest, tolerance.relative > 0 ? difference / std::abs(wanted) : difference);
  });
  return largest;
}

std::int64_t Tour::count() const {
  return sum_over_checks(*this, [](const Check& check) { return check.count(); });
}

std::int64_t Tour::count_wrong() const {
  return sum_over_checks(*this, [](const Check& check) { return check.count_wrong(); });
}

std::int64_t Tour::count_failed_claims() const {
  std::int64_t failed = 0;
  for (const Chapter& chapter : chapters) {
    for (const Step& step : chapter.steps) {
      failed += std::ranges::count_if(step.claims, [](const Claim& claim) { return !claim.holds; });
    }
  }
  return failed;
}

}  // namespace saccade::cli
