// Reading and writing whole files, as every system does it: replacing, names in any script, long paths, mapped
// files. What Unix alone has is in io_test.cpp.
#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "io/io_fixtures.h"

namespace saccade::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string text_of(const fs::path& path) { return as_string(read_file(path)); }

TEST(File, IsReplaced) {
  const TemporaryFolder folder;
  for (const std::string& text :
       {std::string("first"), std::string(), std::string(5'000'000, 'x'), std::string("a\r\n\x1a\0b", 7)}) {
    write_file(folder / "a", text);
    EXPECT_TRUE(text_of(folder / "a") == text);
  }
  EXPECT_THAT(folder.names(), ElementsAre("a"));
}

TEST(File, HasANameInAnyScript) {
  const TemporaryFolder folder;
  const fs::path name = folder.path() / fs::path(u8"\u6ce8\u610f caf\u00e9 \U0001f441.npy");
  const Tensor tensor = Tensor::of<float>({1, 2, 3});
  save_npy(name, tensor);
  EXPECT_TRUE(fs::exists(name));
  expect_same(load_npy(name), tensor);
  write_file(name, "damaged");
  EXPECT_THAT([&] { load_npy(name); },
              ThrowsMessage<std::runtime_error>(HasSubstr("\xe6\xb3\xa8\xe6\x84\x8f caf\xc3\xa9")));
}

TEST(File, HasALongPath) {
  const TemporaryFolder folder;
  fs::path path = folder.path();
#ifdef _WIN32
  path = fs::path(LR"(\\?\)" +
                  fs::absolute(path).make_preferred().native());  // so that the test can make the folders
#endif
  for (int depth = 0; depth < 4; ++depth) path /= std::string(90, static_cast<char>('a' + depth));
  fs::create_directories(path);
  fs::path usual = folder.path();
  for (int depth = 0; depth < 4; ++depth) usual /= std::string(90, static_cast<char>('a' + depth));
  write_file(usual / "t", "text");
  write_file(usual / "t", "other");
  EXPECT_EQ(text_of(usual / "t"), "other");
  EXPECT_EQ(as_text(MappedFile(usual / "t").bytes()), "other");
  fs::remove_all(path);
}

TEST(File, IsRefusedWhereItCannotBe) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  EXPECT_THAT([&] { write_file(folder / "missing/file", "new"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be created: No such file or directory")));
  EXPECT_THAT([&] { write_file(folder.path(), "new"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("is a folder")));
  EXPECT_THAT([&] { read_file(folder.path()); }, ThrowsMessage<std::runtime_error>(HasSubstr("s a directory")));
  EXPECT_THAT([&] { read_file(folder / "none"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be opened: No such file or directory")));
  EXPECT_THAT([&] { MappedFile(folder / "none"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be opened: No such file or directory")));
  EXPECT_THAT(folder.names(), ElementsAre("file"));
  EXPECT_EQ(text_of(folder / "file"), "old");
}

TEST(File, ThatManyWriteIsWhole) {
  const TemporaryFolder folder;
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'i'; ++c)
    writers.emplace_back([&folder, c] { write_file(folder / std::string(1, c), std::string(10'000, c)); });
  for (std::thread& writer : writers) writer.join();
  for (char c = 'a'; c < 'i'; ++c) EXPECT_EQ(text_of(folder / std::string(1, c)), std::string(10'000, c));
  EXPECT_EQ(folder.names().size(), 8U);
}

TEST(File, IsMapped) {
  const TemporaryFolder folder;
  for (const std::string& text : {std::string(), std::string("text"), std::string(100'000, 'x')}) {
    write_file(folder / "a", text);
    MappedFile file(folder / "a");
    EXPECT_TRUE(as_text(file.bytes()) == text);
    const MappedFile moved(std::move(file));
    EXPECT_TRUE(as_text(moved.bytes()) == text);
  }
}

TEST(File, OfTextMayEndItsLinesAsOnWindows) {
  const TemporaryFolder folder;
  write_file(folder / "t.csv", "a,1,2\r\nb,3,4\r\n");
  EXPECT_EQ(load_csv(folder / "t.csv").tokens, (std::vector<std::string>{"a", "b"}));
  write_file(folder / "t.json", "{\r\n  \"tokens\": [\"a\"],\r\n  \"inputs\": [[1, 2]]\r\n}\r\n");
  EXPECT_EQ(load_token_embeddings(folder / "t.json").tokens, std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace saccade::test
