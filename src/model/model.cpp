#include "saccade/model.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "core/parallel.h"
#include "model/families.h"
#include "model/layers/embedding.h"
#include "model/layers/stack.h"

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

void check_lengths(std::string_view name, const std::vector<std::int64_t>& lengths, std::int64_t total) {
  std::int64_t sum = 0;
  for (const std::int64_t length : lengths) {
    if (length < 1 || length > total)
      refuse(kModel, name, " must be from 1 to the number of tokens, ", total, ", but one is ", length);
    sum += length;
  }
  if (sum != total) refuse(kModel, name, " add up to ", sum, ", but there are ", total, " tokens");
}

void check_gradient(std::string_view name, const TensorView& gradient, const Shape& shape) {
  check_dtype(kModel, name, gradient, DType::f32);
  check_memory(kModel, name, gradient);
  if (!std::ranges::equal(gradient.dims(), shape))
    refuse(kModel, name, " must have shape ", to_string(shape), ", but it has shape ", to_string(gradient.dims()));
}

/// The threads of a call. Nested calls get this number explicitly, as their own limit replaces this thread's.
struct ThreadsOfCall {
  explicit ThreadsOfCall(const ModelOptions& options)
      : count(options.num_threads > 0 ? options.num_threads : max_threads()), limit(count) {}

  int count;
  ThreadLimit limit;
};

}  // namespace

struct Model::State {
  /// From hidden states to logits.
  struct Head {
    PackedLinear transform, decoder;
    NormLayer norm;
  };

  explicit State(const std::filesystem::path& folder) : checkpoint(folder) {}
  static std::unique_ptr<State> load(const std::filesystem::path& folder);

  Checkpoint checkpoint;
  ModelTable table{};
  ModelSizes sizes{};
  std::optional<TokenEmbedding> tokens{};
  std::optional<ImageEmbedding> images{};
  std::optional<AudioEmbedding> sound{};
  std::optional<Stack> encoder{}, stack{};
  // Built when first needed: the decoder's weights are often a third of a small model.
  std::once_flag head_is_built{};
  std::optional<Head> head{};

  std::string decoder_name() const {
    const std::string own(table.head.decoder);
    return table.head.is_tied && !checkpoint.has(own) ? weight_of(table.stack.embedding.tokens) : own;
  }
  std::int64_t d_head() const { return table.head.transform ? table.stack.embedding.dim : table.stack.d_model; }
  void build_head();
  /// Built on first use.
  const Head& head_of_logits();
  void set_sizes();

