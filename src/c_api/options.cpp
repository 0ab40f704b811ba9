#include "c_api/options.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "c_api/call.h"
#include "saccade/attention_options.h"

namespace saccade {
template <>
struct OptionNames<Pooling> {
  static constexpr std::array<std::string_view, 2> names{"mean", "max"};
};
template <>
struct OptionNames<RopePairs> {
  static constexpr std::array<std::string_view, 2> names{"half", "interleaved"};
};
}  // namespace saccade

namespace saccade::c_api {
namespace {

using Value = saccade_options::Value;

constexpr std::string_view kSet = "saccade_options_set";

/// An option that is being set.
struct Setting {
  std::string_view name;
  const Value& value;

  template <class T>
  const T& as(std::string_view wanted) const {
    if (const T* const given = std::get_if<T>(&value)) return *given;
    static constexpr std::string_view kGiven[] = {"nothing", "a whole number", "a number", "a text", "a tensor"};
    refuse(kSet, name, " must be ", wanted, ", but ", kGiven[value.index()], " was given");
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) const {
    const auto number = as<std::int64_t>("a whole number");
    if (number < least || number > most)
      refuse(kSet, name, " must be from ", least, " to ", most, ", but it is ", number);
    return number;
  }
  double number() const {
    const auto* const whole = std::get_if<std::int64_t>(&value);
    return whole != nullptr ? static_cast<double>(*whole) : as<double>("a number");
  }
  /// The numbers of a one-dimensional tensor.
  template <class T>
  std::vector<T> list() const {
    const TensorView view = as<MutableTensorView>("a tensor");
    check_dtype(kSet, name, view, dtype_of<T>);
    if (view.rank != 1) refuse(kSet, name, " must have rank 1, but it has rank ", int{view.rank});
    const Tensor contiguous = Tensor::copy_of(view);
    return {contiguous.values<T>().begin(), contiguous.values<T>().end()};
  }
};

template <class Enum>
std::string list_of_names() {
  std::string list;
  for (const std::string_view name : OptionNames<Enum>::names)
    list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

void assign(std::int64_t& target, const Setting& setting) {
  target = setting.integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}
void assign(std::uint64_t& target, const Setting& setting) {
  target = static_cast<std::uint64_t>(setting.as<std::int64_t>("a whole number"));
}
void assign(int& target, const Setting& setting) {
  target = static_cast<int>(setting.integer(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}
void assign(std::uint32_t& target, const Setting& setting) {
  target = static_cast<std::uint32_t>(setting.integer(0, std::numeric_limits<std::uint32_t>::max()));
}
void assign(bool& target, const Setting& setting) { target = setting.integer(0, 1) == 1; }
void assign(double& target, const Setting& setting) { target = setting.number(); }
void assign(DType& target, const Setting& setting) {
  target = dtype_from_name(setting.as<std::string_view>("a text"));
}
void assign(BackendChoice& target, const Setting& setting) {
  target = BackendChoice(setting.as<std::string_view>("a text"));
}
void assign(TensorView& target, const Setting& setting) { target = setting.as<MutableTensorView>("a tensor"); }
void assign(MutableTensorView& target, const Setting& setting) {
  target = setting.as<MutableTensorView>("a tensor");
}
void assign(std::vector<std::int64_t>& target, const Setting& setting) { target = setting.list<std::int64_t>(); }
void assign(std::vector<double>& target, const Setting& setting) { target = setting.list<double>(); }
template <class T>
void assign(std::optional<T>& target, const Setting& setting) {
  T value{};
  assign(value, setting);
  target = value;
}
template <class Enum>
requires std::is_enum_v<Enum>
void assign(Enum& target, const Setting& setting) {
  const std::string name(setting.as<std::string_view>("a text"));
  const std::optional<Enum> value = option_value<Enum>(name);
  if (!value) refuse(kSet, setting.name, " must be one of ", list_of_names<Enum>(), ", but it is '", name, "'");
  target = *value;
}

/// Sets a member, or resets it to its default.
template <class T>
void set_member(T& target, const T& usual, const Setting& setting) {
  if (std::holds_alternative<std::monostate>(setting.value))
    target = usual;
  else
    assign(target, setting);
}

[[noreturn]] void refuse_name(std::string_view kind, std::string_view name, const std::string& known) {
  refuse(kSet, kind, " has no option '", std::string(name), "'; it has ", known);
}

/// The members of options that have no table of their own.
template <class Options>
struct NamedMember {
  std::string_view name;
  void (*set)(Options& options, const Options& usual, const Setting& setting);
};

template <auto kMember, class Options>
constexpr NamedMember<Options> named(std::string_view name) {
  return {name, [](Options& options, const Options& usual, const Setting& setting) {
            set_member(options.*kMember, usual.*kMember, setting);
          }};
}

template <class Options, std::size_t kCount>
void set_named(Options& options, std::string_view kind, const NamedMember<Options> (&members)[kCount],
               const Setting& setting) {
  static const Options usual{};
  std::string known;
  for (const NamedMember<Options>& member : members) {
    if (member.name == setting.name) return member.set(options, usual, setting);
    known += (known.empty() ? "" : ", ") + std::string(member.name);
  }
  refuse_name(kind, setting.name, known);
}

constexpr NamedMember<Origin> kOriginMembers[] = {
    named<&Origin::batch, Origin>("origin_batch"), named<&Origin::head, Origin>("origin_head"),
    named<&Origin::num_heads, Origin>("origin_num_heads"), named<&Origin::row, Origin>("origin_row"),
    named<&Origin::key, Origin>("origin_key")};

/// Sets what a row of the options' table names. Returns whether it has that name.
bool set_row(AttentionOptions& options, const AttentionOption& row, const Setting& setting) {
  if (const auto* const pair = std::get_if<OptionPair>(&row.member)) {
    const std::size_t comma = row.name.find(", ");
    const bool is_first = row.name.substr(0, comma) == setting.name;
    if (!is_first && row.name.substr(comma + 2) != setting.name) return false;
    const auto member = is_first ? pair->first : pair->second;
    set_member(options.*member, kDefaultAttentionOptions.*member, setting);
    return true;
  }
  if (row.name != setting.name) return false;
  std::visit(
      [&](auto member) {
        using Member = decltype(member);
        if constexpr (std::is_same_v<Member, ScoreModifier AttentionOptions::*> ||
                      std::is_same_v<Member, ScoreModifierBackward AttentionOptions::*> ||
                      std::is_same_v<Member, ScoreBlockEffect AttentionOptions::*> ||
                      std::is_same_v<Member, void * AttentionOptions::*>)
          refuse(kSet, setting.name, " is set by saccade_options_set_score_modifier()");
        else if constexpr (std::is_same_v<Member, Origin AttentionOptions::*>)
          refuse(kSet, "origin is set by origin_batch, origin_head, origin_num_heads, origin_row and origin_key");
        else if constexpr (!std::is_same_v<Member, OptionPair>)
          set_member(options.*member, kDefaultAttentionOptions.*member, setting);
      },
      row.member);
  return true;
}

std::string attention_names() {
  std::string known;
  for (const AttentionOption& row : kAttentionOptions)
    if (row.name != "origin" && !row.name.starts_with("score_modifier") && row.name != "score_block_effect" &&
        row.name != "score_context")
      known += std::string(row.name) + ", ";
  for (const NamedMember<Origin>& member : kOriginMembers) known += std::string(member.name) + ", ";
  known += "dlse";
  for (const auto& option : kOptionGradients<MutableTensorView>) known += ", " + std::string(option.name);
  return known;
}

saccade_score_tile tile_of(const ScoreBlock& block) {
  return {.batch = block.batch,
          .head = block.head,
          .first_row = block.first_row,
          .first_key = block.first_key,
          .rows = block.rows,
          .keys = block.keys,
          .offset = block.offset,
          .scores = nullptr,
          .stride = 0,
          .dtype = SACCADE_F32};
}
saccade_score_tile tile_of(const ScoreTile& tile) {
  saccade_score_tile result = tile_of(static_cast<const ScoreBlock&>(tile));
  result.scores = tile.scores, result.stride = tile.stride, result.dtype = static_cast<saccade_dtype>(tile.dtype);
  return result;
}

// What C++ calls, with a ScoreFunctions as its context.
void call_modifier(void* self, const ScoreTile& tile) {
  const auto& functions = *static_cast<const ScoreFunctions*>(self);
  const saccade_score_tile given = tile_of(tile);
  functions.modifier(functions.context, &given);
}
void call_backward(void* self, const ScoreTile& scores, const ScoreTile& gradients) {
  const auto& functions = *static_cast<const ScoreFunctions*>(self);
  const saccade_score_tile given = tile_of(scores), to_change = tile_of(gradients);
  functions.backward(functions.context, &given, &to_change);
}
BlockEffect call_effect(void* self, const ScoreBlock& block) {
  const auto& functions = *static_cast<const ScoreFunctions*>(self);
  const saccade_score_tile given = tile_of(block);
  const std::int32_t effect = functions.effect(functions.context, &given);
  return effect == 0 ? BlockEffect::skip : effect == 1 ? BlockEffect::full : BlockEffect::partial;
}

}  // namespace

void AttentionOptionSet::set(std::string_view name, const Value& value) {
  const Setting setting{name, value};
  for (const AttentionOption& row : kAttentionOptions)
    if (set_row(options_, row, setting)) return;
  for (const NamedMember<Origin>& member : kOriginMembers)
    if (member.name == name) return member.set(options_.origin, Origin{}, setting);
  if (name == "dlse") return set_member(dlse_, TensorView(), setting);
  for (const auto& option : kOptionGradients<MutableTensorView>)
    if (option.name == name) return set_member(gradients_.*option.gradient, MutableTensorView(), setting);
  refuse_name("attention", name, attention_names());
}

void AttentionOptionSet::set_score_functions(const ScoreFunctions& functions) {
  functions_ = functions;
  options_.score_modifier = functions.modifier ? call_modifier : nullptr;
  options_.score_modifier_backward = functions.backward ? call_backward : nullptr;
  options_.score_block_effect = functions.effect ? call_effect : nullptr;
  options_.score_context = &functions_;
}

void KvCacheOptionSet::set(std::string_view name, const Value& value) {
  using O = KvCacheOptions;
  static constexpr NamedMember<O> kMembers[] = {
      named<&O::batch, O>("batch"),       named<&O::num_kv_heads, O>("num_kv_heads"),
      named<&O::head_dim, O>("head_dim"), named<&O::head_dim_v, O>("head_dim_v"),
      named<&O::dtype, O>("dtype"),       named<&O::page_size, O>("page_size"),
      named<&O::window, O>("window"),     named<&O::causal, O>("causal"),
      named<&O::capacity, O>("capacity"), named<&O::dtype_v, O>("dtype_v"),
      named<&O::rotate, O>("rotate")};
  set_named(options, "a cache", kMembers, {name, value});
}

void InspectOptionSet::set(std::string_view name, const Value& value) {
  using O = InspectOptions;
  static constexpr NamedMember<O> kMembers[] = {named<&O::rows, O>("rows"),
                                                named<&O::top_k, O>("top_k"),
                                                named<&O::index_dtype, O>("index_dtype"),
                                                named<&O::entropy, O>("entropy"),
                                                named<&O::max_weight, O>("max_weight"),
                                                named<&O::received, O>("received"),
                                                named<&O::distance, O>("distance"),
                                                named<&O::pool_rows, O>("pool_rows"),
                                                named<&O::pool_keys, O>("pool_keys"),
                                                named<&O::pooling, O>("pooling"),
                                                named<&O::lse, O>("lse")};
  set_named(options, "inspection", kMembers, {name, value});
}

void RopeOptionSet::set(std::string_view name, const Value& value) {
  using O = RopeOptions;
  static constexpr NamedMember<O> kMembers[] = {
      named<&O::base, O>("base"), named<&O::scaling_factor, O>("scaling_factor"),
      named<&O::rotary_dim, O>("rotary_dim"), named<&O::pairs, O>("pairs"),
      named<&O::frequencies, O>("frequencies")};
  set_named(options, "a rotary embedding", kMembers, {name, value});
}

namespace {

saccade_status set_option(saccade_options* options, const char* name, const saccade_options::Value& value) {
  return guarded([&] { required(kSet, "options", options).set(text_of(kSet, "name", name), value); });
}

}  // namespace
}  // namespace saccade::c_api

using namespace saccade;
using namespace saccade::c_api;

saccade_status saccade_options_create(saccade_options_kind kind, saccade_options** options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_options_create";
    saccade_options*& result = required(kFunction, "options", options);
    if (kind == SACCADE_ATTENTION_OPTIONS)
      result = new AttentionOptionSet;
    else if (kind == SACCADE_KV_CACHE_OPTIONS)
      result = new KvCacheOptionSet;
    else if (kind == SACCADE_INSPECT_OPTIONS)
      result = new InspectOptionSet;
    else if (kind == SACCADE_ROPE_OPTIONS)
      result = new RopeOptionSet;
    else
      refuse(kFunction, "kind must be from 0 to ", SACCADE_ROPE_OPTIONS, ", but it is ", kind);
  });
}

void saccade_options_destroy(saccade_options* options) { delete options; }

saccade_status saccade_options_set_i64(saccade_options* options, const char* name, std::int64_t value) {
  return set_option(options, name, value);
}

saccade_status saccade_options_set_f64(saccade_options* options, const char* name, double value) {
  return set_option(options, name, value);
}

saccade_status saccade_options_set_text(saccade_options* options, const char* name, const char* value) {
  return guarded([&] {
    const std::string_view text = text_of(kSet, "value", value);
    required(kSet, "options", options).set(text_of(kSet, "name", name), text);
  });
}

saccade_status saccade_options_set_tensor(saccade_options* options, const char* name,
                                          const saccade_tensor* value) {
  return guarded([&] {
    const std::string_view key = text_of(kSet, "name", name);
    required(kSet, "options", options).set(key, view_of(kSet, key, value));
  });
}

saccade_status saccade_options_unset(saccade_options* options, const char* name) {
  return set_option(options, name, std::monostate());
}

saccade_status saccade_options_set_score_modifier(saccade_options* options, saccade_score_modifier modifier,
                                                  saccade_score_modifier_backward backward,
                                                  saccade_score_block_effect effect, void* context) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_options_set_score_modifier";
    saccade_options& given = required(kFunction, "options", options);
    if (given.kind != AttentionOptionSet::kKind)
      refuse(kFunction, "options must be of kind SACCADE_ATTENTION_OPTIONS");
    static_cast<AttentionOptionSet&>(given).set_score_functions(
        {.modifier = modifier, .backward = backward, .effect = effect, .context = context});
  });
}
