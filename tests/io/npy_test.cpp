#include <gmock/gmock.h>

#include "io/io_fixtures.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using namespace std::string_literals;

const Reader kRead = [](std::span<const std::byte> bytes) { parse_npy(bytes, "q.npy"); };

/// A file of version 1.0 with this header text, followed by `data` bytes of zeros.
std::string npy(const std::string& header, std::size_t data = 24) {
  return "\x93NUMPY\x01\x00"s + little_endian(static_cast<std::uint16_t>(header.size())) + header +
         std::string(data, '\0');
}

std::string header_with_shape(const std::string& shape) {
  return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

std::string header_with_type(const std::string& type) {
  return "{'descr': " + type + ", 'fortran_order': False, 'shape': (2, 3), }\n";
}

struct Fixture {
  const char* name;
  DType dtype;
};

TEST(Npy, ReadsWhatNumPyWrites) {
  const Fixture fixtures[] = {{"f2", DType::f16},
                              {"f4", DType::f32},
                              {"f8", DType::f64},
                              {"b1", DType::boolean},
                              {"i1", DType::i8},
                              {"i2", DType::i16},
                              {"i4", DType::i32},
                              {"i8", DType::i64},
                              {"u1", DType::u8},
                              {"u2", DType::u16},
                              {"u4", DType::u32},
                              {"u8", DType::u64},
                              {"order/f8_big_endian", DType::f64},
                              {"order/i2_big_endian", DType::i16},
                              {"order/u4_big_endian", DType::u32},
                              {"order/f8_fortran", DType::f64},
                              {"order/i2_fortran", DType::i16},
                              {"order/u4_fortran", DType::u32},
                              {"order/f4_big_endian_fortran", DType::f32},
                              {"f4_version_2", DType::f32},
                              {"f4_version_3", DType::f32}};
  for (const Fixture& file : fixtures) {
    SCOPED_TRACE(file.name);
    expect_same(load_npy(fixture("npy/" + std::string(file.name) + ".npy")), fixture_matrix(file.dtype));
  }
  const Tensor scalar = load_npy(fixture("npy/scalar.npy"));
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.at<double>(), 2.5);
  expect_same(load_npy(fixture("npy/empty.npy")), Tensor(DType::f32, {3, 0}));
}

TEST(Npy, WritesTheBytesOfNumPy) {
  if constexpr (std::endian::native == std::endian::big)
    GTEST_SKIP() << "the fixtures are little-endian, and numbers are written in this machine's order";
  const TemporaryFolder folder;
  for (const auto& [name, dtype] : {Fixture{"f2", DType::f16},
                                    {"f4", DType::f32},
                                    {"f8", DType::f64},
                                    {"b1", DType::boolean},
                                    {"i1", DType::i8},
                                    {"i8", DType::i64},
                                    {"u2", DType::u16}}) {
    save_npy(folder / "out.npy", fixture_matrix(dtype));
    EXPECT_EQ(as_string(read_file(folder / "out.npy")), fixture_bytes("npy/" + std::string(name) + ".npy"))
        << name;
  }
  for (const std::string name : {"npy/scalar.npy", "npy/empty.npy"}) {
    save_npy(folder / "out.npy", load_npy(fixture(name)));
    EXPECT_EQ(as_string(read_file(folder / "out.npy")), fixture_bytes(name)) << name;
  }
}

TEST(Npy, RoundTripsEveryTypeAndRank) {
  const TemporaryFolder folder;
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::bf16) continue;
    for (const Shape& shape : shapes_of_every_rank()) {
      const Tensor tensor = random_tensor(dtype, shape, 1);
      save_npy(folder / "t.npy", tensor);
      expect_same(load_npy(folder / "t.npy"), tensor);
    }
  }
}

TEST(Npy, WritesStridedViewsInTheirOwnOrder) {
  const TemporaryFolder folder;
  const Tensor tensor = random_tensor(DType::f32, {3, 4, 5}, 2);
  const float one = 1.0F;
  for (const TensorView& view : {tensor.view().transposed(0, 2), tensor.view().slice(1, 1, 3),
                                 tensor.view().select(2, 4), TensorView(&one, {2, 3}, {0, 0})}) {
    save_npy(folder / "v.npy", view);
    expect_same(load_npy(folder / "v.npy"), Tensor::copy_of(view));
  }
}

