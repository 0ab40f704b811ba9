#include "cases/simplification.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include <saccade/attention_options.h>

#include "cases/options.h"
#include "cases/text_numbers.h"

namespace saccade::cases {
namespace {

[[noreturn]] void refuse_word(const std::string& word, const std::string& wanted) {
  throw std::invalid_argument(word + ": expected " + wanted);
}

template <class T>
T number_of(const std::string& word, std::string_view text, T least) {
  const std::optional<T> number = whole_number<T>(text);
  if (!number || *number < least) refuse_word(word, "a whole number from " + std::to_string(least) + " on");
  return *number;
}

std::vector<std::string> names_in(const std::string& word, const std::string& text) {
  std::vector<std::string> names;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    if (!is_option_name(name) && name != "rope")
      refuse_word(word, "options of attention() or a cache, but " + name + " is none");
    names.push_back(name);
  }
  if (names.empty()) refuse_word(word, "names of options with commas between them");
  return names;
}

void read_simpler(const std::string& word, Simplification& simpler) {
  const std::size_t sign = word.find('=');
  const std::string key = word.substr(0, sign);
  if (sign == std::string::npos) {
    for (const auto& [name, flag] : kSimplerFlags)
      if (name == key) return void(simpler.*flag = true);
  } else {
    const std::string value = word.substr(sign + 1);
    if (key == "without") return void(simpler.without = names_in(word, value));
    if (key == "numbers") return void(simpler.numbers = number_of<std::uint64_t>(word, value, 0));
    for (const auto& [name, cap] : kSizeCaps)
      if (name == key) return void(simpler.*cap = number_of<std::int64_t>(word, value, 1));
  }
  std::string list = "without=OPTION,..., numbers=SEED";
  for (const auto& [name, cap] : kSizeCaps) list += ", " + std::string(name) + "=N";
  for (const auto& [name, flag] : kSimplerFlags) list += ", " + std::string(name);
  refuse_word(word, "one of " + list);
}

}  // namespace

bool Simplification::empty() const { return text().empty(); }

bool Simplification::leaves_out(std::string_view name) const {
  return std::ranges::find(without, name) != without.end();
}

std::string Simplification::text() const {
  std::string line;
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!line.empty()) line += ' ';
    line += key;
    if (!value.empty()) line += '=' + value;
  };
  std::string names;
  for (const std::string& name : without) names += (names.empty() ? "" : ",") + name;
  if (!names.empty()) add("without", names);
  for (const auto& [name, cap] : kSizeCaps)
    if (this->*cap) add(name, std::to_string(*(this->*cap)));
  for (const auto& [name, flag] : kSimplerFlags)
    if (this->*flag) add(name, "");
  if (numbers) add("numbers", std::to_string(*numbers));
  return line;
}

Simplification parse_simplification(std::string_view text) {
  Simplification simpler;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) read_simpler(word, simpler);
  return simpler;
}

}  // namespace saccade::cases
