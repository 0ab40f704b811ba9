// saccade run with every element type and the options with tensors: equal to the library's bits, and in agreement
// with the reference.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "saccade/attention_options.h"
#include "saccade/decode.h"
#include "saccade/random.h"
#include "saccade/runtime.h"
#include "support/cli_support.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CliRunTest : public CommandTest {
 protected:
  Tensor draw(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
    const Tensor tensor = Tensor::copy_of(random_.randn(shape), dtype);
    save(name, tensor);
    return tensor;
  }

  void save(const std::string& name, const Tensor& tensor) { save_npy(path(name + ".npy"), tensor); }

  Tensor integers(const std::string& name, const Shape& shape, const std::vector<std::int64_t>& numbers) {
    Tensor tensor(DType::i64, shape);
    std::ranges::copy(numbers, tensor.values<std::int64_t>().begin());
    save(name, tensor);
    return tensor;
  }

  /// Runs with a check of every result, which must pass.
  json run_checked(std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", "-o", "o.npy", "--check", "--json", "--threads", "2"};
    for (const char* name : {"q", "k", "v"}) {
      if (std::ranges::count(more, std::string("--") + name) > 0) continue;
      arguments.insert(arguments.end(), {std::string("--") + name, std::string(name) + ".npy"});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    outcome_ = run(arguments);
    EXPECT_EQ(outcome_.exit_code, 0) << outcome_.err;
    return outcome_.exit_code == 0 ? outcome_.json() : json();
  }

  void expect_same_bits(const std::string& file, const Tensor& wanted) {
    const Tensor found = load_npy(path(file + ".npy"));
    ASSERT_EQ(found.shape(), wanted.shape());
    ASSERT_EQ(found.dtype(), wanted.dtype());
    const auto bytes = [](const Tensor& tensor) {
      return std::span(static_cast<const std::byte*>(tensor.data()), tensor.bytes());
    };
    EXPECT_TRUE(std::ranges::equal(bytes(found), bytes(wanted))) << file;
  }

  TorchGenerator random_{1};
  Outcome outcome_;
};

TEST_F(CliRunTest, HelpHasEveryOptionOfTheTable) {
  const std::string help = run({"run", "--help"}).out;
  for (const AttentionOption& option : kAttentionOptions)
    EXPECT_THAT(help, HasSubstr("\n  " + option.command_name()));
}

TEST_F(CliRunTest, TakesQuantizedKeysAndValues) {
  const Tensor q = draw("q", {4, 5, 8}), of_tokens = draw("ks", {2, 9, 1}), of_channels = draw("vs", {8});
  Tensor k(DType::i8, {2, 9, 8});
  std::iota(k.values<std::int8_t>().begin(), k.values<std::int8_t>().end(), std::int8_t{-70});
  save("k", k), save("v", k);
  run_checked({"--k-scale", "ks.npy", "--v-scale", "vs.npy", "--dtype", "f32"});
  expect_same_bits("o", attention(q, k, k, {.k_scale = of_tokens, .v_scale = of_channels}));
}

TEST_F(CliRunTest, TakesInputsAsTheyAreStored) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor q = draw("q", {2, 5, 8}, dtype), k = draw("k", {2, 9, 8}, dtype), v = draw("v", {2, 9, 6}, dtype);
    Tensor lse(dtype == DType::f64 ? DType::f64 : DType::f32, {2, 5});
    const json report = run_checked({"--lse", "lse.npy"});
    expect_same_bits("o", attention(q, k, v, {.lse = lse}));
    expect_same_bits("lse", lse);
    EXPECT_EQ(report.at("dtype"), name_of(dtype));
    EXPECT_EQ(outcome_.err.find("converted"), std::string::npos);
  }
}

