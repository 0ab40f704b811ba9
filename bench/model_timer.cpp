// Times one call of a model after the other, as bench/models.py asks for it:
//
//     model_timer MINILM SMOLLM2 < COMMANDS
//
// Commands, a line each: embed LENGTH BATCH THREADS, prompt LENGTH THREADS, token LENGTH THREADS. For each a line
// is printed: the seconds of the call.
#include <saccade/model.h>
#include <saccade/sentence_embeddings.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

namespace {

using namespace saccade;

/// The same tokens as in models.py.
std::vector<std::int64_t> tokens_of(std::int64_t count, std::int64_t first) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(1000 + (first + 7919 * i) % 20000);
  return tokens;
}

template <class Call>
double seconds_of(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double embed(const Model& model, std::int64_t length, std::int64_t batch, int threads) {
  std::vector<std::vector<std::int64_t>> sentences;
  for (std::int64_t i = 0; i < batch; ++i) sentences.push_back(tokens_of(length, i));
  return seconds_of([&] { sentence_embeddings(model, sentences, {.normalize = true}, threads); });
}

void run(const Model& model, ModelCache& cache, const std::vector<std::int64_t>& tokens, int threads) {
  const Tensor states = model.hidden_states({.tokens = tokens}, {.cache = &cache, .num_threads = threads});
  model.logits(states.view().select(0, states.shape(0) - 1), threads);
}

double prompt(const Model& model, std::int64_t length, int threads) {
  return seconds_of([&] {
    ModelCache cache = model.make_cache({}, length);
    run(model, cache, tokens_of(length, 0), threads);
  });
}

/// One token after so many.
double token(const Model& model, std::int64_t length, int threads) {
  static std::optional<ModelCache> cache;
  if (!cache || cache->length() != length) {
    cache = model.make_cache({}, length + 1);
    run(model, *cache, tokens_of(length, 0), threads);
  }
  const double seconds = seconds_of([&] { run(model, *cache, {1000}, threads); });
  cache->truncate(length);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("model_timer MINILM SMOLLM2 < COMMANDS\n", stderr), 2;
  const Model minilm = Model::load(argv[1]), smollm2 = Model::load(argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string kind;
    std::int64_t length = 0, batch = 0;
    int threads = 0;
    words >> kind >> length;
    if (kind == "embed") words >> batch;
    words >> threads;
    std::printf("%.9f\n", kind == "embed"    ? embed(minilm, length, batch, threads)
                          : kind == "prompt" ? prompt(smollm2, length, threads)
                                             : token(smollm2, length, threads));
    std::fflush(stdout);
  }
}
