#include "saccade/model.h"

#include <mutex>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "core/parallel.h"
#include "model/families.h"
#include "model/stack.h"

namespace saccade {
namespace {

using namespace model;

constexpr std::string_view kModel = "Model";

/// Where sequences of these lengths begin.
Tensor begins_of(const std::vector<std::int64_t>& lengths) {
  Tensor begins(DType::i64, {std::ssize(lengths) + 1});
  std::partial_sum(lengths.begin(), lengths.end(), begins.values<std::int64_t>().begin() + 1);
  return begins;
}

void check_numbers(std::string_view name, const std::vector<std::int64_t>& numbers, std::int64_t end) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] < 0 || numbers[i] >= end)
      refuse(kModel, name, " must be from 0 to ", end - 1, ", but number ", i, " is ", numbers[i]);
}

}  // namespace

struct Model::State {
  /// From hidden states to logits.
  struct Head {
    PackedLinear transform, decoder;
    NormLayer norm;
  };

  explicit State(const std::filesystem::path& folder) : checkpoint(folder) {}

  Checkpoint checkpoint;
  ModelTable table{};
  ModelSizes sizes{};
  std::optional<EmbeddingLayer> embedding{};
  std::optional<Stack> stack{};
  // Built when first needed: the decoder's weights are often a third of a small model.
  std::once_flag head_is_built{};
  std::optional<Head> head{};

  std::string decoder_name() const {
    const std::string own(table.head.decoder);
    return table.head.is_tied && !checkpoint.has(own) ? weight_of(table.stack.embedding.tokens) : own;
  }
  std::int64_t d_head() const { return table.head.transform ? table.stack.embedding.dim : table.stack.d_model; }
  void build_head();
  Sequences sequences_of(const ModelInput& input, std::int64_t start) const;
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Model Model::load(const std::filesystem::path& folder) {
  auto state = std::make_unique<State>(folder);
  Checkpoint& checkpoint = state->checkpoint;
  state->table = table_of(checkpoint.config());
  const ModelTable& table = state->table;
  checkpoint.set_prefixes(table.prefixes);
  state->embedding.emplace(table.stack, checkpoint, table.vocab_size);
  state->stack.emplace(table.stack, checkpoint);
  const bool has_head = !table.head.decoder.empty();
  if (has_head) checkpoint.tensor(state->decoder_name(), {table.vocab_size, state->d_head()});
  state->sizes = {.family = checkpoint.config().text("model_type"),
                  .vocab_size = table.vocab_size,
                  .max_length = table.max_length,
                  .d_model = table.stack.d_model,
                  .num_layers = std::ssize(table.stack.layers),
                  .num_heads = table.stack.num_heads,
                  .num_kv_heads = table.stack.num_kv_heads,
                  .head_dim = table.stack.head_dim,
                  .is_causal = table.stack.is_causal,
                  .has_logits = has_head,
                  .end_tokens = checkpoint.config().tokens("eos_token_id")};
  return Model(std::move(state));
}

const ModelSizes& Model::sizes() const { return state_->sizes; }

Sequences Model::State::sequences_of(const ModelInput& input, std::int64_t start) const {
  std::vector<std::int64_t> lengths = input.lengths;
  if (lengths.empty()) lengths.push_back(std::ssize(input.tokens));
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    if (length < 1 || length > std::ssize(input.tokens))
      refuse(kModel, "lengths must be from 1 to the number of tokens, ", input.tokens.size(), ", but one is ",
             length);
    if (sizes.max_length > 0 && start + length > sizes.max_length)
      refuse(kModel, "a sequence has ", start + length, " tokens, but this model takes ", sizes.max_length);
    total += length;
  }
  if (total != std::ssize(input.tokens))
    refuse(kModel, "lengths add up to ", total, ", but there are ", input.tokens.size(), " tokens");
  Sequences result{.positions = Tensor(DType::i64, {total})};
  if (lengths.size() > 1) result.begins = begins_of(lengths);
  auto position = result.positions.values<std::int64_t>().begin();
  for (const std::int64_t length : lengths) {
    std::iota(position, position + length, start);
    position += length;
  }
  return result;
}

