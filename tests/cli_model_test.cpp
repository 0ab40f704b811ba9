// saccade embed and generate with models of Hugging Face folders, against what `transformers` makes of them
// (goldens/make_models.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_support.h"
#include "saccade/io.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModels = std::string(SACCADE_SOURCE_DIR) + "/tests/data/models";

json expected_of(const std::string& folder) { return json::parse(std::ifstream(folder + "/expected_text.json")); }

class CliModel : public CommandTest {
 protected:
  void SetUp() override {
    if (run({"embed", "--help"}).exit_code != 0) GTEST_SKIP() << "this saccade was built without a tokenizer";
  }
  const std::string encoder = kModels + "/text-encoder", decoder = kModels + "/text-decoder";
};

void expect_embeddings(const json& rows, const json& wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), wanted[i].size());
    for (std::size_t d = 0; d < rows[i].size(); ++d)
      EXPECT_NEAR(rows[i][d].get<double>(), wanted[i][d].get<double>(), 2e-6);  // of vectors of length 1
  }
}

TEST_F(CliModel, EmbedsAsTheFolderSays) {
  const json expected = expected_of(encoder);
  const std::string first = expected["texts"][0], second = expected["texts"][1];
  const Outcome outcome = run({"embed", "--model", encoder, "--text", first, "--text", second, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json printed = outcome.json();
  EXPECT_EQ(printed["texts"], expected["texts"]);
  expect_embeddings(printed["embeddings"], expected["embeddings"]);
}

TEST_F(CliModel, EmbedsLinesOfStandardInputIntoAnArray) {
  const json expected = expected_of(encoder);
  const std::string lines =
      expected["texts"][0].get<std::string>() + "\r\n" + expected["texts"][1].get<std::string>() + "\n";
  const Outcome outcome = run({"embed", "--model", encoder, "-o", "embeddings.npy"}, {.standard_input = lines});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const Tensor array = load_npy(path("embeddings.npy"));
  ASSERT_EQ(array.shape(), (Shape{2, 24}));
  json rows = json::array();
  for (int i = 0; i < 2; ++i) {
    rows.emplace_back();
    for (int d = 0; d < 24; ++d) rows.back().push_back(array.at<float>(i, d));
  }
  expect_embeddings(rows, expected["embeddings"]);
}

TEST_F(CliModel, GeneratesTheMostLikelyTokens) {
  const json expected = expected_of(decoder);
  const Outcome outcome = run({"generate", "--model", decoder, "--prompt", expected["texts"][0].get<std::string>(),
                               "--tokens", "12", "--temperature", "0"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, expected["continuation"].get<std::string>() + "\n");
}

TEST_F(CliModel, WritesThePageOfAModel) {
  const Outcome outcome = run({"look", "--model", encoder, "--text", "A causal mask.", "-o", "page.html"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string page = read("page.html");
  EXPECT_THAT(page, HasSubstr("<title>text-encoder</title>"));
  EXPECT_THAT(page, HasSubstr("bert: 2 layers of 4 heads, "));
  for (const char* const head : {"id=\"head-0\"", "id=\"head-7\""}) EXPECT_THAT(page, HasSubstr(head));
  run({"look", "--model", encoder, "--text", "A causal mask.", "-o", "again.html", "--threads", "1"});
  EXPECT_EQ(read("again.html"), page);
}

TEST_F(CliModel, MeasuresWhatChangesWithoutHeads) {
  const std::vector<std::string> look{"look", "--model", decoder, "--text", "A causal mask.", "--json", "--ablate"};
  const auto ablate = [&](std::vector<std::string> heads) {
    std::vector<std::string> arguments = look;
    arguments.insert(arguments.end(), heads.begin(), heads.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json();
  };
  const json one = ablate({"L0H1"}), all = ablate({"L0H0,L0H1,L0H2,L0H3"}), mean = ablate({"L0H1", "--mean"});
  EXPECT_EQ(one["before"], all["before"]);
  EXPECT_NE(one["after"], one["before"]);
  EXPECT_NE(all["after"], one["after"]);
  EXPECT_NE(mean["after"], one["after"]);
  EXPECT_EQ(all["ablated"].size(), 4u);
  EXPECT_EQ(one["before"]["next"].size(), 5u);
}

TEST_F(CliModel, RefusesWhatDoesNotFit) {
  const auto error = [&](std::vector<std::string> arguments) {
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  EXPECT_THAT(error({"generate", "--model", encoder, "--prompt", "a"}),
              HasSubstr("--model is a bert without next tokens: only decoders with logits generate text"));
  EXPECT_THAT(error({"generate", "--model", decoder, "--prompt", ""}), HasSubstr("the text has no tokens"));
  EXPECT_THAT(error({"generate", "--model", decoder, "--prompt", std::string(200, 'x')}),
              HasSubstr("but this model takes 40"));
  EXPECT_THAT(error({"embed", "--model", "nothing", "--text", "a"}), HasSubstr("is not a folder"));
  EXPECT_THAT(error({"embed", "--model", encoder}), HasSubstr("there is no text"));
  EXPECT_THAT(error({"look", "--model", decoder, "--text", "a"}), HasSubstr("give -o PAGE.html, or --ablate"));
  EXPECT_THAT(error({"look", "--model", decoder, "--text", "a b", "--ablate", "L2H0"}),
              HasSubstr("--ablate L2H0: the model has 2 layers of 4 heads"));
  EXPECT_THAT(error({"look", "--model", decoder, "--text", "a b", "--ablate", "17.4"}), HasSubstr("named as in L17H4"));
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a b", "--ablate", "L0H0"}), HasSubstr("loss of decoders"));
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a", "-o", "p.html", "--max-size", "0"}),
              HasSubstr("--max-size must be a number of megabytes above 0"));
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace saccade::test
