// Sizes and seeds of tests from the environment.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace saccade::test {

/// A whole number from the environment; throws std::invalid_argument for any other text.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return otherwise;
  const std::string_view text = value;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(std::string(name) + " must be a whole number but is '" + value + "'");
  return number;
}

/// Whether computing takes some ten times as long: under AddressSanitizer and in an emulator.
#if defined(__SANITIZE_ADDRESS__) || defined(SACCADE_EMULATED)
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = false;
#endif

/// A quarter of `count` problems, at least 1, where computing is slow.
constexpr std::uint64_t fewer_if_slow(std::uint64_t count) {
  if (!kIsSlow) return count;
  return count < 4 ? 1 : count / 4;
}

/// One of `all`, another with each turn, where computing is slow; else all.
template <class T, std::size_t n>
constexpr std::span<const T> one_if_slow(const std::array<T, n>& all, std::size_t turn) {
  return kIsSlow ? std::span(all).subspan(turn % n, 1) : std::span(all);
}

/// The problems of a test, numbered from `begin` to before `end`.
struct ProblemRange {
  std::uint64_t begin = 0, end = 0;
};

/// SACCADE_TEST_CASES problems (default: `count`) from SACCADE_TEST_SEED (default: `seed`). Throws
/// std::invalid_argument for none, with which a test would pass having compared nothing.
inline ProblemRange problems_of_test(std::uint64_t seed, std::uint64_t count) {
  seed = from_environment("SACCADE_TEST_SEED", seed);
  count = from_environment("SACCADE_TEST_CASES", count);
  if (seed + count <= seed)
    throw std::invalid_argument("SACCADE_TEST_CASES must be at least 1, and seeds end at 2^64");
  return {seed, seed + count};
}

}  // namespace saccade::test
