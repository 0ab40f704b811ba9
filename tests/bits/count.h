// The number of problems on the command line.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace saccade::bits {

/// The first argument as a number of at least 1, or `otherwise` without one; ends the program with status 2 for
/// anything else, which would compare nothing.
inline long count_of(int arguments, char** argument, long otherwise) {
  if (arguments < 2) return otherwise;
  const std::string_view text = argument[1];
  long count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (arguments == 2 && error == std::errc() && end == text.data() + text.size() && count > 0) return count;
  std::fprintf(stderr, "%s: expected one whole number of problems above 0\n", argument[0]);
  std::exit(2);
}

}  // namespace saccade::bits
