#include "generate_pretrained.h"

#include "common.h"
#include "pretrained.h"

namespace saccade::cli {
namespace {

/// The text of a growing list of tokens. A character may need several tokens; it is printed when it is whole.
class TextOfTokens {
 public:
  TextOfTokens(const Tokenizer& tokenizer, const std::function<void(const std::string&)>& print)
      : tokenizer_(tokenizer), print_(print) {}

  void add(std::int64_t token) {
    tokens_.push_back(token);
    print_whole(false);
  }
  void end() { print_whole(true); }

 private:
  void print_whole(bool at_end) {
    std::string text = tokenizer_.decode(tokens_);
    // The replacement character stands for bytes that later tokens may complete.
    if (text.size() < printed_ || (!at_end && text.ends_with("\xef\xbf\xbd"))) return;
    print_(text.substr(printed_));
    printed_ = text.size();
    if (!at_end && text.ends_with('\n')) tokens_.clear(), printed_ = 0;  // so that long texts stay fast
  }

  const Tokenizer& tokenizer_;
  const std::function<void(const std::string&)>& print_;
  std::vector<std::int64_t> tokens_;
  std::size_t printed_ = 0;
};

}  // namespace

void generate_pretrained(const std::string& folder, const std::string& prompt, std::int64_t count,
                         TokenSampler& sampler, const std::function<void(const std::string&)>& print) {
  const Pretrained pretrained = Pretrained::load(folder);
  const Model& model = pretrained.model;
  if (!model.sizes().is_causal || !model.sizes().has_logits)
    refuse("--model is a {} without next tokens: only decoders with logits generate text", model.sizes().family);
  std::vector<std::int64_t> tokens = pretrained.ids_of(prompt);
  const std::int64_t limit = model.sizes().max_length;
  if (limit > 0) count = std::min(count, limit - std::ssize(tokens));
  if (count < 0) refuse("--prompt has {} tokens, but this model takes {}", tokens.size(), limit);
  ModelCache cache = model.make_cache(DType::f32, std::ssize(tokens) + count);
  TextOfTokens text(pretrained.tokenizer, print);
  for (const std::int64_t token : tokens) text.add(token);
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor states = model.hidden_states({.tokens = std::move(tokens)}, {.cache = &cache});
    const Tensor logits = model.logits(states.view().select(0, states.shape(0) - 1));
    const std::int64_t next = sampler.next(logits.values<float>());
    if (std::ranges::count(model.sizes().end_tokens, next) > 0) break;
    text.add(next);
    tokens = {next};
  }
  text.end();
}

}  // namespace saccade::cli
