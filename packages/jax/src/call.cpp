#include "call.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "saccade/attention_options.h"

namespace saccade::jax {
namespace {

DType dtype_of_buffer(std::string_view name, ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return DType::f32;
    case ffi::DataType::F64:
      return DType::f64;
    case ffi::DataType::F16:
      return DType::f16;
    case ffi::DataType::BF16:
      return DType::bf16;
    case ffi::DataType::PRED:
      return DType::boolean;
    case ffi::DataType::S8:
      return DType::i8;
    case ffi::DataType::F8E4M3FN:
      return DType::f8e4m3;
    case ffi::DataType::S32:
      return DType::i32;
    case ffi::DataType::S64:
      return DType::i64;
    case ffi::DataType::U32:
      return DType::u32;
    default:
      throw std::invalid_argument("[attention] " + std::string(name) + " has an element type that no tensor has");
  }
}

std::vector<std::string_view> split(std::string_view names) {
  std::vector<std::string_view> parts;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    parts.push_back(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return parts;
}

std::int64_t product(const std::vector<std::int64_t>& lengths) {
  std::int64_t count = 1;
  for (const std::int64_t length : lengths) count *= length;
  return count;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

template <class T>
T Call::attribute(std::string_view name) const {
  const ffi::ErrorOr<T> value = attributes_.get<T>(name);
  if (!value.has_value()) throw std::logic_error("[attention] attribute " + std::string(name) + " is missing");
  return *value;
}

template std::int64_t Call::attribute<std::int64_t>(std::string_view) const;

Call::Call(const ffi::RemainingArgs& operands, const ffi::RemainingRets& results,
           const ffi::Dictionary& attributes, Pass pass)
    : attributes_(attributes) {
  const auto operand_names = split(attribute<std::string_view>("operands")),
             result_names = split(attribute<std::string_view>("results"));
  if (operand_names.size() != operands.size() || result_names.size() != results.size())
    throw std::logic_error("[attention] names and arrays differ in number");
  auto first = *results.get<ffi::AnyBuffer>(0);
  const auto dims = first->dimensions();
  leading_.assign(dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(attribute<std::int64_t>("rank")));
  mapped_ = product(leading_);
  for (std::size_t i = 0; i < operand_names.size(); ++i)
    operands_.push_back(array_of(operand_names[i], *operands.get<ffi::AnyBuffer>(i)));
  for (std::size_t i = 0; i < result_names.size(); ++i)
    results_.push_back(array_of(result_names[i], *results.get<ffi::AnyBuffer>(i).value()));
  const bool has_option_gradients =
      pass == Pass::backward && std::ranges::any_of(results_, [](const Array& array) {
        return is_one_of(array.name, {"dsinks", "dalibi_slopes"});
      });
  merged_ = mapped_ > 1 && !has_option_gradients && can_merge();
  parts_ = merged_ ? 1 : mapped_;
}

Call::Array Call::array_of(std::string_view name, const ffi::AnyBuffer& buffer) const {
  const auto dims = buffer.dimensions();
  if (dims.size() < leading_.size())
    throw std::logic_error("[attention] " + std::string(name) + " lacks dimensions");
  const auto middle = dims.begin() + static_cast<std::ptrdiff_t>(leading_.size());
  return {name,
          buffer.untyped_data(),
          dtype_of_buffer(name, buffer.element_type()),
          {dims.begin(), middle},
          {middle, dims.end()}};
}

const Call::Array* Call::find(const std::vector<Array>& arrays, std::string_view name) const {
  const auto found = std::ranges::find(arrays, name, &Array::name);
  return found == arrays.end() ? nullptr : &*found;
}

bool Call::can_merge() const {
  // Every mapped call draws the same dropout, and documents have no batch.
  if (find(operands_, "dropout_seed") != nullptr || find(operands_, "cu_seqlens_q") != nullptr) return false;
  const std::int64_t batch = find(operands_, "q")->lengths[0];
  return std::ranges::all_of(operands_, [&](const Array& array) { return can_merge(array, batch); });
}

/// Whether the dimensions of vmap and the batch of an operand are one dimension with one stride.
bool Call::can_merge(const Array& array, std::int64_t batch) const {
  const bool is_mapped = array.leading == leading_, is_shared = product(array.leading) == 1;
  const bool has_batch = !(array.name == "sinks" || (array.name == "alibi_slopes" && array.lengths.size() == 1));
  if (!has_batch) return is_shared;
  if (is_mapped) return array.lengths[0] == batch;
  if (!is_shared) return false;
  const bool has_gradient = array.name == "mask" && find(results_, "dmask") != nullptr;
  const bool broadcasts = is_one_of(array.name, {"mask", "block_mask", "k_scale", "v_scale"});
  return batch == 1 || (array.lengths[0] == 1 && broadcasts && !has_gradient);
}

TensorView Call::merged_view(const Array& array) const {
  if (array.name == "sinks" || (array.name == "alibi_slopes" && array.lengths.size() == 1))
    return {array.data, array.dtype, array.lengths};
  TensorView view(array.data, array.dtype, array.lengths);
  if (array.leading == leading_) {
    view.shape[0] *= mapped_;
  } else if (find(operands_, "q")->lengths[0] == 1) {
    view.shape[0] = mapped_;
    view.strides[0] = 0;
  }
  return view;
}

TensorView Call::view(const Array& array, std::int64_t part) const {
  if (merged_) return merged_view(array);
  std::int64_t offset = 0, stride = product(array.lengths);
  for (std::size_t dim = leading_.size(); dim-- > 0;) {
    const std::int64_t index = part % leading_[dim];
    part /= leading_[dim];
    if (array.leading[dim] == 1) continue;
    offset += index * stride;
    stride *= array.leading[dim];
  }
  const auto* const bytes = static_cast<const char*>(array.data);
  return {bytes + offset * static_cast<std::int64_t>(size_of(array.dtype)), array.dtype, array.lengths};
}

TensorView Call::operand(std::string_view name, std::int64_t part) const {
  const Array* const array = find(operands_, name);
  return array == nullptr ? TensorView() : view(*array, part);
}

MutableTensorView Call::result(std::string_view name, std::int64_t part) const {
  const Array* const array = find(results_, name);
  if (array == nullptr) return {};
  const TensorView found = view(*array, part);
  return {const_cast<void*>(found.data), found.dtype, found.dims(), {found.strides.data(), found.rank}};
}

template <class T>
void Call::read(T& value, std::string_view name) const {
  if (!attributes_.contains(name)) return;
  if constexpr (std::is_enum_v<T>)
    value = option_value<T>(attribute<std::string_view>(name)).value();
  else if constexpr (requires { typename T::value_type; })
    value = attribute<typename T::value_type>(name);
  else if constexpr (std::is_floating_point_v<T>)
    value = attribute<T>(name);
  else
    value = static_cast<T>(attribute<std::int64_t>(name));
}

AttentionOptions Call::options(std::int64_t part) const {
  AttentionOptions options;
  const auto set = [&](const AttentionOption& row, auto member) {
    if constexpr (std::is_same_v<decltype(member), OptionPair>) {
      const std::size_t comma = row.name.find(", ");
      read(options.*member.first, row.name.substr(0, comma));
      read(options.*member.second, row.name.substr(comma + 2));
    } else {
      auto& value = options.*member;
      using Value = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, TensorView>)
        value = operand(row.python_name(), part);
      else if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value> ||
                         requires { typename Value::value_type; })
        read(value, row.name);
    }
  };
  for (const AttentionOption& row : kAttentionOptions)
    std::visit([&](auto member) { set(row, member); }, row.member);
  if (const TensorView seed = operand("dropout_seed", part)) {
    const auto* const words = seed.as<std::uint32_t>();
    options.dropout_seed = std::uint64_t{words[0]} << 32 | words[1];
  }
  return options;
}

}  // namespace saccade::jax
