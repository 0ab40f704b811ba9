#include "io/message.h"

#include <stdexcept>

#include "core/printable.h"

namespace saccade::io {
namespace {

constexpr std::size_t kLongestQuote = 60;

/// File names are the only foreign text that is not quoted.
std::string message_of(const Origin& origin, const std::string& fault) {
  return "[" + std::string(origin.function) + "] " + saccade::one_line(origin.name) + ": " +
         saccade::one_line(fault);
}

}  // namespace

void Origin::refuse(const std::string& fault) const { throw std::runtime_error(message_of(*this, fault)); }

void Origin::refuse_argument(const std::string& fault) const {
  throw std::invalid_argument(message_of(*this, fault));
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (std::size_t at = 0; at < text.size();) {
    if (at >= kLongestQuote) return out + "...'";
    at += append_printable(out, text.substr(at));
  }
  return out + "'";
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

}  // namespace saccade::io
