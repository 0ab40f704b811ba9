#include "saccade/gpt_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "core/check.h"
#include "nn/elementwise.h"

namespace saccade {
namespace {

constexpr const char* kModelName = "GPTModel";

MultiHeadAttentionOptions attention_options(const GPTModelOptions& options) {
  return {.d_in = options.d_model,
          .d_out = options.d_model,
          .num_heads = options.num_heads,
          .context_length = options.context_length,
          .causal = true,
          .dropout = options.dropout,
          .qkv_bias = options.qkv_bias};
}

std::int64_t hidden_of(const GPTModelOptions& options) {
  return options.d_hidden != 0 ? options.d_hidden : 4 * options.d_model;
}

const GPTModelOptions& checked(const GPTModelOptions& options) {
  const auto require_positive = [](const char* option, std::int64_t value) {
    if (value < 1) refuse(kModelName, option, " must be at least 1, got ", value);
    if (value > kMaxLength) refuse(kModelName, option, " must be at most 2^40, got ", value);
  };
  require_positive("vocab_size", options.vocab_size);
  require_positive("context_length", options.context_length);
  require_positive("d_model", options.d_model);
  require_positive("num_layers", options.num_layers);
  require_positive("num_heads", options.num_heads);
  require_positive("d_hidden", hidden_of(options));
  if (options.d_model % options.num_heads != 0) {
    refuse(kModelName, "d_model must be a multiple of num_heads, got d_model ", options.d_model, " and num_heads ",
           options.num_heads);
  }
  if (!(options.dropout >= 0.0 && options.dropout < 1.0))
    refuse(kModelName, "dropout must be at least 0 and below 1, got ", options.dropout);
  return options;
}

Tensor positions(std::int64_t seqlen) {
  Tensor result(DType::i64, {seqlen});
  const auto values = result.values<std::int64_t>();
  std::iota(values.begin(), values.end(), 0);
  return result;
}

}  // namespace

// ---- TransformerBlock ----------------------------------------------------------------------------------------

TransformerBlock::TransformerBlock(const GPTModelOptions& options)
    : Module("TransformerBlock"),
      attention_only_(options.attention_only),
      att_(attention_options(options)),
      ff_(options.d_model, hidden_of(options)),
      norm1_(options.d_model),
      norm2_(options.d_model),
      drop_att_(options.dropout),
      drop_ff_(options.dropout) {}

TransformerBlock::TransformerBlock(const GPTModelOptions& options, TorchGenerator& generator)
    : TransformerBlock(options) {
  att_ = MultiHeadAttention(attention_options(options), generator);
  if (!attention_only_) ff_ = FeedForward(options.d_model, hidden_of(options), generator);
}

std::vector<Module::Part> TransformerBlock::parts() {
  if (attention_only_) return {{"att", att_}, {"norm1", norm1_}, {"drop_att", drop_att_}};
  return {{"att", att_},           {"ff", ff_},          {"norm1", norm1_}, {"norm2", norm2_},
          {"drop_att", drop_att_}, {"drop_ff", drop_ff_}};
}

Tensor TransformerBlock::forward(const TensorView& x) { return forward(x, nullptr, {}); }
Tensor TransformerBlock::forward(const TensorView& x, Tensor& weights) { return forward(x, &weights, {}); }
Tensor TransformerBlock::forward(const TensorView& x, const OnAttention& on_attention) {
  return forward(x, nullptr, on_attention);
}

Tensor TransformerBlock::forward(const TensorView& x, Tensor* weights, const OnAttention& on_attention) {
  ModuleOutput attended =
      att_.forward(norm1_.forward(x),
                   {.weights = weights ? HeadWeights::per_head : HeadWeights::none, .on_attention = on_attention});
  if (weights) *weights = std::move(attended.weights);
  Tensor stream = drop_att_.forward(attended.output);
  add_to(stream, x);
  if (attention_only_) return stream;
  Tensor result = drop_ff_.forward(ff_.forward(norm2_.forward(stream)));
  add_to(result, stream);
  return result;
}

Tensor TransformerBlock::backward(const TensorView& dout) {
  Tensor of_feed_forward;
  if (!attention_only_) {
    of_feed_forward = norm2_.backward(ff_.backward(drop_ff_.backward(dout)));
    add_to(of_feed_forward, dout);
  }
  const TensorView dstream = attention_only_ ? dout : of_feed_forward.view();
  Tensor dx = norm1_.backward(att_.backward(drop_att_.backward(dstream)).x);
  add_to(dx, dstream);
  return dx;
}

// ---- GPTModel ------------------------------------------------------------------------------------------------

GPTModel::GPTModel(const GPTModelOptions& options)
    : Module(kModelName),
      options_(checked(options)),
      tok_emb_(options.vocab_size, options.d_model),
      pos_emb_(options.context_length, options.d_model),
      drop_emb_(options.dropout),
      final_norm_(options.d_model),
      out_head_(options.d_model, options.vocab_size, false) {
  trf_blocks_.reserve(static_cast<std::size_t>(options.num_layers));  // an absurd number fails at once
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer) trf_blocks_.emplace_back(options);
}

GPTModel::GPTModel(const GPTModelOptions& options, TorchGenerator& generator) : GPTModel(options) {
  tok_emb_ = Embedding(options.vocab_size, options.d_model, generator);
  pos_emb_ = Embedding(options.context_length, options.d_model, generator);
  for (TransformerBlock& block : trf_blocks_) block = TransformerBlock(options, generator);
  out_head_ = Linear(options.d_model, options.vocab_size, generator, false);
  if (options.init == GPTInitialization::sinusoidal) make_embeddings_sinusoidal();
  seed_dropout(TorchGenerator(generator).next64());
}

