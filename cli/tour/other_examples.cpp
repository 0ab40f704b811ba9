// Results printed by other authors: three words by hand, NumPy, a heat map, a repeated token, dot products.
#include <fmt/format.h>
#include <saccade/attention_modules.h>
#include <saccade/random.h>
#include <saccade/reference.h>

#include <algorithm>
#include <cmath>

#include "chapters.h"

namespace saccade::cli {
namespace {

// The range of weights that give a printed product: printed +- half a unit in its fourth digit, by component.
struct Interval {
  double low, high;
};

Interval weight_behind(double printed_product, double component) {
  constexpr double kHalfUnit = 5e-5;
  return {(printed_product - kHalfUnit) / component, (printed_product + kHalfUnit) / component};
}

bool overlap(const Interval& a, const Interval& b) { return a.low <= b.high && b.low <= a.high; }

std::string joined(const Tensor& numbers, int decimals) {
  std::string text;
  for (const double number : numbers.values<double>())
    text += fmt::format("{} {:.{}f}", text.empty() ? "" : ",", number, decimals);
  return text.substr(1);
}

Tensor as_matrix(Tensor row) {
  const std::int64_t columns = row.size();
  return std::move(row).reshaped({1, columns});
}

// Three drawn matrices and the words they project.
void tell_numpy_steps(Guide& guide, const std::string& root) {
  NumpyRandomState numpy(42);
  const std::vector<std::string> components = numbered_tokens(3);
  Tensor weights[3];
  guide.step({"np.random.seed(42) and three times randint(3, size=(3, 3)): saccade draws what NumPy draws.",
              "np.random.seed(42)，然后三次 randint(3, size=(3, 3))：saccade 抽到的数与 NumPy 相同。"},
             "W_Q, W_K, W_V = randint(3, size=(3, 3)) ...");
  const char* const names[] = {"W_Q", "W_K", "W_V"};
  for (int i = 0; i < 3; ++i) {
    weights[i] = numpy.randint(3, {3, 3});
    guide.check(root + names[i], weights[i], {fmt::format("{}[0]", names[i]), "   [1]", "   [2]"});
  }
  const Tensor words = guide.input(root + "words");
  const Tensor q = reference::matmul(words, weights[0]);
  const Tensor k = reference::matmul(words, weights[1]);
  const Tensor v = reference::matmul(words, weights[2]);
  guide.step({"Four words, one of them the sum of two others, attend to each other in double precision.",
              "四个词（其中一个是另外两个之和）以双精度互相关注。"},
             "attention = softmax(Q Kᵀ / √3) V");
  guide.check(root + "attention", reference::attention(q, k, v).o, numbered_tokens(4));
}

}  // namespace

void tell_dot_products(Guide& guide) {
  const std::string root = "/repeated_row/dot_examples/";
  guide.chapter({"Warm-up: dot products", "热身：点积"});
  guide.step({"One query and three keys, divided by √2.", "一个查询、三个键，除以 √2。"}, "q · k[j] / √2");
  const Tensor scores = reference::scores_of_query(guide.input(root + "q"), guide.input(root + "k"));
  guide.check(root + "scaled_by_sqrt2", reference::scaled(scores, 1 / std::sqrt(2.0)), {"q"});

  guide.step({"A dot product, half a vector, and a sum.", "一个点积，半个向量，一个总和。"},
             "[1, 2, 3] · [4, 5, 6]    [1, 2, 3] / 2    1 + 2 + 3");
  const Tensor a = guide.input(root + "a");
  const Tensor b = Tensor::of<double>({4.0, 5.0, 6.0});
  const Tensor ones = Tensor::of<double>({1.0, 1.0, 1.0});
  const auto dot = [&](const Tensor& other) {
    return Tensor::of<double>({reference::dot(a.values<double>(), other.values<double>())});
  };
  guide.check(root + "dot_123_456", dot(b), {"a · b"});
  guide.check(root + "a_half", reference::scaled(a, 0.5), {"a / 2"});
  guide.check(root + "a_sum", dot(ones), {"Σ a"});
}

void tell_hello_shiny_sun(Guide& guide) {
  const std::string root = "/hello_shiny_sun/";
  const std::vector<std::string> names = guide.input_tokens(root + "tokens");
  const Tensor x = guide.input(root + "inputs");
  const auto query = static_cast<std::int64_t>(guide.input(root + "query").at<double>(0));
  const std::string& query_name = names[static_cast<std::size_t>(query)];
  const Tensor weights = reference::softmax(reference::scores_of_query(x.view().select(0, query), x));

  guide.chapter({"Three words, and an author's slip", "三个词，以及作者的一处笔误"});
  guide.step(
      {"Another author does the same by hand for \"Hello shiny sun\": each component of a vector times the weight "
       "of its token, for the query \"shiny\".",
       "另一位作者用“Hello shiny sun”手算：以“shiny”为查询，各向量的每个分量乘以该词元的权重。"},
      "product[component][token] = weight[token] · x[token][component]");
  Tensor products(DType::f64, {3, 3});
  for (std::int64_t component = 0; component < 3; ++component) {
    for (std::int64_t token = 0; token < 3; ++token) {
      products.at<double>(component, token) = weights.at<double>(token) * x.at<double>(token, component);
    }
  }
  const Tensor printed = guide.check(root + "products_printed", products, numbered_tokens(3), names).printed;

  guide.step({"Their sums are the context vector.", "各行之和就是上下文向量。"}, "context = Σ weight[j] x[j]");
  const Tensor context = reference::context_vectors(as_matrix(weights), x);
  guide.check(root + "context_printed", context, {query_name});

  const Interval first = weight_behind(printed.at<double>(0, query), x.at<double>(query, 0));
  const Interval third = weight_behind(printed.at<double>(2, query), x.at<double>(query, 2));
  guide.step(
      {"The author slipped in the fourth digit, so this example is checked to three. Exact arithmetic gives:",
       "作者在第四位上有笔误，所以本例只核对到三位。精确结果是："},
      fmt::format("context = {}", joined(context, 5)));
  guide.claim({"No single weight of \"shiny\" gives both of its printed products, 0.2156 and 0.3983.",
               "没有任何一个“shiny”的权重能同时给出印出的 0.2156 与 0.3983。"},
              !overlap(first, third),
              guide.say({"0.2156 needs a weight from {:.5f} to {:.5f}, 0.3983 one from {:.5f} to {:.5f}.",
                         "0.2156 要求权重在 {:.5f} 与 {:.5f} 之间，0.3983 要求在 {:.5f} 与 {:.5f} 之间。"},
                        first.low, first.high, third.low, third.high));
}

void tell_numpy_example(Guide& guide) {
  const std::string root = "/general_attention_numpy/";
  guide.chapter({"With NumPy, to eight digits", "用 NumPy，精确到八位"});
  guide.step({"Attention is matrix products. Rows times columns:", "注意力就是矩阵乘法。行乘以列："},
             "[[1, 2], [3, 4]] [[5, 6], [7, 8]]");
  const Tensor a = guide.input(root + "matrix_product/a");
  const Tensor b = guide.input(root + "matrix_product/b");
  guide.check(root + "matrix_product/product", reference::matmul(a, b), numbered_tokens(2));
  guide.refusal({"(2, 3) times (2, 3) has no meaning and is refused, with both shapes in the message.",
                 "(2, 3) 乘 (2, 3) 没有意义，会被拒绝，信息里写明两个形状。"},
                [] {
                  reference::matmul(Tensor(DType::f64, {2, 3}), Tensor(DType::f64, {2, 3}));
                },
                {"[2, 3]", "[2, 3]"});
  tell_numpy_steps(guide, root);
}

void tell_five_tokens(Guide& guide) {
  const std::string root = "/five_tokens/";
  const std::vector<std::string> names = numbered_tokens(5);
  const Tensor x = guide.input(root + "inputs");

  guide.chapter({"Attention as a picture", "把注意力画出来"});
  guide.step({"Five tokens in four dimensions are query, key and value at once; the scores are divided by √4.",
              "五个四维的词元同时作查询、键和值；得分除以 √4。"},
             "scores = X Xᵀ / 2");
  const Tensor scores = reference::scaled(reference::scores(x, x), 1 / std::sqrt(4.0));
  guide.check(root + "scores", scores, names, names);

  guide.step({"The weights, and their heat map: a row for each query, a column for each key, darker = larger.",
              "权重，以及它的热图：每行一个查询，每列一个键，颜色越深权重越大。"},
             "weights = softmax(scores)");
  const Tensor weights = reference::softmax(scores);
  guide.check(root + "weights", weights, names, names);
  guide.picture(weights, {.query_tokens = names, .value_name = guide.say({"weight", "权重"})});
  const auto row = [&](std::size_t i) { return weights.values<double>().subspan(i * 5, 5); };
  const auto first = row(0);
  guide.claim({"Row 0 is largest at column 0: the token looks at itself.", "第 0 行在第 0 列最大：词元在看自己。"},
              std::ranges::max_element(first) == first.begin());
  const auto last = row(4);
  guide.claim({"Row 4 ties columns 0, 2 and 4.", "第 4 行中，第 0、2、4 列相等。"},
              last[0] == last[2] && last[2] == last[4] && last[0] == std::ranges::max(last));
}

void tell_repeated_row(Guide& guide) {
  const std::string root = "/repeated_row/";
  const std::vector<std::string> names = numbered_tokens(6);

  guide.chapter({"The same word twice: attention alone knows no order", "同一个词出现两次：注意力本身不知道顺序"});
  guide.step(
      {"Scores from -11.6 to 4.8 make weights from one in thirteen million to 0.99. The author printed both, the "
       "scores to four digits, so each weight is checked to a share of itself.",
       "得分从 -11.6 到 4.8，权重从一千三百万分之一到 0.99。作者印出了两者，得分只有四位小数，所以每个权重"
       "按自身的比例核对。"},
      "weights = softmax(scores)");
  guide.check(root + "weights", reference::softmax(guide.input(root + "scores")), names);

  guide.step(
      {"Tokens 0 and 4 are the same word. Whatever the projections, their outputs are the same: a model that is "
       "to know the order of words must be told their positions.",
       "词元 0 和 4 是同一个词。无论怎样投影，两者的输出都相同：要让模型知道词序，必须另外告诉它位置。"},
      "x[0] = x[4]   →   out[0] = out[4]");
  TorchGenerator generator(0);
  SelfAttention module({.d_in = 3, .d_out = 4}, generator);
  const Tensor out = module.forward(Tensor::copy_of(guide.input(root + "inputs"), DType::f32)).output;
  guide.claim({"Rows 0 and 4 of the output are equal to the last bit.", "输出的第 0 行与第 4 行逐位相同。"},
              same_bits(out.view().select(0, 0), out.view().select(0, 4)));

  guide.step(
      {"The same author times one million rounds of attention on a (6, 3) input with three (3, 4) projections. "
       "`saccade bench` prints the nanoseconds that one round takes here.",
       "这位作者还给一百万次注意力计时：输入 (6, 3)，三个 (3, 4) 的投影。`saccade bench` 会印出在这台机器上"
       "每一次所用的纳秒数。"},
      "Q = X Wq, K = X Wk, V = X Wv;  softmax(Q Kᵀ / √4) V");
  guide.claim({"One round gives a (6, 4) result.", "一次得到 (6, 4) 的结果。"}, out.shape() == Shape{6, 4},
              to_string(out.shape()));
}

}  // namespace saccade::cli
