// saccade look --live: pages that carry their model.
#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/quantize.h>

#include <algorithm>
#include <cmath>

#include "cli/common/common.h"
#include "look.h"

namespace saccade::cli {

namespace {

/// The largest difference of a weight, as a share of the largest in the tensor.
double error_of(const Tensor& exact, const Tensor& stored) {
  double largest = 0.0, difference = 0.0;
  for (std::size_t i = 0; i < exact.values<float>().size(); ++i) {
    const double weight = exact.values<float>()[i];
    if (!std::isfinite(weight)) continue;
    largest = std::max(largest, std::abs(weight));
    difference = std::max(difference, std::abs(weight - stored.values<float>()[i]));
  }
  return largest > 0 ? difference / largest : 0.0;
}

/// Throws for a weight that f16 does not have.
Tensor half_of(const std::string& name, const Tensor& exact) {
  constexpr float kRoundsToInfinity = 65520.0f;
  for (const float weight : exact.values<float>())
    if (std::isfinite(weight) && std::abs(weight) >= kRoundsToInfinity)
      refuse("--live: the tensor {} has the weight {:g}, but the page has weights as f16, up to 65504", name,
             weight);
  return Tensor::copy_of(exact, DType::f16);
}

}  // namespace

PageWeights page_weights(const std::map<std::string, Tensor>& weights, const std::string& type) {
  PageWeights result{.type = type};
  auto& tensors = result.tensors.tensors;
  for (const auto& [name, tensor] : weights) {
    if (!is_floating(tensor.dtype())) {
      tensors.emplace(name, tensor);
      continue;
    }
    const Tensor exact = Tensor::copy_of(tensor, DType::f32);
    if (type == "int8" && tensor.rank() >= 2) {
      QuantizedTensor rows = quantize(exact, DType::i8);
      result.error = std::max(result.error, error_of(exact, dequantize(rows)));
      tensors.emplace(name, std::move(rows.numbers));
      tensors.emplace(name + ".scale", std::move(rows.scale));
    } else {
      Tensor half = half_of(name, exact);
      result.error = std::max(result.error, error_of(exact, Tensor::copy_of(half, DType::f32)));
      tensors.emplace(name, std::move(half));
    }
  }
  return result;
}

void write_page(const LookArguments& arguments, const AttentionPage& page) {
  const std::string html = page.html();
  if (arguments.live)
    note("look", fmt::format("the page carries {} and what runs it: {:.1f} MB",
                             arguments.live_weights == "file" ? "the model but for its weights" : "the model",
                             1e-6 * static_cast<double>(html.size())));
  write_file(*arguments.output, std::string_view(html));
}

}  // namespace saccade::cli