void GPTModel::make_embeddings_sinusoidal() {
  constexpr double kSize = 0.2;
  for (const NamedParameter& parameter : parameters()) {
    float* const values = parameter.value.as<float>();
    if (parameter.name == "tok_emb.weight") {
      for (std::int64_t i = 0; i < parameter.value.size(); ++i) values[i] *= static_cast<float>(kSize);
    }
    if (parameter.name != "pos_emb.weight") continue;
    for (std::int64_t position = 0; position < options_.context_length; ++position) {
      for (std::int64_t i = 0; i < options_.d_model; ++i) {
        const double exponent = static_cast<double>(i / 2 * 2) / static_cast<double>(options_.d_model);
        const double angle = static_cast<double>(position) * std::pow(10000.0, -exponent);
        values[position * options_.d_model + i] =
            static_cast<float>(kSize * (i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
}

std::vector<Module::Part> GPTModel::parts() {
  std::vector<Part> result{{"tok_emb", tok_emb_}, {"pos_emb", pos_emb_}, {"drop_emb", drop_emb_}};
  for (std::size_t layer = 0; layer < trf_blocks_.size(); ++layer) {
    result.push_back({"trf_blocks." + std::to_string(layer), trf_blocks_[layer]});
  }
  result.push_back({"final_norm", final_norm_});
  result.push_back({"out_head", out_head_});
  return result;
}

Tensor GPTModel::embed(const TensorView& tokens) {
  if (tokens.dtype != DType::i64 || tokens.rank != 2) {
    refuse(kModelName, "tokens must be i64 [batch, seqlen], got ", name_of(tokens.dtype), " ",
           to_string(tokens.dims()));
  }
  const std::int64_t seqlen = tokens.shape[1];
  if (seqlen < 1 || seqlen > options_.context_length) {
    refuse(kModelName, "tokens must be 1 to context_length ", options_.context_length, " a sequence, got ",
           seqlen);
  }
  Tensor x = tok_emb_.forward(tokens);
  add_to_each_entry(x, pos_emb_.forward(positions(seqlen)));
  return drop_emb_.forward(x);
}

Tensor GPTModel::forward(const TensorView& tokens) {
  Tensor x = embed(tokens);
  for (TransformerBlock& block : trf_blocks_) x = block.forward(x);
  return out_head_.forward(final_norm_.forward(x));
}

Tensor GPTModel::forward(const TensorView& tokens, const OnAttention& on_attention) {
  if (!on_attention) return forward(tokens);
  Tensor x = embed(tokens);
  for (std::size_t number = 0; number < trf_blocks_.size(); ++number)
    x = trf_blocks_[number].forward(x, [&](LayerAttention layer) {
      layer.layer = static_cast<std::int64_t>(number);
      on_attention(layer);
    });
  return out_head_.forward(final_norm_.forward(x));
}

Tensor GPTModel::next_logits(std::span<const std::int64_t> tokens) {
  if (tokens.empty()) refuse("GPTModel", "at least one token is needed to begin with");
  const auto seen = std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(options_.context_length));
  const Tensor logits = forward(TensorView(tokens.last(seen).data(), {1, static_cast<std::int64_t>(seen)}));
  return Tensor::copy_of(logits.view().select(0, 0).select(0, static_cast<std::int64_t>(seen) - 1));
}

void GPTModel::backward(const TensorView& dlogits) {
  Tensor dx = final_norm_.backward(out_head_.backward(dlogits));
  for (std::size_t layer = trf_blocks_.size(); layer-- > 0;) dx = trf_blocks_[layer].backward(dx);
  dx = drop_emb_.backward(dx);
  pos_emb_.backward(sum_of_entries(dx));
  tok_emb_.backward(dx);
}

std::vector<Tensor> GPTModel::attention_weights(const TensorView& tokens) {
  const EvalMode while_looking(*this);
  std::vector<Tensor> result;
  Tensor x = embed(tokens);
  for (TransformerBlock& block : trf_blocks_) {
    Tensor weights;
    x = block.forward(x, weights);
    result.push_back(std::move(weights));
  }
  return result;
}

std::unique_ptr<GPTModel> gpt_model_from_state_dict(const StateDict& state, std::int64_t num_heads) {
  const auto matrix = [&](const std::string& name) -> const Tensor& {
    const auto entry = state.find(name);
    if (entry == state.end()) refuse(kModelName, "the checkpoint is no GPTModel's: ", name, " is missing");
    if (entry->second.rank() != 2)
      refuse(kModelName, name, " must be a matrix, got ", to_string(entry->second.shape()));
    return entry->second;
  };
  const Tensor& tokens = matrix("tok_emb.weight");
  std::int64_t num_layers = 0;
  while (state.contains("trf_blocks." + std::to_string(num_layers) + ".att.W_query.weight")) ++num_layers;
  const bool attention_only = !state.contains("trf_blocks.0.ff.layers.0.weight");
  auto model = std::make_unique<GPTModel>(
      GPTModelOptions{.vocab_size = tokens.shape(0),
                      .context_length = matrix("pos_emb.weight").shape(0),
                      .d_model = tokens.shape(1),
                      .num_layers = num_layers,
                      .num_heads = num_heads,
                      .d_hidden = attention_only ? 0 : matrix("trf_blocks.0.ff.layers.0.weight").shape(0),
                      .attention_only = attention_only,
                      .qkv_bias = state.contains("trf_blocks.0.att.W_query.bias")});
  model->load_state_dict(state);
  model->eval();
  return model;
}

}  // namespace saccade
