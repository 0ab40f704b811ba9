#include "io/json_events.h"

#include <algorithm>

namespace saccade::io {

std::string describe(const JsonScalar& scalar) {
  if (std::holds_alternative<std::nullptr_t>(scalar)) return "null";
  if (const auto* text = std::get_if<std::string>(&scalar)) return in_quotes(*text);
  return std::visit([](const auto& value) { return nlohmann::json(value).dump(); }, scalar);
}

void JsonEvents::parse(std::string_view text, std::size_t begin) {
  begin_ = begin;
  nlohmann::json_sax<nlohmann::json>& events = *this;
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

bool JsonEvents::parse_error(std::size_t position, const std::string& last_token,
                             const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: invalid literal; last read: '...'; expected
  // ...", where the token may be long and contain any bytes, or "number overflow parsing '1e999'".
  constexpr std::size_t kLongest = 200;
  std::string_view what = error.what();
  for (const std::string_view prefix : {"] ", "parse error at "}) {
    if (const std::size_t at = what.find(prefix); at != std::string_view::npos) {
      what.remove_prefix(at + prefix.size());
    }
  }
  const std::size_t token = what.find("; last read: ");
  std::string fault(what.substr(0, std::min(token, kLongest)));
  if (token != std::string_view::npos) fault += "; last read: " + in_quotes(last_token);
  origin_.refuse("is not valid JSON, byte " + std::to_string(begin_ + position - 1) + ": " + fault);
}

}  // namespace saccade::io
