// Models of Hugging Face folders for JavaScript.
#include "saccade/model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "files.h"
#include "generate.h"
#include "glue.h"
#include "heads.h"

using namespace saccade;
using namespace saccade::web;

namespace {

struct WebModel {
  std::unique_ptr<Files> files = std::make_unique<Files>();
  std::optional<Model> model{};
};

std::vector<std::int64_t> generated(const Model& model, std::vector<std::int64_t> tokens, std::int64_t count,
                                    const SamplingOptions& options) {
  TokenSampler sampler(options);
  ModelCache cache = model.make_cache();
  const std::vector<std::int64_t>& ends = model.sizes().end_tokens;
  std::vector<std::int64_t> next = tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor states = model.hidden_states({.tokens = next}, {.cache = &cache});
    const std::int64_t last = states.shape(0) - 1;
    next = {sampler.next(model.logits(states.view().slice(0, last, last + 1)).values<float>())};
    tokens.push_back(next.front());
    if (std::ranges::find(ends, next.front()) != ends.end()) break;
  }
  return tokens;
}

}  // namespace

SACCADE_WEB_API(web_model_create) saccade_status web_model_create(WebModel** model) {
  return c_api::guarded([&] { *model = std::make_unique<WebModel>().release(); });
}
SACCADE_WEB_API(web_model_destroy) void web_model_destroy(WebModel* model) { delete model; }
/// Takes over the memory of a file, in which its tensors lie.
SACCADE_WEB_API(web_model_add_file)
saccade_status web_model_add_file(WebModel* model, const char* name, const std::byte* bytes, std::size_t size,
                                  const char* names, std::size_t names_bytes, const saccade_tensor* tensors) {
  return c_api::guarded([&] {
    model->files->add(name,
                      {.bytes = {bytes, size}, .tensors = named_tensors("Model", names, names_bytes, tensors)});
  });
}
SACCADE_WEB_API(web_model_load) saccade_status web_model_load(WebModel* model) {
  return c_api::guarded([&] {
    const Files::Reading reading(*model->files);
    model->model.emplace(Model::load(kFolder));
  });
}

/// The family as the text, and the numbers of ModelSizes.
SACCADE_WEB_API(web_model_sizes) saccade_status web_model_sizes(WebModel* model) {
  return c_api::guarded([&] {
    const ModelSizes& sizes = model->model->sizes();
    give_text(sizes.family);
    const std::int64_t numbers[] = {sizes.vocab_size, sizes.max_length,        sizes.d_model,
                                    sizes.num_layers, sizes.num_heads,         sizes.num_kv_heads,
                                    sizes.head_dim,   sizes.is_causal ? 1 : 0, sizes.has_logits ? 1 : 0};
    Tensor result(DType::i64, {std::ssize(numbers)}), ends(DType::i64, {std::ssize(sizes.end_tokens)});
    std::ranges::copy(numbers, result.values<std::int64_t>().begin());
    std::ranges::copy(sizes.end_tokens, ends.values<std::int64_t>().begin());
    give_results({{"sizes", std::move(result)}, {"ends", std::move(ends)}});
  });
}

/// lengths, types and places may be NULL; places and weights are edits (heads.h), which are for one sequence.
SACCADE_WEB_API(web_model_states)
saccade_status web_model_states(WebModel* model, const saccade_tensor* tokens, const saccade_tensor* lengths,
                                const saccade_tensor* types, const saccade_tensor* places,
                                const saccade_tensor* weights, std::int32_t wants_weights) {
  return c_api::guarded([&] {
    HeadCall heads(places, weights, wants_weights != 0);
    ModelOptions options;
    if (heads.is_needed()) options.on_attention = [&](const LayerAttention& layer) { heads(layer); };
    const ModelInput input{.tokens = numbers_of("Model", "tokens", tokens),
                           .lengths = numbers_of("Model", "lengths", lengths),
                           .types = numbers_of("Model", "types", types)};
    if (heads.has_edits() && input.lengths.size() > 1)
      refuse("edits", "heads are edited over one text, but lengths has ", input.lengths.size(),
             " sequences: call hiddenStates() for each of them");
    give_results(heads.results("states", model->model->hidden_states(input, options)));
  });
}
SACCADE_WEB_API(web_model_logits)
saccade_status web_model_logits(WebModel* model, const saccade_tensor* states) {
  return c_api::guarded([&] {
    give_results({{"logits", model->model->logits(c_api::view_of("Model", "states", states))}});
  });
}
SACCADE_WEB_API(web_model_generate)
saccade_status web_model_generate(WebModel* model, const saccade_tensor* tokens, std::int64_t count,
                                  const char* texts, std::size_t bytes) {
  return c_api::guarded([&] {
    const SamplingOptions options = sampling_options(texts, bytes);
    give_tokens(generated(*model->model, numbers_of("generate", "tokens", tokens), count, options));
  });
}