TEST_F(CliRunTest, ConvertsWhereItIsAskedTo) {
  const Tensor q = draw("q", {5, 8}), k = draw("k", {9, 8}), v = draw("v", {9, 8});
  run_checked({"--dtype", "f64"});
  EXPECT_THAT(outcome_.err, HasSubstr("saccade run: --q is f32, converted to f64\n"));
  const auto in = [](const Tensor& tensor, DType dtype) { return Tensor::copy_of(tensor, dtype); };
  expect_same_bits("o", attention(in(q, DType::f64), in(k, DType::f64), in(v, DType::f64)));
}

TEST_F(CliRunTest, WritesBf16AsF32AndSaysSo) {
  const Tensor q = draw("q", {3, 40, 32}), k = draw("k", {3, 70, 32}), v = draw("v", {3, 70, 32});
  run_checked({"--dtype", "bf16"});
  EXPECT_THAT(outcome_.err, HasSubstr("o is bf16, written as f32"));
  const auto short_of = [](const Tensor& tensor) { return Tensor::copy_of(tensor, DType::bf16); };
  expect_same_bits("o", Tensor::copy_of(attention(short_of(q), short_of(k), short_of(v)), DType::f32));
}

TEST_F(CliRunTest, ReadsTensorsOfSafetensorsFilesByName) {
  const Tensor q = draw("q", {5, 8}, DType::f32);
  const Tensor k = Tensor::copy_of(random_.randn({9, 8}), DType::bf16);
  const Tensor v = Tensor::copy_of(random_.randn({9, 8}), DType::bf16);
  save_safetensors(path("kv.safetensors"), {{{"layer.0:k", k}, {"layer.0:v", v}}, {}});
  run_checked({"--k", "kv.safetensors:layer.0:k", "--v", "kv.safetensors:layer.0:v"});
  expect_same_bits("o", attention(q, k, v));
}

TEST_F(CliRunTest, TakesBiasesSinksAndDropout) {
  const Tensor q = draw("q", {2, 6, 20, 16}), k = draw("k", {2, 3, 30, 16}), v = draw("v", {2, 3, 30, 16});
  const Tensor sinks = draw("sinks", {6}), slopes = draw("slopes", {6});
  const Tensor standard = alibi_slopes(6);
  run_checked({"--alibi", "--sinks", "sinks.npy", "--dropout", "0.25", "--seed", "7"});
  expect_same_bits(
      "o", attention(q, k, v, {.alibi_slopes = standard, .sinks = sinks, .dropout_p = 0.25, .dropout_seed = 7}));
  run_checked({"--alibi", "slopes.npy"});
  expect_same_bits("o", attention(q, k, v, {.alibi_slopes = slopes}));
}

TEST_F(CliRunTest, CountsTheOperationsOfThePairsThatAreSeen) {
  const auto expect_pairs = [&](double pairs, const std::vector<std::string>& arguments) {
    const json report = run_checked(arguments);
    const double operations = report.at("gflops").get<double>() * report.at("seconds").get<double>() * 1e9;
    EXPECT_NEAR(operations, 2 * pairs * (8 + 6), 1e-6 * pairs) << ::testing::PrintToString(arguments);
  };
  draw("q", {2, 4, 1, 8}), draw("k", {2, 2, 90, 8}), draw("v", {2, 2, 90, 6});
  expect_pairs(2 * 4 * 90, {"--decode"});
  expect_pairs(2 * 4 * 90, {"--decode", "--causal", "bottom-right"});
  expect_pairs(2 * 4 * 1, {"--causal", "top-left"});
  integers("lengths", {2}, {70, 9});
  expect_pairs(4 * (70 + 9), {"--decode", "--causal", "bottom-right", "--kv-lengths", "lengths.npy"});
  expect_pairs(4 * (21 + 9), {"--causal", "bottom-right", "--kv-lengths", "lengths.npy", "--window", "20,0"});
  draw("q", {50, 8}), draw("k", {50, 8}), draw("v", {50, 6});
  expect_pairs(50 * 51 / 2, {"--causal", "top-left"});
  expect_pairs(10 * 11 / 2 + 40 * 11, {"--causal", "top-left", "--window", "10,-1"});
  draw("q", {50, 3, 8}), draw("k", {50, 3, 8}), draw("v", {50, 3, 6});
  integers("begins", {4}, {0, 10, 10, 50});
  expect_pairs(3 * (10 * 11 / 2 + 40 * 41 / 2),
               {"--causal", "top-left", "--cu-seqlens-q", "begins.npy", "--cu-seqlens-k", "begins.npy"});
}

