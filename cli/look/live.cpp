// saccade look --live: pages that carry their model.
#include <fmt/format.h>
#include <saccade/io.h>

#include <algorithm>
#include <cmath>

#include "cli/common/common.h"
#include "look.h"

namespace saccade::cli {

HalfWeights half_weights(const std::map<std::string, Tensor>& weights) {
  HalfWeights result;
  for (const auto& [name, tensor] : weights) {
    if (!is_floating(tensor.dtype())) {
      result.weights.tensors.emplace(name, tensor);
      continue;
    }
    Tensor half = Tensor::copy_of(tensor, DType::f16);
    const Tensor exact = Tensor::copy_of(tensor, DType::f32), again = Tensor::copy_of(half, DType::f32);
    double largest = 0.0, difference = 0.0;
    for (std::size_t i = 0; i < exact.values<float>().size(); ++i) {
      const double weight = exact.values<float>()[i], rounded = again.values<float>()[i];
      if (!std::isfinite(weight)) continue;
      if (!std::isfinite(rounded))
        refuse("--live: the tensor {} has the weight {:g}, but the page has weights as f16, up to 65504", name,
               weight);
      largest = std::max(largest, std::abs(weight));
      difference = std::max(difference, std::abs(weight - rounded));
    }
    if (largest > 0) result.error = std::max(result.error, difference / largest);
    result.weights.tensors.emplace(name, std::move(half));
  }
  return result;
}

void write_page(const LookArguments& arguments, const AttentionPage& page) {
  const std::string html = page.html();
  if (arguments.live)
    note("look", fmt::format("the page carries the model and what runs it: {:.1f} MB",
                             1e-6 * static_cast<double>(html.size())));
  write_file(*arguments.output, std::string_view(html));
}

}  // namespace saccade::cli
