// Parameters by name: reading them out, and loading them from the layouts that PyTorch has.
#include <algorithm>
#include <array>
#include <utility>

#include "check.h"
#include "modules/names.h"
#include "saccade/modules.h"

namespace saccade {
namespace {

using Views = std::map<std::string, TensorView>;

/// What a checkpoint gets wrong, to be told in one line.
class Faults {
 public:
  void missing(const std::string& name) { add(missing_, name); }
  void unexpected(const std::string& name) { add(unexpected_, name); }
  void wrong(const std::string& what) { add(wrong_, what); }

  bool any() const { return missing_.count + unexpected_.count + wrong_.count != 0; }

  std::string text() const {
    std::string result = "cannot load:";
    const auto append = [&](const char* title, const List& list) {
      if (list.count == 0) return;
      if (result.back() != ':') result += ";";
      result += title + list.text;
      if (list.count > kMostShown) result += " and " + std::to_string(list.count - kMostShown) + " more";
    };
    append(" missing ", missing_);
    append(" unexpected ", unexpected_);
    append(" ", wrong_);
    return result;
  }

 private:
  static constexpr std::size_t kMostShown = 12;

  struct List {
    std::string text;
    std::size_t count = 0;
  };

  static void add(List& list, const std::string& item) {
    if (list.count++ >= kMostShown) return;
    list.text += (list.text.empty() ? "" : ", ") + item;
  }

