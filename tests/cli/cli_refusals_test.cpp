// Bad arguments and damaged files: each gives one line on standard error that names the fault, exit code 2, and an
// unchanged folder.
#include <gmock/gmock.h>

#include <algorithm>

#include "saccade/attention_modules.h"
#include "support/cli_support.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Arguments = std::vector<std::string>;

class RefusalTest : public CommandTest {
 protected:
  RefusalTest() {
    write("six.json", R"({"tokens": ["a", "b", "a"], "inputs": [[1, 2], [3, 4], [5, 6]]})");
    write("wide.json", R"([[1, 2, 3], [4, 5, 6]])");
    write("zero.json", R"([[1, 0], [-1, 0], [0, 1]])");
    write("names.txt", "a\nb\n");
    save("q.npy", {2, 5, 8});
    save("k.npy", {2, 9, 8});
    save("k4.npy", {1, 2, 9, 8});
    save("k7.npy", {2, 9, 7});
    save("heads3.npy", {3, 9, 8});
    save("mask.npy", {4, 9});
    save("row.npy", {9});
    save("batch.npy", {2, 3, 4, 4});
    save("long.npy", {129, 4});
    save_npy(path("ints.npy"), Tensor(DType::i32, {2, 5, 8}));
    save_npy(path("lengths.npy"), Tensor::of<std::int64_t>({10}));
    save_npy(path("scalar.npy"), Tensor(DType::i64, Shape{}));
    save_npy(path("negative.npy"), Tensor::of<float>({{-1.0f, 0.5f}, {0.5f, 0.5f}}));
    save_safetensors(path("plain.safetensors"), {SelfAttention({.d_in = 3, .d_out = 2}).state_dict(), {}});
    save_safetensors(path("heads.safetensors"),
                     {MultiHeadAttention({.d_in = 2, .d_out = 2, .num_heads = 2}).state_dict(), {}});
    save_safetensors(path("other.safetensors"), {{{"lm_head", Tensor(DType::f32, {2, 2})}}, {}});
    std::filesystem::create_directory(path("folder"));
  }

  void save(const std::string& name, const Shape& shape) { save_npy(path(name), Tensor(DType::f32, shape)); }

