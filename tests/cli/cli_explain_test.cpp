// saccade explain, compared with published numbers for the same vectors.
#include <gmock/gmock.h>

#include <cmath>

#include "saccade/attention_modules.h"
#include "support/cli_support.h"
#include "support/published.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const json& six_tokens() { return published().at("six_tokens"); }

class ExplainTest : public CommandTest {
 protected:
  ExplainTest() {
    write("six.json", six_tokens().dump());
    save_npy(path("six.npy"), Tensor::copy_of(tensor_of(six_tokens().at("inputs")), DType::f32));
    write("six.csv", csv());
  }

  static std::string csv() {
    std::string text;
    for (std::size_t i = 0; i < 6; ++i) {
      text += six_tokens().at("tokens").at(i).get<std::string>();
      for (const json& number : six_tokens().at("inputs").at(i)) text += "," + number.dump();
      text += "\n";
    }
    return text;
  }

  /// The output of `saccade explain ARGUMENTS --json`.
  json explain(std::vector<std::string> arguments, const Surroundings& surroundings = {}) {
    arguments.insert(arguments.begin(), "explain");
    arguments.emplace_back("--json");
    const Outcome outcome = run(arguments, surroundings);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.json();
  }

  /// Compares numbers with those printed for the six tokens, within the published tolerance.
  static void expect_printed(const json& computed, const json& printed) {
    const std::vector<double> numbers = flat(computed);
    const std::vector<double> wanted = flat(printed);
    ASSERT_EQ(numbers.size(), wanted.size());
    const double tolerance = six_tokens().at("tolerance");
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(numbers[i], wanted[i], tolerance) << "number " << i;
  }

  /// Compares explained numbers with the module's, with the tolerance of the printed ones.
  static void expect_same(const json& explained, const Tensor& wanted) {
    expect_printed(explained,
                   json(std::vector<float>(wanted.values<float>().begin(), wanted.values<float>().end())));
  }

  void save_module(const std::string& name, const AttentionModule& module, bool with_buffers = false) {
    save_safetensors(path(name), {with_buffers ? module.published_state_dict() : module.state_dict(), {}});
  }
};

TEST_F(ExplainTest, SimpleForm) {
  const json result = explain({"six.json"});
  const json& simple = six_tokens().at("simple");
  EXPECT_EQ(result.at("tokens"), six_tokens().at("tokens"));
  EXPECT_EQ(result.at("key_tokens"), six_tokens().at("tokens"));
  EXPECT_EQ(result.at("scale"), 1);
  EXPECT_TRUE(result.at("module").is_null());
  ASSERT_EQ(result.at("heads").size(), 1u);
  const json& head = result.at("heads").at(0);
  EXPECT_EQ(head.at("q"), six_tokens().at("inputs"));
  expect_printed(head.at("scores"), simple.at("scores"));
  expect_printed(head.at("weights"), simple.at("weights"));
  expect_printed(head.at("contexts"), simple.at("contexts"));
}

TEST_F(ExplainTest, OneQueryByNameAndByPosition) {
  const json by_name = explain({"six.json", "--query", "journey"});
  EXPECT_EQ(by_name, explain({"six.json", "--query", "1"}));
  EXPECT_EQ(by_name.at("query"), 1);
  const json& head = by_name.at("heads").at(0);
  ASSERT_EQ(head.at("scores").size(), 1u);
  expect_printed(head.at("scores"), six_tokens().at("simple").at("scores_query_1"));
  expect_printed(head.at("weights"), six_tokens().at("simple").at("weights_query_1_softmax"));
  expect_printed(head.at("contexts"), six_tokens().at("simple").at("context_query_1"));
}

