#include <gmock/gmock.h>

#include "io/io_fixtures.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using namespace std::string_literals;

const Reader kRead = [](std::span<const std::byte> bytes) { parse_safetensors(bytes, "q.safetensors"); };

std::string safetensors(const std::string& header, std::size_t data) {
  return little_endian(static_cast<std::uint64_t>(header.size())) + header + std::string(data, '\0');
}

/// A file with one tensor "w" of 24 bytes, described by these members.
std::string one_tensor(const std::string& members, std::size_t data = 24) {
  return safetensors("{\"w\":{" + members + "}}", data);
}

/// A file of u8 tensors a, b, ... at these offsets.
std::string layout(const std::vector<std::pair<int, int>>& offsets, std::size_t data) {
  std::string header;
  char name = 'a';
  for (const auto& [begin, end] : offsets) {
    header += header.empty() ? "{" : ",";
    header += "\""s + name++ + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
              R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  return safetensors(header + "}", data);
}

const std::string kGood = R"("dtype":"F32","shape":[2,3],"data_offsets":[0,24])";

TEST(Safetensors, ReadsWhatTheOfficialLibraryWrites) {
  const Safetensors all = load_safetensors(fixture("safetensors/all_types.safetensors"));
  const std::pair<const char*, DType> types[] = {
      {"F32", DType::f32},      {"F64", DType::f64}, {"F16", DType::f16}, {"BF16", DType::bf16},
      {"BOOL", DType::boolean}, {"I8", DType::i8},   {"I16", DType::i16}, {"I32", DType::i32},
      {"I64", DType::i64},      {"U8", DType::u8},   {"U16", DType::u16}, {"U32", DType::u32},
      {"U64", DType::u64}};
  ASSERT_EQ(all.tensors.size(), std::size(types));
  for (const auto& [name, dtype] : types) {
    SCOPED_TRACE(name);
    expect_same(all.tensors.at(name), fixture_matrix(dtype));
  }
  EXPECT_TRUE(all.metadata.empty());

  const Safetensors shapes = load_safetensors(fixture("safetensors/shapes.safetensors"));
  ASSERT_EQ(shapes.tensors.size(), 3U);
  EXPECT_EQ(shapes.tensors.at("scalar").at<double>(), 2.5);
  expect_same(shapes.tensors.at("empty"), Tensor(DType::f32, {3, 0}));
  expect_same(shapes.tensors.at("\u6ce8\u610f\n\""), fixture_matrix(DType::f32));
  EXPECT_EQ(shapes.metadata, (std::map<std::string, std::string>{{"format", "np"}, {"\u00e9", "\u00fc\n"}}));

  EXPECT_TRUE(load_safetensors(fixture("safetensors/nothing.safetensors")).tensors.empty());
}

TEST(Safetensors, WritesTheBytesOfTheOfficialLibrary) {
  const TemporaryFolder folder;
  for (const std::string name : {"all_types", "shapes", "nothing"}) {
    const std::string file = "safetensors/" + name + ".safetensors";
    save_safetensors(folder / "out.safetensors", load_safetensors(fixture(file)));
    EXPECT_EQ(as_string(read_file(folder / "out.safetensors")), fixture_bytes(file)) << name;
    EXPECT_EQ(safetensors_bytes(load_safetensors(fixture(file))), fixture_bytes(file)) << name;
  }
}

TEST(Safetensors, RoundTripsEveryTypeAndRank) {
  const TemporaryFolder folder;
  Safetensors contents;
  for (const DType dtype : kAllTypes) {
    for (const Shape& shape : shapes_of_every_rank()) {
      contents.tensors.emplace(std::string(name_of(dtype)) + to_string(shape), random_tensor(dtype, shape, 5));
    }
  }
  contents.metadata = {{"", ""}, {"format", "pt"}, {"text", "\"\\\n\u6ce8\x01"}};
  save_safetensors(folder / "t.safetensors", contents);
  const Safetensors loaded = load_safetensors(folder / "t.safetensors");
  ASSERT_EQ(loaded.tensors.size(), contents.tensors.size());
  for (const auto& [name, tensor] : contents.tensors) expect_same(loaded.tensors.at(name), tensor);
  EXPECT_EQ(loaded.metadata, contents.metadata);
}

TEST(Safetensors, ReadsAndWritesE4m3) {
  const TemporaryFolder folder;
  Tensor all(DType::f8e4m3, {2, 128});
  for (std::size_t i = 0; i < 256; ++i)
    all.values<float8_e4m3>()[i] = float8_e4m3::from_bits(static_cast<std::uint8_t>(i));
  save_safetensors(folder / "t.safetensors", {{{"w", all}, {"x", Tensor(DType::i16, {1})}}});
  EXPECT_THAT(as_string(read_file(folder / "t.safetensors")),
              HasSubstr(R"("w":{"dtype":"F8_E4M3","shape":[2,128],"data_offsets":[2,258]})"));
  expect_same(load_safetensors(folder / "t.safetensors").tensors.at("w"), all);
}

TEST(Safetensors, AcceptsAnyOrderOfKeysAndTensors) {
  const std::string header =
      R"({ "b": {"data_offsets": [0, 2], "shape": [2], "dtype": "U8"}, "a": {"shape": [], "dtype": "U8", )"
      R"("data_offsets": [2, 3]}, "none": {"dtype": "F64", "shape": [0], "data_offsets": [2, 2]}, "__metadata__": {} })"
      "\n  ";
  const Safetensors contents = parse_safetensors(as_bytes(safetensors(header, 0) + "\1\2\3"));
  expect_same(contents.tensors.at("b"), Tensor::of<std::uint8_t>({1, 2}));
  EXPECT_EQ(contents.tensors.at("a").at<std::uint8_t>(), 3);
  expect_same(contents.tensors.at("none"), Tensor(DType::f64, {0}));
}

TEST(Safetensors, RefusesDamagedHeaders) {
  ASSERT_EQ(refusal(kRead, as_bytes(one_tensor(kGood))), "");
  const std::string good = one_tensor(kGood);
  expect_refused(
      kRead,
      {
          {"", "ends within the header's length at byte 0"},
          {good.substr(0, 7), "ends within the header's length at byte 7"},
          {with(good, 0, 8, std::string(8, '\xff')), "100000000 are the most allowed"},
          {with(good, 0, 8, little_endian<std::uint64_t>(100'000'001)), "100000000 are the most allowed"},
          {with(good, 1, 1, "\x01"), "is given as 313 bytes but 81 follow at byte 8"},
          {with(good, 0, 8, std::string(8, '\0')), "no '{' at byte 8"},
          {safetensors(" {}", 0), "no '{' at byte 8"},
          {safetensors("\xef\xbb\xbf{}", 0), "no '{' at byte 8"},
          {safetensors("[]", 0), "no '{' at byte 8"},
          {safetensors("{", 0), "is not valid JSON, byte 9"},
          {safetensors("{} {}", 0), "is not valid JSON, byte 11"},
          {safetensors("{\"\xff\":{}}", 0), "is not valid JSON"},
          {safetensors("{\"a\":1e999}", 0), "number overflow"},
          {safetensors("{}", 1), "the tensors end at byte 0 of the data, which has 1 bytes"},
          {safetensors("{\"w\":7}", 0), "7 where an object was expected, for 'w'"},
          {safetensors("{\"w\":[]}", 0), "an array where an object was expected, for 'w'"},
          {safetensors("{\"w\":" + std::string(100000, '[') + "}", 0), "an array where an object was expected"},
          {safetensors("{\"" + std::string(100000, 'w') + "\":null}", 0), "www...'"},
          {safetensors(R"({"\u001b[31m":null})", 0), "for '\\x1b[31m'"},
          {safetensors(R"({"__metadata__":7})", 0), "7 where an object was expected, for '__metadata__'"},
          {safetensors(R"({"__metadata__":{"a":7}})", 0),
           "7 where a string was expected, in __metadata__ for 'a'"},
          {safetensors(R"({"__metadata__":{"a":{}}})", 0),
           "an object where a string was expected, in __metadata__"},
          {safetensors(R"({"__metadata__":{"a":"","a":""}})", 0), "'a' twice in __metadata__"},
          {safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0), "'__metadata__' twice"},
          {safetensors("{\"w\":{" + kGood + "},\"w\":{" + kGood + "}}", 24), "'w' twice"},
      });
}

TEST(Safetensors, RefusesDamagedEntries) {
  const std::string dtype = R"("dtype":"F32")";
  const std::string shape = R"("shape":[2,3])";
  const std::string offsets = R"("data_offsets":[0,24])";
  const auto with_dtype = [&](const std::string& value) {
    return one_tensor("\"dtype\":" + value + "," + shape + "," + offsets);
  };
  const auto with_shape = [&](const std::string& value) {
    return one_tensor(dtype + ",\"shape\":" + value + "," + offsets);
  };
  const auto with_offsets = [&](const std::string& value) {
    return one_tensor(dtype + "," + shape + ",\"data_offsets\":" + value);
  };
  expect_refused(
      kRead,
      {
          {one_tensor(""), "no dtype for tensor 'w'"},
          {one_tensor(dtype), "no shape for tensor 'w'"},
          {one_tensor(dtype + "," + shape), "no data_offsets for tensor 'w'"},
          {one_tensor(kGood + "," + dtype), "two dtypes for tensor 'w'"},
          {one_tensor(kGood + "," + shape), "two shapes for tensor 'w'"},
          {one_tensor(kGood + "," + offsets), "two data_offsets for tensor 'w'"},
          {one_tensor(kGood + ",\"strides\":[3,1]"), "unknown key 'strides' for tensor 'w'"},
          {with_dtype("\"F8_E5M2\""), "the dtype 'F8_E5M2', which is none of F64"},
          {with_dtype("\"f32\""), "the dtype 'f32', which is none of"},
          {with_dtype("4"), "4 as 'dtype' for tensor 'w'"},
          {with_dtype("[\"F32\"]"), "an array as 'dtype' for tensor 'w'"},
          {with_shape("6"), "6 as 'shape' for tensor 'w'"},
          {with_shape("[2,-3]"), "-3 as 'shape'"},
          {with_shape("[2,3.0]"), "3.0 as 'shape'"},
          {with_shape("[2,\"3\"]"), "'3' as 'shape'"},
          {with_shape("[2,null]"), "null as 'shape'"},
          {with_shape("[[2,3]]"), "an array as 'shape'"},
          {with_shape("{}"), "an object as 'shape'"},
          {with_shape("[9223372036854775808]"), "9223372036854775808 as 'shape'"},
          {with_shape("[4611686018427387904,4]"), "overflows"},
          {with_shape("[9223372036854775807]"), "overflows"},
          {with_shape("[1,1,1,1,1,2,3]"), "more than 6 dimensions for tensor 'w'"},
          {with_shape("[2,4]"), "tensor 'w' is f32 [2, 4], 32 bytes, but has the offsets [0, 24], 24 bytes"},
          {with_shape("[]"), "tensor 'w' is f32 [], 4 bytes, but has"},
          {with_offsets("[]"), "not two data_offsets for tensor 'w'"},
          {with_offsets("[24]"), "not two data_offsets for tensor 'w'"},
          {with_offsets("[0,12,24]"), "not two data_offsets for tensor 'w'"},
          {with_offsets("[0,-24]"), "-24 as 'data_offsets'"},
          {with_offsets("[0,24.5]"), "24.5 as 'data_offsets'"},
          {with_offsets("[24,0]"), "offsets [24, 0], which end before they begin"},
          {with_offsets("[0,25]"), "offsets [0, 25], but the file has 24 bytes of data"},
          {with_offsets("[18446744073709551592,18446744073709551615]"), "but the file has 24 bytes of data"},
          {with_offsets("[0,18446744073709551616]"), "as 'data_offsets'"},
          {with_offsets("[1,24]"), "leaves a hole behind the one before it, which ends at 0"},
      });
}

TEST(Safetensors, RefusesHolesAndOverlaps) {
  ASSERT_EQ(refusal(kRead, as_bytes(layout({{4, 10}, {0, 4}, {4, 4}, {10, 10}}, 10))), "");
  expect_refused(kRead, {
                            {layout({{0, 4}, {5, 10}}, 10), "'b' has the offsets [5, 10] and leaves a hole"},
                            {layout({{0, 4}, {3, 10}}, 10), "'b' has the offsets [3, 10] and overlaps"},
                            {layout({{0, 10}, {0, 10}}, 10), "'b' has the offsets [0, 10] and overlaps"},
                            {layout({{0, 10}, {2, 4}}, 10), "'b' has the offsets [2, 4] and overlaps"},
                            {layout({{0, 4}, {4, 9}}, 10), "end at byte 9 of the data, which has 10 bytes"},
                            {layout({{0, 4}, {4, 11}}, 10), "but the file has 10 bytes of data"},
                        });
}

TEST(Safetensors, RefusesBooleansThatAreNone) {
  const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  ASSERT_EQ(refusal(kRead, as_bytes(safetensors(header, 0) + "\0\1\1"s)), "");
  expect_refused(kRead,
                 {{safetensors(header, 0) + "\0\1\2"s, "('m'): a boolean is 2, neither 0 nor 1, at byte 65"}});
}

TEST(Safetensors, SurvivesTruncationAtEveryByte) {
  expect_survives_truncation(kRead, fixture_bytes("safetensors/all_types.safetensors"), true);
  expect_survives_truncation(kRead, fixture_bytes("safetensors/shapes.safetensors"), true);
  expect_survives_truncation(kRead, fixture_bytes("safetensors/nothing.safetensors"), true);
}

TEST(Safetensors, SurvivesFlipsOfEveryBitAndHeaderByte) {
  expect_survives_flips(kRead, one_tensor(kGood), 8 + 60);
  expect_survives_flips(kRead, fixture_bytes("safetensors/shapes.safetensors"), 8);
  expect_survives_flips(kRead, fixture_bytes("safetensors/all_types.safetensors"), 8);
}

TEST(Safetensors, RefusesToWriteWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const auto save = [&](const std::string& name, const Tensor& tensor) {
    return [&folder, name, tensor] { save_safetensors(folder / "t.safetensors", {{{name, tensor}}}); };
  };
  const Tensor tensor(DType::f32, {2});
  EXPECT_THAT(save("__metadata__", tensor), ThrowsMessage<std::invalid_argument>(HasSubstr("format reserves")));
  EXPECT_THAT(save("w\xff", tensor), ThrowsMessage<std::invalid_argument>(HasSubstr("'w\\xff' is not UTF-8")));
  EXPECT_THAT(
      save("w", Tensor(DType::i4, {2})),
      ThrowsMessage<std::invalid_argument>(HasSubstr("tensor 'w' is i4, a type that the format has no name")));
  EXPECT_THAT(save("w", Tensor()), ThrowsMessage<std::invalid_argument>(HasSubstr("tensor 'w' holds nothing")));
  EXPECT_THAT(
      [&] {
        save_safetensors(folder / "t.safetensors", {{}, {{"k", "\xff"}}});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("is not UTF-8")));
  EXPECT_THAT(
      [&] {
        save_safetensors(folder / "t.safetensors", {{}, {{"k", std::string(100'000'000, 'x')}}});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("more than 100 MB")));
  EXPECT_TRUE(folder.names().empty());
}

TEST(Safetensors, ViewsTensorsWithoutACopy) {
  const TemporaryFolder folder;
  const Safetensors contents{.tensors = {{"a", fixture_matrix(DType::bf16)}, {"b", fixture_matrix(DType::f64)}}};
  save_safetensors(folder / "t.safetensors", contents);
  const MappedFile file(folder / "t.safetensors");
  if constexpr (std::endian::native == std::endian::big) {
    EXPECT_THAT([&] { view_safetensors(file.bytes()); },
                ThrowsMessage<std::runtime_error>(HasSubstr("the numbers are little-endian")));
    return;
  }
  const std::map<std::string, TensorView> views = view_safetensors(file.bytes());
  ASSERT_EQ(views.size(), 2U);
  for (const auto& [name, view] : views) {
    expect_same(Tensor::copy_of(view), contents.tensors.at(name));
    EXPECT_GE(view.data, file.bytes().data());
  }
}

}  // namespace
}  // namespace saccade::test
