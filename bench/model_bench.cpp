// Models of Hugging Face folders: sentence embeddings, prompts and single tokens. SACCADE_MODELS names a folder of
// models (script/models); without it, nothing is measured.
#include "saccade/model.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>

#include "saccade/sentence_embeddings.h"

namespace {

using namespace saccade;

/// A model of the folder; nothing if it is not there.
Model* model_of(const std::string& name) {
  static std::map<std::string, Model> loaded;
  const char* const folder = std::getenv("SACCADE_MODELS");
  if (folder == nullptr || !exists(std::filesystem::path(folder) / name)) return nullptr;
  const auto found = loaded.find(name);
  return &(found != loaded.end() ? found
                                 : loaded.emplace(name, Model::load(std::filesystem::path(folder) / name)).first)
              ->second;
}

std::vector<std::int64_t> random_tokens(std::int64_t count, std::int64_t vocab_size, std::mt19937& generator) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  for (std::int64_t& token : tokens)
    token = std::uniform_int_distribution<std::int64_t>(5, vocab_size - 1)(generator);
  return tokens;
}

/// Sentences of a length, as many as the batch.
void embed(benchmark::State& state) {
  Model* const model = model_of("minilm");
  if (model == nullptr) return state.SkipWithError("SACCADE_MODELS has no minilm");
  std::mt19937 generator(1);
  std::vector<std::vector<std::int64_t>> sentences;
  for (std::int64_t i = 0; i < state.range(1); ++i)
    sentences.push_back(random_tokens(state.range(0), model->sizes().vocab_size, generator));
  for (auto _ : state)
    benchmark::DoNotOptimize(
        sentence_embeddings(*model, sentences, {.normalize = true}, static_cast<int>(state.range(2))));
}
BENCHMARK(embed)
    ->ArgNames({"length", "batch", "threads"})
    ->ArgsProduct({{16, 128, 256}, {1, 32}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// The first token after a prompt.
void prompt(benchmark::State& state) {
  Model* const model = model_of("smollm2");
  if (model == nullptr) return state.SkipWithError("SACCADE_MODELS has no smollm2");
  std::mt19937 generator(1);
  const std::vector<std::int64_t> tokens = random_tokens(state.range(0), model->sizes().vocab_size, generator);
  const int threads = static_cast<int>(state.range(1));
  for (auto _ : state) {
    ModelCache cache = model->make_cache(DType::f32, state.range(0));
    const Tensor states = model->hidden_states({.tokens = tokens}, {.cache = &cache, .num_threads = threads});
    benchmark::DoNotOptimize(model->logits(states.view().select(0, state.range(0) - 1), threads));
  }
}
BENCHMARK(prompt)
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{512}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// Each token after a prompt of 512.
void next_token(benchmark::State& state) {
  Model* const model = model_of("smollm2");
  if (model == nullptr) return state.SkipWithError("SACCADE_MODELS has no smollm2");
  std::mt19937 generator(1);
  const int threads = static_cast<int>(state.range(0));
  ModelCache cache = model->make_cache(DType::f32, 1024);
  model->hidden_states({.tokens = random_tokens(512, model->sizes().vocab_size, generator)}, {.cache = &cache});
  for (auto _ : state) {
    const Tensor states = model->hidden_states({.tokens = {17}}, {.cache = &cache, .num_threads = threads});
    benchmark::DoNotOptimize(model->logits(states, threads));
    cache.truncate(512);
  }
}
BENCHMARK(next_token)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
