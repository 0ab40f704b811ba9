// The reference against PyTorch's flex_attention and scaled_dot_product_attention, over all options that both
// have: the cases of tests/data/attention_goldens.safetensors, made by tests/goldens/make_attention_goldens.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "saccade/io.h"
#include "saccade/reference.h"
#include "support/expect_close.h"

namespace saccade::test {
namespace {

const Safetensors& goldens() {
  static const Safetensors file = load_safetensors(SACCADE_SOURCE_DIR "/tests/data/attention_goldens.safetensors");
  return file;
}

/// A tensor of the file by name; empty if the file does not have it.
TensorView tensor(const std::string& name) {
  const auto found = goldens().tensors.find(name);
  return found == goldens().tensors.end() ? TensorView() : found->second.view();
}

AttentionOptions options_of(const std::string& name, const nlohmann::json& golden) {
  static const std::map<std::string, Causal> kCausal = {
      {"none", Causal::none}, {"top_left", Causal::top_left}, {"bottom_right", Causal::bottom_right}};
  AttentionOptions options{
      .softcap = golden.at("softcap").get<double>(),
      .causal = kCausal.at(golden.at("causal").get<std::string>()),
      .query_offsets = tensor(name + "/query_offsets"),
      .window_left = golden.at("window_left").get<std::int64_t>(),
      .window_right = golden.at("window_right").get<std::int64_t>(),
      .mask = tensor(name + "/mask"),
      .kv_lengths = tensor(name + "/kv_lengths"),
      .alibi_slopes = tensor(name + "/alibi_slopes"),
      .sinks = tensor(name + "/sinks"),
  };
  if (!golden.at("scale").is_null()) options.scale = golden.at("scale").get<double>();
  if (!golden.at("query_offset").is_null()) options.query_offset = golden.at("query_offset").get<std::int64_t>();
  return options;
}

/// The bound for the rounding of lse: the magnitude of its logits plus its own.
Tensor lse_bound(const reference::AttentionResult& result) {
  Tensor bound(DType::f64, result.lse.shape());
  const auto logits = result.logits.values<double>();
  const auto rows = bound.values<double>();
  const std::size_t seqlen_k = logits.size() / rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = std::abs(result.lse.values<double>()[i]);
    for (const double logit : logits.subspan(i * seqlen_k, seqlen_k)) {
      if (std::isfinite(logit)) rows[i] = std::max(rows[i], std::abs(logit));
    }
  }
  return bound;
}

TEST(ReferenceAndPyTorch, AgreeOnEveryOption) {
  ASSERT_GT(goldens().metadata.size(), 100U);
  for (const auto& [name, text] : goldens().metadata) {
    SCOPED_TRACE("case " + name + ": " + text);
    const auto golden = nlohmann::json::parse(text);
    const std::string shape = golden.at("shape").get<std::string>();
    const reference::AttentionResult result = reference::attention(tensor(shape + "/q"), tensor(shape + "/k"),
                                                                   tensor(shape + "/v"), options_of(name, golden));
    // Both are f64: only the last bits may differ.
    const TensorView o = tensor(name + "/o");
    const TensorView lse = tensor(name + "/lse");
    expect_close(result.o, {.reference = o, .naive = o, .bound = result.bound});
    expect_close(result.lse, {.reference = lse, .naive = lse, .bound = lse_bound(result)});
  }
}

}  // namespace
}  // namespace saccade::test
