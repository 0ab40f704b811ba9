// Reading and writing whole files when the file system fails. The formats have their own tests.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "io/io_fixtures.h"

namespace saccade::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::string text_of(const fs::path& path) { return as_string(read_file(path)); }

/// Runs `body` in a child process, which may damage its own state. Returns body's result.
int exit_code_of(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// 0 if `write` throws std::runtime_error with this text.
int code_of_refusal(const std::function<void()>& write, std::string_view wanted) {
  try {
    write();
    return 1;
  } catch (const std::runtime_error& error) {
    return std::string_view(error.what()).find(wanted) != std::string_view::npos ? 0 : 2;
  }
}

TEST(WriteFile, WritesAndReplaces) {
  const TemporaryFolder folder;
  write_file(folder / "a", "first");
  EXPECT_EQ(text_of(folder / "a"), "first");
  write_file(folder / "a", "");
  EXPECT_EQ(text_of(folder / "a"), "");
  const std::string large(5'000'000, 'x');
  write_file(folder / "a", large);
  EXPECT_TRUE(text_of(folder / "a") == large);
  write_file(folder / std::string(255, 'n'), "the longest name");
  EXPECT_THAT(folder.names(), ElementsAre("a", std::string(255, 'n')));
}

TEST(WriteFile, WritesIntoTheCurrentFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(exit_code_of([&] {
              fs::current_path(folder.path());
              write_file("plain", "text");
              return text_of("./plain") == "text" ? 0 : 1;
            }),
            0);
  EXPECT_THAT(folder.names(), ElementsAre("plain"));
}

TEST(WriteFile, KeepsPermissions) {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  fs::permissions(folder / "a", fs::perms(0640));
  write_file(folder / "a", "new");
  EXPECT_EQ(fs::status(folder / "a").permissions(), fs::perms(0640));

  const mode_t old = ::umask(027);
  write_file(folder / "b", "new");
  ::umask(old);
  EXPECT_EQ(fs::status(folder / "b").permissions(), fs::perms(0640));
}

TEST(WriteFile, ReplacesWhatALinkPointsAt) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "elsewhere");
  write_file(folder / "elsewhere/real", "old");
  fs::create_symlink("elsewhere/real", folder / "link");
  write_file(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(text_of(folder / "elsewhere/real"), "new");
  EXPECT_THAT(folder.names(), ElementsAre("elsewhere", "link"));
}

TEST(WriteFile, RefusesPlacesThatCannotBeWritten) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  const auto write_to = [&](const fs::path& path) { return [path] { write_file(path, "new"); }; };
  EXPECT_THAT(write_to(folder / "missing/file"),
              ThrowsMessage<std::runtime_error>(StartsWith("[write_file] " + (folder / "missing/file").string() +
                                                           ": cannot be created: No such file or directory")));
  EXPECT_THAT(write_to(folder / "file/below"), ThrowsMessage<std::runtime_error>(HasSubstr("Not a directory")));
  EXPECT_THAT(write_to(folder.path()), ThrowsMessage<std::runtime_error>(HasSubstr("is a folder")));
  EXPECT_THAT(
      write_to(folder / std::string(256, 'n')),
      ThrowsMessage<std::runtime_error>(AnyOf(HasSubstr("File name too long"), HasSubstr("Filename too long"))));
  EXPECT_THAT(write_to(""), ThrowsMessage<std::runtime_error>(HasSubstr("cannot be")));
  EXPECT_THAT(write_to("-"), ThrowsMessage<std::runtime_error>(HasSubstr("name a file")));
  EXPECT_THAT(folder.names(), ElementsAre("file"));
  EXPECT_EQ(text_of(folder / "file"), "old");
}