TEST_F(ExplainTest, TextShowsTheStepsAndTheHeatMap) {
  const Outcome all = run({"explain", "six.json"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_EQ(all.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(all.out, HasSubstr("journey  0.9544   1.4950  1.4754  0.8434  0.7070  1.0865"));
  EXPECT_THAT(all.out, HasSubstr("journey  0.4419  0.6515  0.5683"));
  EXPECT_THAT(all.out, HasSubstr("weight"));

  const Outcome one = run({"explain", "six.json", "--query", "journey"});
  EXPECT_THAT(one.out, HasSubstr("0.55×0.43 + 0.87×0.15 + 0.66×0.89"));
  EXPECT_THAT(one.out, HasSubstr("= [0.4419, 0.6515, 0.5683]"));
  EXPECT_THAT(one.out, Not(HasSubstr("0.9995")));  // another query's score
}

TEST_F(ExplainTest, NormalisedBySum) {
  const json result = explain({"six.json", "--query", "1", "--normalize", "sum"});
  expect_printed(result.at("heads").at(0).at("weights"),
                 six_tokens().at("simple").at("weights_query_1_sum_normalised"));
}

TEST_F(ExplainTest, ScaleNoneAutoAndNumber) {
  const json plain = explain({"six.json", "--scale", "none"});
  EXPECT_EQ(plain.at("scale"), 1);
  EXPECT_DOUBLE_EQ(explain({"six.json", "--scale", "auto"}).at("scale").get<double>(), 1 / std::sqrt(3.0));
  const json scaled = explain({"six.json", "--scale", "0.25"});
  const double score = plain.at("heads").at(0).at("scores").at(1).at(2);
  EXPECT_DOUBLE_EQ(scaled.at("heads").at(0).at("logits").at(1).at(2).get<double>(), 0.25 * score);
}

TEST_F(ExplainTest, ProjectionsAsPyTorchDrawsThem) {
  const json& example = six_tokens().at("self_attention_linear");
  const json plain = explain({"six.json", "--d-out", "2", "--seed", "789"});
  EXPECT_EQ(plain.at("module"), "SelfAttention");
  expect_printed(plain.at("heads").at(0).at("weights"), example.at("weights"));
  expect_printed(plain.at("heads").at(0).at("contexts"), example.at("out"));

  const json causal = explain({"six.json", "--d-out", "2", "--seed", "789", "--causal"});
  EXPECT_EQ(causal.at("module"), "CausalAttention");
  expect_printed(causal.at("heads").at(0).at("weights"), example.at("causal_weights"));
  EXPECT_EQ(causal.at("heads").at(0).at("logits").at(0).at(1), "-inf");
}

TEST_F(ExplainTest, SeveralHeadsThroughAnOutputProjection) {
  const json result = explain({"six.json", "--d-out", "2", "--seed", "123", "--heads", "2", "--causal"});
  EXPECT_EQ(result.at("module"), "MultiHeadAttention");
  EXPECT_EQ(result.at("heads").size(), 2u);
  expect_printed(result.at("output"), six_tokens().at("multi_head_attention").at("out_each_batch"));
  const json row =
      explain({"six.json", "--d-out", "2", "--seed", "123", "--heads", "2", "--causal", "--query", "step"});
  EXPECT_EQ(row.at("output").at(0), result.at("output").at(5));
}

TEST_F(ExplainTest, CheckpointOfPlainParameters) {
  TorchGenerator generator(123);
  save_module("W.safetensors",
              SelfAttention({.d_in = 3, .d_out = 2, .weight_layout = WeightLayout::in_out}, generator));
  const json& example = six_tokens().at("self_attention_parameters");
  const json head = explain({"six.json", "--params", "W.safetensors"}).at("heads").at(0);
  expect_printed(head.at("q").at(1), example.at("query_1"));
  expect_printed(head.at("scores").at(1), example.at("scores_query_1"));
  expect_printed(head.at("weights").at(1), example.at("weights_query_1"));
  expect_printed(head.at("contexts"), example.at("out"));
}

TEST_F(ExplainTest, CheckpointWithACausalBuffer) {
  TorchGenerator generator(123);
  save_module("W.safetensors", CausalAttention({.d_in = 3, .d_out = 2, .context_length = 6}, generator), true);
  const json result = explain({"six.json", "--params", "W.safetensors"});
  EXPECT_EQ(result.at("causal"), true);
  expect_printed(result.at("heads").at(0).at("contexts"),
                 six_tokens().at("causal_attention").at("out_each_batch"));
}

TEST_F(ExplainTest, CheckpointOfIndependentHeads) {
  TorchGenerator generator(123);
  save_module("W.safetensors", MultiHeadAttentionWrapper({.d_in = 3, .d_out = 2, .num_heads = 2}, generator));
  const json result = explain({"six.json", "--params", "W.safetensors"});
  expect_printed(result.at("output"), six_tokens().at("multi_head_wrapper").at("out_each_batch"));
}

TEST_F(ExplainTest, DropoutAsPublished) {
  TorchGenerator generator(789);
  save_module("W.safetensors", SelfAttention({.d_in = 3, .d_out = 2}, generator));
  const json result =
      explain({"six.json", "--params", "W.safetensors", "--causal", "--dropout", "0.5", "--seed", "123"});
  const json& example = six_tokens().at("self_attention_linear");
  expect_printed(result.at("heads").at(0).at("weights"), example.at("causal_weights"));
  expect_printed(result.at("heads").at(0).at("weights_after_dropout"),
                 example.at("dropout_half_of_causal_weights_seed_123"));
}

TEST_F(ExplainTest, AgreesWithTheModuleForSharedAndAppendedKeys) {
  TorchGenerator generator(5);
  MultiHeadAttention module(
      {.d_in = 3, .d_out = 8, .num_heads = 4, .num_kv_heads = 2, .qkv_bias = true, .add_bias_kv = true},
      generator);
  for (NamedParameter& parameter : module.parameters()) {
    if (parameter.name.starts_with("bias_")) {
      copy(generator.rand({1, 1, parameter.value.shape[2]}), parameter.value);
    }
  }
  save_module("W.safetensors", module);
  const json result = explain({"six.json", "--params", "W.safetensors", "--heads", "4"});
  EXPECT_EQ(result.at("key_tokens").back(), "(bias)");
  const Tensor x = load_npy(path("six.npy"));
  const ModuleOutput wanted = module.forward(x, {.weights = HeadWeights::per_head});
  expect_same(result.at("output"), wanted.output);
  for (std::int64_t head = 0; head < 4; ++head) {
    expect_same(result.at("heads").at(static_cast<std::size_t>(head)).at("weights"),
                Tensor::copy_of(wanted.weights.view().select(0, head)));
  }
}

TEST_F(ExplainTest, CrossAttention) {
  write("keys.json", R"({"tokens": ["un", "deux"], "inputs": [[1, 0, 0], [0, 1, 0]]})");
  const json result =
      explain({"six.json", "--keys", "keys.json", "--key-tokens", "eins,zwei", "--query", "journey"});
  EXPECT_THAT(result.at("key_tokens"), ElementsAre("eins", "zwei"));
  const std::vector<double> scores = flat(result.at("heads").at(0).at("scores"));
  EXPECT_THAT(scores, ElementsAre(static_cast<double>(0.55f), static_cast<double>(0.87f)));
}

TEST_F(ExplainTest, EveryFormatAndStandardInput) {
  const json wanted = explain({"six.json"});
  EXPECT_EQ(explain({"six.csv"}), wanted);
  EXPECT_EQ(explain({"-"}, {.standard_input = read("six.json")}), wanted);
  EXPECT_EQ(explain({"-"}, {.standard_input = csv()}), wanted);
  EXPECT_EQ(explain({"six.npy", "--tokens", "Your,journey,starts,with,one,step"}), wanted);
  EXPECT_THAT(explain({"six.npy"}).at("tokens"), ElementsAre("0", "1", "2", "3", "4", "5"));
}

TEST_F(ExplainTest, TokensWithCommasAndInAnyScript) {
  write("tokens.txt", "你的\nto day\na,b\nwith\n一\nstep\n");
  const json result = explain({"six.npy", "--tokens-file", "tokens.txt", "--query", "a,b"});
  EXPECT_THAT(result.at("tokens"), ElementsAre("你的", "to day", "a,b", "with", "一", "step"));
  EXPECT_EQ(result.at("query"), 2);
  EXPECT_EQ(explain({"six.npy", "--tokens-file", "-", "--query", "一"}, {.standard_input = read("tokens.txt")})
                .at("query"),
            4);
}

TEST_F(ExplainTest, ControlCharactersInTokensDoNotReachTheTerminal) {
  write("evil.json", R"({"tokens": ["\u001b[2J", "b"], "inputs": [[1, 0], [0, 1]]})");
  const Outcome text = run({"explain", "evil.json"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
}

TEST_F(ExplainTest, WritesBothPictures) {
#ifdef SACCADE_HAS_PNG
  const std::string lines = "lines.png", beginning = "\x89PNG";
#else
  const std::string lines = "lines.svg", beginning = "<svg";
#endif
  const Outcome outcome = run({"explain", "six.json", "-o", "map.svg", "--lines", lines});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(read("map.svg"), HasSubstr("<svg"));
  EXPECT_THAT(read("map.svg"), HasSubstr("journey"));
  EXPECT_THAT(read(lines), StartsWith(beginning));
}

TEST_F(ExplainTest, LongInputsAreShortened) {
  Tensor many(DType::f32, {300, 20});
  for (std::size_t i = 0; i < many.values<float>().size(); ++i)
    many.values<float>()[i] = static_cast<float>(i % 7);
  save_npy(path("many.npy"), many);
  const Outcome all = run({"explain", "many.npy"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_LT(all.out.size(), 50'000u);
  const Outcome one = run({"explain", "many.npy", "--query", "299"});
  EXPECT_THAT(one.out, HasSubstr("largest weights of 300"));
}

}  // namespace
}  // namespace saccade::test
