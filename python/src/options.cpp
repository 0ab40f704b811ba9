#include "options.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "saccade/attention_options.h"
#include "score_program.h"

namespace saccade::python {
namespace {

/// The value of an enum that the object names. `also`: another accepted value, for the message.
template <class Enum>
Enum value_named(nb::handle object, std::string_view argument, const std::string& also = "") {
  if (const auto value = option_value<Enum>(text(object, argument))) return *value;
  std::string wanted = also;
  const auto& names = OptionNames<Enum>::names;
  for (const std::string_view name : names) {
    if (!also.empty() && name == "none") continue;
    wanted += (wanted.empty() ? "" : name == names.back() ? " or " : ", ") + ("'" + std::string(name) + "'");
  }
  refuse(argument, "expected " + wanted + ", got " + shown(object));
}

bool is_integer(nb::handle object) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  PyErr_Clear();
  return index.is_valid();
}

/// Two integers of at least `smallest`, or one that is used for both.
std::array<std::int64_t, 2> pair(nb::handle object, std::string_view name, std::int64_t smallest) {
  const auto within = [&](nb::handle item) {
    const std::int64_t value = integer(item, name);
    if (value < smallest)
      refuse(name, "expected integers of at least " + std::to_string(smallest) + ", got " + shown(object));
    return value;
  };
  if (!PyTuple_Check(object.ptr()) && is_integer(object)) return {within(object), within(object)};
  const bool are_two = PySequence_Check(object.ptr()) && PySequence_Size(object.ptr()) == 2;
  const nb::object first = nb::steal(are_two ? PySequence_GetItem(object.ptr(), 0) : nullptr),
                   second = nb::steal(first.is_valid() ? PySequence_GetItem(object.ptr(), 1) : nullptr);
  if (!second.is_valid()) {
    PyErr_Clear();
    refuse(name, "expected two integers, got " + shown(object));
  }
  return {within(first), within(second)};
}

/// Numbers as f32, or f64 as they are; numpy.asarray has made f64 or i64 of a list.
Array numbers(nb::handle object, std::string_view name) {
  Array array(object, name);
  const DType dtype = array.view().dtype;
  if (dtype != DType::boolean && dtype != DType::f64) array.convert_to(DType::f32);
  return array;
}

Array integers(nb::handle object, std::string_view name) {
  Array array(object, name);
  const DType dtype = array.view().dtype;
  if (is_floating(dtype)) refuse(name, "expected integers, got " + std::string(name_of(dtype)));
  return array;
}

/// A mask. 16-bit types are widened to f32, which is exact.
Array mask(nb::handle object, std::string_view name) {
  Array array(object, name);
  const DType dtype = array.view().dtype;
  if (dtype != DType::boolean && !is_floating(dtype))
    refuse(name,
           "expected bool (True = attend) or floating numbers to be added, got " + std::string(name_of(dtype)));
  if (dtype == DType::f16 || dtype == DType::bf16) array.convert_to(DType::f32);
  return array;
}

Array tensor(nb::handle object, std::string_view name, OptionElements elements) {
  if (elements == OptionElements::numbers) return numbers(object, name);
  if (elements == OptionElements::mask) return mask(object, name);
  if (elements == OptionElements::f32) {
    Array array = numbers(object, name);
    array.convert_to(DType::f32);
    return array;
  }
  return Array(object, name);
}

/// Sets an option of the table according to its type and elements.
void set_option(Options& o, nb::handle v, const AttentionOption* row) {
  const AttentionOption& option = *row;
  const std::string_view name = option.python_name();
  const auto set = [&]<class T>(T AttentionOptions::*member) {
    T& value = o.value.*member;
    if constexpr (std::is_same_v<T, TensorView>)
      value = o.hold(tensor(v, name, option.elements));
    else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>)
      value = number(v, name);
    else if constexpr (std::is_same_v<T, bool>)
      value = boolean(v, name);
    else if constexpr (std::is_enum_v<T>)
      value = value_named<T>(v, name);
    else if constexpr (std::is_same_v<T, int>)  // clamped: -1 is refused, 65536 is more than is ever used
      value = static_cast<int>(std::clamp<std::int64_t>(integer(v, name), -1, 1 << 16));
    else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>)
      value = integer(v, name);
    else
      throw std::logic_error(std::string(name) + " has no conversion from Python");
  };
  const auto visit = [&](auto member) {
    if constexpr (std::is_same_v<decltype(member), OptionPair>) {
      const auto [first, second] = pair(v, name, member.minimum);
      o.value.*member.first = first;
      o.value.*member.second = second;
    } else {
      set(member);
    }
  };
  std::visit(visit, option.member);
}

struct Entry {
  std::string_view name;
  void (*set)(Options&, nb::handle, const AttentionOption*);
  const AttentionOption* option = nullptr;
};

