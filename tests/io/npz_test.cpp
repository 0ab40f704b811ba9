#include <gmock/gmock.h>
#include <zlib.h>

#include <optional>

#include "io/io_fixtures.h"

namespace saccade::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using namespace std::string_literals;

const Reader kRead = [](std::span<const std::byte> bytes) { parse_npz(bytes, "q.npz"); };

/// One member of a hand-made archive, in which every field can be wrong.
struct Member {
  std::string name = "a.npy";
  std::string packed{};
  std::uint16_t method = 0;
  std::optional<std::uint32_t> size{};  // default: the size of `packed`
  std::optional<std::uint32_t> crc{};   // default: the checksum of `packed`
  std::uint16_t flags = 0;
  std::optional<std::uint32_t> header_at{};  // default: the true position
};

std::string zip(const std::vector<Member>& members, const std::string& between = "") {
  std::string data;
  std::string directory;
  for (const Member& member : members) {
    const auto* const bytes = reinterpret_cast<const Bytef*>(member.packed.data());
    const auto packed = static_cast<std::uint32_t>(member.packed.size());
    const std::string common =
        little_endian<std::uint16_t>(20) + little_endian(member.flags) + little_endian(member.method) +
        std::string(4, '\0') +
        little_endian(member.crc.value_or(static_cast<std::uint32_t>(crc32(0, bytes, packed)))) +
        little_endian(packed) + little_endian(member.size.value_or(packed)) +
        little_endian(static_cast<std::uint16_t>(member.name.size())) + "\0\0"s;
    directory += "PK\1\2"s + "\x14\0"s + common + std::string(10, '\0') +
                 little_endian(member.header_at.value_or(static_cast<std::uint32_t>(data.size()))) + member.name;
    data += "PK\3\4" + common + member.name + member.packed;
  }
  data += between;
  const auto count = little_endian(static_cast<std::uint16_t>(members.size()));
  return data + directory + "PK\5\6" + std::string(4, '\0') + count + count +
         little_endian(static_cast<std::uint32_t>(directory.size())) +
         little_endian(static_cast<std::uint32_t>(data.size())) + "\0\0"s;
}

std::string deflated(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Member deflated_member(const std::string& bytes) {
  Member member;
  member.packed = deflated(bytes);
  member.method = 8;
  member.size = static_cast<std::uint32_t>(bytes.size());
  member.crc = static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), *member.size));
  return member;
}

/// The bytes of an .npy file of `count` zeros.
std::string npy_of_zeros(std::size_t count) {
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(count) + ",)}";
  return "\x93NUMPY\x01\x00"s + little_endian(static_cast<std::uint16_t>(header.size())) + header +
         std::string(count, '\0');
}

TEST(Npz, ReadsWhatNumPyWrites) {
  for (const char* name : {"npz/stored.npz", "npz/deflated.npz", "npz/streamed.npz"}) {
    SCOPED_TRACE(name);
    const std::map<std::string, Tensor> arrays = load_npz(fixture(name));
    ASSERT_EQ(arrays.size(), 4U);
    expect_same(arrays.at("f4"), fixture_matrix(DType::f32));
    expect_same(arrays.at("i8"), fixture_matrix(DType::i64));
    expect_same(arrays.at("b1"), fixture_matrix(DType::boolean));
    expect_same(arrays.at("W_query.weight"), fixture_matrix(DType::f64));
  }
  const std::map<std::string, Tensor> arrays = load_npz(fixture("npz/zip64.npz"));
  ASSERT_EQ(arrays.size(), 1U);
  expect_same(arrays.at("f4"), fixture_matrix(DType::f32));
}

