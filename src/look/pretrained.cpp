#include "saccade/pretrained.h"

#include <algorithm>
#include <optional>

#include "core/check.h"

namespace saccade {

struct PretrainedModel::State {
  Model model;
  std::filesystem::path folder;
  std::optional<Tokenizer> tokenizer{};
  ImageOptions image{};
};

PretrainedModel::PretrainedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
PretrainedModel::~PretrainedModel() = default;
PretrainedModel::PretrainedModel(PretrainedModel&&) noexcept = default;
PretrainedModel& PretrainedModel::operator=(PretrainedModel&&) noexcept = default;

PretrainedModel PretrainedModel::load(const std::filesystem::path& folder) {
  auto state = std::make_unique<State>(State{.model = Model::load(folder), .folder = folder});
  if (const std::int64_t size = state->model.sizes().image_size; size > 0) {
    state->image = ImageOptions::load(folder);
    state->image.size = size;
  } else {
    state->tokenizer = Tokenizer::load(folder);
  }
  return PretrainedModel(std::move(state));
}

const Model& PretrainedModel::model() const { return state_->model; }
const ImageOptions& PretrainedModel::image_options() const { return state_->image; }
const std::filesystem::path& PretrainedModel::folder() const { return state_->folder; }

const Tokenizer& PretrainedModel::tokenizer() const {
  if (!state_->tokenizer) refuse("PretrainedModel", "a model of images has no tokenizer");
  return *state_->tokenizer;
}

std::string PretrainedModel::name() const {
  const std::filesystem::path normal = state_->folder.lexically_normal();
  return normal.has_filename() ? normal.filename().string() : normal.parent_path().filename().string();
}

std::vector<std::int64_t> PretrainedModel::ids_of(std::string_view text) const {
  std::vector<std::int64_t> ids;
  for (const Token& token : tokenizer().encode(text)) ids.push_back(token.id);
  if (ids.empty()) refuse("PretrainedModel", "the text has no tokens");
  return ids;
}

std::vector<std::int64_t> PretrainedModel::first_tokens() const {
  const ModelSizes& sizes = model().sizes();
  if (sizes.start_token < 0)
    refuse("PretrainedModel", folder().string(), ": config.json has no decoder_start_token_id");
  std::vector<std::int64_t> tokens{sizes.start_token};
  if (sizes.num_mel_bins > 0)
    for (const char* const token : {"<|en|>", "<|transcribe|>", "<|notimestamps|>"})
      if (const auto id = tokenizer().id_of(token)) tokens.push_back(*id);
  return tokens;
}

void continue_tokens(const Model& model, std::vector<std::int64_t> tokens, const TensorView& encoder_states,
                     std::int64_t count, const std::function<std::int64_t(std::span<const float>)>& next,
                     const std::function<void(std::int64_t)>& on_token, int num_threads,
                     const KvCacheFormat& format) {
  if (!next || !on_token) refuse("continue_tokens", "next and on_token must be functions, but one is empty");
  const std::int64_t limit = model.sizes().max_length;
  if (limit > 0) count = std::min<std::int64_t>(count, limit - std::ssize(tokens));
  ModelCache cache = model.make_cache(format, std::ssize(tokens) + std::max<std::int64_t>(count, 0));
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor states = model.hidden_states({.tokens = std::move(tokens), .encoder_states = encoder_states},
                                              {.cache = &cache, .num_threads = num_threads});
    const Tensor logits = model.logits(states.view().select(0, states.shape(0) - 1), num_threads);
    const std::int64_t token = next(logits.values<float>());
    if (std::ranges::count(model.sizes().end_tokens, token) > 0) return;
    on_token(token);
    tokens = {token};
  }
}

}  // namespace saccade
