#include "tokenizer/text/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <stdexcept>

namespace saccade::tokenizer {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

int combining_class(char32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

/// Canonical or compatible decomposition of a code point.
std::u32string decomposed(char32_t code, bool compatible) {
  constexpr utf8proc_ssize_t kLongest = 32;  // U+FDFA has 18
  utf8proc_int32_t buffer[kLongest];
  int boundary = 0;
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), buffer, kLongest,
                                                        static_cast<utf8proc_option_t>(options), &boundary);
  if (size < 0 || size > kLongest) return {code};
  return {buffer, buffer + size};
}

/// Puts marks in canonical order; a stable sort, so marks of one class keep their order.
void order_marks(std::vector<Change>& text) {
  const auto is_mark_of_class = [](const Change& c) { return combining_class(c.code) != 0; };
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), is_mark_of_class);
    const auto end = std::find_if_not(begin, text.end(), is_mark_of_class);
    std::stable_sort(begin, end, [](const Change& a, const Change& b) {
      return combining_class(a.code) < combining_class(b.code);
    });
    begin = end;
  }
}

/// The code point that two code points compose to; 0: none.
char32_t composition(char32_t first, char32_t second) {
  if (second < 0x300) return 0;  // nothing below composes with the code point before it
  utf8proc_int32_t codes[] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second), 0};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  return utf8proc_normalize_utf32(codes, 2, options) == 1 ? static_cast<char32_t>(codes[0]) : 0;
}

/// Canonical composition (the Unicode Standard, section 3.11): each starter absorbs the marks that are not
/// blocked from it.
std::vector<Change> composed(const std::vector<Change>& text) {
  std::vector<Change> result;
  std::size_t starter = 0;  // index of the last starter in the result
  bool has_starter = false;
  for (const Change& c : text) {
    const int own_class = combining_class(c.code);
    const bool is_next = has_starter && result.size() == starter + 1;
    if (has_starter && (is_next || combining_class(result.back().code) < own_class))
      if (const char32_t code = composition(result[starter].code, c.code)) {
        result[starter] = {code, result[starter].count + c.count - 1};
        continue;
      }
    if (own_class == 0) starter = result.size(), has_starter = true;
    result.push_back(c);
  }
  return result;
}

/// How many bytes of ill-formed UTF-8 one U+FFFD replaces: the longest prefix of a well-formed character, or one
/// byte ("maximal subparts" of the Unicode Standard, section 3.9; its table 3-7 has the ranges).
std::size_t ill_formed_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t length = lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 && lead <= 0xEF ? 3 : 1;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  std::size_t size = 1;
  while (size < length && size < text.size() && byte(size) >= (size == 1 ? low : 0x80) &&
         byte(size) <= (size == 1 ? high : 0xBF))
    ++size;
  return size;
}

}  // namespace

Characters characters_of(std::string_view utf8, std::size_t first_byte) {
  Characters result;
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(utf8.data());
  for (std::size_t at = 0; at < utf8.size();) {
    utf8proc_int32_t code = 0;
    utf8proc_ssize_t size = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(utf8.size() - at), &code);
    if (size <= 0) code = 0xFFFD, size = static_cast<utf8proc_ssize_t>(ill_formed_bytes(utf8.substr(at)));
    const std::size_t end = at + static_cast<std::size_t>(size);
    result.push_back({static_cast<char32_t>(code), {first_byte + at, first_byte + end}});
    at = end;
  }
  return result;
}

std::u32string codes_of(std::string_view utf8) {
  std::u32string codes;
  for (const Character& c : characters_of(utf8)) codes.push_back(c.code);
  return codes;
}

void append_utf8(std::string& text, char32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

std::string utf8_of(const Characters& text) {
  std::string result;
  for (const Character& c : text) append_utf8(result, c.code);
  return result;
}

std::string utf8_of(std::u32string_view codes) {
  std::string result;
  for (const char32_t code : codes) append_utf8(result, code);
  return result;
}

TextRange range_of(const Characters& text) {
  if (text.empty()) return {};
  return {text.front().range.begin, text.back().range.end};
}

bool is_whitespace(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const utf8proc_category_t of = category(c);
  // Unassigned characters are not control characters, as in the tokenizers library; in BERT's first code they
  // were.
  return of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF || of == UTF8PROC_CATEGORY_CO ||
         of == UTF8PROC_CATEGORY_CS;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_MN && of <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_number(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

Characters lowered(const Characters& text) {
  Characters result;
  for (const Character& c : text) {
    if (c.code == 0x130) {
      result.push_back({'i', c.range});
      result.push_back({0x307, c.range});
    } else {
      result.push_back({static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))), c.range});
    }
  }
  return result;
}

Characters normalized(const Characters& text, NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<Change> changes;
  for (const Character& c : text) {
    bool is_first = true;
    for (const char32_t code : decomposed(c.code, compatible)) {
      changes.push_back({code, is_first ? 0 : 1});
      is_first = false;
    }
  }
  order_marks(changes);
  return transformed(text, form == NormalForm::nfc || form == NormalForm::nfkc ? composed(changes) : changes);
}

Characters transformed(const Characters& text, const std::vector<Change>& changes) {
  Characters result;
  std::size_t at = 0;
  for (const Change& change : changes) {
    if (text.empty()) break;
    if (change.count > 0) {
      result.push_back({change.code, text[at > 0 ? at - 1 : 0].range});
      continue;
    }
    result.push_back({change.code, text[std::min(at, text.size() - 1)].range});
    at += 1 + static_cast<std::size_t>(-change.count);
  }
  return result;
}

std::vector<std::size_t> graphemes(const Characters& text) {
  std::vector<std::size_t> sizes;
  utf8proc_int32_t state = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins =
        i == 0 || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(text[i - 1].code),
                                                   static_cast<utf8proc_int32_t>(text[i].code), &state);
    if (begins) sizes.push_back(0);
    ++sizes.back();
  }
  return sizes;
}

}  // namespace saccade::tokenizer
