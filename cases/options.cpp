#include "cases/options.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <type_traits>

#include "cases/scattered_tensor.h"
#include "cases/text_numbers.h"

namespace saccade::cases {
namespace {

const AttentionOptions kDefaults{};

template <class T>
constexpr bool kIsTensor = std::is_same_v<T, TensorView> || std::is_same_v<T, MutableTensorView>;
template <class T>
constexpr bool kIsPointer = std::is_pointer_v<T>;
template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
/// Whether values of this type can be given as text: numbers and names.
template <class T>
constexpr bool kHasText =
    !kIsTensor<T> && !kIsPointer<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, Origin>;

/// Calls visitor(member of `options`, member of the defaults), for a pair twice.
template <class Options, class Visitor>
void for_each_member(const AttentionOption& option, Options& options, Visitor visitor) {
  const auto visit = [&](auto member) {
    if constexpr (std::is_same_v<decltype(member), OptionPair>) {
      visitor(options.*member.first, kDefaults.*member.first);
      visitor(options.*member.second, kDefaults.*member.second);
    } else {
      visitor(options.*member, kDefaults.*member);
    }
  };
  std::visit(visit, option.member);
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (kIsOptional<T>) {
    return value ? text_of(*value) : std::string();
  } else if constexpr (kIsTensor<T>) {
    return std::string(name_of(value.dtype)) + " " + to_string(value.dims());
  } else if constexpr (std::is_same_v<T, Origin>) {
    return "batch " + text_of(value.batch) + ", head " + text_of(value.head) + ", row " + text_of(value.row) +
           ", key " + text_of(value.key);
  } else if constexpr (!kHasText<T>) {
    return {};
  } else if constexpr (std::is_same_v<T, BackendChoice>) {
    return std::string(value.names());
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(option_name(value));
  } else {
    std::ostringstream text;
    text << value;
    return text.str();
  }
}

std::string number_in(const OptionRange& range) {
  if (range.exclusive_maximum == 1.0) return "a probability below 1";
  return range.minimum == 0.0 ? "0 or a positive number" : "a number";
}

std::string integer_in(const OptionRange& range) {
  const auto text = [](double number) { return std::to_string(static_cast<std::int64_t>(number)); };
  if (range.minimum == OptionRange{}.minimum) return "a whole number";
  if (range.exclusive_maximum == OptionRange{}.exclusive_maximum)
    return "a whole number from " + text(range.minimum) + " on";
  return "a whole number from " + text(range.minimum) + " to " + text(range.exclusive_maximum - 1);
}

/// Sets the value of one number or name; returns what was expected if the text is invalid.
template <class T>
std::string set_value(const AttentionOption& option, std::string_view text, T& value) {
  if constexpr (kIsOptional<T>) {
    typename T::value_type number{};
    const std::string wanted = set_value(option, text, number);
    if (wanted.empty()) value = number;
    return wanted;
  } else if constexpr (std::is_enum_v<T>) {
    std::string name(text), list;
    std::ranges::replace(name, '-', '_');
    if (const auto named = option_value<T>(name)) return value = *named, "";
    for (const std::string_view known : OptionNames<T>::names)
      list += (list.empty() ? "" : ", ") + std::string(known);
    return "one of " + list;
  } else if constexpr (std::is_same_v<T, BackendChoice>) {
    try {
      value = text;
    } catch (const std::invalid_argument&) {
      std::string list;
      for (const BackendInfo& known : available_backends())
        list += (list.empty() ? "" : ", ") + std::string(known.name);
      return "one or more of " + list + " with commas between them";
    }
    return {};
  } else {
    const auto number = [&] {
      if constexpr (std::is_integral_v<T>)
        return whole_number(text);
      else
        return finite_number(text);
    }();
    const bool fits = number && static_cast<double>(*number) >= option.range.minimum &&
                      static_cast<double>(*number) < option.range.exclusive_maximum;
    if (!fits) return std::is_integral_v<T> ? integer_in(option.range) : number_in(option.range);
    value = static_cast<T>(*number);
    return {};
  }
}

/// The name of the option's member; for a pair, that of the first.
std::string_view member_name(const AttentionOption& option) {
  return option.name.substr(0, option.name.find(','));
}

std::string set_pair(const OptionPair& pair, std::string_view text, AttentionOptions& options) {
  const std::size_t middle = std::min(text.find(pair.separator), text.size());
  const auto first = whole_number(text.substr(0, middle));
  const auto second = whole_number(text.substr(std::min(middle + 1, text.size())));
  if (!first || !second || *first < pair.minimum || *second < pair.minimum)
    return "two whole numbers from " + std::to_string(pair.minimum) + " on with " + pair.separator +
           " between them";
  options.*pair.first = *first;
  options.*pair.second = *second;
  return {};
}

}  // namespace

bool is_set(const AttentionOption& option, const AttentionOptions& options) {
  bool found = false;
  for_each_member(option, options, [&](const auto& value, const auto& otherwise) {
    using T = std::remove_cvref_t<decltype(value)>;
    if constexpr (kIsTensor<T>)
      found = found || bool(value);
    else
      found = found || value != otherwise;
  });
  return found;
}

std::vector<std::string> names_of_set(const AttentionOptions& options) {
  std::vector<std::string> names;
  for (const AttentionOption& option : kAttentionOptions)
    if (is_set(option, options)) names.emplace_back(member_name(option));
  return names;
}

bool is_option_name(std::string_view name) {
  return std::ranges::find(kAttentionOptions, name, member_name) != std::end(kAttentionOptions);
}

void leave_out(std::string_view name, AttentionOptions& options) {
  const auto option = std::ranges::find(kAttentionOptions, name, member_name);
  if (option == std::end(kAttentionOptions)) return;
  for_each_member(*option, options, [](auto& value, const auto& otherwise) { value = otherwise; });
}

std::string value_text(const AttentionOption& option, const AttentionOptions& options) {
  std::string text;
  const auto* const pair = std::get_if<OptionPair>(&option.member);
  for_each_member(option, options, [&](const auto& value, const auto&) {
    if (pair && !text.empty()) text += pair->separator;
    text += text_of(value);
  });
  return text;
}

bool has_text(const AttentionOption& option) {
  const auto visit = [](auto member) {
    if constexpr (std::is_same_v<decltype(member), OptionPair>) {
      return true;
    } else {
      return kHasText<std::remove_cvref_t<decltype(kDefaults.*member)>>;
    }
  };
  return std::visit(visit, option.member);
}

std::string set_from_text(const AttentionOption& option, std::string_view text, AttentionOptions& options) {
  if (const auto* const pair = std::get_if<OptionPair>(&option.member)) return set_pair(*pair, text, options);
  std::string wanted;
  for_each_member(option, options, [&](auto& value, const auto&) {
    if constexpr (kHasText<std::remove_cvref_t<decltype(value)>>) wanted = set_value(option, text, value);
  });
  return wanted;
}

void draw_option(const AttentionOption& option, std::int64_t heads, Random& random, AttentionOptions& options,
                 std::vector<Tensor>& tensors) {
  const OptionDraw& draw = option.draw;
  const auto value = [&] {
    return draw.values[static_cast<std::size_t>(random.uniform(0, static_cast<std::int64_t>(draw.count) - 1))];
  };
  for_each_member(option, options, [&](auto& drawn, const auto&) {
    using T = std::remove_cvref_t<decltype(drawn)>;
    if constexpr (std::is_same_v<T, TensorView>) {
      Tensor& numbers = tensors.emplace_back(DType::f32, Shape{heads});
      draw_numbers(numbers, draw.values[0], random);
      drawn = numbers;
    } else if constexpr (std::is_enum_v<T>) {
      drawn = static_cast<T>(random.uniform(1, static_cast<std::int64_t>(OptionNames<T>::names.size()) - 1));
    } else if constexpr (std::is_same_v<T, bool>) {
      drawn = !drawn;
    } else if constexpr (kIsOptional<T>) {
      drawn = static_cast<typename T::value_type>(value());
    } else if constexpr (std::is_arithmetic_v<T>) {
      drawn = static_cast<T>(value());
    }
  });
}

}  // namespace saccade::cases
