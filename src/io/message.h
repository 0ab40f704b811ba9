// Errors of the readers and writers: one line with the function, the file and the fault.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace saccade::io {

/// The function and the file for messages.
struct Origin {
  std::string_view function;
  std::string name;

  /// Throws std::runtime_error("[function] name: fault"), as one line.
  [[noreturn]] void refuse(const std::string& fault) const;

  /// Throws std::invalid_argument of the same form: the caller's error, not the file's.
  [[noreturn]] void refuse_argument(const std::string& fault) const;
};

/// Text from a file in the form for messages: quoted, limited in length, printable.
std::string in_quotes(std::string_view text);

/// The position of the first byte that is not part of valid UTF-8.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace saccade::io
