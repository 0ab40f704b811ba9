// Times calls of the library on request. `script/bench --gate` compiles this program against the libraries of two
// revisions and alternates between them, so it uses only what the public headers of both have.
//
// Reads lines in the format of gate.txt, "FUNCTION KEY=VALUE... FLAG...", and prints for each the seconds of a
// call: the mean over the calls that fit into kSampleSeconds. Draws new inputs when a line differs from the
// previous one.
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "timed_call.h"

namespace saccade::timer {
namespace {

constexpr double kSampleSeconds = 0.015;

using Work = std::function<void()>;

Work attention_work(const Words& words) {
  return [c = std::make_shared<Call>(words)] { attention(c->q, c->k, c->v, c->o, c->options); };
}

Work decode_work(const Words& words) {
  return [c = std::make_shared<Call>(words)] { decode(c->q, c->k, c->v, c->o, c->options); };
}

Work backward_work(const Words& words) {
  const auto c = std::make_shared<Call>(words);
  c->make_gradients(words);
  return [c] {
    attention_backward(c->q, c->k, c->v, {.o = c->o, .lse = c->lse, .dout = c->dout},
                       {.dq = c->dq, .dk = c->dk, .dv = c->dv}, c->options);
  };
}

Work inspect_work(const Words& words) {
  InspectOptions wanted;
  wanted.top_k = words.integer("top_k", 0);
  wanted.entropy = words.has("entropy");
  wanted.max_weight = words.has("max_weight");
  wanted.received = words.has("received");
  wanted.distance = words.has("distance");
  wanted.pool_rows = wanted.pool_keys = words.integer("pool", 0);
  return [wanted, call = std::make_shared<Call>(words)] { inspect(call->q, call->k, wanted, call->options); };
}

/// Appends new tokens to a cache, one by one.
Work append_work(const Words& words) {
  const std::int64_t heads = words.integer("hkv", 1), dim = words.integer("d", 64), tokens = words.integer("s", 1);
  const auto cache = std::make_shared<KvCache>(KvCacheOptions{.num_kv_heads = heads,
                                                              .head_dim = dim,
                                                              .dtype = words.dtype("dtype", DType::f32),
                                                              .page_size = words.integer("page", 0),
                                                              .capacity = tokens});
  const auto k = std::make_shared<Tensor>(draw({heads, 1, dim}, DType::f32, 1));
  return [=] {
    cache->clear(0);
    for (std::int64_t i = 0; i < tokens; ++i) cache->append(*k, *k);
  };
}

Work linear_work(const Words& words) {
  const std::int64_t rows = words.integer("rows", 1), d_in = words.integer("in", 1),
                     d_out = words.integer("out", 1);
  const bool is_in_out = words.has("in_out"), is_backward = words.function() == "linear_backward";
  const Shape weight_shape = is_in_out ? Shape{d_in, d_out} : Shape{d_out, d_in};
  const DType dtype = words.dtype("dtype", DType::f32);
  struct Numbers {
    Tensor x, weight, bias, y, dx, dweight, dbias;
  };
  const auto n = std::make_shared<Numbers>(Numbers{draw({rows, d_in}, dtype, 1), draw(weight_shape, dtype, 2),
                                                   draw({d_out}, dtype, 3), draw({rows, d_out}, dtype, 4),
                                                   Tensor(dtype, {rows, d_in}), Tensor(dtype, weight_shape),
                                                   Tensor(dtype, {d_out})});
  LinearOptions options;
  options.weight_layout = is_in_out ? WeightLayout::in_out : WeightLayout::out_in;
  if (is_backward)
    return [=] {
      linear_backward(n->x, n->weight, n->y, {.dx = n->dx, .dweight = n->dweight, .dbias = n->dbias}, options);
    };
  options.bias = n->bias;
  return [=] { linear(n->x, n->weight, n->y, options); };
}

/// The published loop: a 6 x 3 input, three 3 x 4 projections, attention.
Work loop_work(const Words&) {
  struct Numbers {
    Tensor x = draw({6, 3}, DType::f32, 1), o = Tensor(DType::f32, {6, 4});
    std::vector<Tensor> weights, projected;
  };
  const auto numbers = std::make_shared<Numbers>();
  for (std::uint32_t i = 0; i < 3; ++i) {
    numbers->weights.push_back(draw({3, 4}, DType::f32, i + 2));
    numbers->projected.emplace_back(DType::f32, Shape{6, 4});
  }
  const TensorView x = numbers->x;
  std::vector<TensorView> weights(numbers->weights.begin(), numbers->weights.end());
  std::vector<MutableTensorView> projected(numbers->projected.begin(), numbers->projected.end());
  const MutableTensorView o = numbers->o;
  return [=, kept = numbers] {
    for (std::size_t i = 0; i < 3; ++i)
      linear(x, weights[i], projected[i], {.weight_layout = WeightLayout::in_out});
    attention(projected[0], projected[1], projected[2], o);
  };
}

/// A forward call of a layer of width d, in training with a backward call after it.
template <class Layer>
Work layer_work(const Words& words, std::shared_ptr<Layer> layer) {
  const Shape shape{words.integer("b", 1), words.integer("s", 1), words.integer("d", 64)};
  const auto x = std::make_shared<Tensor>(draw(shape, DType::f32, 1));
  layer->train(words.has("train"));
  return [=] {
    layer->forward(x->view());
    if (layer->training()) layer->backward(*x);
  };
}

Work multi_head_attention_work(const Words& words) {
  const std::int64_t d = words.integer("d", 64);
  TorchGenerator generator(1);
  const MultiHeadAttentionOptions options{
      .d_in = d, .d_out = d, .num_heads = words.integer("h", 1), .causal = words.has("causal")};
  return layer_work(words, std::make_shared<MultiHeadAttention>(options, generator));
}

Work feed_forward_work(const Words& words) {
  const std::int64_t d = words.integer("d", 64);
  TorchGenerator generator(1);
  return layer_work(words, std::make_shared<FeedForward>(d, words.integer("hidden", d), generator));
}

Work cross_entropy_work(const Words& words) {
  const std::int64_t rows = words.integer("rows", 1), classes = words.integer("classes", 2);
  const auto logits = std::make_shared<Tensor>(draw({rows, classes}, DType::f32, 1));
  const auto gradients = std::make_shared<Tensor>(DType::f32, Shape{rows, classes});
  const auto targets = std::make_shared<Tensor>(DType::i64, Shape{rows});
  return [=] { cross_entropy(*logits, *targets, {.dlogits = *gradients}); };
}

Work adamw_work(const Words& words) {
  const auto layer = std::make_shared<Linear>(words.integer("d", 64), words.integer("d", 64));
  layer->zero_grad();
  const auto optimizer = std::make_shared<AdamW>(*layer);
  return [=, kept = layer] { optimizer->step(); };
}

Work rope_work(const Words& words) {
  const auto rope = std::make_shared<Rope>(words.integer("d", 64));
  const Shape shape{words.integer("h", 1), words.integer("s", 1), rope->dim()};
  const auto x = std::make_shared<Tensor>(draw(shape, words.dtype("dtype", DType::f32), 1));
  const auto y = std::make_shared<Tensor>(*x);
  return [=] { rope->rotate(*x, *y); };
}

Work work_of(const std::string& line) {
  static const std::map<std::string, Work (*)(const Words&)> functions = {
      {"attention", attention_work},
      {"attention_backward", backward_work},
      {"decode", decode_work},
      {"inspect", inspect_work},
      {"append", append_work},
      {"linear", linear_work},
      {"linear_backward", linear_work},
      {"loop", loop_work},
      {"MultiHeadAttention", multi_head_attention_work},
      {"FeedForward", feed_forward_work},
      {"LayerNorm",
       [](const Words& words) { return layer_work(words, std::make_shared<LayerNorm>(words.integer("d", 64))); }},
      {"cross_entropy", cross_entropy_work},
      {"AdamW", adamw_work},
      {"Rope", rope_work}};
  const Words words(line);
  const auto found = functions.find(words.function());
  if (found == functions.end()) throw std::invalid_argument("there is no function '" + words.function() + "'");
  set_num_threads(static_cast<int>(words.integer("threads", 1)));
  Work work = found->second(words);
  words.require_all_known();
  return work;
}

/// CPU time for one thread, because other programs on the machine disturb it least; wall time for more threads.
double now() {
  timespec time{};
  clock_gettime(num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const Work& work, int calls) {
  const double start = now();
  for (int call = 0; call < calls; ++call) work();
  return now() - start;
}

int calls_of_a_sample(const Work& work) {
  for (int calls = 1;; calls *= 2) {
    const double seconds = seconds_of(work, calls);
    if (seconds > kSampleSeconds / 8) return static_cast<int>(std::ceil(kSampleSeconds / seconds * calls));
  }
}

}  // namespace
}  // namespace saccade::timer

int main() {
  using namespace saccade::timer;
  std::string held;
  Work work;
  int calls = 0;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      if (line != held) {
        work = nullptr;
        work = work_of(line);
        held = line;
        work();
        calls = calls_of_a_sample(work);
      }
      if (calls > 2) work();  // the other program may have filled the caches
      std::printf("%.6e\n", seconds_of(work, calls) / calls);
    } catch (const std::exception& error) {
      std::printf("error: %s\n", error.what());
    }
    std::fflush(stdout);
  }
}