TEST(Npy, TransposesFortranOrderOfEveryRank) {
  const TemporaryFolder folder;
  for (const Shape& shape : shapes_of_every_rank()) {
    const Tensor tensor = random_tensor(DType::i16, shape, 3);
    TensorView reversed = tensor;
    for (int dim = 0; dim < tensor.rank() / 2; ++dim) reversed = reversed.transposed(dim, tensor.rank() - 1 - dim);
    save_npy(folder / "t.npy", reversed);
    // The bytes of the transposed array in C order are those of the array in Fortran order.
    const Tensor transposed = Tensor::copy_of(reversed);
    std::string text = "{'descr': '=i2', 'fortran_order': True, 'shape': (";
    for (const std::int64_t length : shape) text += std::to_string(length) + ",";
    const std::string file = npy(text + ")}", 0) + contents(transposed);
    expect_same(parse_npy(as_bytes(file)), tensor);
  }
}

TEST(Npy, AcceptsEveryWayToWriteTheHeader) {
  const Tensor zeros(DType::f32, {2, 3});
  for (const char* header : {
           "{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
           "{\"shape\": (2, 3,), \"descr\": \"<f4\", \"fortran_order\": False}",
           "  { 'fortran_order' : False , 'shape' : ( 2L , 3L ) , 'descr' : '=f4' , }  \n\n",
           "{'descr': 'f4', 'fortran_order': False, 'shape': (2, 3), }",
       }) {
    SCOPED_TRACE(header);
    expect_same(parse_npy(as_bytes(npy(header))), zeros);
  }
  expect_same(parse_npy(as_bytes(npy("{'descr': '>b1', 'fortran_order': True, 'shape': (3,2), }", 6))),
              Tensor(DType::boolean, {3, 2}));
}

