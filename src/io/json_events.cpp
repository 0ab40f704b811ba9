#include "io/json_events.h"

namespace saccade::io {

std::string describe(const JsonScalar& scalar) {
  if (std::holds_alternative<std::nullptr_t>(scalar)) return "null";
  if (const auto* text = std::get_if<std::string>(&scalar)) return in_quotes(*text);
  return std::visit([](const auto& value) { return nlohmann::json(value).dump(); }, scalar);
}

void JsonEvents::parse(std::string_view text) {
  nlohmann::json_sax<nlohmann::json>& events = *this;
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

bool JsonEvents::parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..., which ends with the
  // token that was read, however long.
  constexpr std::size_t kLongest = 300;
  std::string_view what = error.what();
  if (const std::size_t end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  const std::string fault(what.substr(0, kLongest));
  origin_.refuse("is not valid JSON, byte " + std::to_string(position) + ": " + fault);
}

}  // namespace saccade::io
