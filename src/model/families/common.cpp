#include "model/families/common.h"

#include <algorithm>
#include <cmath>

namespace saccade::model {

bool has_architecture(const Config& config, std::string_view ending) {
  return std::ranges::any_of(config.texts("architectures"),
                             [&](const std::string& name) { return name.ends_with(ending); });
}

StackTable usual_sizes(const Config& config) {
  StackTable table;
  table.d_model = config.size("hidden_size");
  table.d_hidden = config.size("intermediate_size");
  table.num_heads = config.size("num_attention_heads");
  table.num_kv_heads = config.size_or("num_key_value_heads", table.num_heads);
  if (!config.has("head_dim") && table.d_model % table.num_heads != 0)
    config.refuse("hidden_size", "must be a multiple of num_attention_heads, ", table.num_heads, ", but it is ",
                  table.d_model);
  table.head_dim = config.size_or("head_dim", table.d_model / table.num_heads);
  if (table.num_heads % table.num_kv_heads != 0)
    config.refuse("num_key_value_heads", "must divide num_attention_heads, ", table.num_heads, ", but it is ",
                  table.num_kv_heads);
  table.layers.assign(static_cast<std::size_t>(config.size("num_hidden_layers")),
                      {.scale = 1.0 / std::sqrt(static_cast<double>(table.head_dim))});
  return table;
}

}  // namespace saccade::model
