// saccade embed and generate with models of Hugging Face folders, against what `transformers` makes of them
// (goldens/make_models.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <span>

#include "saccade/heatmap.h"
#include "saccade/io.h"
#include "saccade/quantize.h"
#include "support/cli_support.h"
#include "support/page_parts.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModels = std::string(SACCADE_SOURCE_DIR) + "/tests/data/models";

json expected_of(const std::string& folder) { return json::parse(std::ifstream(folder + "/expected_text.json")); }

class CliModel : public CommandTest {
 protected:
#ifndef SACCADE_HAS_TOKENIZER
  void SetUp() override { GTEST_SKIP() << "this saccade was built without a tokenizer"; }
#endif
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
                               "--max-new-tokens", "12", "--temperature", "0"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, expected["continuation"].get<std::string>() + "\n");
}

TEST_F(CliModel, WritesThePageOfAModel) {
  const Outcome outcome = run({"look", "--model", encoder, "--text", "A causal mask.", "-o", "page.html"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string page = read("page.html");
  EXPECT_THAT(page, HasSubstr("<title>text-encoder</title>"));
  EXPECT_THAT(page, HasSubstr("bert: 2 layers of 4 heads, "));
  for (const char* const part : {"id=\"head-0-0\"", "id=\"head-0-7\"", "id=\"detail-0-0\"", "id=\"norms-0-0\""})
    EXPECT_THAT(page, HasSubstr(part));
  run({"look", "--model", encoder, "--text", "A causal mask.", "-o", "again.html", "--threads", "1"});
  EXPECT_EQ(read("again.html"), page);
}

TEST_F(CliModel, ComparesTwoTextsAndTwoModels) {
  const Outcome texts = run({"look", "--model", encoder, "--text", "A causal mask.", "--other-text",
                             "A causal \"mask\".", "-o", "texts.html"});
  ASSERT_EQ(texts.exit_code, 0) << texts.err;
  EXPECT_THAT(read("texts.html"), AllOf(HasSubstr("id=\"head-0-7\""), HasSubstr("id=\"head-1-7\"")));
  const Outcome models =
      run({"look", "--model", encoder, "--text", "A mask.", "--other-model", decoder, "-o", "models.html"});
  ASSERT_EQ(models.exit_code, 0) << models.err;
  EXPECT_THAT(read("models.html"), HasSubstr("id=\"head-1-7\""));
}

/// A folder with a small model whose vocabulary is the words w0 to w59, some of which have other names.
std::string with_words(const std::string& model, const std::string& folder) {
  std::filesystem::copy(kModels + "/" + model, folder);
  json vocabulary;
  for (int i = 0; i < 60; ++i) vocabulary["w" + std::to_string(i)] = i;
  const json tokenizer{{"version", "1.0"},
                       {"added_tokens", json::array()},
                       {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                       {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "w0"}}}};
  std::ofstream(folder + "/tokenizer.json") << tokenizer;
  return folder;
}

TEST_F(CliModel, ShowsEncoderDecoders) {
  const std::string t5 = with_words("t5", path("t5"));
  const Outcome made = run({"look", "--model", t5, "--text", "w7 w8 w9", "-o", "made.html"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  // Cross-attention, encoder and decoder; 3 layers of 4 heads, and 2 of the encoder.
  for (const char* const part : {"id=\"head-0-11\"", "id=\"head-1-7\"", "id=\"head-2-11\""})
    EXPECT_THAT(read("made.html"), HasSubstr(part));
  EXPECT_THAT(read("made.html"), Not(HasSubstr("id=\"head-1-8\"")));
  const Outcome given =
      run({"look", "--model", t5, "--text", "w7 w8 w9", "--target", "w5 w6", "-o", "given.html"});
  ASSERT_EQ(given.exit_code, 0) << given.err;
  EXPECT_THAT(read("given.html"), HasSubstr("t5: 3 layers of 4 heads, 3 tokens"));  // the start token, w5, w6
  const Outcome answer =
      run({"generate", "--model", t5, "--prompt", "w7 w8 w9", "--max-new-tokens", "5", "--temperature", "0"});
  ASSERT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_TRUE(std::regex_search(answer.out, std::regex("^w[0-9]+ w[0-9]+"))) << answer.out;
  const Outcome ablated = run({"look", "--model", t5, "--text", "w7 w8 w9", "--ablate", "L0H1"});
  EXPECT_EQ(ablated.exit_code, 2);
  EXPECT_THAT(ablated.err, HasSubstr("the model is a t5, but only decoders have the loss of a text"));
}

TEST_F(CliModel, ShowsWhatAnAnswerRestsOn) {
  const auto page = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"look", "--gradient", "-o", "page.html", "--model"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return read("page.html");
  };
  for (const std::string& folder : {encoder, decoder})
    EXPECT_THAT(page({folder, "--text", "A causal mask."}),
                AllOf(HasSubstr("id=\"map-0-1\""), Not(HasSubstr("id=\"map-0-2\""))));
  // Of cross-attention there is one map, of the encoder and the decoder two.
  EXPECT_THAT(page({with_words("t5", path("t5")), "--text", "w7 w8", "--target", "w5 w6"}),
              AllOf(HasSubstr("id=\"map-0-0\""), Not(HasSubstr("id=\"map-0-1\"")), HasSubstr("id=\"map-1-1\""),
                    HasSubstr("id=\"map-2-1\"")));
  EXPECT_EQ(
      run({"look", "--gradient", "--model", decoder, "--text", std::string(200, 'x'), "-o", "p.html"}).exit_code,
      2);
}

/// A tone as a WAV file: 16-bit samples of one channel.
std::string tone(int rate, int samples) {
  std::string bytes;
  const auto number = [&](std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  };
  const auto size = static_cast<std::uint32_t>(2 * samples), hertz = static_cast<std::uint32_t>(rate);
  bytes += "RIFF", number(36 + size, 4), bytes += "WAVEfmt ", number(16, 4), number(1, 2), number(1, 2);
  number(hertz, 4), number(2 * hertz, 4), number(2, 2), number(16, 2), bytes += "data", number(size, 4);
  for (int i = 0; i < samples; ++i)
    number(static_cast<std::uint32_t>(static_cast<std::int32_t>(8000 * std::sin(0.2 * i))), 2);
  return bytes;
}

TEST_F(CliModel, ShowsWhatIsHeard) {
  const std::string whisper = with_words("whisper", path("whisper"));
  write("tone.wav", tone(16000, 1600));
  const std::vector<std::string> look{"look",     "--model",  whisper, "--audio",  "tone.wav",
                                      "--target", "w5 w6 w7", "-o",    "page.html"};
  const Outcome outcome = run(look);
  if (outcome.err.find("without libsndfile") != std::string::npos) GTEST_SKIP() << "this saccade reads no sound";
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(read("page.html"),
              AllOf(HasSubstr("id=\"head-0-8\""), HasSubstr("id=\"head-1-7\""), HasSubstr("4 tokens")));
  const Outcome text =
      run({"generate", "--model", whisper, "--audio", "tone.wav", "--max-new-tokens", "4", "--temperature", "0"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  write("tone.wav", tone(44100, 1600));
  EXPECT_THAT(run(look).err, HasSubstr("tone.wav has 44100 samples a second, but models of speech take 16000"));
  write("tone.wav", "no sound");
  EXPECT_EQ(run(look).exit_code, 2);
  EXPECT_THAT(run({"generate", "--model", whisper, "--prompt", "w1"}).err, HasSubstr("which hears: give --audio"));
}

TEST_F(CliModel, ShowsWhatIsSeen) {
#ifndef SACCADE_HAS_PNG
  GTEST_SKIP() << "this saccade reads no PNG";
#endif
  const std::vector<std::byte> png = png_of_svg(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"><rect width="15" height="20" fill="#08f"/></svg>)",
      1);
  write("picture.png", {reinterpret_cast<const char*>(png.data()), png.size()});
  const std::vector<std::string> look{"look",        "--model", kModels + "/vit", "--image",
                                      "picture.png", "-o",      "page.html"};
  const Outcome outcome = run(look);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(read("page.html"),
              AllOf(HasSubstr("id=\"head-0-7\""), HasSubstr("vit: 2 layers of 4 heads, 10 tokens")));
  write("picture.png", "no picture");
  EXPECT_THAT(run(look).err, HasSubstr("picture.png: not a PNG that can be read"));
  EXPECT_THAT(run({"look", "--model", kModels + "/vit", "--text", "a", "-o", "page.html"}).err,
              HasSubstr("the model is a vit, which does not read text"));
}

TEST_F(CliModel, ShowsLongTextsWithoutTheMatrix) {
  const std::string llama = with_words("llama", path("llama"));
  std::string text;
  for (int i = 0; i < 4500; ++i) text += "w" + std::to_string(i * 7 % 53) + " ";
  const Outcome outcome = run({"look", "--model", llama, "--text", "-", "--details", "L0H1", "--tile",
                               "L1H2:4000-4100:3900-4050", "-o", "page.html"},
                              {.standard_input = text});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string page = read("page.html");
  for (const char* const part : {"id=\"head-0-1\"", "id=\"top-0-1\"", "id=\"head-0-6\"", "id=\"tile-0-0\""})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("id=\"head-0-0\"")));
  for (const char* const tile : {"L1H2:4000-4500:0-1", "L1H2:9-3:0-1", "L1H2:4", "L9H9:0-1:0-1"})
    EXPECT_EQ(
        run({"look", "--model", llama, "--text", "-", "--tile", tile, "-o", "p.html"}, {.standard_input = text})
            .exit_code,
        2)
        << tile;
  EXPECT_THAT(run({"look", "--model", llama, "--text", "w1", "--tile", "L0H0:0-0:0-0", "-o", "p.html"}).err,
              HasSubstr("tiles are for texts of over 4096 tokens"));
}

TEST_F(CliModel, MeasuresWhatChangesWithoutHeads) {
  const std::vector<std::string> look{"look",           "--model", decoder,   "--text",
                                      "A causal mask.", "--json",  "--ablate"};
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
  const auto repeated_loss = [&](const char* text) {
    return run({"look", "--model", decoder, "--text", text, "--json", "--ablate", "L0H1"})
        .json()["before"]["repeated_loss"];
  };
  EXPECT_EQ(repeated_loss("xyz"), "nan");
  EXPECT_TRUE(repeated_loss("xyz qrk xyz qrk").is_number());
}

TEST_F(CliModel, MeasuresHowFarAnEmbeddingMovesWithoutHeads) {
  const auto cosine = [&](std::vector<std::string> heads) {
    std::vector<std::string> arguments{"look",           "--model", encoder,   "--text",
                                       "A causal mask.", "--json",  "--ablate"};
    arguments.insert(arguments.end(), heads.begin(), heads.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json()["cosine"].get<double>();
  };
  const double one = cosine({"L0H1"}), mean = cosine({"L0H1", "--mean"});
  EXPECT_LT(one, 0.99999);
  EXPECT_GT(one, -1.0);
  EXPECT_NE(mean, one);
  EXPECT_THAT(run({"look", "--model", encoder, "--text", "A causal mask.", "--ablate", "L0H1"}).out,
              HasSubstr("embedding  cosine"));
}

TEST_F(CliModel, PutsAnEncoderIntoAPage) {
  const auto look = [&](const std::string& model) {
    return run({"look", "--model", model, "--text", "A causal mask. ", "--live", "-o", "live.html"});
  };
  const Outcome outcome = look(encoder);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json about = index_of(read("live.html"))["model"];
  EXPECT_EQ(about["text"], "A causal mask. ");
  EXPECT_EQ(about["longest"], 40);
  EXPECT_EQ(about["tokens"], "word_pieces");

  std::filesystem::copy(encoder, path("large"));
  Safetensors saved = load_safetensors(path("large/model.safetensors"));
  const std::string name = "embeddings.LayerNorm.weight";
  saved.tensors.at(name).at<float>(3) = 65'521.0f;
  save_safetensors(path("large/model.safetensors"), saved);
  EXPECT_THAT(look(path("large")).err,
              HasSubstr("the tensor " + name + " has the weight 65521, but the page has"));
}

TEST_F(CliModel, PutsAnEncodersWeightsIntoAPageAsAsked) {
  const auto page = [&](const std::string& model, const std::string& weights) {
    const Outcome outcome = run({"look", "--model", model, "--text", "A causal mask.", "--live", "--live-weights",
                                 weights, "-o", weights + ".html"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return read(weights + ".html");
  };
  const std::string int8 = page(encoder, "int8");
  EXPECT_EQ(index_of(int8)["model"]["weights"]["dtype"], "int8");
  const std::vector<std::uint8_t> file = part_of(int8, "model-1");
  const Safetensors stored = parse_safetensors(std::as_bytes(std::span(file)));
  const Safetensors saved = load_safetensors(encoder + "/model.safetensors");
  int matrices = 0;
  for (const auto& [name, tensor] : saved.tensors) {
    const Tensor& numbers = stored.tensors.at(name);
    if (tensor.rank() < 2) {
      EXPECT_EQ(numbers.dtype(), is_floating(tensor.dtype()) ? DType::f16 : tensor.dtype()) << name;
      continue;
    }
    const Tensor exact = Tensor::copy_of(tensor, DType::f32),
                 again = dequantize(numbers, stored.tensors.at(name + ".scale"));
    const std::int64_t width = tensor.shape().back();
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto row = exact.values<float>().subspan(static_cast<std::size_t>(i / width * width),
                                                     static_cast<std::size_t>(width));
      float largest = 0.0f;
      for (const float weight : row) largest = std::max(largest, std::abs(weight));
      const auto at = static_cast<std::size_t>(i);
      ASSERT_LE(std::abs(exact.values<float>()[at] - again.values<float>()[at]), 0.00395f * largest) << name;
    }
    ++matrices;
  }
  EXPECT_GT(matrices, 10);

  const json asked = index_of(page(encoder, "file"))["model"];
  EXPECT_EQ(asked["files"], json({"config.json"}));
  const std::string weights = read(encoder + "/model.safetensors");
  EXPECT_EQ(asked["asked"]["size"], weights.size());
  EXPECT_EQ(asked["asked"]["crc32"],
            crc32_z(0, reinterpret_cast<const unsigned char*>(weights.data()), weights.size()));
  EXPECT_FALSE(index_of(int8)["model"].contains("asked"));

  // Only the files that the model consists of.
  std::filesystem::copy(encoder, path("stray"));
  Safetensors other;
  for (const auto& [name, tensor] : saved.tensors)
    other.tensors.emplace(name, Tensor(tensor.dtype(), tensor.shape()));
  save_safetensors(path("stray/adapter.safetensors"), other);
  EXPECT_EQ(part_of(page(path("stray"), "int8"), "model-1"), file);

  std::filesystem::copy(encoder, path("sharded"));
  json map;
  for (const auto& [name, tensor] : saved.tensors) map[name] = "part.safetensors";
  std::filesystem::rename(path("sharded/model.safetensors"), path("sharded/part.safetensors"));
  write("sharded/model.safetensors.index.json", json({{"weight_map", map}}).dump());
  EXPECT_EQ(part_of(page(path("sharded"), "int8"), "model-1"), file);
  EXPECT_THAT(
      run({"look", "--model", path("sharded"), "--text", "a", "--live", "--live-weights", "file", "-o", "p.html"})
          .err,
      HasSubstr("the folder has no model.safetensors, which the page's reader would choose"));
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
              HasSubstr("L2H0: the model has 2 layers of 4 heads"));
  EXPECT_THAT(error({"look", "--model", decoder, "--text", "a b", "--ablate", "17.4"}),
              HasSubstr("named as in L17H4"));
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a b", "--ablate", "L9H0"}),
              HasSubstr("L9H0: the model has"));
  EXPECT_THAT(error({"look", "--model", decoder, "--text", "a b", "--live", "-o", "p.html"}),
              HasSubstr("--live: the model is a"));
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a b", "--live"}),
              HasSubstr("--live needs -o PAGE.html"));
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a b", "--live", "--ablate", "L0H0"}),
              HasSubstr("--live needs -o PAGE.html"));
  const auto live_error = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"look", "--model", encoder, "--live", "-o", "p.html"});
    return error(more);
  };
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a", "-o", "p.html", "--live-weights", "int8"}),
              HasSubstr("--live-weights needs --live"));
  EXPECT_THAT(live_error({"--text", "a", "--live-weights", "int4"}), HasSubstr("--live-weights"));
  EXPECT_THAT(live_error({}), HasSubstr("--live needs --text, the text with which the page begins"));
  EXPECT_THAT(live_error({"--text", ""}), HasSubstr("--live: --text is empty"));
  EXPECT_THAT(live_error({"--text", "a", "--pair", "b"}), HasSubstr("reads one text, so --pair cannot be given"));
  EXPECT_THAT(error({"look", "--model", encoder, "--text", "a", "-o", "p.html", "--max-size", "0"}),
              HasSubstr("--max-size must be a number of megabytes above 0"));
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace saccade::test
