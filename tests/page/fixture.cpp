// Writes a page of random weights, and the weights themselves, for browser_test.py:
//
//     page_fixture LAYERS HEADS TOKENS [causal] [hostile] OUT      makes OUT.html and OUT.npy [layers, heads,
//     tokens, tokens]
#include <saccade/io.h>
#include <saccade/page.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using namespace saccade;

namespace {

/// Rows that sum to 1, with a few large weights, as trained heads have.
void draw(std::span<float> weights, std::int64_t n, bool is_causal, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, 2.5f);
  for (std::int64_t i = 0; i < n; ++i) {
    float* const row = weights.data() + i * n;
    const std::int64_t keys = is_causal ? i + 1 : n;
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) sum += row[j] = std::exp(normal(random));
    for (std::int64_t j = 0; j < keys; ++j) row[j] = static_cast<float>(row[j] / sum);
  }
}

std::string token(std::int64_t i, bool is_hostile) {
  static const std::vector<std::string> kHostile{"</script><script>document.title='broken'</script>",
                                                 "<img src=x onerror=alert(1)>",
                                                 "\xe2\x80\xa8",
                                                 "\xe2\x80\xae"
                                                 "rtl",
                                                 "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
                                                 "\xe6\xb3\xa8\xe6\x84\x8f\xe5\x8a\x9b",
                                                 "\n",
                                                 " ",
                                                 "a\"b'c&d",
                                                 "\\u0000"};
  if (is_hostile) return kHostile[static_cast<std::size_t>(i) % kHostile.size()];
  return "word" + std::to_string(i % 37);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("page_fixture LAYERS HEADS TOKENS [causal] [hostile] OUT\n", stderr);
    return 2;
  }
  const std::int64_t layers = std::atoll(argv[1]), heads = std::atoll(argv[2]), n = std::atoll(argv[3]);
  bool is_causal = false, is_hostile = false;
  for (int i = 4; i + 1 < argc; ++i) {
    is_causal |= std::string(argv[i]) == "causal";
    is_hostile |= std::string(argv[i]) == "hostile";
  }
  const std::string out = argv[argc - 1];
  PageOptions options{.title = "fixture", .num_layers = layers, .num_heads = heads, .is_causal = is_causal};
  for (std::int64_t i = 0; i < n; ++i) {
    options.tokens.push_back(token(i, is_hostile));
    options.gaps.push_back(i > 0 ? " " : "");
  }
  AttentionPage page(options);
  NpyWriter reference(out + ".npy", DType::f32, {layers, heads, n, n});
  std::mt19937_64 random(1);
  for (std::int64_t i = 0; i < layers * heads; ++i) {
    Tensor weights(DType::f32, {n, n});
    draw(weights.values<float>(), n, is_causal, random);
    page.add(i / heads, i % heads, weights);
    reference.write(std::as_bytes(std::span(weights.values<float>())));
  }
  reference.commit();
  write_file(out + ".html", std::string_view(page.html()));
  return 0;
}