TEST(WriteFile, RespectsWriteProtection) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  fs::create_directory(folder / "closed");
  write_file(folder / "closed/file", "old");
  fs::permissions(folder / "file", fs::perms(0444));
  fs::permissions(folder / "closed", fs::perms(0555));
  fs::permissions(folder.path(), fs::perms(0777));
  const int code = exit_code_of([&] {
    constexpr uid_t kNobody = 65534;
    if (::getuid() == 0 && ::setuid(kNobody) != 0) return 3;  // root may write everywhere
    for (const char* name : {"file", "closed/file", "closed/other"}) {
      const int result = code_of_refusal([&] { write_file(folder / name, "new"); }, "Permission denied");
      if (result != 0) return result;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text_of(folder / "file"), "old");
  EXPECT_EQ(text_of(folder / "closed/file"), "old");
  fs::permissions(folder / "closed", fs::perms(0755));
  EXPECT_THAT(folder.names(), ElementsAre("closed", "file"));
}

TEST(WriteFile, LeavesTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_file(folder / "t", "old");
  Safetensors checkpoint;
  checkpoint.tensors.emplace("w", Tensor(DType::f32, {1000}));
  const std::function<void()> writers[] = {
      [&] { write_file(folder / "t", std::string(4000, 'x')); },
      [&] { save_npy(folder / "t", Tensor(DType::f32, {1000})); },
      [&] { save_npz(folder / "t", checkpoint.tensors); },
      [&] { save_safetensors(folder / "t", checkpoint); },
      [&] { save_safetensors(folder / "new", checkpoint); },
  };
  for (const auto& write : writers) {
    for (const rlim_t room : {0, 100, 3999}) {
      EXPECT_EQ(exit_code_of([&] {
                  // A file that may not grow behaves as on a full disk: write() stops in the middle.
                  std::signal(SIGXFSZ, SIG_IGN);
                  const rlimit limit{room, room};
                  ::setrlimit(RLIMIT_FSIZE, &limit);
                  return code_of_refusal(write, "cannot be written: File too large");
                }),
                0);
      EXPECT_EQ(text_of(folder / "t"), "old");
      EXPECT_THAT(folder.names(), ElementsAre("t"));
    }
  }
}

TEST(WriteFile, WritesToDevicesAndPipesDirectly) {
  write_file("/dev/null", "gone");
  EXPECT_FALSE(fs::is_regular_file("/dev/null"));
  EXPECT_THAT([] { write_file("/dev/full", "text"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be written: No space left on device")));
  EXPECT_FALSE(fs::is_regular_file("/dev/full"));

  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string large(1'000'000, 'x');
  std::thread writer([&] { write_file(pipe, large); });
  EXPECT_TRUE(text_of(pipe) == large);
  writer.join();
  EXPECT_THAT(folder.names(), ElementsAre("pipe"));
}

TEST(WriteFile, ManyWritersOfOneFileLeaveOneWhole) {
  const TemporaryFolder folder;
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'i'; ++c) {
    writers.emplace_back([&folder, c] {
      for (int i = 0; i < 20; ++i) write_file(folder / "t", std::string(10'000, c));
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = text_of(folder / "t");
  EXPECT_EQ(text, std::string(10'000, text.empty() ? '?' : text[0]));
  EXPECT_THAT(folder.names(), ElementsAre("t"));
}

TEST(ReadFile, RefusesWhatCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { load_npy(folder / "none.npy"); },
              ThrowsMessage<std::runtime_error>("[load_npy] " + (folder / "none.npy").string() +
                                                ": cannot be opened: No such file or directory"));
  EXPECT_THAT([&] { load_npz(folder.path()); }, ThrowsMessage<std::runtime_error>(HasSubstr("Is a directory")));
  EXPECT_THAT([&] { load_safetensors(""); }, ThrowsMessage<std::runtime_error>(HasSubstr("cannot be opened")));
  EXPECT_THAT([&] { load_json(folder / "none"); }, ThrowsMessage<std::runtime_error>(StartsWith("[load_json] ")));
  EXPECT_THAT([&] { load_csv(folder / "none"); }, ThrowsMessage<std::runtime_error>(StartsWith("[load_csv] ")));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SACCADE_TEST_HAS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SACCADE_TEST_HAS_SANITIZER
#endif
#endif
#ifndef SACCADE_TEST_HAS_SANITIZER  // their allocators abort when memory runs out
TEST(ReadFile, RefusesAFileTooLargeForMemory) {
  const TemporaryFolder folder;
  write_file(folder / "sparse", "");
  fs::resize_file(folder / "sparse", std::uintmax_t{1} << 42);
  EXPECT_EQ(exit_code_of([&] {
              const rlimit limit{rlim_t{1} << 40, rlim_t{1} << 40};
              ::setrlimit(RLIMIT_AS, &limit);
              return code_of_refusal([&] { load_npy(folder / "sparse"); }, "does not fit in memory");
            }),
            0);
}
#endif

TEST(ReadFile, ReadsStandardInput) {
  const TemporaryFolder folder;
  const std::string json = "{\"tokens\": [\"a\"], \"inputs\": [[1, 2]]}";
  write_file(folder / "in", json);
  EXPECT_EQ(exit_code_of([&] {
              const int file = ::open((folder / "in").c_str(), O_RDONLY);
              ::dup2(file, STDIN_FILENO);
              const TokenEmbeddings embeddings = load_token_embeddings("-");
              return embeddings.tokens == std::vector<std::string>{"a"} && embeddings.inputs.size() == 2 ? 0 : 1;
            }),
            0);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ASSERT_EQ(::write(pipe[1], "damaged", 7), 7);
  ::close(pipe[1]);
  EXPECT_EQ(exit_code_of([&] {
              ::dup2(pipe[0], STDIN_FILENO);
              return code_of_refusal([] { load_npy("-"); }, "[load_npy] standard input: is not an npy file");
            }),
            0);
  ::close(pipe[0]);
}

TEST(ReadFile, ReadsFilesThatDoNotKnowTheirSize) {
  EXPECT_THAT(text_of("/proc/self/status"), StartsWith("Name:"));
}

TEST(MappedFile, HoldsTheBytesOfFilesThatDoNotKnowTheirSize) {
  const TemporaryFolder folder;
  std::string name;  // of this program, or of its emulator
  std::getline(std::ifstream("/proc/self/comm"), name);
  EXPECT_EQ(as_text(MappedFile("/proc/self/comm").bytes()), name + '\n');
  EXPECT_THAT([&] { MappedFile(folder / "nix"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot be opened: No such file")));
  EXPECT_THAT([&] { MappedFile file(folder.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("Is a directory")));
}

}  // namespace
}  // namespace saccade::test