TEST(Npy, ShortensLongNames) {
  try {
    parse_npy({}, std::string(100'000, 'a'));
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).find(": "), std::string("[parse_npy] ").size() + 65'536 + 3);  // and "..."
  }
}

TEST(Npy, RefusesDamagedHeaders) {
  const std::string good = fixture_bytes("npy/f4.npy");
  ASSERT_EQ(refusal(kRead, as_bytes(good)), "");
  expect_refused(kRead, {
                            {"", "is not an npy file"},
                            {with(good, 0, 1, "\x92"), "is not an npy file"},
                            {"PK\x03\x04 something else", "is not an npy file"},
                            {good.substr(0, 7), "ends within the version number at byte 7"},
                            {with(good, 6, 1, "\x04"), "version 4.0"},
                            {with(good, 6, 1, "\0"s), "version 0.0"},
                            {with(good, 7, 1, "\x01"), "version 1.1"},
                            {good.substr(0, 9), "ends within the header's length at byte 9"},
                            {with(good, 8, 2, "\xff\xff"),
                             "the header's length is given as 65535 bytes but 142 follow at byte 10"},
                            {with(good, 6, 1, "\x02"), "the header's length is given as"},
                            {with(good, 8, 2, "\0\0"s), "has its end where '{' was expected at byte 10"},
                            {with(good, 8, 2, "\x20\0"s), "the header"},
                            {npy("[]"), "has '[' where '{' was expected at byte 10"},
                            {npy("{}"), "lacks 'descr'"},
                            {npy("{'descr': '<f4', 'shape': (2, 3)}"), "lacks 'fortran_order'"},
                            {npy("{'descr': '<f4', 'fortran_order': False}"), "lacks 'shape'"},
                            {npy("{'descr': '<f4', 'descr': '<f4'}"), "has 'descr' twice"},
                            {npy("{'order': 'C'}"), "unknown key 'order'"},
                            {npy("{'descr"), "string without an end"},
                            {npy("{descr: '<f4'}"), "no string where one was expected at byte 11"},
                            {npy("{'descr' '<f4'}"), "where ':' was expected"},
                            {npy(header_with_shape("(2, 3)") + "x"), "continues after its closing brace"},
                            {npy("{'fortran_order': false}"), "neither True nor False at byte 28"},
                            {npy("{'descr\x1b[31m\n': 1}"), "unknown key 'descr\\x1b[31m\\x0a'"},
                        });
}

TEST(Npy, RefusesTypesItDoesNotKnow) {
  expect_refused(kRead, {
                            {fixture_bytes("npy/refused/bf16.npy"), "use safetensors"},
                            {fixture_bytes("npy/refused/complex.npy"), "type '<c8'"},
                            {fixture_bytes("npy/refused/objects.npy"), "pickles are never executed"},
                            {fixture_bytes("npy/refused/fields.npy"), "structured arrays"},
                            {npy(header_with_type("'<f16'")), "type '<f16'"},
                            {npy(header_with_type("'<U7'")), "type '<U7'"},
                            {npy(header_with_type("'<M8[s]'")), "type '<M8[s]'"},
                            {npy(header_with_type("''")), "type ''"},
                            {npy(header_with_type("'<'")), "type '<'"},
                            {npy(header_with_type("'f'")), "type 'f'"},
                            {npy(header_with_type("7")), "no string where one was expected"},
                            {npy(header_with_type("'" + std::string(50000, 'x') + "'")), "xxx...'"},
                        });
}

TEST(Npy, RefusesShapesThatLie) {
  expect_refused(
      kRead,
      {
          {npy(header_with_shape("(2, 4)")), "promises 32 bytes of numbers (f32 [2, 4]) but 24 follow at byte"},
          {npy(header_with_shape("(2, 2)")), "promises 16 bytes of numbers (f32 [2, 2]) but 24 follow"},
          {npy(header_with_shape("()")), "promises 4 bytes"},
          {npy(header_with_shape("(0, 3)")), "promises 0 bytes"},
          {npy(header_with_shape("(-2, -3)")), "not a number from 0 to 2^63 - 1"},
          {npy(header_with_shape("(9223372036854775808, 1)")), "not a number from 0 to 2^63 - 1"},
          {npy(header_with_shape("(9223372036854775807, 1)")), "overflows"},
          {npy(header_with_shape("(4611686018427387904, 4)")), "overflows"},
          {npy(header_with_shape("(4294967296, 4294967296, 0)")), "overflows"},
          {npy(header_with_shape("(1000000000000,)")), "promises 4000000000000 bytes"},
          {npy(header_with_shape("(1, 1, 1, 1, 1, 2, 3)")), "more than 6 dimensions"},
          {npy(header_with_shape("(" + std::string(60000, '1') + ",)")), "not a number from 0 to 2^63 - 1"},
          {npy(header_with_shape("(6)")), "not a tuple"},
          {npy(header_with_shape("[2, 3]")), "has '[' where '(' was expected"},
          {npy(header_with_shape("(2, 3")), "not a number"},
          {npy(header_with_shape("(2 3)")), "was expected"},
          {npy(header_with_shape("(2,, 3)")), "not a number"},
          {npy(header_with_shape("(2.0, 3)")), "where ')' was expected"},
          {npy(header_with_shape("(0x2, 3)")), "where ')' was expected"},
          {npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", 2) + "\x02",
           "a boolean is 2, neither 0 nor 1, at byte 67"},
      });
}

TEST(Npy, SurvivesTruncationAtEveryByte) {
  for (const char* name :
       {"npy/f4.npy", "npy/b1.npy", "npy/f4_version_2.npy", "npy/order/f4_big_endian_fortran.npy"}) {
    SCOPED_TRACE(name);
    expect_survives_truncation(kRead, fixture_bytes(name), true);
  }
}

TEST(Npy, SurvivesFlipsOfEveryBitAndHeaderByte) {
  expect_survives_flips(kRead, fixture_bytes("npy/f4.npy"), 128);
  expect_survives_flips(kRead, fixture_bytes("npy/b1.npy"), 0);
  expect_survives_flips(kRead, fixture_bytes("npy/f4_version_3.npy"), 12);
  expect_survives_flips(kRead, fixture_bytes("npy/order/f4_big_endian_fortran.npy"), 0);
}

#ifndef _WIN32  // where names hold no control characters
TEST(Npy, NamesTheFileInMessages) {
  const TemporaryFolder folder;
  write_file(folder / "bad\nname.npy", "nothing");
  EXPECT_THAT([&] { load_npy(folder / "bad\nname.npy"); },
              ThrowsMessage<std::runtime_error>(
                  HasSubstr("[load_npy] " + (folder / "bad\\x0aname.npy: is not an npy file").string())));
}
#endif

TEST(Npy, RefusesToWriteWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { save_npy(folder / "t.npy", Tensor(DType::bf16, {2})); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("npy has no bf16; convert the tensor to f32")));
  EXPECT_THAT([&] { save_npy(folder / "t.npy", Tensor()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("there is no tensor")));
  EXPECT_TRUE(folder.names().empty());
}

TEST(Npy, ViewsAnArrayWithoutACopy) {
  const TemporaryFolder folder;
  const Tensor tensor = fixture_matrix(DType::f64);
  save_npy(folder / "a.npy", tensor);
  const MappedFile file(folder / "a.npy");
  const TensorView view = view_npy(file.bytes());
  expect_same(Tensor::copy_of(view), tensor);
  EXPECT_EQ(view.data, file.bytes().data() + 128);

  if constexpr (std::endian::native == std::endian::big) return;  // the fixture is little-endian
  const MappedFile columns(fixture("npy/order/f8_fortran.npy"));
  expect_same(Tensor::copy_of(view_npy(columns.bytes())), tensor);
}

TEST(Npy, RefusesToViewWhatHasToBeConverted) {
  constexpr bool kBig = std::endian::native == std::endian::big;
  const MappedFile file(fixture(kBig ? "npy/f8.npy" : "npy/order/f8_big_endian.npy"));
  EXPECT_THAT([&] { view_npy(file.bytes(), "q.npy"); },
              ThrowsMessage<std::runtime_error>("[view_npy] q.npy: the numbers are " +
                                                std::string(kBig ? "little" : "big") +
                                                "-endian: such a file has to be read whole"));
  const TemporaryFolder folder;
  save_npy(folder / "a.npy", fixture_matrix(DType::f32));
  std::vector<std::byte> shifted(1);
  const std::vector<std::byte> bytes = read_file(folder / "a.npy");
  shifted.insert(shifted.end(), bytes.begin(), bytes.end());
  EXPECT_THAT([&] { view_npy(std::span(shifted).subspan(1)); },
              ThrowsMessage<std::runtime_error>(HasSubstr("which is no multiple of 4 in memory")));
}

TEST(Npy, WritesAnArrayPieceByPiece) {
  const TemporaryFolder folder;
  const Tensor tensor = fixture_matrix(DType::f32);
  const auto bytes = std::as_bytes(tensor.values<float>());
  save_npy(folder / "whole.npy", tensor);
  {
    NpyWriter writer(folder / "pieces.npy", DType::f32, tensor.shape());
    writer.write(bytes.first(5));
    EXPECT_THAT([&] { writer.commit(); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("bytes of numbers are missing")));
    EXPECT_THAT([&] { writer.write(bytes); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("there is room for")));
    writer.write(bytes.subspan(5));
    EXPECT_FALSE(std::filesystem::exists(folder / "pieces.npy"));
    writer.commit();
  }
  EXPECT_TRUE(read_file(folder / "pieces.npy") == read_file(folder / "whole.npy"));
  NpyWriter(folder / "given_up.npy", DType::f32, {3}).write(bytes.first(4));
  EXPECT_THAT(folder.names(), ::testing::UnorderedElementsAre("pieces.npy", "whole.npy"));
  EXPECT_THAT([&] { NpyWriter(folder / "b.npy", DType::bf16, {3}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("npy has no bf16")));
}

}  // namespace
}  // namespace saccade::test