  /// The command fails with one line that starts as it should and contains `fault`, and changes no file.
  void expect_refusal(const Arguments& arguments, const std::string& fault,
                      const Surroundings& surroundings = {}) {
    std::string line = "saccade";
    for (const std::string& argument : arguments) line += " " + argument;
    SCOPED_TRACE(line);
    const auto before = files();
    const Outcome outcome = run(arguments, surroundings);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, StartsWith("saccade"));
    EXPECT_THAT(outcome.err, HasSubstr(fault));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_TRUE(outcome.err.ends_with('\n'));
    EXPECT_TRUE(files() == before) << "a file was written";
  }

  /// `saccade run` on valid tensors, with options changed or added, and with every output.
  static Arguments run_with(const std::map<std::string, std::string>& options) {
    std::map<std::string, std::string> all{{"--q", "q.npy"},      {"--k", "k.npy"},   {"--v", "k.npy"},
                                           {"--output", "o.npy"}, {"--lse", "l.npy"}, {"--weights", "w.npy"}};
    for (const auto& [name, value] : options) all[name] = value;
    Arguments arguments{"run"};
    for (const auto& [name, value] : all) arguments.push_back(name + "=" + value);
    return arguments;
  }

  static Arguments explain_with(Arguments more) {
    Arguments arguments{"explain", "-o", "map.svg", "--lines", "lines.png"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(RefusalTest, CommandLines) {
  expect_refusal({}, "expected a subcommand");
  expect_refusal({"fly"}, "fly");
  expect_refusal({"info", "twice"}, "twice");
  expect_refusal({"tour", "--lang", "fr"}, "--lang: fr not in {en,zh}");
  expect_refusal({"tour", "info"}, "info");
  expect_refusal({"run", "--q", "q.npy"}, "is required");
  expect_refusal({"run", "--q"}, "--q");
  expect_refusal(run_with({{"--colour", "red"}}), "--colour=red");
}

TEST_F(RefusalTest, CachesOfGenerate) {
  const auto generate = [](Arguments more) {
    Arguments arguments{"generate", "-m", "folder", "-p", "text"};
    std::ranges::copy(more, std::back_inserter(arguments));
    return arguments;
  };
  expect_refusal(generate({"--kv-cache-dtype", "int7"}),
                 "--kv-cache-dtype: expected float32, bfloat16, float16, int8");
  expect_refusal(generate({"--kv-cache-dtype-v", "i7"}), "--kv-cache-dtype-v: expected float32");
  expect_refusal(generate({"--kv-cache-rotate"}), "--kv-cache-rotate is for keys that are quantized");
  expect_refusal(generate({"--no-kv-cache-rotate"}), "are for models in Hugging Face folders");
}

TEST_F(RefusalTest, OptionsOfRun) {
  expect_refusal(run_with({{"--causal", "diagonal"}}), "--causal: diagonal not in");
  expect_refusal(run_with({{"--layout", "hbld"}}), "--layout: hbld not in");
  expect_refusal(run_with({{"--window", "3"}}), "--window: expected two whole numbers");
  expect_refusal(run_with({{"--window", "-2,0"}}), "got '-2,0'");
  expect_refusal(run_with({{"--scale", "nan"}}), "--scale: expected a number, got 'nan'");
  expect_refusal(run_with({{"--scale", "1e999"}}), "--scale: expected a number");
  expect_refusal(run_with({{"--softcap", "much"}}), "--softcap: expected 0 or a positive number, got 'much'");
  expect_refusal(run_with({{"--softcap", "-1"}}), "softcap");
  expect_refusal(run_with({{"--query-offset", "1.5"}}), "--query-offset: expected a whole number, got '1.5'");
  expect_refusal(run_with({{"--threads", "0"}}), "--threads: expected a whole number from 1 to 1024, got '0'");
  expect_refusal(run_with({{"--threads", "99999"}}), "--threads: expected a whole number from 1 to 1024");
}

TEST_F(RefusalTest, TensorsOfRun) {
  expect_refusal(run_with({{"--q", "nowhere.npy"}}), "nowhere.npy");
  expect_refusal(run_with({{"--q", "folder"}}), "folder");
  expect_refusal(run_with({{"--q", "ints.npy"}}), "--q: ints.npy holds i32, expected floating-point numbers");
  expect_refusal(run_with({{"--k", "ints.npy"}}),
                 "--k: ints.npy holds i32, expected floating-point numbers, i8 or f8e4m3");
  expect_refusal(run_with({{"--q", "row.npy"}}), "--q: row.npy has shape [9]");
  expect_refusal(run_with({{"--k", "k4.npy"}}), "3, 4 and 3 dimensions");
  expect_refusal(run_with({{"--k", "k7.npy"}}), "k has head_dim 7 but q has 8");
  expect_refusal(run_with({{"--v", "q.npy"}}), "v has seqlen 5 but k has 9");
  expect_refusal(run_with({{"--k", "heads3.npy"}, {"--v", "heads3.npy"}}), "heads");
  expect_refusal(run_with({{"--mask", "mask.npy"}}), "mask");
  expect_refusal(run_with({{"--kv-lengths", "lengths.npy"}}), "kv_lengths");
  expect_refusal(run_with({{"--q", "-"}, {"--k", "-"}}), "--q and --k cannot both be read from standard input");
}

TEST_F(RefusalTest, TensorsOfSafetensorsFiles) {
  expect_refusal(run_with({{"--q", "plain.safetensors"}}), "--q: plain.safetensors:NAME expected; it holds W_key");
  expect_refusal(run_with({{"--q", "plain.safetensors:q"}}), "--q: plain.safetensors has no tensor 'q'; it holds");
  expect_refusal(run_with({{"--q", "nowhere.safetensors:q"}}), "nowhere.safetensors");
  expect_refusal(run_with({{"--q", "other.safetensors:lm_head"}, {"--output", "other.safetensors"}}),
                 "--q and --output name the same file");
}

TEST_F(RefusalTest, OptionsOfRunThatWantTensors) {
  expect_refusal(run_with({{"--dtype", "f8"}}), "--dtype: f8 not in {f32,f64,bf16,f16}");
  expect_refusal(run_with({{"--dropout", "often"}}), "--dropout: expected a probability below 1, got 'often'");
  expect_refusal(run_with({{"--dropout", "1"}}), "--dropout: expected a probability below 1");
  expect_refusal(run_with({{"--seed", "1"}}), "--seed needs --dropout");
  expect_refusal(run_with({{"--alibi", "row.npy"}}), "alibi_slopes");
  expect_refusal(run_with({{"--sinks", "row.npy"}}), "sinks");
  expect_refusal(run_with({{"--block-size", "8x8"}}), "--block-size needs --block-mask");
  expect_refusal(run_with({{"--block-mask", "mask.npy"}, {"--block-size", "8"}}),
                 "--block-size: expected two whole numbers from 1 on with x");
  expect_refusal(run_with({{"--block-mask", "mask.npy"}}), "block_mask must be bool");
  expect_refusal(run_with({{"--score-stage", "raw"}}), "--score-stage needs --scores");
  expect_refusal(run_with({{"--scores", "w.npy"}}), "name the same file");
}

TEST_F(RefusalTest, PackedBatchesAndPagesOfRun) {
  expect_refusal(run_with({{"--cu-seqlens-q", "lengths.npy"}}),
                 "--cu-seqlens-q needs --cu-seqlens-k or --block-table");
  expect_refusal(run_with({{"--cu-seqlens-k", "lengths.npy"}}), "--cu-seqlens-k needs --cu-seqlens-q");
  expect_refusal(run_with({{"--cu-seqlens-q", "row.npy"}}),
                 "--cu-seqlens-q: row.npy holds f32, expected integers");
  expect_refusal(run_with({{"--cu-seqlens-q", "ints.npy"}, {"--cu-seqlens-k", "ints.npy"}}),
                 "--cu-seqlens-q has shape [2, 5, 8]");
  expect_refusal(
      run_with({{"--q", "k.npy"}, {"--cu-seqlens-q", "lengths.npy"}, {"--cu-seqlens-k", "lengths.npy"}}),
      "cu_seqlens_q must begin with 0");
  for (const char* const option : {"--cu-seqlens-k", "--block-table", "--kv-lengths", "--mask"})
    expect_refusal(run_with({{option, "scalar.npy"}}), std::string(option) + " has no dimensions");
  expect_refusal(run_with({{"--block-table", "lengths.npy"}}), "--block-table has shape [1] and --k [2, 9, 8]");
}

TEST_F(RefusalTest, OutputsOfRun) {
  expect_refusal(run_with({{"--output", "nowhere/o.npy"}}), "--output: there is no folder nowhere");
  expect_refusal(run_with({{"--output", "folder"}}), "--output: folder is a folder");
  expect_refusal(run_with({{"--output", "folder/../q.npy"}}), "--q and --output name the same file");
  expect_refusal(run_with({{"--lse", "o.npy"}}), "--output and --lse name the same file");
  expect_refusal(run_with({{"--output", "-"}}), "--output needs a file");
  expect_refusal(run_with({{"--weights", "nowhere/w.npy"}}), "--weights: there is no folder nowhere");
}

TEST_F(RefusalTest, AnInstructionSetThatIsNotThere) {
  expect_refusal(run_with({}), "SACCADE_ISA", {.environment = {{"SACCADE_ISA", "mmx"}}});
}

TEST_F(RefusalTest, QueriesOfExplain) {
  expect_refusal(explain_with({"six.json", "--query", "c"}), "no token 'c'; the tokens are: 0 a, 1 b, 2 a");
  expect_refusal(explain_with({"six.json", "--query", "a"}),
                 "'a' occurs more than once, give its position; the tokens");
  expect_refusal(explain_with({"six.json", "--query", "3"}),
                 "positions go from 0 to 2; the tokens are: 0 a, 1 b, 2 a");
  expect_refusal(explain_with({"six.json", "--query", "-1"}), "positions go from 0 to 2");
  expect_refusal(explain_with({"six.json", "--tokens", "x,y,1", "--query", "1"}),
                 "both a position and the token at");
}

TEST_F(RefusalTest, OptionsOfExplain) {
  expect_refusal(explain_with({"six.json", "--tokens", "a,b"}), "--tokens names 2 tokens, but there are 3");
  expect_refusal(explain_with({"six.json", "--tokens-file", "names.txt"}), "--tokens-file names 2 tokens");
  expect_refusal(explain_with({"six.json", "--tokens", "a,b,c", "--tokens-file", "names.txt"}),
                 "excludes --tokens");
  expect_refusal(explain_with({"six.json", "--key-tokens", "a,b,c"}), "--key-tokens needs --keys");
  expect_refusal(explain_with({"six.json", "--normalize", "max"}), "--normalize: max not in {softmax,sum}");
  expect_refusal(explain_with({"six.json", "--scale", "big"}),
                 "--scale: expected none, auto or a number, got 'big'");
  expect_refusal(explain_with({"six.json", "--heads", "2"}), "--heads needs --params or --d-out");
  expect_refusal(explain_with({"six.json", "--seed", "1"}), "--seed needs --d-out or --dropout");
  expect_refusal(explain_with({"six.json", "--dropout", "1"}), "--dropout: expected a probability");
  expect_refusal(explain_with({"six.json", "--d-out", "0"}), "--d-out: expected a whole number of at least 1");
  expect_refusal(explain_with({"six.json", "--d-out", "3", "--heads", "2"}), "d_out 3 and num_heads 2");
  expect_refusal(explain_with({"six.json", "--d-out", "2", "--params", "plain.safetensors"}), "excludes");
  expect_refusal(explain_with({"-", "--keys", "-"}), "cannot both be read from standard input");
  expect_refusal({"explain", "six.json", "-o", "map.jpg"}, "--output needs a name that ends in .svg or .png");
  expect_refusal({"explain", "six.json", "-o", "m.svg", "--lines", "m.svg"}, "name the same file, m.svg");
  expect_refusal({"explain", "six.json", "-o", "six.svg/x.svg"}, "there is no folder six.svg");
}

TEST_F(RefusalTest, InputsOfExplain) {
  expect_refusal(explain_with({"nowhere.json"}), "nowhere.json");
  expect_refusal(explain_with({"six.json", "--keys", "wide.json"}),
                 "the keys have 3 numbers each, but the tokens have 2");
  expect_refusal(explain_with({"zero.json", "--normalize", "sum"}), "add up to 0");
  expect_refusal(explain_with({"six.json", "--params", "plain.safetensors"}),
                 "the tokens have 2 numbers each, but the SelfAttention takes 3");
  expect_refusal(explain_with({"six.json", "--params", "heads.safetensors"}), "--heads must say how many");
  expect_refusal(explain_with({"six.json", "--params", "heads.safetensors", "--heads", "3"}), "num_heads 3");
  expect_refusal(explain_with({"six.json", "--params", "other.safetensors"}), "no attention module");
  // If one picture cannot be drawn, the other is not written either.
  expect_refusal({"explain", "long.npy", "-o", "map.svg", "--lines", "lines.svg"}, "128");
}

TEST_F(RefusalTest, HeatmapsThatCannotBe) {
  expect_refusal({"heatmap", "negative.npy", "--style", "lines"}, "--style lines needs -o");
  expect_refusal({"heatmap", "negative.npy", "--style", "lines", "-o", "w.svg"}, "negative");
  expect_refusal({"heatmap", "negative.npy", "--style", "dots"}, "--style: dots not in {cells,lines}");
  expect_refusal({"heatmap", "negative.npy", "--labels", "a", "-o", "w.svg"}, "--labels names 1 tokens");
  expect_refusal({"heatmap", "negative.npy", "-o", "w.gif"}, "--output needs a name that ends in .svg or .png");
  expect_refusal({"heatmap", "row.npy", "-o", "w.svg"}, "row.npy has shape [9]");
  expect_refusal({"heatmap", "batch.npy", "-o", "w.svg"}, "batch of 2");
  expect_refusal({"heatmap", "long.npy", "--style", "lines", "-o", "w.svg"}, "128");
  expect_refusal({"heatmap", "-", "--labels-file", "-", "-o", "w.svg"}, "cannot both be read from standard input");
}

// A .npy file, version 1.0, with this header and `bytes` bytes of numbers.
std::string npy(const std::string& header, std::size_t bytes) {
  std::string text = "\x93NUMPY";
  text += '\x01';
  text += '\0';
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  return text + header + std::string(bytes, '\0');
}

std::string npy_of(const std::string& descr, const std::string& shape, std::size_t bytes) {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n", bytes);
}

// A safetensors file with this header and `bytes` bytes of numbers.
std::string safetensors(const std::string& header, std::size_t bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text + header + std::string(bytes, '\0');
}

struct DamagedFile {
  std::string contents;
  std::string fault;
};

TEST_F(RefusalTest, DamagedNpyFiles) {
  const std::string good = npy_of("<f4", "(2, 5, 8)", 320);
  std::string future = good;
  future[6] = 9;
  const std::vector<DamagedFile> damaged{
      {"", "npy"},
      {"PNG, says its name", "npy"},
      {good.substr(0, 9), "bad.npy"},
      {good.substr(0, 40), "bad.npy"},
      {good.substr(0, good.size() - 6), "314"},
      {good + "more", "324"},
      {future, "9"},
      {npy("[1, 2, 3]\n", 320), "bad.npy"},
      {npy("{'descr': '<f4', 'shape': (2, 5, 8)}\n", 320), "fortran_order"},
      {npy_of("<U5", "(2, 5, 8)", 1600), "<U5"},
      {npy_of("|O", "(2, 5, 8)", 640), "|O"},
      {npy_of("<f4", "(-2, 5, 8)", 320), "bad.npy"},
      {npy_of("<f4", "(9223372036854775807, 9223372036854775807)", 320), "bad.npy"},
      {npy_of("<f4", "(99999999999999999999999,)", 320), "bad.npy"},
      {npy_of("<f4", "(1000000000, 8)", 320), "bad.npy"},
      {npy_of("<f4", "(1, 1, 1, 1, 1, 1, 1, 80)", 320), "bad.npy"},
  };
  for (const DamagedFile& file : damaged) {
    write("bad.npy", file.contents);
    expect_refusal(run_with({{"--q", "bad.npy"}}), file.fault);
    expect_refusal({"heatmap", "bad.npy", "-o", "w.svg"}, file.fault);
    expect_refusal({"explain", "bad.npy", "-o", "map.png"}, file.fault);
  }
}

TEST_F(RefusalTest, DamagedSafetensorsFiles) {
  const std::string good = R"({"W_query": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}})";
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"W_query": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets +
           "}}";
  };
  std::string lying = safetensors(good, 16);
  lying[6] = '\x7f';
  const std::vector<DamagedFile> damaged{
      {"", "bad.safetensors"},
      {"12345", "bad.safetensors"},
      {lying, "bad.safetensors"},
      {safetensors("W_query: yes", 16), "bad.safetensors"},
      {safetensors(good.substr(0, 30), 16), "bad.safetensors"},
      {safetensors(tensor("F33", "[2, 2]", "[0, 16]"), 16), "F33"},
      {safetensors(tensor("F32", "[2, 3]", "[0, 16]"), 16), "W_query"},
      {safetensors(tensor("F32", "[2, 2]", "[0, 99]"), 16), "W_query"},
      {safetensors(tensor("F32", "[2, 2]", "[16, 0]"), 16), "W_query"},
      {safetensors(tensor("F32", "[-2, -2]", "[0, 16]"), 16), "W_query"},
      {safetensors(tensor("F32", "[4294967296, 4294967296]", "[0, 16]"), 16), "overflows"},
      {safetensors(good, 20), "bad.safetensors"},
      {safetensors(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, )"
                   R"("b": {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]}})",
                   24),
       "bad.safetensors"},
  };
  for (const DamagedFile& file : damaged) {
    write("bad.safetensors", file.contents);
    expect_refusal(explain_with({"six.json", "--params", "bad.safetensors"}), file.fault);
  }
}

