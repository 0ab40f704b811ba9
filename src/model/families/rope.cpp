// Rotary positions from rope_parameters or, in older files, rope_theta and rope_scaling.
#include <cmath>
#include <numbers>

#include "model/families/common.h"

namespace saccade::model {
namespace {

/// Stretches long wavelengths by `factor`, keeps short ones, and interpolates between them (Llama 3.1,
/// arXiv:2407.21783).
std::vector<double> llama3_frequencies(const Config& scaling, double base, std::int64_t rotary_dim) {
  const double factor = scaling.number("factor"), low = scaling.number("low_freq_factor"),
               high = scaling.number("high_freq_factor"),
               length = scaling.number("original_max_position_embeddings");
  if (!(high > low))
    scaling.refuse("high_freq_factor", "must be above low_freq_factor, ", low, ", but it is ", high);
  std::vector<double> result;
  for (std::int64_t i = 0; i < rotary_dim; i += 2) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(rotary_dim));
    const double waves = length * frequency / (2 * std::numbers::pi);  // in the original length
    const double kept = std::clamp((waves - low) / (high - low), 0.0, 1.0);
    result.push_back(kept * frequency + (1 - kept) * frequency / factor);
  }
  return result;
}

/// The options that an object describes: rope_parameters, rope_scaling, or none.
RopeOptions rope_options(const Config* scaling, double base, double part, std::int64_t head_dim) {
  if (scaling && scaling->has("rope_theta")) base = scaling->number("rope_theta");
  if (scaling && scaling->has("partial_rotary_factor")) part = scaling->number("partial_rotary_factor");
  if (!(part > 0 && part <= 1))
    throw std::invalid_argument("the rotary part of a head must be above 0 and at most 1, but it is " +
                                std::to_string(part));
  const auto rotary_dim = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
  RopeOptions options{.base = base, .rotary_dim = rotary_dim};
  if (scaling == nullptr) return options;
  const std::string key = scaling->has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling->text_or(key, "default");
  if (type == "linear")
    options.scaling_factor = scaling->number("factor");
  else if (type == "llama3")
    options.frequencies = llama3_frequencies(*scaling, base, rotary_dim);
  else if (type != "default")
    scaling->refuse(key, "is '", type, "', but only default, linear and llama3 are known");
  return options;
}

/// rope_parameters or rope_scaling, whichever there is.
std::optional<Config> scaling_of(const Config& config) {
  if (config.has("rope_parameters")) return config.part("rope_parameters");
  if (config.has("rope_scaling")) return config.part("rope_scaling");
  return {};
}

}  // namespace

void add_rope(const Config& config, StackTable& stack, const std::string& base_key, double rotary_part) {
  const std::optional<Config> scaling = scaling_of(config);
  const int index = static_cast<int>(stack.ropes.size());
  stack.ropes.push_back(rope_options(scaling ? &*scaling : nullptr, config.number_or(base_key, 10000.0),
                                     rotary_part, stack.head_dim));
  for (LayerTable& layer : stack.layers) layer.rope = index;
}

void add_ropes_by_kind(const Config& config, StackTable& stack, const std::vector<bool>& is_sliding) {
  const std::optional<Config> scaling = scaling_of(config);
  const double base = config.number_or("rope_theta", 1e6),
               local_base = config.number_or("rope_local_base_freq", 1e4);
  if (scaling && scaling->has("full_attention")) {
    const Config full = scaling->part("full_attention"), sliding = scaling->part("sliding_attention");
    stack.ropes = {rope_options(&full, base, 1.0, stack.head_dim),
                   rope_options(&sliding, local_base, 1.0, stack.head_dim)};
  } else {
    stack.ropes = {rope_options(scaling ? &*scaling : nullptr, base, 1.0, stack.head_dim),
                   rope_options(nullptr, local_base, 1.0, stack.head_dim)};
  }
  for (std::size_t i = 0; i < stack.layers.size(); ++i) stack.layers[i].rope = is_sliding[i] ? 1 : 0;
}

}  // namespace saccade::model
