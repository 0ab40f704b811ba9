// Numbers in the words of a command line, whole words only.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace saccade::cases {

template <class T = std::int64_t>
std::optional<T> whole_number(std::string_view text) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

/// In a program that keeps the C locale. (std::from_chars() reads no fractions on macOS before 26.)
inline std::optional<double> finite_number(std::string_view text) {
  if (text.empty() || text.front() == '+' || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return std::nullopt;
  const std::string word(text);
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  const bool is_number = end == word.c_str() + word.size() && std::isfinite(number);
  return is_number ? std::optional(number) : std::nullopt;
}

}  // namespace saccade::cases