TEST(Npz, RoundTripsEveryTypeAndRank) {
  const TemporaryFolder folder;
  std::map<std::string, Tensor> tensors;
  for (const DType dtype : kAllTypes) {
    if (dtype == DType::bf16) continue;
    for (const Shape& shape : shapes_of_every_rank()) {
      tensors.emplace(std::string(name_of(dtype)) + "/\u6ce8 " + to_string(shape), random_tensor(dtype, shape, 4));
    }
  }
  save_npz(folder / "t.npz", tensors);
  const std::map<std::string, Tensor> loaded = load_npz(folder / "t.npz");
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) expect_same(loaded.at(name), tensor);

  save_npz(folder / "none.npz", {});
  EXPECT_TRUE(load_npz(folder / "none.npz").empty());
}

TEST(Npz, WritesTheSameBytesForTheSameTensors) {
  const TemporaryFolder folder;
  std::map<std::string, Tensor> tensors;
  tensors.emplace("a", fixture_matrix(DType::f32));
  save_npz(folder / "1.npz", tensors);
  save_npz(folder / "2.npz", tensors);
  EXPECT_EQ(read_file(folder / "1.npz"), read_file(folder / "2.npz"));
}

TEST(Npz, AcceptsCommentsGapsAndPlainNames) {
  const std::string npy = fixture_bytes("npy/f4.npy");
  std::string commented = zip({{.packed = npy}}, "a gap");
  commented.replace(commented.size() - 2, 2, little_endian<std::uint16_t>(5) + "PK\5\6!");
  expect_same(parse_npz(as_bytes(commented)).at("a"), fixture_matrix(DType::f32));
  expect_same(parse_npz(as_bytes(zip({{.name = "plain", .packed = npy}}))).at("plain"),
              fixture_matrix(DType::f32));
  EXPECT_TRUE(parse_npz(as_bytes(zip({}))).empty());
}

TEST(Npz, UnpacksWhatCompressesBest) {
  const std::string npy = npy_of_zeros(3'000'000);
  const Tensor zeros = parse_npz(as_bytes(zip({deflated_member(npy)}))).at("a");
  expect_same(zeros, Tensor(DType::u8, {3'000'000}));
}

TEST(Npz, RefusesDamagedArchives) {
  const std::string npy = fixture_bytes("npy/f4.npy");
  const std::string good = zip({{.packed = npy}, {.name = "b.npy", .packed = npy}});
  ASSERT_EQ(refusal(kRead, as_bytes(good)), "");
  const std::size_t end = good.size() - 22;
  const std::size_t directory = good.find("PK\1\2");
  const std::size_t second = directory + 46 + 5;
  const std::string most(4, '\xff');
  expect_refused(
      kRead,
      {
          {"", "is not a complete npz (zip) archive"},
          {std::string(22, '\0'), "is not a complete npz (zip) archive"},
          {npy, "is not a complete npz (zip) archive"},
          {good + "x", "is not a complete npz (zip) archive"},
          {good.substr(1), "directory is not where it is said to be at byte"},
          {"x" + good, "directory is not where it is said to be at byte"},
          {with(good, end + 4, 1, "\x01"), "one part of an archive in several parts"},
          {with(good, end + 10, 1, "\x03"), "has no entry where one was expected, at byte"},
          {with(good, end + 10, 1, "\x01"), "continues after its 1 entries at byte"},
          {with(good, end + 10, 1, "\0"s), "continues after its 0 entries at byte"},
          {with(good, end + 10, 2, "\xff\xff"), "zip64 locator is missing"},
          {with(good, end + 12, 4, most), "zip64 locator is missing"},
          {with(good, end + 12, 1, "\x01"), "not where it is said to be"},
          {with(good, end + 16, 1, "\x01"), "not where it is said to be"},
          {with(good, directory, 1, "Q"), "has no entry where one was expected, at byte"},
          {with(good, directory + 28, 2, "\xff\xff"), "ends within an entry at byte"},
          {with(good, directory + 32, 2, "\xff\xff"), "ends within an entry at byte"},
          {with(good, directory + 42, 4, most), "member 'a.npy' lacks its zip64 sizes"},
          {with(good, directory + 42, 4, "\xfe\xff\xff\xff"), "'a.npy' is said to begin where no member does"},
          {with(good, directory + 42, 1, "\x01"), "'a.npy' is said to begin where no member does"},
          {with(good, second + 42, 4, std::string(4, '\0')), "'b.npy' has another name at byte 0"},
          {with(good, 30, 1, "c"), "'a.npy' has another name at byte 0"},
          {with(good, 26, 4, most), "'a.npy' claims 152 bytes, more than the archive has at byte 0"},
          {with(good, directory + 20, 8, little_endian<std::uint64_t>(0x7000000070000000)),
           "more than the archive has"},
          {with(good, directory + 24, 1, "\x97"), "'a.npy' is stored in 152 bytes for 151"},
          {with(good, directory + 8, 1, "\x01"), "'a.npy' is encrypted"},
          {with(good, directory + 10, 1, "\x0e"), "packed by method 14"},
          {with(good, 35 + 151, 1, "x"), "'a.npy' does not match its checksum"},
          {with(good, directory + 16, 1, good[directory + 16] == 'x' ? "y" : "x"), "does not match its checksum"},
          {zip({{.packed = npy}, {.packed = npy}}), "has two arrays of the name 'a'"},
          {zip({{.packed = npy}, {.name = "a", .packed = npy}}), "has two arrays of the name 'a'"},
          {zip({{.name = "readme.txt", .packed = "hello"}}), "q.npz('readme.txt'): is not an npy file"},
          {zip({{.packed = npy.substr(0, 140)}}), "q.npz('a.npy'): the header promises 24 bytes"},
          {zip({{.name = "\x1b[2J", .packed = npy, .crc = 0}}), "member '\\x1b[2J' does not match"},
      });
}