  /// Sequences of these tokens; `limit`: the most tokens of one, or 0.
  Sequences sequences_of(const std::vector<std::int64_t>& lengths, std::int64_t total, std::int64_t start,
                         std::int64_t limit) const;
  Sequences sequences_of_features(const TensorView& features) const;
  Source source_of(const ModelInput& input, const ModelCache* cache) const;
  /// The inputs of the layers for a checked model input.
  Run run_of(const ModelInput& input, ModelCache* cache) const;
  Run encoder_run(const ModelInput& source) const;
  void check_tokens(const ModelInput& input) const;
  void check_features(const TensorView& features) const;
  /// The states that the first layer reads, of tokens or of features.
  Tensor embedded(const ModelInput& input, const Sequences& sequences, int threads) const;
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Model Model::load(const std::filesystem::path& folder) {
  constexpr std::size_t kLongestMessage = 500;  // a file can have long text in place of a name
  try {
    return Model(State::load(folder));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(one_line(error.what()).substr(0, kLongestMessage));
  } catch (const std::exception& error) {  // from a function that was given values of config.json
    const std::string message = "[Model] " + (folder / "config.json").string() + ": " + error.what();
    throw std::runtime_error(one_line(message).substr(0, kLongestMessage));
  }
}

std::unique_ptr<Model::State> Model::State::load(const std::filesystem::path& folder) {
  auto state = std::make_unique<State>(folder);
  Checkpoint& checkpoint = state->checkpoint;
  state->table = table_of(checkpoint.config());
  const ModelTable& table = state->table;
  checkpoint.set_prefixes(table.prefixes);
  const StackTable& first = table.encoder ? *table.encoder : table.stack;
  if (first.image.size > 0)
    state->images.emplace(first, checkpoint);
  else if (first.sound.num_bins > 0)
    state->sound.emplace(first, checkpoint);
  if (!table.stack.embedding.tokens.empty()) state->tokens.emplace(table.stack, checkpoint, table.vocab_size);
  if (table.encoder) state->encoder.emplace(*table.encoder, checkpoint, AttentionKind::encoder);
  state->stack.emplace(table.stack, checkpoint,
                       table.stack.is_causal ? AttentionKind::decoder : AttentionKind::encoder,
                       table.encoder ? table.encoder->d_model : 0);
  if (!table.head.decoder.empty()) checkpoint.tensor(state->decoder_name(), {table.vocab_size, state->d_head()});
  state->set_sizes();
  return state;
}

void Model::State::set_sizes() {
  const Config& config = checkpoint.config();
  const StackTable& first = table.encoder ? *table.encoder : table.stack;
  sizes = {.family = config.text("model_type"),
           .vocab_size = table.vocab_size,
           .max_length = table.max_length,
           .d_model = table.stack.d_model,
           .num_layers = std::ssize(table.stack.layers),
           .num_heads = table.stack.num_heads,
           .num_kv_heads = table.stack.num_kv_heads,
           .head_dim = table.stack.head_dim,
           .is_causal = table.stack.is_causal,
           .has_logits = !table.head.decoder.empty(),
           .end_tokens = config.tokens("eos_token_id"),
           .image_size = first.image.size,
           .patch_size = first.image.patch_size,
           .num_channels = first.image.channels,
           .num_mel_bins = first.sound.num_bins,
           .max_frames = 2 * first.sound.num_positions};
  if (!table.encoder) return;
  sizes.num_encoder_layers = std::ssize(first.layers);
  sizes.num_encoder_heads = first.num_heads;
  const std::vector<std::int64_t> start = config.tokens("decoder_start_token_id");
  if (!start.empty()) sizes.start_token = start.front();
}

const ModelSizes& Model::sizes() const { return state_->sizes; }

Sequences Model::State::sequences_of(const std::vector<std::int64_t>& given, std::int64_t total,
                                     std::int64_t start, std::int64_t limit) const {
  const std::vector<std::int64_t> lengths = given.empty() ? std::vector{total} : given;
  check_lengths("lengths", lengths, total);
  for (const std::int64_t length : lengths)
    if (limit > 0 && start + length > limit)
      refuse(kModel, "a sequence has ", start + length, " tokens, but this model takes ", limit);
  Sequences result{.positions = Tensor(DType::i64, {total})};
  if (lengths.size() > 1) result.begins = begins_of(lengths);
  auto position = result.positions.values<std::int64_t>().begin();
  for (const std::int64_t length : lengths) {
    std::iota(position, position + length, start);
    position += length;
  }
  return result;
}

Sequences Model::State::sequences_of_features(const TensorView& features) const {
  const std::int64_t count = features.shape[0],
                     length = images ? table.stack.image.num_tokens() : features.shape[2] / 2;
  return sequences_of(std::vector(static_cast<std::size_t>(count), length), count * length, 0, 0);
}

void Model::State::check_tokens(const ModelInput& input) const {
  if (input.features.rank != 0) refuse(kModel, "features were given, but this model reads tokens");
  if (input.tokens.empty()) refuse(kModel, "at least one token is needed");
  check_numbers("tokens", input.tokens, sizes.vocab_size);
  const std::int64_t num_types = table.stack.embedding.num_types;
  if (!input.types.empty() && input.types.size() != input.tokens.size())
    refuse(kModel, "types must be as many as tokens, ", input.tokens.size(), ", but there are ",
           input.types.size());
  if (num_types > 0) check_numbers("types", input.types, num_types);
}

void Model::State::check_features(const TensorView& features) const {
  check_dtype(kModel, "features", features, DType::f32);
  check_memory(kModel, "features", features);
  const std::string found = to_string(features.dims());
  if (images) {
    if (features.rank != 4 || features.shape[0] < 1 || features.shape[1] != sizes.num_channels ||
        features.shape[2] != sizes.image_size || features.shape[3] != sizes.image_size)
      refuse(kModel, "features must have shape [images, ", sizes.num_channels, ", ", sizes.image_size, ", ",
             sizes.image_size, "], but they have shape ", found);
  } else if (features.rank != 3 || features.shape[0] < 1 || features.shape[1] != sizes.num_mel_bins ||
             features.shape[2] < 2 || features.shape[2] % 2 != 0 || features.shape[2] > sizes.max_frames) {
    refuse(kModel, "features must have shape [sequences, ", sizes.num_mel_bins,
           ", frames] with an even number of ", "frames up to ", sizes.max_frames, ", but they have shape ",
           found);
  }
}

Tensor Model::State::embedded(const ModelInput& input, const Sequences& sequences, int threads) const {
  if (input.features.rank == 0)
    return (*tokens)(input.tokens, sequences.positions.values<std::int64_t>(), input.types, threads);
  const Tensor contiguous = Tensor::copy_of(input.features);
  return images ? (*images)(contiguous, threads) : (*sound)(contiguous, threads);
}

Source Model::State::source_of(const ModelInput& input, const ModelCache* cache) const {
  if (!encoder) {
    if (input.encoder_states.rank != 0 || !input.encoder_lengths.empty())
      refuse(kModel, "encoder_states are for the decoder of an encoder-decoder, but this is a ", sizes.family);
    return {};
  }
  if (cache && cache->source_.front().rank() != 0) return {};
  const TensorView& states = input.encoder_states;
  if (states.rank != 2 || states.shape[0] < 1 || states.shape[1] != table.encoder->d_model)
    refuse(kModel, "encoder_states must have shape [source tokens, ", table.encoder->d_model,
           "], as encode() returns them, but they have shape ", to_string(states.dims()));
  check_dtype(kModel, "encoder_states", states, DType::f32);
  check_memory(kModel, "encoder_states", states);
  const std::size_t sources = std::max<std::size_t>(input.encoder_lengths.size(), 1),
                    sequences = std::max<std::size_t>(input.lengths.size(), 1);
  if (sources != sequences)
    refuse(kModel, "encoder_lengths must be as many as lengths, ", sequences, ", but there are ", sources);
  if (sources == 1) return {.states = states};
  check_lengths("encoder_lengths", input.encoder_lengths, states.shape[0]);
  return {.states = states, .begins = begins_of(input.encoder_lengths)};
}

Run Model::State::encoder_run(const ModelInput& source) const {
  if (!encoder) refuse(kModel, "an encoder-decoder has an encoder of its own, but this is a ", sizes.family);
  if (sound) {
    check_features(source.features);
    return {.sequences = sequences_of_features(source.features)};
  }
  check_tokens(source);
  return {.sequences = sequences_of(source.lengths, std::ssize(source.tokens), 0, 0)};
}

Run Model::State::run_of(const ModelInput& input, ModelCache* cache) const {
  if (images)
    check_features(input.features);
  else
    check_tokens(input);
  return {.sequences = images ? sequences_of_features(input.features)
                              : sequences_of(input.lengths, std::ssize(input.tokens), cache ? cache->length() : 0,
                                             sizes.max_length),
          .caches = cache ? std::span(cache->layers_) : std::span<KvCache>(),
          .source = source_of(input, cache),
          .source_caches = cache ? std::span(cache->source_) : std::span<Tensor>()};
}

Tensor Model::encode(const ModelInput& source, const ModelOptions& options) const {
  if (options.cache) refuse(kModel, "an encoder has no cache");
  const ThreadsOfCall threads(options);
  Run run = state_->encoder_run(source);
  run.on_attention = options.on_attention, run.num_threads = threads.count;
  Tensor x = state_->embedded(source, run.sequences, threads.count);
  (*state_->encoder)(x, run);
  return x;
}

Tensor Model::hidden_states(const ModelInput& input, const ModelOptions& options) const {
  if (options.num_threads < 0) refuse(kModel, "num_threads must be 0 or more, got ", options.num_threads);
  ModelCache* const cache = options.cache;
  if (cache && options.on_attention) refuse(kModel, "on_attention cannot be used together with a cache");
  if (cache && input.lengths.size() > 1)
    refuse(kModel, "a cache is of one sequence, but lengths has ", input.lengths.size());
  if (cache && std::ssize(cache->layers_) != sizes().num_layers)
    refuse(kModel, "the cache has ", cache->layers_.size(), " layers, but the model has ", sizes().num_layers);
  const ThreadsOfCall threads(options);
  Run run = state_->run_of(input, cache);
  run.on_attention = options.on_attention, run.num_threads = threads.count;
  Tensor x = state_->embedded(input, run.sequences, threads.count);
  const bool has_source = cache && !cache->source_.empty() && cache->source_.front().rank() != 0;
  try {
    (*state_->stack)(x, run);
  } catch (...) {  // out of memory, or of a ProgressHook: some layers have the new tokens, the others do not
    if (cache) cache->truncate(cache->length_);
    if (cache && !has_source) std::ranges::fill(cache->source_, Tensor());
    throw;
  }
  if (cache) cache->length_ += std::ssize(input.tokens);
  return x;
}

Tensor Model::backward(const ModelInput& input, const TensorView& dstates, const OnAttentionGradient& on_gradient,
                       int num_threads) const {
  const ThreadsOfCall threads({.num_threads = num_threads});
  Run run = state_->run_of(input, nullptr);
  run.num_threads = threads.count;
  Tensor x = state_->embedded(input, run.sequences, threads.count);
  check_gradient("dstates", dstates, x.shape());
  return state_->stack->backward(std::move(x), dstates, run, on_gradient);
}

void Model::encode_backward(const ModelInput& source, const TensorView& dstates,
                            const OnAttentionGradient& on_gradient, int num_threads) const {
  const ThreadsOfCall threads({.num_threads = num_threads});
  Run run = state_->encoder_run(source);
  run.num_threads = threads.count;
  Tensor x = state_->embedded(source, run.sequences, threads.count);
  check_gradient("dstates", dstates, x.shape());
  state_->encoder->backward(std::move(x), dstates, run, on_gradient);
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

const Model::State::Head& Model::State::head_of_logits() {
  if (!sizes.has_logits) refuse(kModel, "this model has no logits: its checkpoint ends with the hidden states");
  std::call_once(head_is_built, [&] { build_head(); });
  return *head;
}

Tensor Model::logits(const TensorView& hidden_states, int num_threads) const {
  const ThreadsOfCall threads({.num_threads = num_threads});
  const State::Head& head = state_->head_of_logits();
  Tensor y;
  if (head.transform) {
    Tensor transformed = head.transform.forward(hidden_states, threads.count);
    head.norm(transformed, transformed);
    y = head.decoder.forward(transformed, threads.count);
  } else if (const auto factor = static_cast<float>(state_->table.head.factor); factor != 1.0f) {
    Tensor scaled = Tensor::copy_of(hidden_states);
    for (float& value : scaled.values<float>()) value *= factor;
    y = head.decoder.forward(scaled, threads.count);
  } else {
    y = head.decoder.forward(hidden_states, threads.count);
  }
  if (const auto softcap = static_cast<float>(state_->table.head.softcap); softcap > 0) {
    for (float& logit : y.values<float>()) logit /= softcap;
    activate(Activation::tanh, y, y);
    for (float& logit : y.values<float>()) logit *= softcap;
  }
  return y;
}

Tensor Model::logits_backward(const TensorView& hidden_states, const TensorView& dlogits, int num_threads) const {
  const ThreadsOfCall threads({.num_threads = num_threads});
  const State::Head& head = state_->head_of_logits();
  Shape shape(hidden_states.dims().begin(), hidden_states.dims().end());
  if (!shape.empty()) shape.back() = sizes().vocab_size;
  check_gradient("dlogits", dlogits, shape);
  Tensor gradient = Tensor::copy_of(dlogits);
  if (const double softcap = state_->table.head.softcap; softcap > 0) {
    // The slope of cap tanh(x / cap) is 1 - (its value / cap)^2.
    const Tensor y = logits(hidden_states, num_threads);
    for (std::size_t i = 0; i < y.values<float>().size(); ++i)
      gradient.values<float>()[i] *= static_cast<float>(1.0 - std::pow(y.values<float>()[i] / softcap, 2));
  }
  if (head.transform) {
    const Tensor transformed = head.transform.forward(hidden_states, threads.count);
    gradient = head.decoder.backward(transformed, gradient, threads.count);
    gradient = head.norm.backward(transformed, gradient);
    return head.transform.backward(hidden_states, gradient, threads.count);
  }
  gradient = head.decoder.backward(hidden_states, gradient, threads.count);
  for (float& number : gradient.values<float>()) number *= static_cast<float>(state_->table.head.factor);
  return gradient;
}

ModelCache Model::make_cache(const KvCacheFormat& format, std::int64_t capacity) const {
  if (!sizes().is_causal) refuse(kModel, "an encoder has no cache: each of its tokens sees those after it");
  ModelCache cache;
  for (const LayerTable& layer : state_->table.stack.layers)
    cache.layers_.emplace_back(KvCacheOptions{.num_kv_heads = sizes().num_kv_heads,
                                              .head_dim = sizes().head_dim,
                                              .dtype = format.dtype,
                                              .dtype_v = format.dtype_v,
                                              .rotate = format.rotate,
                                              .window = layer.window_left,
                                              .capacity = capacity});
  if (state_->encoder) cache.source_.resize(cache.layers_.size());
  return cache;
}

void ModelCache::truncate(std::int64_t length) {
  for (KvCache& layer : layers_) layer.truncate(0, length);
  length_ = length;
}

std::size_t ModelCache::bytes() const {
  std::size_t sum = 0;
  for (const KvCache& layer : layers_) sum += layer.bytes();
  for (const Tensor& source : source_) sum += source.values<float>().size_bytes();
  return sum;
}

}  // namespace saccade
