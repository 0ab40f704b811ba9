// How the readers and writers refuse: one line that names the function, the file and the fault.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace saccade::io {

/// Which function works on which file, for its messages.
struct Origin {
  std::string_view function;
  std::string name;

  /// Throws std::runtime_error("[function] name: fault"), kept to one line.
  [[noreturn]] void refuse(const std::string& fault) const;

  /// Throws std::invalid_argument of the same form: the caller's mistake, not the file's.
  [[noreturn]] void refuse_argument(const std::string& fault) const;
};

/// Text out of a file as it may stand in a message: in quotes, cut to a sane length, nothing unprintable.
std::string in_quotes(std::string_view text);

/// The position of the first byte that is not part of valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace saccade::io