TEST(Npz, RefusesDamagedDeflate) {
  const std::string npy = npy_of_zeros(1000);
  const Member good = deflated_member(npy);
  ASSERT_EQ(refusal(kRead, as_bytes(zip({good}))), "");
  const auto changed = [&](auto change) {
    Member member = good;
    change(member);
    return zip({member});
  };
  expect_refused(kRead,
                 {
                     {changed([](Member& m) { m.size = 0; }), "does not unpack to the 0 bytes it promises"},
                     {changed([](Member& m) { m.size = *m.size - 1; }), "does not unpack to the"},
                     {changed([](Member& m) { m.size = *m.size + 1; }), "does not unpack to the"},
                     {changed([](Member& m) { m.size = 0xfffffffe; }), "for 4294967294, which deflate cannot do"},
                     {changed([](Member& m) { m.crc = 1; }), "does not match its checksum"},
                     {changed([](Member& m) { m.packed.pop_back(); }), "has damaged deflate data"},
                     {changed([](Member& m) { m.packed += '\0'; }), "does not unpack to the"},
                     {changed([](Member& m) { m.packed = "\xff\xff\xff\xff"; }), "has damaged deflate data"},
                     {changed([](Member& m) {
                        m.packed.clear();
                        m.size = 0;
                      }),
                      "has damaged deflate data"},
                     {changed([](Member& m) {
                        m.packed.clear();
                        m.size = 2000;
                      }),
                      "which deflate cannot do"},
                     {changed([](Member& m) { m.method = 0; }), "is stored in"},
                 });
}

