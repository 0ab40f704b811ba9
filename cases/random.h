// Random numbers for random cases: the same on every machine and with every standard library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace saccade::cases {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) { state_ = bits(); }

  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  /// An integer in [low, high].
  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }

  /// A number in [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  bool chance(double p) { return unit() < p; }

  /// A nearly normal number with mean 0 and variance 1: the scaled sum of four uniform ones.
  double bell() { return (unit() + unit() + unit() + unit() - 2.0) * 1.7320508075688772; }

  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[uniform(0, static_cast<std::int64_t>(list.size()) - 1)];
  }

  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[bits() % i]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace saccade::cases
