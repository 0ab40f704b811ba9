// look(), text_expectation() and PretrainedModel: pages and numbers against what the model itself computes.
#include "saccade/look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "saccade/ablation.h"
#include "support/page_parts.h"
#include "support/refusal.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::filesystem::path kModels = std::filesystem::path(SACCADE_SOURCE_DIR) / "tests/data/models";
constexpr const char* kText = "A causal mask hides the keys.";

const PretrainedModel& encoder() {
  static const PretrainedModel model = PretrainedModel::load(kModels / "text-encoder");
  return model;
}
const PretrainedModel& decoder() {
  static const PretrainedModel model = PretrainedModel::load(kModels / "text-decoder");
  return model;
}

/// The weights of each layer over a text, [heads, tokens, tokens], by the model's own hook.
std::vector<Tensor> weights_of(const PretrainedModel& pretrained, const std::string& text) {
  std::vector<Tensor> layers;
  pretrained.model().hidden_states(
      {.tokens = pretrained.ids_of(text)}, {.on_attention = [&](const LayerAttention& layer) {
        layers.emplace_back(DType::f32, Shape{layer.q.shape[1], layer.q.shape[0], layer.k.shape[0]});
        AttentionOptions options = layer.options;
        options.weights = layers.back();
        attention(layer.q, layer.k, layer.v, options);
      }});
  return layers;
}

TEST(Look, PageHoldsTheWeightsOfEveryHead) {
  for (const PretrainedModel* const pretrained : {&encoder(), &decoder()}) {
    const std::string html = look(*pretrained, {.text = kText}).html();
    const std::vector<Tensor> layers = weights_of(*pretrained, kText);
    const ModelSizes& sizes = pretrained->model().sizes();
    ASSERT_EQ(std::ssize(layers), sizes.num_layers);
    const std::int64_t tokens = layers[0].shape(1);
    for (std::int64_t layer = 0; layer < sizes.num_layers; ++layer) {
      for (std::int64_t head = 0; head < sizes.num_heads; ++head) {
        const std::vector<std::uint8_t> codes =
            part_of(html, "head-0-" + std::to_string(layer * sizes.num_heads + head));
        ASSERT_EQ(std::ssize(codes), sizes.is_causal ? tokens * (tokens + 1) / 2 : tokens * tokens);
        std::size_t at = 0;
        for (std::int64_t i = 0; i < tokens; ++i) {
          for (std::int64_t j = 0; j < (sizes.is_causal ? i + 1 : tokens); ++j) {
            const double expected = layers[static_cast<std::size_t>(layer)].at<float>(head, i, j);
            ASSERT_NEAR(weight_of(codes[at++]), expected, 0.022 * expected + 1.6e-5) << layer << ' ' << head;
          }
        }
      }
    }
  }
}

TEST(Look, NamesThePageAfterTheModel) {
  const json index = index_of(look(encoder(), {.text = kText}).html());
  EXPECT_EQ(index["title"], "text-encoder");
  EXPECT_EQ(index["parts"][0]["name"], "");
  const std::string own =
      look(encoder(), {.text = kText}, {.page = {.title = "mine", .subtitle = "below"}}).html();
  EXPECT_THAT(own, HasSubstr("<title>mine</title>"));
  EXPECT_THAT(own, HasSubstr("below"));
  EXPECT_THAT(look(encoder(), {.text = kText}).html(), HasSubstr("bert: 2 layers of 4 heads, "));
}

TEST(Look, ComparesTextsAndModels) {
  const auto names_of = [](const std::vector<LookReading>& readings) {
    std::vector<std::string> names;
    const json index = index_of(look(readings).html());
    for (const json& part : index["parts"]) names.push_back(part["name"]);
    return names;
  };
  const LookReading one{.pretrained = &encoder(), .input = {.text = "A mask."}},
      two{.pretrained = &encoder(), .input = {.text = "A causal mask that hides the keys that follow."}},
      other{.pretrained = &decoder(), .input = {.text = "A mask."}};
  EXPECT_THAT(names_of({one, two}),
              ElementsAre("\u201cA mask.\u201d", "\u201cA causal mask that hides the keys tha...\u201d"));
  EXPECT_THAT(names_of({one, other}), ElementsAre("text-encoder", "text-decoder"));
  LookReading named = two;
  named.name = "long";
  EXPECT_THAT(names_of({named, one}), ElementsAre("long", "\u201cA mask.\u201d"));
}

