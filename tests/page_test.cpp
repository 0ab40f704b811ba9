// The file that AttentionPage writes: what it holds, how exact it is, and that no text breaks out of it. (What a
// browser shows of it is tested by script/test_page.)
#include "saccade/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "refusal.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::uint8_t> from_base64(const std::string& text) {
  static const std::string kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    if ((bits += 6) >= 8) bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8)));
  }
  return bytes;
}

/// The unpacked contents of a part of a page; empty if it is not there.
std::vector<std::uint8_t> part_of(const std::string& html, const std::string& id) {
  const std::string opening = "id=\"" + id + "\">";
  const std::size_t begin = html.find(opening);
  if (begin == std::string::npos) return {};
  const std::size_t from = begin + opening.size();
  const std::vector<std::uint8_t> packed = from_base64(html.substr(from, html.find('<', from) - from));
  std::vector<std::uint8_t> bytes(1 << 20);
  uLongf size = bytes.size();
  EXPECT_EQ(uncompress(bytes.data(), &size, packed.data(), packed.size()), Z_OK);
  bytes.resize(size);
  return bytes;
}
json index_of(const std::string& html) {
  const std::vector<std::uint8_t> bytes = part_of(html, "index");
  return json::parse(bytes.begin(), bytes.end());
}

double weight_of(std::uint8_t code) { return code == 0 ? 0.0 : std::exp2((code - 255) / 16.0); }

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

TEST(Page, HoldsEveryWeightWithinTheBoundOfItsCode) {
  for (const bool is_causal : {false, true}) {
    for (const std::int64_t n : {1, 2, 5, 40}) {
      AttentionPage page(
          {.title = "t", .tokens = words(n), .num_layers = 2, .num_heads = 2, .is_causal = is_causal});
      std::vector<Tensor> heads;
      for (int i = 0; i < 4; ++i) {
        heads.push_back(random_weights(n, is_causal, static_cast<std::uint64_t>(i)));
        page.add(i / 2, i % 2, heads.back());
      }
      const std::string html = page.html();
      for (int i = 0; i < 4; ++i) {
        const std::vector<std::uint8_t> codes = part_of(html, "head-" + std::to_string(i));
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
  AttentionPage page({.title = "t", .tokens = tokens, .num_layers = 1, .num_heads = 2});
  Tensor previous(DType::f32, {6, 6}), induction(DType::f32, {6, 6});
  for (std::int64_t i = 0; i < 6; ++i) {
    previous.at<float>(i, std::max<std::int64_t>(i - 1, 0)) = 1;
    induction.at<float>(i, i < 3 ? 0 : i - 2) = 1;
  }
  const HeadStatistics back = page.add(0, 0, previous), again = page.add(0, 1, induction);
  EXPECT_EQ(back.previous, 1);
  EXPECT_NEAR(back.first, 1.0 / 5, 1e-12);
  EXPECT_NEAR(back.self, 1.0 / 6, 1e-12);
  EXPECT_EQ(back.induction, 0);
  EXPECT_EQ(back.entropy, 0);
  EXPECT_NEAR(back.distance, 5.0 / 6, 1e-12);
  EXPECT_EQ(again.induction, 1);
  EXPECT_NEAR(again.first, 2.0 / 5, 1e-12);
  const json index = index_of(page.html());
  EXPECT_EQ(index["tokens"], json(tokens));
  EXPECT_EQ(index["statistics"][1][3], 1.0);
  EXPECT_TRUE(std::isnan(AttentionPage({.title = "t", .tokens = {"a"}, .num_layers = 1, .num_heads = 1})
                             .add(0, 0, Tensor::of<float>({{1.0f}}))
                             .induction));
}

TEST(Page, KeepsTheMostTellingHeadsWithinItsSize) {
  const std::int64_t n = 200;
  PageOptions options{.title = "t", .tokens = words(n), .num_layers = 1, .num_heads = 4};
  Tensor previous(DType::f32, {n, n});
  for (std::int64_t i = 0; i < n; ++i) previous.at<float>(i, std::max<std::int64_t>(i - 1, 0)) = 1;
  const auto page_of = [&](std::size_t size) {
    options.max_size = size;
    AttentionPage page(options);
    for (std::int64_t head = 0; head < 3; ++head) page.add(0, head, random_weights(n, false, 9));
    page.add(0, 3, previous);
    return page.html();
  };
  const std::string whole = page_of(25'000'000);
  EXPECT_EQ(index_of(whole)["kept"].size(), 4u);
  const std::string part = page_of(whole.size() - 40'000);
  EXPECT_LE(part.size(), whole.size() - 40'000);
  EXPECT_EQ(index_of(part)["kept"][0], 3);  // the head that looks back
  EXPECT_LT(index_of(part)["kept"].size(), 4u);
  EXPECT_EQ(index_of(page_of(1))["kept"].size(), 0u);
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
  AttentionPage page(
      {.title = "</title><script>", .subtitle = "<b>\"", .tokens = hostile, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, random_weights(std::ssize(hostile), false, 1));
  const std::string html = page.html();
  EXPECT_THAT(html, Not(HasSubstr("alert(1)")));
  EXPECT_THAT(html, HasSubstr("<title>&lt;/title>&lt;script></title>"));
  EXPECT_THAT(html, HasSubstr("&lt;b>&quot;"));
  EXPECT_EQ(index_of(html)["tokens"][0], hostile[0]);
  EXPECT_EQ(index_of(html)["tokens"][6], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Page, ReachesNothingOutside) {
  AttentionPage page({.title = "t", .tokens = {"a"}, .num_layers = 1, .num_heads = 1});
  page.add(0, 0, Tensor::of<float>({{1.0f}}));
  const std::string html = page.html();
  EXPECT_THAT(html, HasSubstr("Content-Security-Policy\" content=\"default-src 'none'; "));
  for (const char* const outside : {"https://", "src=", "href=", "@import", "fetch(", "eval("})
    EXPECT_THAT(html, Not(HasSubstr(outside))) << outside;
  EXPECT_LT(html.size(), 120'000u);  // our own code, and next to no data
}

TEST(Page, RefusesWhatDoesNotFit) {
  const auto refusal_of = [](const PageOptions& options) { return refusal([&] { AttentionPage page(options); }); };
  EXPECT_THAT(refusal_of({.num_layers = 1, .num_heads = 1}),
              HasSubstr("[AttentionPage] tokens must not be empty"));
  EXPECT_THAT(refusal_of({.tokens = {"a"}, .num_heads = 1}),
              HasSubstr("num_layers and num_heads must be at least 1"));
  EXPECT_THAT(refusal_of({.tokens = {"a"}, .words = {1, 2}, .num_layers = 1, .num_heads = 1}),
              HasSubstr("words must be as many as tokens, 1, but there are 2"));
  AttentionPage page({.tokens = {"a", "b"}, .num_layers = 1, .num_heads = 2});
  const Tensor weights(DType::f32, {2, 2});
  page.add(0, 0, weights);
  EXPECT_THAT(refusal([&] { page.add(0, 0, weights); }), HasSubstr("layer 0, head 0 was added before"));
  EXPECT_THAT(refusal([&] { page.add(1, 0, weights); }), HasSubstr("must be below 1 and 2, but they are 1 and 0"));
  EXPECT_THAT(refusal([&] {
                page.add(0, 1, Tensor(DType::f32, {2, 3}));
              }),
              HasSubstr("weights must have shape [2, 2]"));
  EXPECT_THAT(refusal([&] { page.html(); }), HasSubstr("layer 0, head 1 is missing"));
}

}  // namespace
}  // namespace saccade::test