TEST(Npz, RefusesArchivesThatUnpackTheSameBytesTwice) {
  // Two directory entries, one member: the core of the "better zip bomb".
  const std::string npy = npy_of_zeros(100'000);
  Member member = deflated_member(npy);
  Member again = member;
  again.header_at = 0;
  again.packed.clear();
  std::string archive = zip({member, again});
  const std::size_t second = archive.rfind("PK\1\2");
  archive.replace(second + 20, 4, little_endian(static_cast<std::uint32_t>(member.packed.size())));
  expect_refused(kRead, {{archive, "'a.npy' overlaps 'a.npy' at byte 0"}});
}

TEST(Npz, RefusesDamagedZip64Records) {
  const std::string good = fixture_bytes("npz/zip64.npz");
  ASSERT_EQ(refusal(kRead, as_bytes(good)), "");
  const std::size_t locator = good.size() - 22 - 20;
  const std::size_t end64 = locator - 56;
  const std::size_t directory = good.find("PK\1\2");
  const std::size_t extra = directory + 46 + 6 + 5;  // after the name and a field of another kind
  const std::string most(8, '\xff');
  expect_refused(kRead, {
                            {with(good, locator, 1, "x"), "zip64 locator is missing"},
                            {with(good, locator + 8, 8, most), "points at no zip64 record"},
                            {with(good, locator + 8, 1, "\0"s), "points at no zip64 record"},
                            {with(good, end64, 1, "x"), "points at no zip64 record"},
                            {with(good, end64 + 40, 8, most), "not where it is said to be"},
                            {with(good, end64 + 48, 8, most), "not where it is said to be"},
                            {with(good, end64 + 32, 8, most), "has no entry where one was expected"},
                            {with(good, extra, 1, "\x02"), "lacks its zip64 sizes"},
                            {with(good, extra + 2, 1, "\x10"), "lacks its zip64 sizes"},
                            {with(good, extra + 2, 2, "\xff\xff"), "lacks its zip64 sizes"},
                            {with(good, extra + 4, 8, most), "is stored in 152 bytes for 18446744073709551615"},
                            {with(good, extra + 12, 8, most), "claims 18446744073709551615 bytes"},
                            {with(good, extra + 20, 8, most), "is said to begin where no member does"},
                        });
}

TEST(Npz, SurvivesTruncationAtEveryByte) {
  for (const char* name : {"npz/stored.npz", "npz/deflated.npz", "npz/zip64.npz"}) {
    SCOPED_TRACE(name);
    expect_survives_truncation(kRead, fixture_bytes(name), true);
  }
}

TEST(Npz, SurvivesFlipsOfEveryBitAndEveryRecordByte) {
  for (const char* name : {"npz/stored.npz", "npz/deflated.npz", "npz/streamed.npz", "npz/zip64.npz"}) {
    SCOPED_TRACE(name);
    const std::string file = fixture_bytes(name);
    expect_survives_flips(kRead, file, 40);
    GuardedBytes memory(file);
    for (std::size_t at = file.find("PK\1\2"); at < file.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        memory.assign(with(file, at, 1, std::string(1, static_cast<char>(value))));
        refusal(kRead, memory.bytes());
      }
    }
  }
}

TEST(Npz, RefusesToWriteWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  write_file(folder / "t.npz", "old");
  const auto save = [&](const std::string& name, const Tensor& tensor) {
    return [&folder, name, tensor] { save_npz(folder / "t.npz", {{name, tensor}}); };
  };
  EXPECT_THAT(save("w", Tensor(DType::bf16, {2})),
              ThrowsMessage<std::invalid_argument>(HasSubstr("npy has no bf16")));
  EXPECT_THAT(save("w", Tensor()),
              ThrowsMessage<std::invalid_argument>(HasSubstr("t.npz('w'): there is no tensor")));
  EXPECT_THAT(save("\xff", Tensor(DType::f32, {2})),
              ThrowsMessage<std::invalid_argument>(HasSubstr("'\\xff' is not UTF-8")));
  EXPECT_THAT(save(std::string(70000, 'x'), Tensor(DType::f32, {2})),
              ThrowsMessage<std::invalid_argument>(HasSubstr("is too long")));
  EXPECT_THAT(folder.names(), ElementsAre("t.npz"));
  EXPECT_EQ(as_string(read_file(folder / "t.npz")), "old");
}

}  // namespace
}  // namespace saccade::test