TEST(Look, TellsEachLayer) {
  std::vector<std::int64_t> done;
  const LookReading reading{.pretrained = &encoder(), .input = {.text = kText}};
  look(std::vector{reading, reading}, {.on_layer = [&](std::int64_t layer, std::int64_t total) {
         EXPECT_EQ(total, 4);
         done.push_back(layer);
       }});
  EXPECT_THAT(done, ElementsAre(1, 2, 3, 4));
}

TEST(Look, DoesNotDependOnThreads) {
  const LookOptions one{.gradient = true, .num_threads = 1}, two{.gradient = true, .num_threads = 2};
  EXPECT_EQ(look(decoder(), {.text = kText}, one).html(), look(decoder(), {.text = kText}, two).html());
}

TEST(Look, KeepsChosenHeadsFirst) {
  const auto part_with = [](const std::vector<HeadPlace>& details) {
    const json index =
        index_of(look(encoder(), {.text = kText}, {.page = {.max_details_size = 1}, .details = details}).html());
    return index["parts"][0];
  };
  const json none = part_with({}), one = part_with({{1, 2}});
  EXPECT_TRUE(none["details"].empty());
  EXPECT_EQ(one["details"].size(), 1u);
  EXPECT_TRUE(one["details"].contains("6"));
  ASSERT_EQ(one["kept"].size(), 8u);
  EXPECT_EQ(one["kept"][0], 1 * 4 + 2);
}

TEST(Look, ShowsThePatchesOfAPicture) {
  const PretrainedModel vit = PretrainedModel::load(kModels / "vit");
  Tensor rgb(DType::u8, {20, 30, 3});
  for (std::size_t i = 0; i < rgb.values<std::uint8_t>().size(); ++i)
    rgb.values<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37);
  const json part = index_of(look(vit, {.rgb = rgb, .png = "a file"}).html())["parts"][0];
  EXPECT_EQ(part["queries"]["tokens"].size(), 10u);
  EXPECT_EQ(part["queries"]["image"]["rows"], 3);
  EXPECT_EQ(part["queries"]["image"]["first"], 1);
  EXPECT_THAT(part["queries"]["image"]["source"].get<std::string>(), StartsWith("data:image/png;base64,"));
  EXPECT_THAT(refusal([&] { vit.tokenizer(); }), HasSubstr("a model of images has no tokenizer"));
  EXPECT_THAT(refusal([&] { look(vit, {.text = "a"}); }), HasSubstr("is a vit, which does not read text"));
  EXPECT_THAT(refusal([&] { look(vit, {}); }), HasSubstr("is a vit, which reads images: give one"));
}

TEST(Look, RefusesWhatDoesNotFit) {
  const auto error = [](const LookInput& input, const LookOptions& options = {}) {
    return refusal([&] { look(encoder(), input, options); });
  };
  EXPECT_EQ(error({}), "[look] the model is a bert, which reads text: give one");
  EXPECT_EQ(error({.text = "a", .sound = {0.0f}}), "[look] the model is a bert, which does not read sound");
  EXPECT_EQ(error({.text = "a", .png = "x"}), "[look] the model is a bert, which does not read images");
  EXPECT_EQ(error({.text = "a", .target = "b"}), "[look] the model is a bert, which does not read a target");
  EXPECT_EQ(error({.text = "a"}, {.details = {{2, 0}}}),
            "[look] L2H0: the model has 2 layers of 4 heads, counted from 0");
  EXPECT_THAT(error({.text = "a"}, {.tiles = {{{0, 0}, 0, 1, 0, 1}}}),
              StartsWith("[look] tiles are for texts of over 4096 tokens"));
  EXPECT_THAT(refusal([] { look(decoder(), {.text = std::string(200, 'x')}); }),
              HasSubstr("tokens, but this model takes 40"));
  EXPECT_EQ(refusal([] { look(std::span<const LookReading>()); }), "[look] no text, image or sound was given");
  EXPECT_EQ(refusal([] { look(std::vector<LookReading>(1)); }), "[look] a reading has no model");
}

/// The loss of a text with some heads set to 0 by hand, from the definition.
double loss_without(const std::set<std::pair<std::int64_t, std::int64_t>>& heads) {
  const std::vector<std::int64_t> tokens = decoder().ids_of(kText);
  const Tensor states = decoder().model().hidden_states(
      {.tokens = tokens}, {.on_attention = [&](const LayerAttention& layer) {
        for (const auto& [at, head] : heads)
          for (std::int64_t i = 0; at == layer.layer && i < layer.o.shape[0]; ++i)
            for (std::int64_t d = 0; d < layer.o.shape[2]; ++d)
              layer.o.as<float>()[i * layer.o.strides[0] + head * layer.o.strides[1] + d] = 0.0f;
      }});
  const Tensor logits = decoder().model().logits(states);
  double loss = 0.0;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    double sum = 0.0;
    for (std::int64_t token = 0; token < logits.shape(1); ++token)
      sum += std::exp(static_cast<double>(logits.at<float>(static_cast<std::int64_t>(i) - 1, token)));
    loss += std::log(sum) - logits.at<float>(static_cast<std::int64_t>(i) - 1, tokens[i]);
  }
  return loss / static_cast<double>(tokens.size() - 1);
}