TEST_F(RefusalTest, DamagedJsonAndCsvFiles) {
  const std::vector<DamagedFile> json{
      {"", "bad.json"},
      {R"({"tokens": ["a"], "inputs": [[1, 2)", "bad.json"},
      {R"({"tokens": ["a"]})", "inputs"},
      {R"({"tokens": ["a"], "inputs": [[1, 2], [3]]})", "bad.json"},
      {R"({"tokens": ["a"], "inputs": [[1, "two"]]})", "bad.json"},
      {R"({"tokens": ["a", "b"], "inputs": [[1, 2]]})", "tokens"},
      {R"({"tokens": [1], "inputs": [[1, 2]]})", "tokens"},
      {R"({"inputs": [[1, 1e999]]})", "bad.json"},
      {R"({"inputs": [[1, 1e300]]})", "bad.json"},
      {R"({"inputs": [[1, null]]})", "bad.json"},
      {R"({"inputs": []})", "bad.json"},
      {R"({"inputs": [[]]})", "bad.json"},
      {R"({"inputs": [[[1]]]})", "bad.json"},
      {"{\"tokens\": [\"\xff\"], \"inputs\": [[1, 2]]}", "bad.json"},
      {R"({"inputs": [[1, 2]]} and more)", "bad.json"},
      {std::string(100'000, '['), "bad.json"},
  };
  for (const DamagedFile& file : json) {
    write("bad.json", file.contents);
    expect_refusal(explain_with({"bad.json"}), file.fault);
  }
  for (const char* csv : {"", "a,1,2\nb,3\n", "a,1,2\nb,three,4\n", "a,1,inf\n"}) {
    write("bad.csv", csv);
    expect_refusal(explain_with({"bad.csv"}), "bad.csv");
  }
}

}  // namespace
}  // namespace saccade::test
