// Parameters by name: reading them, and loading them from PyTorch's layouts.
#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "nn/attention_modules/names.h"
#include "saccade/attention_modules.h"

namespace saccade {
namespace {

using Views = std::map<std::string, TensorView>;

bool same_shape(const TensorView& a, std::span<const std::int64_t> shape) {
  return std::equal(a.dims().begin(), a.dims().end(), shape.begin(), shape.end());
}

/// Renames an entry of torch.nn.MultiheadAttention to our name, unless the checkpoint also has that name.
void rename(Views& given, const std::string& from, const std::string& to) {
  const auto entry = given.find(from);
  if (entry == given.end() || !given.emplace(to, entry->second).second) return;
  given.erase(from);
}

/// A stacked projection of torch.nn.MultiheadAttention: the rows of its layers, one layer after the other.
struct Stacked {
  std::string name;    ///< in the checkpoint
  std::string suffix;  ///< of the entries of the separate layers
  Shape shape;
};

/// Splits the rows of a stacked projection. `row_counts` are those of query, key and value.
void split_rows(const std::string& module, const std::string& prefix, Views& given, const Stacked& stacked,
                const std::array<std::int64_t, 3>& row_counts) {
  const auto entry = given.find(prefix + stacked.name);
  if (entry == given.end()) return;
  const TensorView all = entry->second;
  if (!same_shape(all, stacked.shape)) {
    refuse(module, "cannot load: ", entry->first, " is ", to_string(all.dims()), ", expected ",
           to_string(stacked.shape));
  }
  constexpr std::array kLayers{"W_query", "W_key", "W_value"};
  if (given.contains(prefix + kLayers[0] + stacked.suffix)) return;
  std::int64_t row = 0;
  for (std::size_t layer = 0; layer < kLayers.size(); ++layer) {
    given.emplace(prefix + kLayers[layer] + stacked.suffix, all.slice(0, row, row + row_counts[layer]));
    row += row_counts[layer];
  }
  given.erase(entry);
}

/// Renames the entries of a torch.nn.MultiheadAttention to those of MultiHeadAttention.
void use_own_names(const std::string& module, const ModuleConfig& config, const std::string& prefix,
                   Views& given) {
  const std::int64_t q_rows = config.num_heads * config.head_dim;
  const std::int64_t kv_rows = config.num_kv_heads * config.head_dim;
  const std::array row_counts{q_rows, kv_rows, kv_rows};
  const std::int64_t all_rows = q_rows + 2 * kv_rows;
  split_rows(module, prefix, given, {"in_proj_weight", ".weight", {all_rows, config.d_in}}, row_counts);
  split_rows(module, prefix, given, {"in_proj_bias", ".bias", {all_rows}}, row_counts);
  rename(given, prefix + "q_proj_weight", prefix + "W_query.weight");
  rename(given, prefix + "k_proj_weight", prefix + "W_key.weight");
  rename(given, prefix + "v_proj_weight", prefix + "W_value.weight");
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

std::vector<AttentionModule::Part> AttentionModule::parts() {
  std::vector<Part> result;
  for (const Slot& slot : slots_) {
    result.push_back({slot.name, weights_.*slot.parameter, slot.first_row, slot.end_row});
  }
  return result;
}

StateDict AttentionModule::published_state_dict() const {
  StateDict result = state_dict();
  for (const std::string& buffer : mask_buffers()) {
    if (config_.context_length == 0) {
      refuse(name(), "without a context_length the size of the buffer ", buffer, " is not known");
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
    refuse(name(), "cannot load: ", buffer, " is ", to_string(mask.dims()), ", expected ", to_string(expected));
  }
  Tensor row(DType::boolean, {length});
  for (std::int64_t i = 0; i < length; ++i) {
    copy(mask.select(0, i), row.mutable_view());
    for (std::int64_t j = 0; j < length; ++j) {
      if (row.at<bool>(j) == (j > i)) continue;
      refuse(name(), "cannot load: ", buffer, " is not the causal mask, see its row ", i, ", column ", j);
    }
  }
}

void AttentionModule::translate(const std::string& prefix, Views& entries) {
  if (name() == "MultiHeadAttention") use_own_names(name(), config_, prefix, entries);
  for (const std::string& buffer : mask_buffers()) {
    const auto entry = entries.find(prefix + buffer);
    if (entry == entries.end()) continue;
    check_mask_buffer(entry->first, entry->second);
    entries.erase(entry);
  }
}

}  // namespace saccade
