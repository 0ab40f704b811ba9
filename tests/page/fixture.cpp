// Writes pages for browser_test.py:
//
//     page_fixture LAYERS HEADS TOKENS [causal] [hostile] OUT   random weights; makes OUT.html and OUT.npy
//     [layers,
//                                                               heads, tokens, tokens]
//     page_fixture views OUT      parts of every kind, of small heads: two of a text, of sound, of a picture
//     page_fixture steps OUT      states of one model
//     page_fixture telling OUT    heads of four kinds: the token before, the first, what followed, everything
//     page_fixture long OUT       one head of 100,000 tokens
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

void write_weights(int argc, char** argv) {
  const std::int64_t layers = std::atoll(argv[1]), heads = std::atoll(argv[2]), n = std::atoll(argv[3]);
  bool is_causal = false, is_hostile = false;
  for (int i = 4; i + 1 < argc; ++i) {
    is_causal |= std::string(argv[i]) == "causal";
    is_hostile |= std::string(argv[i]) == "hostile";
  }
  const std::string out = argv[argc - 1];
  PagePart part{.num_layers = layers, .num_heads = heads, .is_causal = is_causal};
  for (std::int64_t i = 0; i < n; ++i) {
    part.queries.tokens.push_back(token(i, is_hostile));
    part.queries.gaps.push_back(i > 0 ? " " : "");
  }
  // What a model is called, and what its text and maps are, is as hostile as its tokens.
  const std::string hostile = "</title><script>document.title='broken'</script><img src=x onerror=alert(1)>";
  if (is_hostile) part.name = hostile;
  AttentionPage page({.title = is_hostile ? hostile : "fixture", .subtitle = is_hostile ? hostile : ""});
  page.add_part(part);
  NpyWriter reference(out + ".npy", DType::f32, {layers, heads, n, n});
  std::mt19937_64 random(1);
  for (std::int64_t i = 0; i < layers * heads; ++i) {
    Tensor weights(DType::f32, {n, n});
    draw(weights.values<float>(), n, is_causal, random);
    page.add(0, i / heads, i % heads, weights);
    reference.write(std::as_bytes(std::span(weights.values<float>())));
  }
  if (is_hostile) page.add_map(0, hostile, Tensor(DType::f32, {n, n}));
  reference.commit();
  write_file(out + ".html", std::string_view(page.html()));
}

PageSequence words(std::int64_t n) {
  PageSequence result;
  for (std::int64_t i = 0; i < n; ++i)
    result.tokens.push_back(token(i, false)), result.gaps.push_back(i > 0 ? " " : "");
  return result;
}

/// A head with everything that a page can show of it, from random queries and keys.
void add_head(AttentionPage& page, std::int64_t part, std::int64_t layer, std::int64_t head, std::int64_t rows,
              std::int64_t keys, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  const std::int64_t dim = 6;
  Tensor q(DType::f32, {rows, dim}), k(DType::f32, {keys, dim}), bias(DType::f32, {rows, keys}),
      norms(DType::f32, {keys}), weights(DType::f32, {rows, keys}), lse(DType::f32, {rows});
  for (Tensor* const tensor : {&q, &k, &bias, &norms})
    for (float& value : tensor->values<float>()) value = normal(random);
  for (float& norm : norms.values<float>()) norm = std::abs(norm) + 0.1f;
  const float scale = 0.5f, softcap = 4.0f;
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (const bool is_first : {true, false})
      for (std::int64_t j = 0; j < keys; ++j) {
        float product = 0;
        for (std::int64_t d = 0; d < dim; ++d) product += q.at<float>(i, d) * k.at<float>(j, d);
        const double weight = std::exp(softcap * std::tanh(scale * product / softcap) + bias.at<float>(i, j));
        if (is_first)
          sum += weight;
        else
          weights.at<float>(i, j) = static_cast<float>(weight / sum);
      }
    lse.at<float>(i) = static_cast<float>(std::log(sum));
  }
  page.add(part, layer, head, weights,
           {.q = q, .k = k, .lse = lse, .scale = scale, .softcap = softcap, .bias = bias, .value_norms = norms});
}

void add_heads(AttentionPage& page, const PagePart& part, std::mt19937_64& random) {
  const std::int64_t number = page.add_part(part), rows = std::ssize(part.queries.tokens),
                     keys = part.keys.tokens.empty() ? rows : std::ssize(part.keys.tokens);
  for (std::int64_t layer = 0; layer < part.num_layers; ++layer)
    for (std::int64_t head = 0; head < part.num_heads; ++head)
      add_head(page, number, layer, head, rows, keys, random);
}

