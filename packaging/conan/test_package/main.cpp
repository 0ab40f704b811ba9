// Uses every library of the package once. Of a library that the package does not have, the header is missing too.
#include <saccade/saccade.h>

#include <filesystem>
#include <iostream>
#include <stdexcept>
#if __has_include(<saccade/gpt_model.h>)
#include <saccade/gpt_model.h>
#endif
#if __has_include(<saccade/io.h>)
#include <saccade/io.h>
#include <saccade/page.h>
#endif
#if __has_include(<saccade/model.h>)
#include <saccade/model.h>
#endif
#if __has_include(<saccade/tokenizer.h>)
#include <saccade/tokenizer.h>
#endif

int main() {
  const auto x = saccade::Tensor::of<float>({{0.43f, 0.15f, 0.89f}, {0.55f, 0.87f, 0.66f}});
  saccade::Tensor weights(saccade::DType::f32, {2, 2});
  std::cout << saccade::to_string(saccade::attention(x, x, x, {.weights = weights})) << '\n';
#if __has_include(<saccade/gpt_model.h>)
  const saccade::GPTModel gpt(
      {.vocab_size = 5, .context_length = 4, .d_model = 4, .num_layers = 1, .num_heads = 2});
  std::cout << gpt.state_dict().size() << " tensors of a language model\n";
#endif
#if __has_include(<saccade/io.h>)
  saccade::save_npy("x.npy", x);
  std::cout << saccade::to_string(saccade::load_npy("x.npy")) << " from a file\n";
  std::filesystem::remove("x.npy");
  saccade::AttentionPage page({.title = "a page"});
  page.add_part({.queries = {.tokens = {"a", "b"}}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, weights);
  std::cout << page.html().size() << " bytes of a page\n";
#endif
#if __has_include(<saccade/model.h>)
  try {
    saccade::Model::load("no such folder");
  } catch (const std::runtime_error& error) {
    std::cout << error.what() << '\n';
  }
#endif
#if __has_include(<saccade/tokenizer.h>)
  const auto tokenizer = saccade::Tokenizer::parse(
      R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
          "pre_tokenizer": {"type": "Whitespace"}})");
  std::cout << tokenizer.encode("a a").size() << " tokens\n";
#endif
}