Tensor Model::hidden_states(const ModelInput& input, const ModelOptions& options) const {
  if (input.tokens.empty()) refuse(kModel, "at least one token is needed");
  check_numbers("tokens", input.tokens, sizes().vocab_size);
  const std::int64_t num_types = state_->table.stack.embedding.num_types;
  if (!input.types.empty() && input.types.size() != input.tokens.size())
    refuse(kModel, "types must be as many as tokens, ", input.tokens.size(), ", but there are ",
           input.types.size());
  if (num_types > 0) check_numbers("types", input.types, num_types);
  if (options.num_threads < 0) refuse(kModel, "num_threads must be 0 or more, got ", options.num_threads);
  ModelCache* const cache = options.cache;
  if (cache && options.on_attention) refuse(kModel, "on_attention cannot be used together with a cache");
  if (cache && input.lengths.size() > 1)
    refuse(kModel, "a cache is of one sequence, but lengths has ", input.lengths.size());
  if (cache && std::ssize(cache->layers_) != sizes().num_layers)
    refuse(kModel, "the cache has ", cache->layers_.size(), " layers, but the model has ", sizes().num_layers);
  // Every call within gets this number: its own limit replaces this thread's.
  const int threads = options.num_threads > 0 ? options.num_threads : most_threads();
  const ThreadLimit limit(threads);
  const Run run{.sequences = state_->sequences_of(input, cache ? cache->length() : 0),
                .caches = cache ? std::span(cache->layers_) : std::span<KvCache>(),
                .on_attention = options.on_attention,
                .num_threads = threads};
  Tensor x =
      (*state_->embedding)(input.tokens, run.sequences.positions.values<std::int64_t>(), input.types, threads);
  (*state_->stack)(x, run);
  if (cache) cache->length_ += std::ssize(input.tokens);
  return x;
}

void Model::State::build_head() {
  const HeadTable& names = table.head;
  StackTable out_in = table.stack;  // GPT-2 stores only the layers' weights as [in, out]
  out_in.weight_layout = WeightLayout::out_in;
  Head built;
  if (names.transform) {
    built.transform =
        packed(out_in, checkpoint, "", {{names.transform, d_head()}}, table.stack.d_model, names.activation);
    built.norm = NormLayer(table.stack, checkpoint, std::string(names.norm), d_head());
  }
  PackedLinearOptions options;
  Tensor bias;
  if (!names.bias.empty()) {
    bias = checkpoint.numbers(std::string(names.bias), {table.vocab_size});
    options.bias = bias;
  }
  built.decoder = PackedLinear(checkpoint.tensor(decoder_name(), {table.vocab_size, d_head()}), options);
  head = std::move(built);
}

Tensor Model::logits(const TensorView& hidden_states, int num_threads) const {
  if (!sizes().has_logits) refuse(kModel, "this model has no logits: its checkpoint ends with the hidden states");
  std::call_once(state_->head_is_built, [&] { state_->build_head(); });
  const int threads = num_threads > 0 ? num_threads : most_threads();
  const ThreadLimit limit(threads);
  const State::Head& head = *state_->head;
  Tensor y;
  if (head.transform) {
    Tensor transformed = head.transform.forward(hidden_states, threads);
    head.norm(transformed, transformed);
    y = head.decoder.forward(transformed, threads);
  } else {
    y = head.decoder.forward(hidden_states, threads);
  }
  if (const auto softcap = static_cast<float>(state_->table.head.softcap); softcap > 0) {
    for (float& logit : y.values<float>()) logit /= softcap;
    activate(Activation::tanh, y, y);
    for (float& logit : y.values<float>()) logit *= softcap;
  }
  return y;
}

ModelCache Model::make_cache(DType dtype, std::int64_t capacity) const {
  if (!sizes().is_causal) refuse(kModel, "an encoder has no cache: each of its tokens sees those after it");
  ModelCache cache;
  for (const LayerTable& layer : state_->table.stack.layers)
    cache.layers_.emplace_back(KvCacheOptions{.num_kv_heads = sizes().num_kv_heads,
                                              .head_dim = sizes().head_dim,
                                              .dtype = dtype,
                                              .window = layer.window_left,
                                              .capacity = capacity});
  return cache;
}

void ModelCache::truncate(std::int64_t length) {
  for (KvCache& layer : layers_) layer.truncate(0, length);
  length_ = length;
}

std::size_t ModelCache::bytes() const {
  return std::accumulate(layers_.begin(), layers_.end(), std::size_t{0},
                         [](std::size_t sum, const KvCache& layer) { return sum + layer.bytes(); });
}

}  // namespace saccade