void write_views(const std::string& out) {
  std::mt19937_64 random(2);
  AttentionPage page({.title = "views"});
  PageSequence text = words(10);
  for (std::int64_t i = 0; i < 10; ++i) text.words.push_back(i / 2), text.special.push_back(i == 0);
  for (const char* const name : {"“She gave the book to him.”", "“He gave the book to her.”"})
    add_heads(page, {.name = name, .queries = text, .num_layers = 2, .num_heads = 2}, random);
  Tensor map(DType::f32, {10, 10});
  for (std::int64_t i = 0; i < 10; ++i) map.at<float>(i, 9 - i) = 0.5f;
  page.add_map(0, "gradient", map);
  PageSequence sound;
  sound.tokens.assign(300, "");
  sound.seconds = 0.02;
  add_heads(page, {.name = "speech", .queries = words(7), .keys = sound, .num_layers = 1, .num_heads = 2}, random);
  PageSequence patches{.image = {.rows = 4, .columns = 5, .first = 1}};
  patches.tokens.assign(21, "");
  patches.tokens[0] = "[CLS]";
  // One grey pixel.
  const unsigned char png[] = {0x89, 'P',  'N',  'G',  13,   10,  26,   10,   0,    0,    0,    13,   'I',  'H',
                               'D',  'R',  0,    0,    0,    1,   0,    0,    0,    1,    8,    0,    0,    0,
                               0,    0x3a, 0x7e, 0x9b, 0x55, 0,   0,    0,    10,   'I',  'D',  'A',  'T',  0x78,
                               0x9c, 0x63, 0x68, 0,    0,    0,   0x82, 0,    0x81, 0x77, 0xcd, 0x72, 0xb6, 0,
                               0,    0,    0,    'I',  'E',  'N', 'D',  0xae, 0x42, 0x60, 0x82};
  patches.image.png.assign(reinterpret_cast<const char*>(png), sizeof(png));
  add_heads(page, {.name = "picture", .queries = patches, .num_layers = 1, .num_heads = 2}, random);
  write_file(out + ".html", std::string_view(page.html()));
}

void write_steps(const std::string& out) {
  std::mt19937_64 random(3);
  AttentionPage page({.title = "steps", .is_sequence = true});
  for (const char* const step : {"step 0", "step 100", "step 200"})
    add_heads(page, {.name = step, .queries = words(8), .num_layers = 1, .num_heads = 2}, random);
  write_file(out + ".html", std::string_view(page.html()));
}

/// Causal heads over a text that comes twice. Each gives 0.6 of its weight to one key and the rest to all alike:
/// to the token before, to the first one, to what followed last time; the fourth has no such key.
void write_telling(const std::string& out) {
  const std::int64_t half = 10, n = 2 * half;
  PageSequence text;
  for (std::int64_t i = 0; i < n; ++i)
    text.tokens.push_back(token(i % half, false)), text.gaps.push_back(i > 0 ? " " : "");
  AttentionPage page({.title = "telling"});
  page.add_part({.queries = text, .num_layers = 2, .num_heads = 2, .is_causal = true});
  for (std::int64_t head = 0; head < 4; ++head) {
    Tensor weights(DType::f32, {n, n});
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t keys[]{std::max<std::int64_t>(i - 1, 0), 0, i < half ? -1 : i - half + 1, -1},
          key = keys[head];
      for (std::int64_t j = 0; j <= i; ++j)
        weights.at<float>(i, j) = (key < 0 ? 1.0f : 0.4f) / static_cast<float>(i + 1);
      if (key >= 0) weights.at<float>(i, key) += 0.6f;
    }
    page.add(0, head / 2, head % 2, weights);
  }
  write_file(out + ".html", std::string_view(page.html()));
}

/// A head that looks at the token before, and at token 3 n / 4 of the whole.
void write_long(const std::string& out) {
  const std::int64_t n = 100'000, side = 512, top = 8;
  AttentionPage page({.title = "long"});
  page.add_part({.queries = words(n), .num_layers = 1, .num_heads = 1, .is_causal = true});
  std::mt19937_64 random(4);
  std::uniform_real_distribution<float> uniform(0.0f, 0.001f);
  Tensor pooled(DType::f32, {side, side}), keys(DType::i64, {n, top}), weights(DType::f32, {n, top}),
      tile(DType::f32, {256, 256});
  for (float& weight : pooled.values<float>()) weight = uniform(random);
  for (float& weight : tile.values<float>()) weight = uniform(random);
  for (std::int64_t i = 0; i < side; ++i) pooled.at<float>(i, i) = 0.8f;
  for (std::int64_t i = 0; i < n; ++i) {
    std::vector<std::int64_t> places{std::max<std::int64_t>(i - 1, 0), 3 * i / 4};
    for (std::int64_t t = 0; t < top; ++t) {
      keys.at<std::int64_t>(i, t) =
          t < 2 ? places[static_cast<std::size_t>(t)]
                : static_cast<std::int64_t>(random() % (static_cast<std::uint64_t>(i) + 1));
      weights.at<float>(i, t) = t == 0 ? 0.8f : t == 1 ? 0.1f : uniform(random);
    }
  }
  page.add_pooled(0, 0, 0,
                  {.pooled = pooled,
                   .top_keys = keys,
                   .top_weights = weights,
                   .statistics = {.previous = 0.8, .entropy = 1.0, .distance = 100.0},
                   .tiles = {{.first_query = 50'000, .first_key = 49'900, .weights = tile}}});
  write_file(out + ".html", std::string_view(page.html()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  if (kind == "views")
    write_views(argv[2]);
  else if (kind == "steps")
    write_steps(argv[2]);
  else if (kind == "telling")
    write_telling(argv[2]);
  else if (kind == "long")
    write_long(argv[2]);
  else if (argc >= 5)
    write_weights(argc, argv);
  else
    return std::fputs(
               "page_fixture LAYERS HEADS TOKENS [causal] [hostile] OUT | views OUT | steps OUT | telling OUT | "
               "long OUT\n",
               stderr),
           2;
  return 0;
}
