// One sentence of six tokens, from dot products by hand to several causal heads.
#include <fmt/format.h>
#include <saccade/attention_modules.h>
#include <saccade/random.h>
#include <saccade/reference.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "chapters.h"

namespace saccade::cli {
namespace {

const std::string kRoot = "/six_tokens/";
constexpr std::int64_t kQuery = 1;  // "journey", the author's example

std::vector<std::string> tokens(Guide& guide) { return guide.input_tokens(kRoot + "tokens"); }

// The six vectors as input of the modules: f32 [6, 3].
Tensor inputs_f32(Guide& guide) { return Tensor::copy_of(guide.input(kRoot + "inputs"), DType::f32); }

// The sentence twice: f32 [2, 6, 3].
Tensor batch_of_two(Guide& guide) {
  const Tensor sentence = inputs_f32(guide);
  Tensor batch(DType::f32, {2, sentence.shape(0), sentence.shape(1)});
  for (const std::int64_t entry : {0, 1}) copy(sentence, batch.mutable_view().select(0, entry));
  return batch;
}

double largest_difference(const TensorView& a, const TensorView& b) {
  const Tensor left = Tensor::copy_of(a, DType::f64);
  const Tensor right = Tensor::copy_of(b, DType::f64);
  double largest = 0.0;
  for (std::size_t i = 0; i < left.values<double>().size(); ++i) {
    largest = std::max(largest, std::abs(left.values<double>()[i] - right.values<double>()[i]));
  }
  return largest;
}

double largest_error_of_row_sums(const Tensor& weights) {
  double largest = 0.0;
  for (std::int64_t row = 0; row < weights.shape(0); ++row) {
    double sum = 0.0;
    for (std::int64_t column = 0; column < weights.shape(1); ++column) sum += weights.at<double>(row, column);
    largest = std::max(largest, std::abs(sum - 1.0));
  }
  return largest;
}

// "0.55 x 0.43 + 0.87 x 0.15 + ...": the dot product of two rows, written out.
std::string written_out(const Tensor& x, std::int64_t a, std::int64_t b) {
  std::string sum;
  for (std::int64_t i = 0; i < x.shape(1); ++i) {
    sum += fmt::format("{}{}×{}", i == 0 ? "" : " + ", x.at<double>(a, i), x.at<double>(b, i));
  }
  return sum;
}

// The published v2 class: three linear layers without bias, torch.manual_seed(789).
SelfAttention linear_module() {
  TorchGenerator generator(789);
  return SelfAttention({.d_in = 3, .d_out = 2}, generator);
}

// The intermediate results of that module.
ModuleOutput linear_steps(Guide& guide) {
  return linear_module().forward(inputs_f32(guide), {.weights = HeadWeights::per_head, .steps = true});
}

// Its scaled scores with the future hidden, and softmax of them: f64 [6, 6].
Tensor causal_weights(Guide& guide) {
  const ModuleOutput steps = linear_steps(guide);
  const Tensor scores = reference::scaled(reference::scores(steps.q, steps.k), 1 / std::sqrt(2.0));
  return reference::softmax(reference::masked(scores, reference::causal_mask(6, 6)));
}

// A check of the first sentence of a batch, and a claim that the second came out the same to the last bit.
void check_batch(Guide& guide, const std::string& path, const Tensor& output) {
  guide.check(path, output.view().select(0, 0), tokens(guide));
  guide.claim({"The second sentence of the batch, the same six tokens, gives the same bits.",
               "批次中的第二句是同样的六个词元，结果逐位相同。"},
              same_bits(output.view().select(0, 0), output.view().select(0, 1)));
}

}  // namespace

void tell_one_query(Guide& guide) {
  const std::string simple = kRoot + "simple/";
  const std::vector<std::string> names = tokens(guide);
  const Tensor x = guide.input(kRoot + "inputs");
  const Tensor query = Tensor::copy_of(x.view().select(0, kQuery));
  const Tensor scores = reference::scores_of_query(query, x);

  guide.chapter({"Attention by hand: what does \"journey\" look at?", "手算注意力：“journey”在看谁？"});
  guide.step(
      {"Six tokens, each a vector of three numbers. How alike are two of them? Their dot product says so: it is "
       "large when both point the same way. \"journey\" is the query here, and is compared with all six.",
       "六个词元，每个是三个数的向量。两个向量有多相似？看点积：方向越一致，点积越大。这里以“journey”为查询，"
       "与六个词元逐一比较。"},
      fmt::format("score[j] = q · x[j]        journey · Your = {}", written_out(x, kQuery, 0)));
  guide.check(simple + "scores_query_1", scores, {names[kQuery]}, names);

  guide.step({"Scores become weights, which add up to 1. The plainest way is to divide by the sum.",
              "把得分变成总和为 1 的权重。最朴素的办法：除以总和。"},
             "weight[j] = score[j] / Σ score");
  guide.check(simple + "weights_query_1_sum_normalised", reference::normalized_by_sum(scores), {names[kQuery]},
              names);

  guide.step(
      {"Softmax does it better: exp makes every weight positive, whatever the scores, and favours large ones.",
       "softmax 更好：指数使任何得分都得到正的权重，并且突出大的得分。"},
      "weight[j] = exp(score[j]) / Σ exp(score)");
  const Tensor weights = reference::softmax(scores);
  guide.check(simple + "weights_query_1_softmax", weights, {names[kQuery]}, names);
  const Tensor large = Tensor::of<double>({1000.0, 1001.0});
  const double naive = reference::softmax_naive(large).at<double>(0);
  const double stable = reference::softmax(large).at<double>(0);
  guide.claim({"Large scores overflow exp. Subtracting the largest score first changes nothing else and is safe.",
               "得分很大时 exp 会溢出；先减去最大的得分，结果不变，而且安全。"},
              std::isnan(naive) && std::isfinite(stable),
              guide.say({"softmax([1000, 1001])[0]: NaN by the formula, {:.4f} in the safe way",
                         "softmax([1000, 1001])[0]：直接按公式得 NaN，稳妥的算法得 {:.4f}"},
                        stable));

  guide.step({"The context vector of \"journey\" is a mixture of all six vectors in these proportions.",
              "“journey”的上下文向量，就是按这些比例混合六个向量。"},
             "context = Σ weight[j] x[j]");
  guide.check(simple + "context_query_1", reference::context_vectors(Tensor(weights).reshaped({1, 6}), x),
              {names[kQuery]});
}

void tell_all_pairs(Guide& guide) {
  const std::string simple = kRoot + "simple/";
  const std::vector<std::string> names = tokens(guide);
  const Tensor x = guide.input(kRoot + "inputs");

  guide.chapter({"Every token asks: all pairs at once", "每个词元都来提问：一次算完所有的对"});
  guide.step({"Each token in turn is the query. Two loops do it, and one matrix product does the same.",
              "每个词元轮流作查询。可以写两重循环，一次矩阵乘法也完全一样。"},
             "scores = X Xᵀ");
  const Tensor scores = reference::scores(x, x);
  guide.check(simple + "scores", scores, names, names);
  guide.claim({"The loop gives the same bits as the matrix product.", "循环与矩阵乘法的结果逐位相同。"},
              same_bits(reference::scores_by_loop(x, x), scores));

  guide.step({"Softmax along each row: every query spreads a total of 1 over the keys.",
              "逐行做 softmax：每个查询把总量 1 分给各个键。"},
             "weights = softmax(scores)");
  const Tensor weights = reference::softmax(scores);
  guide.check(simple + "weights", weights, names, names);
  const double error = largest_error_of_row_sums(weights);
  guide.claim({"Every row adds up to 1.", "每一行的和都是 1。"}, error < 1e-12,
              fmt::format("|Σ - 1| ≤ {:.1e}", error));

  guide.step({"Each row of weights mixes the six vectors: six context vectors.",
              "每一行权重混合六个向量，得到六个上下文向量。"},
             "contexts = weights X");
  Check& check = guide.check(simple + "contexts", reference::context_vectors(weights, x), names);
  const Tensor f32 = inputs_f32(guide);
  const double difference = largest_difference(attention(f32, f32, f32, {.scale = 1.0}), check.computed);
  guide.claim({"The fast attention() gives them in one call, without ever holding the matrix.",
               "快速的 attention() 一次调用就得到它们，而且从不保存整个矩阵。"},
              difference < check.tolerance.absolute,
              guide.say({"largest difference {:.1e}", "最大相差 {:.1e}"}, difference));
}

void tell_trainable_weights(Guide& guide) {
  const std::string path = kRoot + "self_attention_parameters/";
  const std::vector<std::string> names = tokens(guide);
  TorchGenerator generator(123);
  SelfAttention module({.d_in = 3, .d_out = 2, .weight_layout = WeightLayout::in_out}, generator);
  const ModuleOutput steps = module.forward(inputs_f32(guide), {.weights = HeadWeights::per_head, .steps = true});

  guide.chapter({"Trainable weights: query, key and value", "可训练的权重：查询、键与值"});
  guide.step(
      {"Three matrices turn each token into a query (what do I look for?), a key (what do I offer?) and a value "
       "(what do I pass on?). They come from torch.manual_seed(123) and three torch.rand(3, 2).",
       "三个矩阵把每个词元变成查询（我在找什么）、键（我有什么）和值（我传出什么）。矩阵取自 "
       "torch.manual_seed(123) 之后的三次 torch.rand(3, 2)。"},
      "q = X W_query    k = X W_key    v = X W_value");
  guide.check(path + "query_1", steps.q.view().select(0, kQuery), {names[kQuery]});

  guide.step({"The scores of \"journey\" again, now between its query and all keys.",
              "仍是“journey”的得分，现在是它的查询与所有键之间的点积。"},
             "score[j] = q · k[j]");
  guide.check(path + "scores_query_1", reference::scores_of_query(steps.q.view().select(0, kQuery), steps.k),
              {names[kQuery]}, names);

  guide.step(
      {"Dot products grow with the number of dimensions d, and softmax would turn too sharp: they are divided "
       "by √d first.",
       "维数 d 越大点积越大，softmax 会过于尖锐，所以先除以 √d。"},
      "weights = softmax(score / √d),  d = 2");
  guide.check(path + "weights_query_1", steps.weights.view().select(0, 0).select(0, kQuery), {names[kQuery]},
              names);

  guide.step({"And the mixture of the values, for all six tokens.", "最后混合各个值，六个词元一起算。"},
             "out = softmax(q kᵀ / √d) v");
  guide.check(path + "out", steps.output, names);
}

void tell_linear_layers(Guide& guide) {
  const std::string path = kRoot + "self_attention_linear/";
  const std::vector<std::string> names = tokens(guide);
  const ModuleOutput steps = linear_steps(guide);

  guide.chapter({"The same with linear layers", "改用线性层"});
  guide.step({"nn.Linear starts from better numbers than torch.rand, and keeps its matrix the other way round, "
              "[out, in]. torch.manual_seed(789), three nn.Linear(3, 2, bias=False).",
              "nn.Linear 的初始值比 torch.rand 更合适，矩阵则按 [输出, 输入] 存放。torch.manual_seed(789)，三个 "
              "nn.Linear(3, 2, bias=False)。"},
             "q = X W_queryᵀ   ...   weights = softmax(q kᵀ / √2)");
  guide.check(path + "weights", steps.weights.view().select(0, 0), names, names);
  guide.step({"Its context vectors.", "它的上下文向量。"}, "out = weights v");
  guide.check(path + "out", steps.output, names);
}

void tell_causal_mask(Guide& guide) {
  const std::string path = kRoot + "self_attention_linear/";
  const std::vector<std::string> names = tokens(guide);
  const ModuleOutput steps = linear_steps(guide);
  const Tensor scores = reference::scores(steps.q, steps.k);
  const Tensor mask = reference::causal_mask(6, 6);

  guide.chapter({"The causal mask: no looking ahead", "因果掩码：不许看后面"});
  guide.step(
      {"A model that writes the next word must not see it. Each token keeps the scores of itself and of those "
       "before it; the others become -inf.",
       "要写下一个词的模型不能先看到它。每个词元只保留自己和前面的得分，其余变为 -inf。"},
      "score[i][j] = q[i] · k[j]  where j ≤ i,  else -inf");
  guide.check(path + "causal_scores_unscaled_lower", reference::masked(scores, mask), names, names);

  guide.step({"exp(-inf) is 0: softmax spreads the 1 over what is left.",
              "exp(-inf) 等于 0：softmax 把 1 分给剩下的键。"},
             "weights = softmax(masked scores / √2)");
  const Tensor weights = causal_weights(guide);
  guide.check(path + "causal_weights", weights, names, names);
  guide.picture(weights, {.query_tokens = names, .value_name = guide.say({"weight", "权重"})});
  const Tensor zeroed = reference::dropout(Tensor::copy_of(steps.weights.view().select(0, 0)), mask, 0.0);
  const double difference = largest_difference(reference::normalized_by_sum(zeroed), weights);
  guide.claim({"Setting the weights above the diagonal to 0 and dividing each row by its sum leads to the same.",
               "先算权重，把对角线以上置零，再让每行除以自己的和，结果相同。"},
              difference < 5e-7, guide.say({"largest difference {:.1e}", "最大相差 {:.1e}"}, difference));

  double product_nans = 0;
  for (std::int64_t i = 0; i < 36; ++i) {
    const double above_diagonal = i % 6 > i / 6 ? 1.0 : 0.0;
    product_nans += std::isnan(above_diagonal * -std::numeric_limits<double>::infinity()) ? 1 : 0;
  }
  guide.step(
      {"A trap in some sources: they make the mask as triu(ones) * -inf, and 0 * -inf is not 0 but NaN. A mask "
       "must select, not multiply.",
       "有些资料里的陷阱：用 triu(ones) * -inf 造掩码，而 0 * -inf 不是 0，是 NaN。掩码应当选择，不应相乘。"},
      "triu(ones, 1) * -inf  →  NaN on and below the diagonal");
  const bool finite = std::ranges::none_of(weights.values<double>(), [](double w) { return std::isnan(w); });
  guide.claim({"The product has NaN in 21 of 36 places; selecting has none.",
               "相乘得到的 36 个数里有 21 个 NaN，选择则一个也没有。"},
              product_nans == 21 && finite, "0 * -inf = NaN");
}

void tell_dropout(Guide& guide) {
  const std::vector<std::string> rows = numbered_tokens(6);
  Tensor ones(DType::f64, {6, 6});
  std::ranges::fill(ones.values<double>(), 1.0);

  guide.chapter({"Dropout: forgetting at random while learning", "随机失活：学习时随机忘记"});
  guide.step(
      {"While a model learns, dropout erases weights at random so that it relies on none of them alone. With "
       "p = 0.5 about half are erased, and the others doubled. On a matrix of ones, torch.manual_seed(123):",
       "训练时，dropout 随机抹去一些权重，使模型不单独依赖其中任何一个。p = 0.5 时约抹去一半，其余加倍。"
       "先看全是 1 的矩阵，torch.manual_seed(123)："},
      "dropped = keep ? weight / (1 - p) : 0");
  const Tensor keep = TorchGenerator(123).dropout_mask({6, 6}, 0.5);
  guide.check(kRoot + "dropout_ones_6x6_p_half_seed_123", reference::dropout(ones, keep, 0.5), rows);

  guide.step({"The same seed on the causal weights.", "同一个种子，作用在因果权重上。"});
  guide.check(kRoot + "self_attention_linear/dropout_half_of_causal_weights_seed_123",
              reference::dropout(causal_weights(guide), keep, 0.5), tokens(guide));

  guide.step(
      {"A trap: with the same seed, builds of PyTorch draw different masks. The printed ones come from a build "
       "without MKL (macOS, ARM); earlier PyTorch for Linux on x86 prints others. Both are right.",
       "陷阱：种子相同，不同构建的 PyTorch 抽到的掩码却不同。印出的数来自不带 MKL 的构建（macOS、ARM）；"
       "较早的 x86 Linux 版会印出别的数。两者都对。"});
  const Tensor linux_keep = TorchGenerator(123).dropout_mask({6, 6}, 0.5, TorchBuild::mkl);
  int different = 0;
  for (std::size_t i = 0; i < 36; ++i) different += keep.values<bool>()[i] != linux_keep.values<bool>()[i] ? 1 : 0;
  guide.claim({"The Linux build's mask for seed 123 is another one.", "种子 123 在 Linux 版中给出另一个掩码。"},
              different > 0, guide.say({"{} of 36 places differ.", "36 个位置中有 {} 个不同。"}, different));
}

void tell_causal_module(Guide& guide) {
  guide.chapter({"All of it in one module: CausalAttention", "合成一个模块：CausalAttention"});
  guide.step({"Projections, scale, causal mask and dropout in one module, on a batch: the sentence twice. "
              "torch.manual_seed(123), d_out 2, no dropout.",
              "投影、缩放、因果掩码与 dropout 合在一个模块里，输入是一个批次：同一句两遍。"
              "torch.manual_seed(123)，d_out 为 2，不做 dropout。"},
             "CausalAttention(d_in = 3, d_out = 2, context_length = 6, dropout = 0)");
  TorchGenerator generator(123);
  CausalAttention module({.d_in = 3, .d_out = 2, .context_length = 6}, generator);
  check_batch(guide, kRoot + "causal_attention/out_each_batch", module.forward(batch_of_two(guide)).output);
}

void tell_many_heads(Guide& guide) {
  guide.chapter({"Several heads, several views", "多个头，多种眼光"});
  guide.step(
      {"Two heads with weights of their own look at the same sentence; their results stand side by side. The "
       "first two columns are the module above.",
       "两个头各有自己的权重，看同一句话，结果左右并排。前两列就是上一个模块。"},
      "MultiHeadAttentionWrapper(d_in = 3, d_out = 2, num_heads = 2)");
  TorchGenerator wrapper_generator(123);
  MultiHeadAttentionWrapper wrapper({.d_in = 3, .d_out = 2, .num_heads = 2, .context_length = 6},
                                    wrapper_generator);
  check_batch(guide, kRoot + "multi_head_wrapper/out_each_batch", wrapper.forward(batch_of_two(guide)).output);

  guide.step(
      {"In practice one large projection is split into heads, and an output projection mixes their results.",
       "实际做法：做一次大的投影，再切成多个头，最后由输出投影把各头的结果混合起来。"},
      "MultiHeadAttention(d_in = 3, d_out = 2, num_heads = 2) with out_proj");
  TorchGenerator generator(123);
  MultiHeadAttention module({.d_in = 3, .d_out = 2, .num_heads = 2, .context_length = 6, .causal = true},
                            generator);
  check_batch(guide, kRoot + "multi_head_attention/out_each_batch", module.forward(batch_of_two(guide)).output);

  guide.step({"A trap: the width must be divisible by the number of heads. 8 dimensions cannot be split over 3.",
              "陷阱：宽度必须能被头数整除，8 维不能分给 3 个头。"},
             "d_out % num_heads == 0");
  guide.refusal({"It is refused, and the message says why.", "会被拒绝，并说明原因。"},
                [] { MultiHeadAttention({.d_in = 8, .d_out = 8, .num_heads = 3}); }, {"8", "3"});
}

}  // namespace saccade::cli
