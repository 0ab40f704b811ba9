// Uses every installed library once, in the folder given: attention written to a file, read back, drawn, shown as
// a page; a cache refused through the C interface; a model counted, and one that is not there refused; a text
// split.
#include <saccade/c_api.h>
#include <saccade/gpt_model.h>
#include <saccade/heatmap.h>
#include <saccade/io.h>
#include <saccade/model.h>
#include <saccade/page.h>
#include <saccade/saccade.h>
#ifdef WITH_LOOK
#include <saccade/look.h>
#endif
#ifdef WITH_TOKENIZER
#include <saccade/tokenizer.h>
#endif

#include <filesystem>
#include <stdexcept>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path file = std::filesystem::path(argv[1]) / "weights.npy";
  const auto x = saccade::Tensor::of<float>({{1, 0}, {0, 1}});
  saccade::Tensor weights(saccade::DType::f32, {2, 2});
  saccade::attention(x, x, x, {.weights = weights});
  saccade::save_npy(file, weights);
  const std::string svg = saccade::heatmap_svg(saccade::load_npy(file));
  saccade_kv_cache* cache = nullptr;  // the function and the message are in two libraries
  if (saccade_kv_cache_load(file.c_str(), &cache) != SACCADE_FAILED || cache != nullptr) return 1;
  if (std::string(saccade_last_error()).find("weights.npy") == std::string::npos) return 1;
  const saccade::GPTModel model(
      {.vocab_size = 5, .context_length = 4, .d_model = 4, .num_layers = 1, .num_heads = 2});
  if (model.state_dict().empty()) return 1;
  saccade::AttentionPage page({.title = "a page"});
  page.add_part({.queries = {.tokens = {"a", "b"}}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, weights);
  if (!page.html().starts_with("<!DOCTYPE html>")) return 1;
  try {
    saccade::Model::load(argv[1]);
    return 1;
  } catch (const std::runtime_error&) {
  }
#ifdef WITH_LOOK
  try {
    saccade::look(saccade::PretrainedModel::load(argv[1]), {.text = "a"});
    return 1;
  } catch (const std::runtime_error&) {
  }
#endif
#ifdef WITH_TOKENIZER
  const auto tokenizer = saccade::Tokenizer::parse(
      R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "pre_tokenizer": {"type": "Whitespace"}})");
  if (tokenizer.encode("a a").size() != 2) return 1;
#endif
  return svg.starts_with("<") && !saccade::png_of_svg(svg).empty() ? 0 : 1;
}
