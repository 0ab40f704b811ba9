// std::to_chars() of doubles by printf(), whose digits are exact in this C library and the same in every locale.
// libc++'s brings 100 kB of tables.
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::to_chars_result write(char* first, char* last, const char* format, int precision, double value) {
  char digits[512];  // 309 before the point, and 12 or fewer behind it
  const int length = std::snprintf(digits, sizeof digits, format, precision, value);
  if (length < 0 || length >= static_cast<int>(sizeof digits) || last - first < length)
    return {last, std::errc::value_too_large};
  std::memcpy(first, digits, static_cast<std::size_t>(length));
  return {first + length, {}};
}

}  // namespace

std::to_chars_result std::to_chars(char* first, char* last, double value, chars_format format, int precision) {
  const char* const how = format == chars_format::fixed     ? "%.*f"
                          : format == chars_format::general ? "%.*g"
                                                            : "%.*e";
  return write(first, last, how, precision, value);
}

/// The fewest digits that are read back as the same number.
std::to_chars_result std::to_chars(char* first, char* last, double value) {
  for (int precision = 1; precision < 17; ++precision) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (std::strtod(digits, nullptr) == value) return write(first, last, "%.*g", precision, value);
  }
  return write(first, last, "%.*g", 17, value);
}