  List missing_, unexpected_, wrong_;
};

bool same_shape(const TensorView& a, std::span<const std::int64_t> shape) {
  return std::equal(a.dims().begin(), a.dims().end(), shape.begin(), shape.end());
}

/// Gives an entry of torch.nn.MultiheadAttention a name of ours, unless the checkpoint has that one too.
void rename(Views& given, const std::string& from, const std::string& to) {
  const auto entry = given.find(from);
  if (entry == given.end() || !given.emplace(to, entry->second).second) return;
  given.erase(from);
}

/// Splits the rows of a stacked projection. `row_counts` are those of query, key and value.
void split_rows(const std::string& module, Views& given, const std::string& from, const std::string& suffix,
                const std::array<std::int64_t, 3>& row_counts, std::span<const std::int64_t> expected) {
  const auto entry = given.find(from);
  if (entry == given.end()) return;
  const TensorView stacked = entry->second;
  if (!same_shape(stacked, expected)) {
    refuse(module, "cannot load: ", from, " is ", to_string(stacked.dims()), ", expected ", to_string(expected));
  }
  constexpr std::array kLayers{"W_query", "W_key", "W_value"};
  if (given.contains(kLayers[0] + suffix)) return;
  std::int64_t row = 0;
  for (std::size_t layer = 0; layer < kLayers.size(); ++layer) {
    given.emplace(kLayers[layer] + suffix, stacked.slice(0, row, row + row_counts[layer]));
    row += row_counts[layer];
  }
  given.erase(from);
}

/// Gives the entries of a torch.nn.MultiheadAttention the names of MultiHeadAttention.
void use_own_names(const std::string& module, const ModuleConfig& config, Views& given) {
  const std::int64_t q_rows = config.num_heads * config.head_dim;
  const std::int64_t kv_rows = config.num_kv_heads * config.head_dim;
  const std::array row_counts{q_rows, kv_rows, kv_rows};
  const std::int64_t all_rows = q_rows + 2 * kv_rows;
  split_rows(module, given, "in_proj_weight", ".weight", row_counts, std::array{all_rows, config.d_in});
  split_rows(module, given, "in_proj_bias", ".bias", row_counts, std::array{all_rows});
  rename(given, "q_proj_weight", "W_query.weight");
  rename(given, "k_proj_weight", "W_key.weight");
  rename(given, "v_proj_weight", "W_value.weight");
}

/// The published buffer `mask`: 1 above the diagonal.
Tensor causal_mask_buffer(std::int64_t context_length) {
  Tensor mask(DType::f32, {context_length, context_length});
  for (std::int64_t i = 0; i < context_length; ++i) {
    std::fill_n(mask.values<float>().begin() + i * context_length + i + 1, context_length - i - 1, 1.0f);
  }
  return mask;
}

}  // namespace

std::vector<NamedParameter> AttentionModule::parameters() {
  std::vector<NamedParameter> result;
  for (const Slot& slot : slots_) {
    const MutableTensorView whole = (weights_.*slot.tensor).mutable_view();
    result.push_back({slot.name, whole.slice(0, slot.first_row, slot.end_row)});
  }
  return result;
}

StateDict AttentionModule::state_dict() const {
  StateDict result;
  for (const Slot& slot : slots_) {
    const TensorView whole = weights_.*slot.tensor;
    result.emplace(slot.name, Tensor::copy_of(whole.slice(0, slot.first_row, slot.end_row)));
  }
  return result;
}

StateDict AttentionModule::published_state_dict() const {
  StateDict result = state_dict();
  for (const std::string& buffer : mask_buffers()) {
    if (config_.context_length == 0) {
      refuse(name_, "without a context_length the size of the buffer ", buffer, " is not known");
    }
    result.emplace(buffer, causal_mask_buffer(config_.context_length));
  }
  return result;
}

std::vector<std::string> AttentionModule::mask_buffers() const {
  if (!config_.causal) return {};
  if (!config_.independent_heads) return {"mask"};
  std::vector<std::string> result;
  for (std::int64_t head = 0; head < config_.num_heads; ++head) {
    result.push_back(head_prefix(head) + "mask");
  }
  return result;
}

void AttentionModule::check_mask_buffer(const std::string& buffer, const TensorView& mask) const {
  const std::int64_t length =
      config_.context_length != 0 ? config_.context_length : (mask.rank != 0 ? mask.shape[0] : 0);
  const std::array expected{length, length};
  if (!same_shape(mask, expected)) {
    refuse(name_, "cannot load: ", buffer, " is ", to_string(mask.dims()), ", expected ", to_string(expected));
  }
  Tensor row(DType::boolean, {length});
  for (std::int64_t i = 0; i < length; ++i) {
    copy(mask.select(0, i), row.mutable_view());
    for (std::int64_t j = 0; j < length; ++j) {
      if (row.at<bool>(j) == (j > i)) continue;
      refuse(name_, "cannot load: ", buffer, " is not the causal mask, see its row ", i, ", column ", j);
    }
  }
}

void AttentionModule::load_state_dict(const StateDict& state) {
  Views given;
  for (const auto& [parameter, value] : state) given.emplace(parameter, value.view());
  if (name_ == "MultiHeadAttention") use_own_names(name_, config_, given);
  for (const std::string& buffer : mask_buffers()) {
    const auto entry = given.find(buffer);
    if (entry == given.end()) continue;
    check_mask_buffer(buffer, entry->second);
    given.erase(entry);
  }

  Faults faults;
  const std::vector<NamedParameter> wanted = parameters();
  for (const NamedParameter& parameter : wanted) {
    const auto entry = given.find(parameter.name);
    if (entry == given.end()) {
      faults.missing(parameter.name);
    } else if (!same_shape(entry->second, parameter.value.dims())) {
      faults.wrong(parameter.name + " is " + to_string(entry->second.dims()) + ", expected " +
                   to_string(parameter.value.dims()));
    } else if (!is_floating(entry->second.dtype)) {
      faults.wrong(parameter.name + " is " + std::string(name_of(entry->second.dtype)) + ", expected f32");
    }
  }
  for (const auto& entry : given) {
    const auto has_its_name = [&](const NamedParameter& parameter) { return parameter.name == entry.first; };
    if (std::none_of(wanted.begin(), wanted.end(), has_its_name)) faults.unexpected(entry.first);
  }
  if (faults.any()) refuse(name_, faults.text());
  for (const NamedParameter& parameter : wanted) copy(given.at(parameter.name), parameter.value);
}

}  // namespace saccade
