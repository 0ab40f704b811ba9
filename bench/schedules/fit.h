// Costs from measured times: least squares.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace saccade::simulation {

/// A call that took `seconds`, of so much work of N kinds.
template <std::size_t N>
struct Sample {
  std::array<double, N> work;
  double seconds;
};

/// Solves a x = b, for the numbers of `used` only; the others are 0. a must be regular.
template <std::size_t N>
std::array<double, N> solve(std::array<std::array<double, N>, N> a, std::array<double, N> b,
                            const std::array<bool, N>& used) {
  std::array<double, N> x{};
  for (std::size_t i = 0; i < N; ++i) {
    if (!used[i]) continue;
    for (std::size_t row = i + 1; row < N; ++row) {
      if (!used[row]) continue;
      const double factor = a[row][i] / a[i][i];
      for (std::size_t column = i; column < N; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  for (std::size_t i = N; i-- > 0;) {
    if (!used[i]) continue;
    double rest = b[i];
    for (std::size_t column = i + 1; column < N; ++column) rest -= a[i][column] * x[column];
    x[i] = rest / a[i][i];
  }
  return x;
}

/// The costs, in seconds of one unit of each kind of work, with the least sum of squares of relative errors. None
/// is below 0: kinds of work for which it would be cost nothing.
template <std::size_t N>
std::array<double, N> fit(const std::vector<Sample<N>>& samples) {
  std::array<std::array<double, N>, N> a{};
  std::array<double, N> b{};
  std::array<bool, N> used{};
  for (const Sample<N>& sample : samples) {
    for (std::size_t i = 0; i < N; ++i) {
      const double share = sample.work[i] / sample.seconds;
      for (std::size_t j = 0; j < N; ++j) a[i][j] += share * sample.work[j] / sample.seconds;
      b[i] += share;
    }
  }
  for (std::size_t i = 0; i < N; ++i) used[i] = a[i][i] > 0;
  for (;;) {
    const std::array<double, N> costs = solve(a, b, used);
    std::size_t worst = N;
    for (std::size_t i = 0; i < N; ++i)
      if (costs[i] < 0 && (worst == N || costs[i] < costs[worst])) worst = i;
    if (worst == N) return costs;
    used[worst] = false;
  }
}

}  // namespace saccade::simulation