TEST_F(CliRunTest, TakesBlockMasks) {
  const Tensor q = draw("q", {2, 70, 8}), k = draw("k", {2, 90, 8}), v = draw("v", {2, 90, 8});
  Tensor blocks(DType::boolean, {3, 2});
  for (const std::size_t i : {0U, 3U, 4U}) blocks.values<bool>()[i] = true;
  save("blocks", blocks);
  run_checked({"--block-mask", "blocks.npy", "--block-size", "32x50"});
  expect_same_bits("o", attention(q, k, v, {.block_mask = blocks, .block_mask_q = 32, .block_mask_k = 50}));
}

TEST_F(CliRunTest, TakesPackedBatches) {
  const Tensor q = draw("q", {12, 4, 8}), k = draw("k", {20, 2, 8}), v = draw("v", {20, 2, 8});
  const Tensor begins_q = integers("cq", {4}, {0, 5, 5, 12}), begins_k = integers("ck", {4}, {0, 3, 9, 20});
  Tensor lse(DType::f32, {4, 12}), weights(DType::f32, {4, 12, 11});
  const json report = run_checked({"--cu-seqlens-q", "cq.npy", "--cu-seqlens-k", "ck.npy", "--causal",
                                   "bottom-right", "--lse", "lse.npy", "--weights", "w.npy"});
  expect_same_bits("o", attention(q, k, v,
                                  {.causal = Causal::bottom_right,
                                   .cu_seqlens_q = begins_q,
                                   .cu_seqlens_k = begins_k,
                                   .lse = lse,
                                   .weights = weights}));
  expect_same_bits("lse", lse);
  expect_same_bits("w", weights);
  EXPECT_EQ(report.at("checks").size(), 3u);
}

TEST_F(CliRunTest, DecodesPages) {
  const Tensor q = draw("q", {2, 4, 1, 16});
  const Tensor k = draw("k", {7, 2, 4, 16}, DType::f16), v = draw("v", {7, 2, 4, 16}, DType::f16);
  const Tensor pages = Tensor::copy_of(integers("pages", {2, 3}, {6, 0, 3, 2, 5, -1}), DType::i32);
  const Tensor lengths = integers("lengths", {2}, {11, 8});
  const AttentionOptions options{.causal = Causal::bottom_right, .kv_lengths = lengths, .block_table = pages};
  const std::vector<std::string> arguments{"--block-table", "pages.npy",    "--kv-lengths", "lengths.npy",
                                           "--causal",      "bottom-right", "--decode"};
  run_checked(arguments);
  expect_same_bits("o", decode(q, k, v, options));
}

TEST_F(CliRunTest, WritesScoresAtEveryStage) {
  const Tensor q = draw("q", {2, 5, 8}), k = draw("k", {2, 9, 8}), v = draw("v", {2, 9, 8});
  const std::map<std::string, ScoreStage> stages{{"raw", ScoreStage::raw},
                                                 {"softcapped", ScoreStage::softcapped},
                                                 {"biased", ScoreStage::biased},
                                                 {"probabilities", ScoreStage::probabilities}};
  for (const auto& [name, stage] : stages) {
    SCOPED_TRACE(name);
    Tensor scores(DType::f32, {2, 5, 9});
    const json report = run_checked(
        {"--softcap", "2", "--causal", "bottom-right", "--scores", "scores.npy", "--score-stage", name});
    attention(q, k, v, {.softcap = 2, .causal = Causal::bottom_right, .scores = scores, .score_stage = stage});
    expect_same_bits("scores", scores);
    EXPECT_EQ(report.at("checks").at(2).at("result"), "scores");
  }
}

}  // namespace
}  // namespace saccade::test
