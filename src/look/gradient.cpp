#include "look/gradient.h"

#include <algorithm>

#include "saccade/linear.h"

namespace saccade::heads {
namespace {

/// The positive part of weight times gradient, averaged over a layer's heads: [queries, keys].
Tensor mean_of_layer(const LayerAttention& layer, const TensorView& dout, int threads) {
  const std::int64_t heads = layer.q.shape[1], queries = layer.q.shape[0], keys = layer.k.shape[0],
                     group = heads / layer.k.shape[1];
  Tensor mean(DType::f32, {queries, keys});
  for (std::int64_t head = 0; head < heads; ++head) {
    const TensorView k = layer.k.slice(1, head / group, head / group + 1),
                     v = layer.v.slice(1, head / group, head / group + 1);
    Tensor weights(DType::f32, {1, queries, keys});
    AttentionOptions options = layer.options;
    options.weights = weights, options.num_threads = threads;
    options.origin.head = head, options.origin.num_heads = heads;  // a distance bias differs from head to head
    attention(layer.q.slice(1, head, head + 1), k, v, options);
    const Tensor gradients = linear(Tensor::copy_of(dout.select(1, head)), Tensor::copy_of(v.select(1, 0)),
                                    {.weight_layout = WeightLayout::out_in, .num_threads = threads});
    for (std::size_t i = 0; i < mean.values<float>().size(); ++i)
      mean.values<float>()[i] +=
          std::max(weights.values<float>()[i] * gradients.values<float>()[i], 0.0f) / static_cast<float>(heads);
  }
  return mean;
}

void add(Tensor& sum, const Tensor& x) {
  for (std::size_t i = 0; i < sum.values<float>().size(); ++i) sum.values<float>()[i] += x.values<float>()[i];
}

/// Collects the gradients of a model's layers, from the last to the first.
class Collector {
 public:
  explicit Collector(int threads) : threads_(threads) {}

  void operator()(const LayerAttention& layer, const TensorView& dout) {
    const Tensor mean = mean_of_layer(layer, dout, threads_);
    GradientMaps& maps = maps_[layer.kind];
    const bool is_first = maps.mean.rank() == 0, is_square = layer.kind != AttentionKind::cross;
    if (is_first) {
      maps.mean = Tensor(DType::f32, mean.shape());
      if (is_square) maps.relevance = identity(mean.shape(0));
    }
    add(maps.mean, mean);
    // R (I + A): R from the later layers, A from this one.
    if (is_square)
      add(maps.relevance,
          linear(maps.relevance, mean, {.weight_layout = WeightLayout::in_out, .num_threads = threads_}));
  }

  std::map<AttentionKind, GradientMaps> maps() {
    for (auto& [kind, maps] : maps_) {
      for (Tensor* const map : {&maps.mean, &maps.relevance}) {
        if (map->rank() == 0) continue;
        const float largest = std::ranges::max(map->values<float>());
        if (largest > 0)
          for (float& number : map->values<float>()) number /= largest;
      }
    }
    return std::move(maps_);
  }

 private:
  static Tensor identity(std::int64_t size) {
    Tensor result(DType::f32, {size, size});
    for (std::int64_t i = 0; i < size; ++i) result.at<float>(i, i) = 1.0f;
    return result;
  }

  int threads_;
  std::map<AttentionKind, GradientMaps> maps_;
};

std::int64_t most_likely(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

/// The gradient of chosen logits with respect to the states: logit choices[i] for row first + i.
Tensor gradient_of_logits(const Model& model, const Tensor& states, std::int64_t first,
                          const std::vector<std::int64_t>& choices, int threads) {
  const std::int64_t count = std::ssize(choices);
  Tensor dlogits(DType::f32, {count, model.sizes().vocab_size});
  for (std::int64_t i = 0; i < count; ++i) dlogits.at<float>(i, choices[static_cast<std::size_t>(i)]) = 1.0f;
  Tensor dstates(DType::f32, states.shape());
  copy(model.logits_backward(states.view().slice(0, first, first + count), dlogits, threads),
       dstates.mutable_view().slice(0, first, first + count));
  return dstates;
}

/// The gradient of half the squared length of the mean state, with respect to each state: an equal share of the
/// mean.
Tensor gradient_of_mean(const Tensor& states) {
  const std::int64_t tokens = states.shape(0), dim = states.shape(1);
  Tensor dstates(DType::f32, states.shape());
  for (std::int64_t d = 0; d < dim; ++d) {
    double mean = 0.0;
    for (std::int64_t i = 0; i < tokens; ++i) mean += states.at<float>(i, d) / static_cast<double>(tokens);
    for (std::int64_t i = 0; i < tokens; ++i)
      dstates.at<float>(i, d) = static_cast<float>(mean / static_cast<double>(tokens));
  }
  return dstates;
}

}  // namespace

Gradient gradient_of_answer(const PretrainedModel& pretrained, const ModelInput& source, const ModelInput& input,
                            int num_threads) {
  const Model& model = pretrained.model();
  const ModelSizes& sizes = model.sizes();
  const Tensor states = model.hidden_states(input, {.num_threads = num_threads});
  const std::int64_t tokens = states.shape(0);
  Gradient result;
  Tensor dstates;
  if (!sizes.has_logits) {
    result.answer = "the embedding";
    dstates = gradient_of_mean(states);
  } else if (sizes.image_size > 0) {
    const std::int64_t choice =
        most_likely(model.logits(states.view().slice(0, 0, 1), num_threads).values<float>());
    result.answer = "class " + std::to_string(choice);
    dstates = gradient_of_logits(model, states, 0, {choice}, num_threads);
  } else if (sizes.num_encoder_layers > 0 && tokens > 1) {
    result.answer = "the answer's tokens";
    dstates = gradient_of_logits(model, states, 0, {input.tokens.begin() + 1, input.tokens.end()}, num_threads);
  } else if (sizes.is_causal) {
    const std::int64_t choice =
        most_likely(model.logits(states.view().slice(0, tokens - 1, tokens), num_threads).values<float>());
    result.answer =
        "the next token, \u201c" + pretrained.tokenizer().decode(std::vector{choice}, false) + "\u201d";
    dstates = gradient_of_logits(model, states, tokens - 1, {choice}, num_threads);
  } else {
    result.answer = "the text's own tokens";
    dstates = gradient_of_logits(model, states, 0, input.tokens, num_threads);
  }
  Collector collector(num_threads);
  const OnAttentionGradient collect = [&](const LayerAttention& layer, const TensorView& dout) {
    collector(layer, dout);
  };
  const Tensor dsource = model.backward(input, dstates, collect, num_threads);
  if (sizes.num_encoder_layers > 0) model.encode_backward(source, dsource, collect, num_threads);
  result.maps = collector.maps();
  return result;
}

}  // namespace saccade::heads
