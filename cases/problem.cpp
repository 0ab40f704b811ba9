#include "cases/problem.h"

#include <algorithm>
#include <istream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "cases/options.h"
#include "cases/text_numbers.h"

namespace saccade::cases {
namespace {

/// One word of a line, "key=value" or a flag.
struct Word {
  std::string text, key, value;

  explicit Word(std::string word) : text(std::move(word)), key(text.begin(), std::ranges::find(text, '=')) {
    if (text.size() > key.size()) value = text.substr(key.size() + 1);
  }

  [[noreturn]] void refuse(const std::string& wanted) const {
    throw std::invalid_argument(text + ": expected " + wanted);
  }

  std::int64_t integer(std::int64_t least) const {
    const std::optional<std::int64_t> number = whole_number(value);
    if (!number || *number < least || *number > kMaxLength)
      refuse("a whole number from " + std::to_string(least) + " on");
    return *number;
  }

  /// What the value means among `names`.
  template <class T>
  T one_of(const std::vector<std::pair<std::string, T>>& names) const {
    std::string list;
    for (const auto& [name, meaning] : names) {
      if (value == name) return meaning;
      list += (list.empty() ? "" : ", ") + name;
    }
    refuse("one of " + list);
  }
};

const std::vector<std::pair<std::string, DType>> kQuantized = {
    {"i8", DType::i8}, {"i4", DType::i4}, {"f8e4m3", DType::f8e4m3}};
const std::vector<std::pair<std::string, DType>> kFloats = {
    {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}, {"f64", DType::f64}};
const std::vector<std::pair<std::string, DType>> kMasks = {
    {"bool", DType::boolean}, {"f32", DType::f32}, {"f64", DType::f64}};

const AttentionOption& option_named(std::string_view name) {
  return *std::ranges::find(kAttentionOptions, name, &AttentionOption::name);
}

/// Sets an option to the word's value.
void set_option(const Word& word, const AttentionOption& option, Problem& p) {
  const std::string wanted = set_from_text(option, word.value, p.options);
  if (!wanted.empty()) word.refuse(wanted);
  const AttentionOptions& o = p.options;
  for (const std::int64_t number :
       {o.query_offset.value_or(0), o.window_left, o.window_right, o.block_mask_q, o.block_mask_k}) {
    if (number < -kMaxLength || number > kMaxLength) word.refuse("a whole number within 2^40 of 0");
  }
}

void read_types(const Word& word, Problem& p) {
  DType* const types[] = {&p.q_type, &p.k_type, &p.v_type, &p.o_type};
  std::istringstream list(word.value);
  std::size_t count = 0;
  for (std::string name; std::getline(list, name, ','); ++count) {
    const auto found = std::ranges::find(kFloats, name, &std::pair<std::string, DType>::first);
    const auto quantized = std::ranges::find(kQuantized, name, &std::pair<std::string, DType>::first);
    const bool is_kv = count == 1 || count == 2;
    if (count == 4 || (found == kFloats.end() && !(is_kv && quantized != kQuantized.end()))) count = 5;
    if (count == 5) break;
    *types[count] = found != kFloats.end() ? found->second : quantized->second;
  }
  if (count == 1) p.k_type = p.v_type = p.o_type = p.q_type;
  if (count != 1 && count != 4)
    word.refuse("one of f32, bf16, f16, f64, or four types (q,k,v,o), of which k and v may be i8, i4 or f8e4m3");
  const auto wide = std::ranges::count_if(types, [](const DType* type) { return *type == DType::f64; });
  if (wide != 0 && wide != 4) word.refuse("f64 for all four or for none");
}

using Read = void (*)(const Word&, Problem&);

/// The keys that are not options or that draw one. Sizes that default to others are filled in afterwards.
const std::vector<std::pair<std::string, Read>> kKeys = {
    {"b", [](const Word& word, Problem& p) { p.batch = word.integer(0); }},
    {"h", [](const Word& word, Problem& p) { p.num_heads = word.integer(1); }},
    {"hkv", [](const Word& word, Problem& p) { p.num_kv_heads = word.integer(1); }},
    {"s", [](const Word& word, Problem& p) { p.seqlen_q = word.integer(0); }},
    {"sq", [](const Word& word, Problem& p) { p.seqlen_q = word.integer(0); }},
    {"sk", [](const Word& word, Problem& p) { p.seqlen_k = word.integer(0); }},
    {"d", [](const Word& word, Problem& p) { p.head_dim = word.integer(1); }},
    {"dv", [](const Word& word, Problem& p) { p.head_dim_v = word.integer(1); }},
    {"dtype", read_types},
    {"mask", [](const Word& word, Problem& p) { p.mask = word.one_of(kMasks); }},
    {"block_mask",
     [](const Word& word, Problem& p) {
       set_option(word, option_named("block_mask_q, block_mask_k"), p);
       p.has_block_mask = true;
     }},
    {"page", [](const Word& word, Problem& p) { p.page_size = word.integer(1); }},
    {"docs", [](const Word& word, Problem& p) { p.documents = word.integer(1); }},
};

const std::vector<std::pair<std::string, bool Problem::*>> kFlags = {{"lengths", &Problem::has_lengths},
                                                                     {"starts", &Problem::has_starts},
                                                                     {"lse", &Problem::has_lse},
                                                                     {"decode", &Problem::calls_decode}};

/// The form of the option's word: KEY=VALUE, the flag of a tensor with one number per head, or that of a bool.
bool is_key(const AttentionOption& option) { return has_text(option) && !option.word_name().empty(); }
bool is_head_numbers(const AttentionOption& option) {
  return option.elements == OptionElements::numbers && !option.word_name().empty();
}
bool is_flag(const AttentionOption& option) {
  return std::holds_alternative<bool AttentionOptions::*>(option.member) && !option.word_name().empty();
}

/// The words of a table and of the options that `is_one` picks, with commas between them.
std::string listed(const auto& table, auto is_one) {
  std::string list;
  for (const auto& entry : table) list += (list.empty() ? "" : ", ") + entry.first;
  for (const AttentionOption& option : kAttentionOptions)
    if (is_one(option)) list += ", " + std::string(option.word_name());
  return list;
}

bool read_flag(const Word& word, Problem& p) {
  const auto flag = std::ranges::find_if(kFlags, [&](const auto& entry) { return entry.first == word.key; });
  if (flag != kFlags.end()) return p.*(flag->second) = true;
  for (const AttentionOption& option : kAttentionOptions) {
    if (option.word_name() != word.key) continue;
    if (is_head_numbers(option)) return p.head_numbers.push_back(&option), true;
    if (is_flag(option)) return p.options.*std::get<bool AttentionOptions::*>(option.member) = true;
  }
  return false;
}

bool read_key(const Word& word, Problem& p) {
  const auto key = std::ranges::find_if(kKeys, [&](const auto& entry) { return entry.first == word.key; });
  if (key != kKeys.end()) return key->second(word, p), true;
  for (const AttentionOption& option : kAttentionOptions)
    if (option.word_name() == word.key && is_key(option)) return set_option(word, option, p), true;
  return false;
}

void read_word(const Word& word, Problem& p) {
  if (word.text == word.key) {
    const auto is_one = [](const AttentionOption& option) { return is_head_numbers(option) || is_flag(option); };
    if (!read_flag(word, p)) word.refuse("KEY=VALUE or one of the flags " + listed(kFlags, is_one));
  } else if (!read_key(word, p)) {
    word.refuse("one of the keys " + listed(kKeys, is_key));
  }
}

void check(const Problem& p) {
  if (p.num_heads % p.num_kv_heads != 0)
    throw std::invalid_argument("h=" + std::to_string(p.num_heads) +
                                " is no multiple of hkv=" + std::to_string(p.num_kv_heads));
  if (p.documents > 0 && p.batch != 1) throw std::invalid_argument("docs= makes the batch: b= cannot be given");
  if (p.documents > 0 && p.page_size > 0) throw std::invalid_argument("docs= and page= exclude each other");
}

}  // namespace

Problem parse_problem(std::string_view line) {
  Problem p;
  std::vector<std::string> seen;
  const auto is_given = [&](const char* key) { return std::ranges::count(seen, key) > 0; };
  std::istringstream words{std::string(line)};
  for (std::string text; words >> text;) {
    const Word word(text);
    if (is_given(word.key.c_str())) throw std::invalid_argument(text + ": " + word.key + " is given twice");
    read_word(word, p);
    seen.push_back(word.key);
  }
  if (!is_given("hkv")) p.num_kv_heads = p.num_heads;
  if (!is_given("sk")) p.seqlen_k = p.seqlen_q;
  if (!is_given("dv")) p.head_dim_v = p.head_dim;
  check(p);
  return p;
}

std::vector<Problem> read_problems(std::istream& in, const std::string& name) {
  std::vector<Problem> problems;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      problems.push_back(parse_problem(line));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(name + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  return problems;
}

std::string Problem::name() const {
  std::ostringstream line;
  const auto add_integer = [&](const char* key, std::int64_t value) { line << ' ' << key << '=' << value; };
  line << "b=" << batch;
  add_integer("h", num_heads);
  if (num_kv_heads != num_heads) add_integer("hkv", num_kv_heads);
  add_integer(seqlen_k == seqlen_q ? "s" : "sq", seqlen_q);
  if (seqlen_k != seqlen_q) add_integer("sk", seqlen_k);
  add_integer("d", head_dim);
  if (head_dim_v != head_dim) add_integer("dv", head_dim_v);
  const bool is_one_type = q_type == k_type && q_type == v_type && q_type == o_type;
  line << " dtype=" << name_of(q_type);
  if (!is_one_type) line << ',' << name_of(k_type) << ',' << name_of(v_type) << ',' << name_of(o_type);
  for (const AttentionOption& option : kAttentionOptions) {
    const bool is_drawn = std::ranges::count(head_numbers, &option) > 0;
    if (is_drawn || (is_flag(option) && is_set(option, options))) line << ' ' << option.word_name();
    if (is_key(option) && is_set(option, options))
      line << ' ' << option.word_name() << '=' << value_text(option, options);
    if (option.name == "mask" && mask) line << " mask=" << name_of(*mask);
    if (option.name == "block_mask" && has_block_mask)
      line << " block_mask=" << value_text(option_named("block_mask_q, block_mask_k"), options);
    if (option.name == "block_table" && page_size > 0) add_integer("page", page_size);
    if (option.name == "cu_seqlens_q" && documents > 0) add_integer("docs", documents);
    if (option.name == "kv_lengths" && has_lengths) line << " lengths";
    if (option.name == "kv_starts" && has_starts) line << " starts";
    if (option.name == "lse" && has_lse) line << " lse";
  }
  if (calls_decode) line << " decode";
  return line.str();
}

double Problem::kv_bytes() const {
  const double rows = static_cast<double>(batch * num_kv_heads) * static_cast<double>(seqlen_k);
  const auto row_bytes = [](DType dtype, std::int64_t dim) {
    if (!is_quantized(dtype)) return dim * static_cast<std::int64_t>(size_of(dtype));
    constexpr std::int64_t kScale = 4;
    return dtype == DType::i4 ? (dim + 31) / 32 * (16 + 2) + kScale
                              : dim + kScale;  // two multipliers for 32 numbers
  };
  return rows * static_cast<double>(row_bytes(k_type, head_dim) + row_bytes(v_type, head_dim_v));
}

}  // namespace saccade::cases