TEST(TextExpectation, IsTheLossOfTheModelWithoutItsHeads) {
  const TextExpectation all = text_expectation(decoder(), kText),
                        rest = text_expectation(decoder(), kText, {.heads = {{0, 1}, {1, 3}}}),
                        mean = text_expectation(decoder(), kText,
                                                {.heads = {{0, 1}, {1, 3}}, .replaced_by = Ablation::mean});
  EXPECT_NEAR(all.loss, loss_without({}), 1e-5);
  EXPECT_NEAR(rest.loss, loss_without({{0, 1}, {1, 3}}), 1e-5);
  EXPECT_NE(all.loss, rest.loss);
  EXPECT_NE(mean.loss, rest.loss);
  EXPECT_EQ(all.num_tokens, std::ssize(decoder().ids_of(kText)));
}

TEST(TextExpectation, NamesTheMostLikelyNextTokens) {
  const TextExpectation few = text_expectation(decoder(), kText),
                        many = text_expectation(decoder(), kText, {.num_next = 1 << 20});
  ASSERT_EQ(few.next.size(), 5u);
  ASSERT_EQ(std::ssize(many.next), decoder().model().sizes().vocab_size);
  double sum = 0.0;
  for (std::size_t i = 0; i < many.next.size(); ++i) {
    sum += many.next[i].probability;
    if (i > 0) {
      EXPECT_LE(many.next[i].probability, many.next[i - 1].probability);
    }
    if (i < few.next.size()) {
      EXPECT_EQ(few.next[i].probability, many.next[i].probability);
    }
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
}

TEST(TextExpectation, CountsWhatAnInductionHeadCanForetell) {
  const TextExpectation none = text_expectation(decoder(), "xyz"),
                        twice = text_expectation(decoder(), "xyz xyz xyz");
  EXPECT_EQ(none.num_repeated, 0);
  EXPECT_TRUE(std::isnan(none.repeated_loss));
  EXPECT_GT(twice.num_repeated, 0);
  EXPECT_GT(twice.repeated_loss, 0.0);
}

TEST(TextExpectation, RefusesWhatDoesNotFit) {
  EXPECT_THAT(refusal([] { text_expectation(encoder(), "a"); }),
              HasSubstr("only decoders have the loss of a text"));
  EXPECT_THAT(refusal([] { text_expectation(decoder(), ""); }), HasSubstr("the text has no tokens"));
  EXPECT_EQ(refusal([] {
              text_expectation(decoder(), "a", {.heads = {{0, 4}}});
            }),
            "[text_expectation] L0H4: the model has 2 layers of 4 heads, counted from 0");
  EXPECT_THAT(refusal([] { text_expectation(decoder(), "a", {.num_next = -1}); }),
              HasSubstr("num_next must be 0"));
}

TEST(PretrainedModel, KnowsItsFolder) {
  EXPECT_EQ(encoder().name(), "text-encoder");
  EXPECT_EQ(PretrainedModel::load(kModels / "text-encoder/").name(), "text-encoder");
  EXPECT_EQ(encoder().folder(), kModels / "text-encoder");
  EXPECT_THAT(refusal([] { encoder().first_tokens(); }), HasSubstr("no decoder_start_token_id"));
  EXPECT_THROW(PretrainedModel::load(kModels / "nothing"), std::runtime_error);
}

TEST(PretrainedModel, ContinuesTokens) {
  const json expected = json::parse(std::ifstream(kModels / "text-decoder/expected_text.json"));
  const std::string prompt = expected["texts"][0];
  std::vector<std::int64_t> tokens = decoder().ids_of(prompt);
  continue_tokens(
      decoder().model(), tokens, {}, 12,
      [](std::span<const float> logits) { return std::ranges::max_element(logits) - logits.begin(); },
      [&](std::int64_t token) { tokens.push_back(token); });
  EXPECT_EQ(decoder().tokenizer().decode(tokens), expected["continuation"].get<std::string>());
}

}  // namespace
}  // namespace saccade::test
