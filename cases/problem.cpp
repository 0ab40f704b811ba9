#include "cases/problem.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace saccade::cases {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 40;
constexpr double kLowest = std::numeric_limits<double>::lowest();

/// One word of a line, "key=value" or a flag.
struct Word {
  std::string text, key, value;

  explicit Word(std::string word) : text(std::move(word)), key(text.begin(), std::ranges::find(text, '=')) {
    if (text.size() > key.size()) value = text.substr(key.size() + 1);
  }

  [[noreturn]] void refuse(const std::string& wanted) const {
    throw std::invalid_argument(text + ": " + wanted + " is wanted");
  }

  template <class T>
  std::optional<T> number_of(std::string_view digits) const {
    T number{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return number;
  }

  std::int64_t integer(std::int64_t least, std::int64_t most = kLongest) const {
    const auto number = number_of<std::int64_t>(value);
    if (!number || *number < least || *number > most) {
      refuse(most == kLongest ? "a whole number from " + std::to_string(least) + " on"
                              : "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return *number;
  }

  double number(double least, double below, const std::string& wanted) const {
    const auto parsed = number_of<double>(value);
    if (!parsed || !(*parsed >= least && *parsed < below)) refuse(wanted);
    return *parsed;
  }

  std::pair<std::int64_t, std::int64_t> integers(char separator, std::int64_t least) const {
    const std::size_t middle = value.find(separator);
    const std::string wanted =
        std::string("two whole numbers from ") + std::to_string(least) + " on with " + separator + " between them";
    if (middle == std::string::npos) refuse(wanted);
    const auto first = number_of<std::int64_t>(std::string_view(value).substr(0, middle));
    const auto second = number_of<std::int64_t>(std::string_view(value).substr(middle + 1));
    if (!first || !second || *first < least || *second < least || *first > kLongest || *second > kLongest)
      refuse(wanted);
    return {*first, *second};
  }

  /// The one of `names` that the value is.
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

const std::vector<std::pair<std::string, DType>> kFloats = {
    {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}, {"f64", DType::f64}};
const std::vector<std::pair<std::string, DType>> kMasks = {
    {"bool", DType::boolean}, {"f32", DType::f32}, {"f64", DType::f64}};
const std::vector<std::pair<std::string, Layout>> kLayouts = {{"bhld", Layout::bhld}, {"blhd", Layout::blhd}};
const std::vector<std::pair<std::string, Causal>> kCausal = {
    {"none", Causal::none}, {"top_left", Causal::top_left}, {"bottom_right", Causal::bottom_right}};

void read_types(const Word& word, Problem& p) {
  DType* const types[] = {&p.q_type, &p.k_type, &p.v_type, &p.o_type};
  std::istringstream list(word.value);
  std::size_t count = 0;
  for (std::string name; std::getline(list, name, ','); ++count) {
    const auto found = std::ranges::find(kFloats, name, &std::pair<std::string, DType>::first);
    if (count == 4 || found == kFloats.end()) count = 5;
    if (count == 5) break;
    *types[count] = found->second;
  }
  if (count == 1) p.k_type = p.v_type = p.o_type = p.q_type;
  if (count != 1 && count != 4) word.refuse("one of f32, bf16, f16, f64, or four of them (q,k,v,o)");
  const auto wide = std::ranges::count_if(types, [](const DType* type) { return *type == DType::f64; });
  if (wide != 0 && wide != 4) word.refuse("f64 for all four or for none");
}

using Read = void (*)(const Word&, Problem&);

/// What each key means; sizes that follow from others are filled in afterwards.
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
    {"layout", [](const Word& word, Problem& p) { p.layout = word.one_of(kLayouts); }},
    {"scale", [](const Word& word, Problem& p) { p.scale = word.number(kLowest, HUGE_VAL, "a number"); }},
    {"softcap",
     [](const Word& word, Problem& p) { p.softcap = word.number(0, HUGE_VAL, "0 or a positive number"); }},
    {"causal", [](const Word& word, Problem& p) { p.causal = word.one_of(kCausal); }},
    {"offset", [](const Word& word, Problem& p) { p.query_offset = word.integer(-kLongest); }},
    {"window",
     [](const Word& word, Problem& p) { std::tie(p.window_left, p.window_right) = word.integers(',', -1); }},
    {"mask", [](const Word& word, Problem& p) { p.mask = word.one_of(kMasks); }},
    {"block_mask",
     [](const Word& word, Problem& p) { std::tie(p.block_mask_q, p.block_mask_k) = word.integers('x', 1); }},
    {"page", [](const Word& word, Problem& p) { p.page_size = word.integer(1); }},
    {"docs", [](const Word& word, Problem& p) { p.documents = word.integer(1); }},
    {"dropout", [](const Word& word, Problem& p) { p.dropout_p = word.number(0, 1, "a probability below 1"); }},
    {"threads", [](const Word& word, Problem& p) { p.threads = static_cast<int>(word.integer(1, 1024)); }},
};

const std::vector<std::pair<std::string, bool Problem::*>> kFlags = {{"lengths", &Problem::has_lengths},
                                                                     {"alibi", &Problem::has_alibi},
                                                                     {"sinks", &Problem::has_sinks},
                                                                     {"lse", &Problem::has_lse},
                                                                     {"decode", &Problem::calls_decode}};

/// The names of a table, with commas between them.
std::string listed(const auto& table) {
  std::string list;
  for (const auto& entry : table) list += (list.empty() ? "" : ", ") + entry.first;
  return list;
}

void read_word(const Word& word, Problem& p) {
  if (word.text == word.key) {
    const auto flag = std::ranges::find_if(kFlags, [&](const auto& entry) { return entry.first == word.key; });
    if (flag == kFlags.end()) word.refuse("KEY=VALUE or one of the flags " + listed(kFlags));
    p.*(flag->second) = true;
    return;
  }
  const auto key = std::ranges::find_if(kKeys, [&](const auto& entry) { return entry.first == word.key; });
  if (key == kKeys.end()) word.refuse("one of the keys " + listed(kKeys));
  key->second(word, p);
}

void check(const Problem& p) {
  if (p.num_heads % p.num_kv_heads != 0)
    throw std::invalid_argument("h=" + std::to_string(p.num_heads) +
                                " is no multiple of hkv=" + std::to_string(p.num_kv_heads));
  if (p.documents > 0 && p.batch != 1) throw std::invalid_argument("docs= makes the batch: b= is not wanted");
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
  const auto name_in = [](const auto& names, auto meaning) {
    return std::ranges::find_if(names, [&](const auto& entry) { return entry.second == meaning; })->first;
  };
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
  if (layout == Layout::blhd) line << " layout=blhd";
  if (scale) line << " scale=" << *scale;
  if (softcap > 0) line << " softcap=" << softcap;
  if (causal != Causal::none) line << " causal=" << name_in(kCausal, causal);
  if (query_offset) add_integer("offset", *query_offset);
  if (window_left >= 0 || window_right >= 0) line << " window=" << window_left << ',' << window_right;
  if (mask) line << " mask=" << name_of(*mask);
  if (block_mask_q > 0) line << " block_mask=" << block_mask_q << 'x' << block_mask_k;
  if (page_size > 0) add_integer("page", page_size);
  if (documents > 0) add_integer("docs", documents);
  if (has_lengths) line << " lengths";
  if (has_alibi) line << " alibi";
  if (has_sinks) line << " sinks";
  if (has_lse) line << " lse";
  if (dropout_p > 0) line << " dropout=" << dropout_p;
  if (calls_decode) line << " decode";
  if (threads > 0) add_integer("threads", threads);
  return line.str();
}

double Problem::kv_bytes() const {
  const double rows = static_cast<double>(batch * num_kv_heads) * static_cast<double>(seqlen_k);
  return rows * static_cast<double>(head_dim * static_cast<std::int64_t>(size_of(k_type)) +
                                    head_dim_v * static_cast<std::int64_t>(size_of(v_type)));
}

}  // namespace saccade::cases
