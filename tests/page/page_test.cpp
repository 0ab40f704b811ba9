// The file that AttentionPage writes: what it holds, how exact it is, and that no text breaks out of it. (What a
// browser shows of it is tested by script/test_page.)
#include "saccade/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>

#include "support/page_parts.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// Rows of random weights that sum to 1.
Tensor random_weights(std::int64_t n, bool is_causal, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 3);
  Tensor weights(DType::f32, {n, n});
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < (is_causal ? i + 1 : n); ++j) {
      const double weight = std::exp(normal(random));
      weights.at<float>(i, j) = static_cast<float>(weight), sum += weight;
    }
    for (std::int64_t j = 0; j < n; ++j) weights.at<float>(i, j) /= static_cast<float>(sum);
  }
  return weights;
}

std::vector<std::string> words(std::int64_t n) {
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < n; ++i) result.push_back("w" + std::to_string(i));
  return result;
}

AttentionPage page_of(const PagePart& part) {
  AttentionPage page({.title = "t"});
  page.add_part(part);
  return page;
}

TEST(Page, HoldsEveryWeightWithinTheBoundOfItsCode) {
  for (const bool is_causal : {false, true}) {
    for (const std::int64_t n : {1, 2, 5, 40}) {
      AttentionPage page =
          page_of({.queries = {.tokens = words(n)}, .num_layers = 2, .num_heads = 2, .is_causal = is_causal});
      std::vector<Tensor> heads;
      for (int i = 0; i < 4; ++i) {
        heads.push_back(random_weights(n, is_causal, static_cast<std::uint64_t>(i)));
        page.add(0, i / 2, i % 2, heads.back());
      }
      const std::string html = page.html();
      for (int i = 0; i < 4; ++i) {
        const std::vector<std::uint8_t> codes = part_of(html, "head-0-" + std::to_string(i));
        ASSERT_EQ(std::ssize(codes), is_causal ? n * (n + 1) / 2 : n * n);
        std::size_t at = 0;
        for (std::int64_t row = 0; row < n; ++row) {
          for (std::int64_t key = 0; key < (is_causal ? row + 1 : n); ++key) {
            const double wanted = heads[static_cast<std::size_t>(i)].at<float>(row, key);
            EXPECT_NEAR(weight_of(codes[at++]), wanted, 0.022 * wanted + 1.6e-5);
          }
        }
      }
      EXPECT_EQ(html, page.html());
    }
  }
}

TEST(Page, KnowsWhatHeadsDo) {
  // a b c a b c: one head looks back by one, one at what followed the last time.
  const std::vector<std::string> tokens{"a", "b", "c", "a", "b", "c"};
  AttentionPage page = page_of({.queries = {.tokens = tokens}, .num_layers = 1, .num_heads = 2});
  Tensor previous(DType::f32, {6, 6}), induction(DType::f32, {6, 6});
  for (std::int64_t i = 0; i < 6; ++i) {
    previous.at<float>(i, std::max<std::int64_t>(i - 1, 0)) = 1;
    induction.at<float>(i, i < 3 ? 0 : i - 2) = 1;
  }
  const HeadStatistics back = page.add(0, 0, 0, previous), again = page.add(0, 0, 1, induction);
  EXPECT_EQ(back.previous, 1);
  EXPECT_NEAR(back.first, 1.0 / 5, 1e-12);
  EXPECT_NEAR(back.self, 1.0 / 6, 1e-12);
  EXPECT_EQ(back.induction, 0);
  EXPECT_EQ(back.entropy, 0);
  EXPECT_NEAR(back.distance, 5.0 / 6, 1e-12);
  EXPECT_EQ(again.induction, 1);
  EXPECT_NEAR(again.first, 2.0 / 5, 1e-12);
  const json index = index_of(page.html())["parts"][0];
  EXPECT_EQ(index["queries"]["tokens"], json(tokens));
  EXPECT_EQ(index["statistics"][1][3], 1.0);
  EXPECT_TRUE(std::isnan(page_of({.queries = {.tokens = {"a"}}, .num_layers = 1, .num_heads = 1})
                             .add(0, 0, 0, Tensor::of<float>({{1.0f}}))
                             .induction));
}

