#include <gmock/gmock.h>

#include <cmath>

#include "io/io_fixtures.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using namespace std::string_literals;

const Reader kReadJson = [](std::span<const std::byte> bytes) { parse_json(as_text(bytes), "q.json"); };
const Reader kReadCsv = [](std::span<const std::byte> bytes) { parse_csv(as_text(bytes), "q.csv"); };
const Reader kReadAny = [](std::span<const std::byte> bytes) { parse_token_embeddings(bytes, "q"); };

void expect_fixture(const TokenEmbeddings& got, const std::vector<std::string>& tokens) {
  EXPECT_EQ(got.tokens, tokens);
  expect_same(got.inputs, fixture_matrix(DType::f32));
}

TEST(Json, ReadsTokensAndRows) {
  expect_fixture(load_json(fixture("json/rows.json")), {});
  expect_fixture(load_json(fixture("json/tokens.json")), {"a", "\u6ce8\U0001f600"});
  expect_fixture(load_json(fixture("json/other_keys.json")), {});
  expect_fixture(parse_json(R"({"inputs":[[0,1,2],[3,4,5]],"tokens":["",""]})"), {"", ""});
  const std::string deep(100'000, '[');
  expect_fixture(parse_json("{\"x\":" + deep + std::string(100'000, ']') + R"(,"inputs":[[0,1,2],[3,4,5]]})"), {});
}

TEST(Json, RoundsNumbersToTheNearestFloat) {
  const Tensor inputs = parse_json("[[0.1, -0.0, 1e-300, 16777217, 18446744073709551615, 3.4028235e38]]").inputs;
  EXPECT_THAT(inputs.values<float>(),
              ElementsAre(0.1F, 0.0F, 0.0F, 16777216.0F, 18446744073709551616.0F, 3.4028235e38F));
}

TEST(Json, RefusesDamagedDocuments) {
  const std::string tokens = R"({"tokens":["a","b"],)";
  expect_refused(
      kReadJson,
      {
          {"", "is not valid JSON"},
          {"{", "is not valid JSON, byte 1: line 1, column 2: syntax error"},
          {"[[1,2],[3,4]", "is not valid JSON"},
          {"[[1,2],[3,4]] x", "is not valid JSON, byte 14"},
          {"[[1,2],[3,NaN]]", "is not valid JSON, byte 10"},
          {"[[1,2],[3,Infinity]]", "is not valid JSON"},
          {"[[1,2],[3,1e999]]", "number overflow"},
          {"[[1,2],[3,0x4]]", "is not valid JSON"},
          {"[[1,2],[3,4],]", "is not valid JSON"},
          {"\"\xff\"", "is not valid JSON"},
          {"\x93NUMPY", "is not valid JSON"},
          {"\xff\xfe[\0"s, "is not valid JSON"},
          {"\"" + std::string(100'000, 'x'), "is not valid JSON"},
          {std::string(100'000, '['), "inputs[0][0] is an array where a number was expected"},
          {"null", "the document is null where an object or an array of rows of numbers was expected"},
          {"7", "the document is 7 where an object"},
          {"\"text\"", "the document is 'text' where an object"},
          {"[]", "\"inputs\" holds no numbers"},
          {"[[],[]]", "\"inputs\" holds no numbers"},
          {"[1,2]", "inputs[0] is 1 where a row, an array of numbers, was expected"},
          {"[[1],null]", "inputs[1] is null where a row"},
          {"[{}]", "inputs[0] is an object where a row"},
          {"[[1,2],[3,null]]", "inputs[1][1] is null where a number was expected"},
          {"[[1,2],[3,\"4\"]]", "inputs[1][1] is '4' where a number was expected"},
          {"[[1,2],[3,true]]", "inputs[1][1] is true where a number was expected"},
          {"[[1,2],[3,{}]]", "inputs[1][1] is an object where a number was expected"},
          {"[[1,2],[3,1e300]]", "inputs[1][1] is 1e+300, too large for f32"},
          {"[[1,2],[3]]", "inputs[1] has 1 numbers but inputs[0] has 2"},
          {"[[1,2],[]]", "inputs[1] has 0 numbers but inputs[0] has 2"},
          {"[[],[1]]", "inputs[1] has 1 numbers but inputs[0] has 0"},
          {"{}", "has no \"inputs\""},
          {tokens + R"("x":1})", "has no \"inputs\""},
          {tokens + R"("inputs":[[1]]})", "has 2 tokens but 1 rows of inputs"},
          {R"({"tokens":[],"inputs":[[1]]})", "has 0 tokens but 1 rows of inputs"},
          {tokens + R"("tokens":["a"]})", "has \"tokens\" twice"},
          {R"({"inputs":[[1]],"inputs":[[1]]})", "has \"inputs\" twice"},
          {R"({"inputs":{}})", "\"inputs\" is an object where an array of rows of numbers was expected"},
          {R"({"inputs":"x"})", "\"inputs\" is 'x' where an array of rows of numbers was expected"},
          {R"({"tokens":"a","inputs":[[1]]})", "\"tokens\" is 'a' where an array of strings was expected"},
          {R"({"tokens":["a",7]})", "tokens[1] is 7 where a string was expected"},
          {R"({"tokens":["a",["b"]]})", "tokens[1] is an array where a string was expected"},
          {R"({"tokens":["a",{}]})", "tokens[1] is an object where a string was expected"},
          {R"({"inputs":"\u001b[2J\nsecond line"})", "is '\\x1b[2J\\x0asecond line' where"},
      });
}

TEST(Json, SurvivesTruncationAndFlips) {
  for (const char* name : {"json/rows.json", "json/tokens.json", "json/other_keys.json"}) {
    SCOPED_TRACE(name);
    std::string file = fixture_bytes(name);
    file.resize(file.find_last_of("]}") + 1);
    expect_survives_truncation(kReadJson, file, true);
    expect_survives_flips(kReadJson, file, 60);
  }
}

TEST(Csv, ReadsWhatOthersWrite) {
  expect_fixture(load_csv(fixture("csv/numbers.csv")), {});
  expect_fixture(load_csv(fixture("csv/header_crlf.csv")), {});
  expect_fixture(load_csv(fixture("csv/savetxt.csv")), {});
  expect_fixture(load_csv(fixture("csv/tokens.csv")), {"one, two", "\u6ce8\"\u610f"});
  expect_fixture(load_csv(fixture("csv/pandas.csv")), {"a", "say \"b\""});
  expect_fixture(load_csv(fixture("csv/pandas_named.csv")), {"a", "2024"});
}

TEST(Csv, RecognisesHeadersAndTokens) {
  struct Case {
    const char* text;
    std::vector<std::string> tokens;
  };
  for (const auto& [text, tokens] : {
           Case{"0,1,2\r3,4,5", {}},
           {"\"0\",\"1\",\"2\"\n\"3\",\"4\",\"5\"\n", {}},
           {"\n \t\n 0 ,\t1, 2\n\n3,4,5\n \n\n", {}},
           {"0.0,+1.,20e-1\n3,.4e1,5", {}},
           {"a,0,1,2\nb,3,4,5", {"a", "b"}},
           {" a ,0,1,2\n\"\n\",3,4,5", {" a ", "\n"}},
           {"a\"b,0,1,2\n,3,4,5", {"a\"b", ""}},
           {"word,x,y,z\na,0,1,2\nb,3,4,5", {"a", "b"}},
           {"tokens,x,y,z\n1,0,1,2\nnan,3,4,5", {"1", "nan"}},
           {",0,1,2\n0,0,1,2\n1,3,4,5", {"0", "1"}},
           {"token,0,1,2\n\"7\",0,1,2\n\",\",3,4,5", {"7", ","}},
       }) {
    SCOPED_TRACE(text);
    expect_fixture(parse_csv(text), tokens);
  }
  // A first row of numbers after the word "token" is data unless its numbers count the columns.
  EXPECT_THAT(parse_csv("token,0,2\nb,3,4").tokens, ElementsAre("token", "b"));
  expect_same(parse_csv("x\n1\n2").inputs, Tensor::of<float>({{1}, {2}}));
}

TEST(Csv, ReadsNumbersOfAnySize) {
  expect_same(parse_csv("1e-400,-1e-400,1e-45\n0.000000000000000000000000000000000000000000001e45,+.5,5.").inputs,
              Tensor::of<float>({{0, -0.0F, 1e-45F}, {1, .5F, 5}}));
}

TEST(Csv, RefusesDamagedTables) {
  expect_refused(kReadCsv, {
                               {"", "is empty"},
                               {"\xef\xbb\xbf", "is empty"},
                               {"\n \r\n\t", "is empty"},
                               {"x,y,z\n", "has no rows of numbers"},
                               {"token\na\nb\n", "has tokens but no numbers"},
                               {"x\na\nb\n", "has tokens but no numbers"},
                               {"0,1\n2\n", "line 2 has 1 cells but line 1 has 2"},
                               {"0,1\n\n2,3,4\n", "line 3 has 3 cells but line 1 has 2"},
                               {"x,y\n0,1,2\n", "line 2 has 3 cells but line 1 has 2"},
                               {"0,1\n2,3,\n", "line 2 has 3 cells but line 1 has 2"},
                               {"0,1\n2,\n", "line 2, column 2: '' is not a number"},
                               {"0,1\n2,x\n", "line 2, column 2: 'x' is not a number"},
                               {"0,1,y\n2,3,4\n", "line 1, column 3: 'y' is not a number"},
                               {"a,0\nb,1x\n", "line 2, column 2: '1x' is not a number"},
                               {"0,1\n2,0x3\n", "'0x3' is not a number"},
                               {"0,1\n2,1 2\n", "'1 2' is not a number"},
                               {"0,1\n2,+-3\n", "'+-3' is not a number"},
                               {"0,1\n2,nan\n", "line 2, column 2: 'nan' is not a finite number"},
                               {"nan,1\n2,3\n", "line 1, column 1: 'nan' is not a finite number"},
                               {"0,1\n2,-inf\n", "'-inf' is out of the range of f32"},
                               {"0,1\n2,1e39\n", "'1e39' is out of the range of f32"},
                               {"0,1\n2,1e999\n", "'1e999' is out of the range of f32"},
                               {"0,1\n2,-1e999\n", "'-1e999' is out of the range of f32"},
                               {"0,1\n2,\"\n3\"\n", "is not a number"},
                               {"0,1\nb,2\n", "is a number in line 1 and text in line 2; if it holds the tokens"},
                               {"x,y\na,1\n\n2,3\n", "is a number in line 4 and text in line 2"},
                               {"0;1\n2;3\n", "has tokens but no numbers"},
                               {"0,\"1\n2,3\n", "line 1: a quote is never closed"},
                               {"\"a\nb\",1\n\"c\n,2\n", "line 3: a quote is never closed"},
                               {"\"a\nb\",1\nc,x\n", "line 3, column 2: 'x' is not a number"},
                               {"\"a\nb\",1,\"2\"x\n", "line 2: text follows the closing quote of '2'"},
                               {"\"a\"\"\"b,1\n", "line 1: text follows the closing quote of 'a\"'"},
                               {"0,1\n2,\x1b[2J\n", "'\\x1b[2J' is not a number"},
                               {"0,1\n2," + std::string(100'000, 'x'), "xxx...' is not a number"},
                               {"0,1\n2,\xff\n", "is not UTF-8 at byte 6"},
                               {"caf\xe9,1\n", "is not UTF-8 at byte 3"},
                               {"\xed\xa0\x80,1\n", "is not UTF-8 at byte 0"},
                               {"\xff\xfe"
                                "0\0,\0"s,
                                "a zero byte at byte 3"},
                               {"0,1\n2,3\0"s, "a zero byte at byte 7"},
                           });
}

TEST(Csv, SurvivesTruncationAndFlips) {
  for (const char* name : {"csv/numbers.csv", "csv/header_crlf.csv", "csv/tokens.csv", "csv/pandas.csv"}) {
    SCOPED_TRACE(name);
    expect_survives_truncation(kReadCsv, fixture_bytes(name), false);
    expect_survives_flips(kReadCsv, fixture_bytes(name), 60);
  }
}

TEST(TokenEmbeddings, AreReadFromEveryFormat) {
  const TemporaryFolder folder;
  const std::pair<const char*, const char*> files[] = {
      {"npy/f8.npy", "npy"}, {"npy/i2.npy", "npy"}, {"json/rows.json", "json"}, {"csv/numbers.csv", "csv"}};
  for (const auto& [file, ending] : files) {
    SCOPED_TRACE(file);
    expect_fixture(load_token_embeddings(fixture(file)), {});
    expect_fixture(parse_token_embeddings(as_bytes(fixture_bytes(file))), {});
    for (const std::string& name : {"upper." + std::string(ending == "npy"s   ? "NPY"
                                                           : ending == "csv"s ? "Csv"
                                                                              : "JSON"),
                                    "q.txt"s, "q"s}) {
      std::filesystem::copy_file(fixture(file), folder / name, std::filesystem::copy_options::overwrite_existing);
      expect_fixture(load_token_embeddings(folder / name), {});
    }
  }
  expect_fixture(parse_token_embeddings(as_bytes("\xef\xbb\xbf\n {\"inputs\": [[0, 1, 2], [3, 4, 5]]}")), {});
}

TEST(TokenEmbeddings, BelieveTheEndingOfAFile) {
  const TemporaryFolder folder;
  write_file(folder / "q.json", "0,1,2\n3,4,5\n");
  EXPECT_THAT(
      [&] { load_token_embeddings(folder / "q.json"); },
      ThrowsMessage<std::runtime_error>(HasSubstr("[load_token_embeddings] " + (folder / "q.json").string() +
                                                  ": the document is 0 where an object")));
}

TEST(TokenEmbeddings, RefuseArraysThatAreNoMatrixOfNumbers) {
  const TemporaryFolder folder;
  const auto saved = [&](const Tensor& tensor) {
    save_npy(folder / "t.npy", tensor);
    return as_string(read_file(folder / "t.npy"));
  };
  Tensor numbers = fixture_matrix(DType::f64);
  const auto with_last = [&](double value) {
    numbers.at<double>(1, 2) = value;
    return saved(numbers);
  };
  expect_refused(kReadAny, {
                               {fixture_bytes("npy/scalar.npy"), "holds f64 [] where a matrix of numbers"},
                               {fixture_bytes("npy/empty.npy"), "holds f32 [3, 0] where a matrix"},
                               {fixture_bytes("npy/b1.npy"), "holds bool [2, 3] where a matrix"},
                               {saved(Tensor(DType::f32, {6})), "holds f32 [6] where a matrix"},
                               {saved(Tensor(DType::f32, {1, 2, 3})), "holds f32 [1, 2, 3] where a matrix"},
                               {with_last(std::nan("")), "the number at [1, 2] is NaN or too large for f32"},
                               {with_last(-HUGE_VAL), "the number at [1, 2] is NaN or too large for f32"},
                               {with_last(1e39), "the number at [1, 2] is NaN or too large for f32"},
                               {fixture_bytes("npy/f4.npy").substr(0, 150), "the header promises 24 bytes"},
                               {fixture_bytes("npz/stored.npz"), "is not CSV: a zero byte"},
                           });
}

}  // namespace
}  // namespace saccade::test
