#include "tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace saccade::tokenizer {
namespace {

using Json = nlohmann::json;

/// Whether a regular expression's \w matches, joiners included (Unicode Technical Standard 18).
bool is_word(char32_t code) {
  if (code == 0x200C || code == 0x200D) return true;
  const utf8proc_category_t of = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return (of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_ND) || of == UTF8PROC_CATEGORY_PC;
}

bool stands_at(const Characters& text, std::size_t at, std::u32string_view token) {
  if (token.size() > text.size() - at) return false;
  for (std::size_t i = 0; i < token.size(); ++i)
    if (text[at + i].code != token[i]) return false;
  return true;
}

}  // namespace

AddedTokens::AddedTokens(const Json& list, const Normalizer& normalizer, Vocabulary& vocabulary) {
  for (const Json& one : list) {
    const auto content = one.at("content").get<std::string>();
    Entry entry;
    entry.token.id = one.at("id").get<std::int64_t>();
    entry.token.text = content;
    entry.is_single_word = one.value("single_word", false);
    entry.strips_left = one.value("lstrip", false);
    entry.strips_right = one.value("rstrip", false);
    const bool is_special = one.value("special", false), is_normalized = one.value("normalized", !is_special);
    vocabulary.add(content, entry.token.id);
    if (is_special) special_.insert(entry.token.id);
    const Characters text = characters_of(content);
    for (const Character& c : is_normalized ? normalizer(text) : text) entry.text.push_back(c.code);
    if (entry.text.empty()) continue;
    vocabulary.spell(entry.token.id, utf8_of(entry.text));
    std::vector<Entry>& entries = (is_normalized ? after_ : before_)[entry.text.front()];
    entries.push_back(std::move(entry));
  }
  for (Table* table : {&before_, &after_})
    for (auto& [first, entries] : *table)
      std::ranges::stable_sort(entries, std::greater<>(), [](const Entry& entry) { return entry.text.size(); });
}

std::vector<Section> AddedTokens::split(const Characters& text, const Table& table) {
  std::vector<Section> sections;
  std::size_t done = 0;
  const auto add = [&](std::size_t begin, std::size_t end, const Token* token) {
    if (end > begin)
      sections.push_back(
          {{text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end)},
           token});
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto found = table.find(text[at].code);
    const Entry* match = nullptr;
    if (found != table.end())
      for (const Entry& entry : found->second)
        if (stands_at(text, at, entry.text)) {
          match = &entry;
          break;
        }
    if (match == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + match->text.size();
    at = end;
    if (match->is_single_word &&
        ((begin > 0 && is_word(text[begin - 1].code)) || (end < text.size() && is_word(text[end].code))))
      continue;
    while (match->strips_left && begin > done && is_whitespace(text[begin - 1].code)) --begin;
    while (match->strips_right && end < text.size() && is_whitespace(text[end].code)) ++end;
    add(done, begin, nullptr);
    add(begin, end, &match->token);
    done = at = end;
  }
  add(done, text.size(), nullptr);
  return sections;
}

std::vector<Section> AddedTokens::sections_of(const Characters& text, const Normalizer& normalizer) const {
  std::vector<Section> sections;
  for (Section& section : split(text, before_)) {
    if (section.token != nullptr) {
      sections.push_back(std::move(section));
      continue;
    }
    for (Section& part : split(normalizer(section.text), after_)) sections.push_back(std::move(part));
  }
  return sections;
}

}  // namespace saccade::tokenizer