TEST(Page, KeepsTheMostTellingHeadsWithinItsSize) {
  const std::int64_t n = 200;
  PageOptions options{.title = "t"};
  Tensor previous(DType::f32, {n, n});
  for (std::int64_t i = 0; i < n; ++i) previous.at<float>(i, std::max<std::int64_t>(i - 1, 0)) = 1;
  const auto html_of = [&](std::size_t size, bool is_chosen = false) {
    options.max_size = size;
    AttentionPage page(options);
    page.add_part({.queries = {.tokens = words(n)}, .num_layers = 1, .num_heads = 4});
    for (std::int64_t head = 0; head < 3; ++head)
      page.add(0, 0, head, random_weights(n, false, 9), {.is_chosen = is_chosen && head == 1});
    page.add(0, 0, 3, previous);
    EXPECT_EQ(page.html(size), page.html());
    return page.html();
  };
  const auto kept_of = [](const std::string& html) { return index_of(html)["parts"][0]["kept"]; };
  const std::string whole = html_of(25'000'000);
  EXPECT_EQ(kept_of(whole).size(), 4u);
  const std::size_t less = whole.size() - 40'000;
  const std::string part = html_of(less);
  EXPECT_LE(part.size(), less);
  EXPECT_EQ(kept_of(part)[0], 3);  // the head that looks back
  EXPECT_LT(kept_of(part).size(), 4u);
  EXPECT_EQ(kept_of(html_of(less, true))[0], 1);
  EXPECT_EQ(kept_of(html_of(1)).size(), 0u);

  AttentionPage page({.title = "t"});
  page.add_part({.queries = {.tokens = words(n)}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, previous);
  EXPECT_EQ(kept_of(page.html(1)).size(), 0u);
  EXPECT_EQ(kept_of(page.html()).size(), 1u);  // a smaller file changes nothing
}

TEST(Page, NoTextBreaksOutOfIt) {
  const std::vector<std::string> hostile{"</script><script>alert(1)</script>",
                                         "<!--",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\xae"
                                         "abc",
                                         "\"'&",
                                         std::string("\0", 1),
                                         "\xff\xfe"};
  AttentionPage page({.title = "</title><script>\xff", .subtitle = "<b>\"\xc3&"});
  page.add_part({.name = "</script>", .queries = {.tokens = hostile}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, random_weights(std::ssize(hostile), false, 1));
  const std::string html = page.html();
  EXPECT_THAT(html, Not(HasSubstr("alert(1)")));
  EXPECT_THAT(html, HasSubstr("<title>&lt;/title>&lt;script>\uFFFD</title>"));
  EXPECT_THAT(html, HasSubstr("&lt;b>&quot;\uFFFD&amp;<"));
  const json tokens = index_of(html)["parts"][0]["queries"]["tokens"];
  EXPECT_EQ(tokens[0], hostile[0]);
  EXPECT_EQ(tokens[6], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Page, ReachesNothingOutside) {
  AttentionPage page = page_of({.queries = {.tokens = {"a"}}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, Tensor::of<float>({{1.0f}}));
  const std::string html = page.html();
  EXPECT_THAT(html, HasSubstr("Content-Security-Policy\" content=\"default-src 'none'; "));
  for (const char* const outside : {"https://", "src=", "href=", "@import", "fetch(", "eval("})
    EXPECT_THAT(html, Not(HasSubstr(outside))) << outside;
  EXPECT_LT(html.size(), 120'000u);  // our own code, and next to no data
}

/// A head whose arithmetic is known: 2 queries, 3 keys.
struct KnownHead {
  Tensor q = Tensor::of<float>({{1.0f, 2.0f}, {0.5f, -1.0f}}),
         k = Tensor::of<float>({{1.0f, 0.0f}, {0.0f, 1.0f}, {1.0f, 1.0f}}), lse = Tensor::of<float>({0.7f, -0.2f}),
         norms = Tensor::of<float>({1.0f, 2.0f, 4.0f}),
         weights = Tensor::of<float>({{0.2f, 0.3f, 0.5f}, {0.1f, 0.1f, 0.8f}});
  HeadDetails details() const { return {.q = q, .k = k, .lse = lse, .scale = 0.5, .value_norms = norms}; }
};

constexpr const char* kWordPieces = R"({
  "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "[CLS]": 2, "[SEP]": 3}},
  "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
  "added_tokens": [{"id": 3, "content": "[SEP]", "special": true},
                   {"id": 4, "content": "[MASK]", "lstrip": false, "special": true}]})";

TEST(Page, CarriesAModelOnlyIfItIsGivenOne) {
  AttentionPage page = page_of({.queries = {.tokens = words(3)}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, random_weights(3, false, 1));
  EXPECT_THAT(page.html(), Not(HasSubstr("wasm-unsafe-eval")));
  EXPECT_LT(page.html().size(), 200'000u);
  const PageModel model{.files = {{"model.safetensors", "the checkpoint"}},
                        .num_heads = 2,
                        .vocab_size = 5,
                        .max_length = 9,
                        .text = "</script> 1",
                        .weight_type = "f16",
                        .weight_error = 0.00041};
  page.set_model(model);
  const std::string html = page.html();
  EXPECT_THAT(html, HasSubstr("script-src 'unsafe-inline' 'wasm-unsafe-eval'; style-src"));
  EXPECT_THAT(html, HasSubstr("globalThis.saccadeLibrary = (async () => {"));
  const std::vector<std::uint8_t> stored = part_of(html, "model-0");
  EXPECT_EQ(std::string(stored.begin(), stored.end()), "the checkpoint");
  const json about = index_of(html)["model"];
  EXPECT_EQ(about["heads"], 2);
  EXPECT_EQ(about["text"], "</script> 1");
  EXPECT_EQ(about["tokens"], "numbers");
  EXPECT_EQ(about["weights"]["error"], "0.041 %");
  const auto refused = [&](void (*change)(PageModel&)) {
    PageModel wrong = model;
    change(wrong);
    return refusal([&] { page.set_model(wrong); });
  };
  EXPECT_EQ(refused([](PageModel& wrong) { wrong.files.clear(); }), "[set_model] there are no files");
  EXPECT_THAT(refused([](PageModel& wrong) { wrong.tokens = PageTokens::word_pieces, wrong.word_pieces = "{}"; }),
              HasSubstr("word_pieces is not the tokenizer.json of a WordPiece tokenizer"));
  EXPECT_EQ(
      refused([](PageModel& wrong) { wrong.files.emplace_back("more", std::string(kPageMaxModelSize, '0')); }),
      "[set_model] the model's files have 201 MB, but a browser opens no page that is much larger than 200 MB");
  for (const auto& [place, value, what] : std::vector<std::tuple<const char*, json, std::string>>{
           {"/normalizer/clean_text", false, "clean_text"},
           {"/normalizer/handle_chinese_chars", false, "handle_chinese_chars"},
           {"/normalizer/strip_accents", false, "strip_accents"},
           {"/model/continuing_subword_prefix", "@", "continuing_subword_prefix"},
           {"/model/max_input_chars_per_word", 20, "max_input_chars_per_word"},
           {"/added_tokens/0/lstrip", true, "lstrip"},
           {"/post_processor/cls/0", "<s>", "post_processor"},
           {"/post_processor", nullptr, "post_processor"}}) {
    PageModel wrong = model;
    wrong.tokens = PageTokens::word_pieces;
    json tokenizer = json::parse(kWordPieces);
    tokenizer[json::json_pointer(place)] = value;
    wrong.word_pieces = tokenizer.dump();
    EXPECT_EQ(refusal([&] { page.set_model(wrong); }),
              "[set_model] word_pieces has another " + what +
                  " than BERT's tokenizer, and a page splits texts as that does");
  }
  PageModel pieces = model;
  pieces.tokens = PageTokens::word_pieces, pieces.word_pieces = kWordPieces;
  page.set_model(pieces);
  EXPECT_EQ(index_of(page.html())["model"]["wordPieces"],
            json::parse(R"({"pieces": ["[UNK]", "a", "[CLS]", "[SEP]", "[MASK]"], "added": ["[SEP]", "[MASK]"],
                            "lowercase": true, "unknown": "[UNK]"})"));
  EXPECT_EQ(refused([](PageModel& wrong) { wrong.text.clear(); }), "[set_model] text must not be empty");
  EXPECT_THAT(refused([](PageModel& wrong) { wrong.num_heads = 0; }),
              HasSubstr("must be at least 1, but they are 0, 5 and 9"));
}

TEST(Page, KeepsTheArithmeticOfItsMostTellingHeads) {
  const KnownHead head;
  AttentionPage page({.title = "t", .max_details_size = 100});
  page.add_part(
      {.queries = {.tokens = {"a", "b"}}, .keys = {.tokens = {"x", "y", "z"}}, .num_layers = 1, .num_heads = 3});
  const Tensor uniform = Tensor::of<float>({{0.33f, 0.33f, 0.34f}, {0.33f, 0.33f, 0.34f}});
  page.add(0, 0, 0, uniform, head.details());
  const HeadStatistics statistics = page.add(0, 0, 1, head.weights, head.details());
  HeadDetails chosen = head.details();
  chosen.is_chosen = true;
  page.add(0, 0, 2, uniform, chosen);
  EXPECT_TRUE(std::isnan(statistics.previous) && std::isnan(statistics.self) && std::isnan(statistics.distance));
  EXPECT_NEAR(statistics.first, 0.15, 1e-7);
  const std::string html = page.html();
  const json index = index_of(html)["parts"][0];
  EXPECT_EQ(index["keys"]["tokens"].size(), 3u);
  EXPECT_EQ(index["details"].size(), 1u);  // the chosen one, which counts
  EXPECT_EQ(index["details"]["2"]["dim"], 2);
  EXPECT_EQ(index["details"]["2"]["scale"], 0.5);
  const std::vector<std::uint8_t> bytes = part_of(html, "detail-0-2");
  // q: 4 numbers, k: 6, lse: 2, each after its largest one.
  ASSERT_EQ(bytes.size(), 3 * 4 + 2 * 12u);
  const auto number = [&](std::size_t block, std::size_t at) {
    float largest = 0;
    std::int16_t part = 0;
    std::memcpy(&largest, bytes.data() + block, 4);
    std::memcpy(&part, bytes.data() + block + 4 + 2 * at, 2);
    return largest * static_cast<float>(part) / 32767.0f;
  };
  EXPECT_NEAR(number(0, 1), 2.0, 1e-4);
  EXPECT_NEAR(number(0, 3), -1.0, 1e-4);
  EXPECT_NEAR(number(12, 4), 1.0, 1e-4);
  EXPECT_NEAR(number(12 + 16, 1), -0.2, 1e-4);
  const std::vector<std::uint8_t> norms = part_of(html, "norms-0-0");
  ASSERT_EQ(norms.size(), 9u);
  EXPECT_EQ(norms[8], 255);
  EXPECT_EQ(norms[7], 255 - 16);
}

TEST(Page, HoldsPartsMapsAndLongHeads) {
  AttentionPage page({.title = "t", .is_sequence = true});
  page.add_part({.name = "short", .queries = {.tokens = words(3)}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, 0, random_weights(3, false, 1));
  Tensor map(DType::f32, {3, 3});
  map.at<float>(1, 2) = 1;
  page.add_map(0, "gradient", map);
  page.add_part({.name = "long", .queries = {.tokens = words(100)}, .num_layers = 1, .num_heads = 2});
  Tensor pooled(DType::f32, {10, 10}), keys(DType::i64, {100, 2}), weights(DType::f32, {100, 2}),
      tile(DType::f32, {2, 3});
  pooled.at<float>(4, 5) = 0.5f, keys.at<std::int64_t>(7, 1) = 70'000, weights.at<float>(7, 1) = 0.25f;
  tile.at<float>(1, 2) = 0.125f;
  page.add_pooled(1, 0, 1,
                  {.pooled = pooled,
                   .top_keys = keys,
                   .top_weights = weights,
                   .tiles = {{.first_query = 98, .first_key = 97, .weights = tile}}});
  const std::string html = page.html();
  const json index = index_of(html);
  EXPECT_EQ(index["sequence"], true);
  EXPECT_EQ(index["parts"][0]["maps"], json({"gradient"}));
  EXPECT_EQ(part_of(html, "map-0-0")[5], 255);
  EXPECT_EQ(index["parts"][1]["pooled"], json({{"rows", 10}, {"columns", 10}, {"top", 2}}));
  EXPECT_EQ(index["parts"][1]["kept"], json({1}));  // the other head was left out
  EXPECT_EQ(index["parts"][1]["tiles"], json({{1, 98, 97, 2, 3}}));
  EXPECT_EQ(part_of(html, "head-1-1")[45], 255 - 16);
  const std::vector<std::uint8_t> top = part_of(html, "top-1-1");
  ASSERT_EQ(top.size(), 1000u);
  EXPECT_EQ(top[15 * 4] | top[15 * 4 + 1] << 8 | top[15 * 4 + 2] << 16, 70'000);
  EXPECT_EQ(top[800 + 15], 255 - 32);
  EXPECT_EQ(part_of(html, "tile-1-0")[5], 255 - 48);
}

TEST(Page, RefusesWhatDoesNotFit) {
  const auto refusal_of = [](const PagePart& part) { return refusal([&] { page_of(part); }); };
  EXPECT_THAT(refusal_of({.num_layers = 1, .num_heads = 1}),
              HasSubstr("[AttentionPage] queries.tokens must not be empty"));
  EXPECT_THAT(refusal_of({.queries = {.tokens = {"a"}}, .num_heads = 1}),
              HasSubstr("num_layers and num_heads must be at least 1"));
  EXPECT_THAT(refusal_of({.queries = {.tokens = {"a"}, .words = {1, 2}}, .num_layers = 1, .num_heads = 1}),
              HasSubstr("queries.words must be as many as tokens, 1, but there are 2"));
  EXPECT_THAT(refusal_of({.queries = {.tokens = {"a"}},
                          .keys = {.tokens = {"b"}},
                          .num_layers = 1,
                          .num_heads = 1,
                          .is_causal = true}),
              HasSubstr("is_causal is for queries that attend to themselves"));
  EXPECT_THAT(refusal_of({.queries = {.tokens = {"a"}, .image = {.png = "x", .rows = 2, .columns = 2}},
                          .num_layers = 1,
                          .num_heads = 1}),
              HasSubstr("queries.image has 2 x 2 patches from token 0 on, but there are 1 tokens"));
  EXPECT_THAT(refusal([] { AttentionPage({.title = "t"}).html(); }), HasSubstr("there are no parts"));
  AttentionPage page = page_of({.queries = {.tokens = {"a", "b"}}, .num_layers = 1, .num_heads = 2});
  const Tensor weights(DType::f32, {2, 2});
  const HeadDetails details{.q = weights, .k = weights, .lse = Tensor(DType::f32, {3})};
  EXPECT_THAT(refusal([&] { page.add(0, 0, 0, weights, details); }), HasSubstr("details.lse must have shape [2]"));
  page.add(0, 0, 0, weights);
  EXPECT_THAT(refusal([&] { page.add(1, 0, 0, weights); }), HasSubstr("part must be below 1, but it is 1"));
  EXPECT_THAT(refusal([&] { page.add(0, 0, 0, weights); }), HasSubstr("layer 0, head 0 was added before"));
  EXPECT_THAT(refusal([&] { page.add(0, 1, 0, weights); }),
              HasSubstr("must be below 1 and 2, but they are 1 and 0"));
  EXPECT_THAT(refusal([&] {
                page.add(0, 0, 1, Tensor(DType::f32, {2, 3}));
              }),
              HasSubstr("weights must have shape [2, 2]"));
  const Tensor keys(DType::i64, {2, 1}), top(DType::f32, {2, 1});
  EXPECT_THAT(
      refusal([&] { page.add_pooled(0, 0, 1, {.pooled = weights, .top_keys = keys, .top_weights = top}); }),
      HasSubstr("all heads of a part must be pooled"));
  EXPECT_THAT(refusal([&] { page.html(); }), HasSubstr("layer 0, head 1 is missing"));
  AttentionPage pooled = page_of({.queries = {.tokens = {"a", "b"}}, .num_layers = 1, .num_heads = 1});
  EXPECT_THAT(refusal([&] {
                pooled.add_pooled(0, 0, 0,
                                  {.pooled = weights,
                                   .top_keys = keys,
                                   .top_weights = top,
                                   .tiles = {{.first_query = 1, .weights = weights}}});
              }),
              HasSubstr("is not within 2 queries and 2 keys"));
}

}  // namespace
}  // namespace saccade::test
