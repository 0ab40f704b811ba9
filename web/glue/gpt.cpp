// The small language model for JavaScript: its checkpoints, weights and texts.
#include <memory>

#include "generate.h"
#include "glue.h"
#include "heads.h"
#include "saccade/gpt_model.h"
#include "saccade/tasks.h"

using namespace saccade;
using namespace saccade::web;

/// The model that a checkpoint was saved from.
SACCADE_WEB_API(web_gpt_from_state)
saccade_status web_gpt_from_state(const char* names, std::size_t bytes, const saccade_tensor* tensors,
                                  std::int64_t num_heads, Module** module) {
  return c_api::guarded([&] {
    *module = gpt_model_from_state_dict(state_of("GPTModel", names, bytes, tensors), num_heads).release();
  });
}

/// The weights of each layer by its number.
SACCADE_WEB_API(web_gpt_weights)
saccade_status web_gpt_weights(Module* module, const saccade_tensor* tokens) {
  return c_api::guarded([&] {
    std::vector<std::pair<std::string, Tensor>> results;
    for (Tensor& layer :
         dynamic_cast<GPTModel&>(*module).attention_weights(c_api::view_of("GPTModel", "tokens", tokens)))
      results.emplace_back(std::to_string(results.size()), std::move(layer));
    give_results(std::move(results));
  });
}

/// The logits of one sequence, i64 [1, length], with edits (heads.h), and the weights of each layer if they are
/// wanted.
SACCADE_WEB_API(web_gpt_look)
saccade_status web_gpt_look(Module* module, const saccade_tensor* tokens, const saccade_tensor* places,
                            const saccade_tensor* weights, std::int32_t wants_weights) {
  return c_api::guarded([&] {
    auto& model = dynamic_cast<GPTModel&>(*module);
    const EvalMode evaluation(model);
    HeadCall heads(places, weights, wants_weights != 0);
    Tensor logits = model.forward(c_api::view_of("GPTModel", "tokens", tokens),
                                  [&](const LayerAttention& layer) { heads(layer); });
    give_results(heads.results("logits", std::move(logits)));
  });
}

/// `count` tokens after i64 [length].
SACCADE_WEB_API(web_gpt_generate)
saccade_status web_gpt_generate(Module* module, const saccade_tensor* tokens, std::int64_t count,
                                const char* texts, std::size_t bytes) {
  return c_api::guarded([&] {
    auto& model = dynamic_cast<GPTModel&>(*module);
    TokenSampler sampler(sampling_options(texts, bytes));
    std::vector<std::int64_t> text = numbers_of("generate", "tokens", tokens);
    const EvalMode evaluation(model);
    for (std::int64_t i = 0; i < count; ++i) text.push_back(sampler.next(model.next_logits(text).values<float>()));
    give_tokens(text);
  });
}

/// A batch of random tokens that repeat themselves.
SACCADE_WEB_API(web_induction_batch)
saccade_status web_induction_batch(std::int64_t vocab_size, std::int64_t seed, std::int64_t batch_size,
                                   std::int64_t seqlen) {
  return c_api::guarded([&] {
    TokenBatch batch = InductionTask(vocab_size).batch(static_cast<std::uint64_t>(seed), batch_size, seqlen);
    give_results({{"inputs", std::move(batch.inputs)},
                  {"targets", std::move(batch.targets)},
                  {"repeated", std::move(batch.repeated)}});
  });
}