/// Keywords that have no row in the table or need more than their row.
constexpr Entry kOwnEntries[] = {
    {"block_table",
     [](Options& o, nb::handle v, const AttentionOption*) {
       Array table(v, "block_table");
       table.copy_numbers();  // checked once, then read during the whole call
       o.value.block_table = o.hold(std::move(table));
     }},
    {"causal", [](Options& o, nb::handle v, const AttentionOption*) { o.value.causal = causal_named(v); }},
    {"query_offset",
     [](Options& o, nb::handle v, const AttentionOption*) {
       if (is_integer(v))
         o.value.query_offset = integer(v, "query_offset");
       else
         o.value.query_offsets = o.hold(integers(v, "query_offset"));
     }},
    {"score_mod", [](Options& o, nb::handle v, const AttentionOption*) { o.hold_modifier(v); }},
    {"score_mod_backward", [](Options&, nb::handle, const AttentionOption*) {}},  // read with score_mod
    {"score_stage",
     [](Options& o, nb::handle v, const AttentionOption*) {
       o.value.score_stage = value_named<ScoreStage>(v, "score_stage");
     }},
    {"scores", [](Options& o, nb::handle v, const AttentionOption*) { o.hold_scores(v); }},
    {"seed", [](Options& o, nb::handle v, const AttentionOption*) { o.value.dropout_seed = seed(v); }},
};

/// Every keyword, sorted by name.
std::vector<Entry> make_entries() {
  std::vector<Entry> entries(std::begin(kOwnEntries), std::end(kOwnEntries));
  for (const AttentionOption& option : kAttentionOptions) {
    const std::string_view name = option.python_name();
    const bool is_result = std::holds_alternative<MutableTensorView AttentionOptions::*>(option.member);
    if (name.empty() || is_result) continue;
    const auto own = std::ranges::find(entries, name, &Entry::name);
    if (own == entries.end())
      entries.push_back({name, &set_option, &option});
    else
      own->option = &option;
  }
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = make_entries();
  return all;
}

nb::object default_of(const AttentionOption& option) {
  const AttentionOptions& usual = kDefaultAttentionOptions;
  const auto of_member = [&](auto member) -> nb::object {
    if constexpr (std::is_same_v<decltype(member), OptionPair>) {
      return nb::make_tuple(usual.*member.first, usual.*member.second);
    } else {
      const auto& value = usual.*member;
      using Value = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, bool>)
        return nb::bool_(value);
      else if constexpr (std::is_integral_v<Value>)
        return nb::int_(value);
      else if constexpr (std::is_floating_point_v<Value>)
        return nb::float_(value);
      else if constexpr (std::is_enum_v<Value> && !std::is_same_v<Value, Causal>)
        return nb::str(option_name(value).data());
      else
        return nb::none();
    }
  };
  return std::visit(of_member, option.member);
}

}  // namespace

Options::Options(const nb::dict& given) {
  if (given.contains("score_mod_backward")) modifier_backward_ = nb::borrow(given["score_mod_backward"]);
  for (const auto& [key, object] : given) {
    if (object.is_none()) continue;
    const std::string name = text_of(key);
    const auto entry = std::ranges::lower_bound(entries(), name, {}, &Entry::name);
    if (entry == entries().end() || entry->name != name)
      throw nb::type_error(("got an unexpected keyword argument '" + name + "'").c_str());
    entry->set(*this, object, entry->option);
    names_.resize(held_.size(), entry->name);
  }
}

const TensorView& Options::hold(Array array) { return held_.emplace_back(std::move(array)).view(); }

void Options::hold_scores(nb::handle scores) {
  scores_ = Result(scores, "scores");
  value.scores = scores_.view();
}

void Options::hold_modifier(nb::handle forward) {
  if (nb::isinstance<ScoreProgram>(forward)) {
    program_ = nb::borrow(forward);
    return nb::cast<ScoreProgram&>(forward).add_to(value);
  }
  modifier_ = std::make_unique<PythonScoreModifier>(nb::borrow(forward), modifier_backward_);
  modifier_->add_to(value);
}

void Options::require_apart(const Result& out, std::initializer_list<Operand> operands) const {
  const auto check = [&](const TensorView& view, std::string_view name) {
    out.require_apart_from(view, name);
    if (value.scores) scores_.require_apart_from(view, name);
  };
  for (const auto& [name, array] : operands) check(array->given(), name);
  for (std::size_t i = 0; i < held_.size(); ++i) check(held_[i].given(), names_[i]);
}

void Options::set_locked(const void* object) {
  if (modifier_) modifier_->set_locked(object);
}

void Options::rethrow() const {
  if (modifier_) modifier_->rethrow();
  if (program_) nb::cast<ScoreProgram&>(program_).rethrow();
}

Causal causal_named(nb::handle object) {
  if (PyBool_Check(object.ptr()))
    refuse("causal", "expected None, 'top_left' or 'bottom_right', got " + shown(object) + "; " + kCausalChoices);
  return value_named<Causal>(object, "causal", "None");
}

Layout layout_named(nb::handle object) { return value_named<Layout>(object, "layout"); }

nb::list option_table() {
  nb::list rows;
  for (const AttentionOption& option : kAttentionOptions)
    rows.append(nb::make_tuple(std::string(option.name), std::string(option.python_name()), option.command_name(),
                               std::string(option.word_name()), default_of(option)));
  return rows;
}

}  // namespace saccade::python
