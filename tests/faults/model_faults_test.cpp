// Memory that runs out while a model and its tokenizer are loaded, while they run, and while a page is made of
// them.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "faults/allocation_faults.h"
#include "saccade/image.h"
#include "saccade/io.h"
#include "saccade/log_mel.h"
#include "saccade/look.h"
#include "saccade/model.h"
#include "saccade/pretrained.h"
#include "saccade/sentence_embeddings.h"
#include "saccade/tokenizer.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

namespace fs = std::filesystem;

const fs::path kData = fs::path(SACCADE_SOURCE_DIR) / "tests/data";

/// A tokenizer of two words.
constexpr const char* kWords = R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}})";

std::string text_of(const std::vector<Token>& tokens) {
  std::string text;
  for (const Token& token : tokens) text += std::to_string(token.id) + token.text + "\n";
  return text;
}

TEST(AllocationFaults, OfTokenizers) {
  for (const char* const name : {"bert.json", "gpt2.json", "t5.json", "llama.json"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = Tokenizer::load(kData / "tokenizers" / name);
    const std::vector<Token> tokens = tokenizer.encode("Caf\u00e9 keys, keys");
    std::vector<std::int64_t> ids;
    for (const Token& token : tokens) ids.push_back(token.id);
    expect_survives([&] { return giving([&] { return tokenizer.encode("Caf\u00e9 keys, keys"); }, text_of); });
    expect_survives([&] { return giving([&] { return tokenizer.decode(ids); }); });
  }
}

TEST(AllocationFaults, OfModels) {
  for (const char* const name : {"bert", "gpt2", "llama-bf16", "gemma2", "t5"}) {
    SCOPED_TRACE(name);
    const Model model = Model::load(kData / "models" / name);
    const bool is_encoder_decoder = model.sizes().num_encoder_layers > 0;
    ModelInput input{.tokens = {1, 2, 3, 4}};
    Tensor encoded;
    if (is_encoder_decoder) {
      expect_survives([&] { return giving([&] { return model.encode(input); }); });
      encoded = model.encode(input);
      input.encoder_states = encoded;
    }
    expect_survives([&] { return giving([&] { return model.hidden_states(input); }); });
    if (!model.sizes().is_causal) continue;
    for (const bool has_seen : {false, true})
      expect_survives([&]() -> Operation {  // the call counts for all layers of the cache, or for none
        const auto cache = std::make_shared<ModelCache>(model.make_cache());
        if (has_seen) model.hidden_states(input, {.cache = cache.get()});
        const auto states = std::make_shared<Tensor>();
        return {.run = [&, cache, states] { *states = model.hidden_states(input, {.cache = cache.get()}); },
                .result = [states] { return bits_of(*states); },
                .state = [cache] { return std::to_string(cache->length()); }};
      });
  }
}

TEST(AllocationFaults, OfInputsOfModels) {
  Tensor rgb(DType::u8, {20, 30, 3});
  expect_survives([&] { return giving([&] { return image_pixels(rgb, {.size = 16}); }); });
  const std::vector<float> sound(2000, 0.5F);
  expect_survives([&] { return giving([&] { return log_mel(sound, {.num_frames = 20}); }); });
}

// A JSON document of nlohmann-json needs memory to be destroyed, and ends the program if there is none. It is
// little where documents are small, so larger allocations fail here.
constexpr std::size_t kMoreThanJson = 2048;

TEST(AllocationFaults, OfPages) {
  const PretrainedModel model = PretrainedModel::load(kData / "models/text-decoder");
  expect_survives(
      [&] {
        return giving([&] { return look(model, {.text = "A causal mask"}); },
                      [](const AttentionPage& page) { return page.html(); });
      },
      kMoreThanJson);
  const AttentionPage page = look(model, {.text = "A causal mask"});
  expect_survives([&] { return giving([&] { return page.html(); }); }, kMoreThanJson);
}

TEST(AllocationFaults, OfLoading) {
  for (const char* const name : {"bert", "gpt2", "llama-bf16", "t5", "vit", "whisper"}) {
    SCOPED_TRACE(name);
    expect_survives(
        [&] {
          return giving([&] { return Model::load(kData / "models" / name); },
                        [](const Model& model) {
                          const ModelSizes& sizes = model.sizes();
                          const bool reads_tokens = sizes.num_encoder_layers == 0 && sizes.image_size == 0;
                          return reads_tokens ? bits_of(model.hidden_states({.tokens = {1, 2, 3}}))
                                              : std::to_string(sizes.d_model);
                        });
        },
        kMoreThanJson);
  }
}

TEST(AllocationFaults, OfLoadingTokenizers) {
  for (std::size_t n = 1; n < 20; ++n) {
    const AllocationFault fault({.first = n});
    EXPECT_THROW(Tokenizer::parse(kWords), std::bad_alloc) << n;
  }
}

}  // namespace
}  // namespace saccade::test
