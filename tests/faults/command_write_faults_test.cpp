// Disks that are full, broken or read-only, while the command writes and reads files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "faults/command_faults.h"
#include "support/fault_count.h"

namespace saccade::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string last_line(const std::string& text) {
  if (text.empty() || text.back() != '\n') return "no line: " + text;
  const std::size_t before = text.rfind('\n', text.size() - 2);
  return text.substr(before == std::string::npos ? 0 : before + 1);
}

/// The reason that the system gives for an error.
std::string reason(int error) { return std::generic_category().message(error); }

/// An error of a run: exit code 2, and a last line that names a file of the folder and, for an `error`, the
/// reason.
void expect_refusal(const Outcome& outcome, const Job& job, const std::string& folder, int error) {
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(last_line(outcome.err), StartsWith("saccade " + job.name + ": "));
  EXPECT_THAT(last_line(outcome.err), HasSubstr(folder));
  EXPECT_THAT(last_line(outcome.err), HasSubstr(error == 0 ? "" : reason(error)));
}

/// Every call on the files that a command writes fails once. The old files are whole, or the new ones are; nothing
/// else is left, and the next run works.
TEST_F(CommandFaults, OfWriting) {
  constexpr std::array kErrors{ENOSPC, EDQUOT, EIO, EROFS};
  for (const Job& job : jobs()) {
    const Files expected = expected_of(job);
    std::size_t refused = 0;
    for (std::size_t n = 1;; n += job.stride) {
      SCOPED_TRACE(job.name + ", call " + std::to_string(n));
      const int error = kErrors[n % kErrors.size()];
      prepare(job);
      const Files before = outputs();
      const Outcome outcome = run_with({"file", n, std::to_string(error), "out"}, job);
      const bool was_caused = has_come();
      EXPECT_FALSE(has_temporary_files());
      if (outcome.exit_code != 0) {
        ++refused;
        expect_refusal(outcome, job, "out/", error);
        expect_old_or_new(outputs(), before, expected);
        run_again(job);
      } else if (was_caused) {  // to flush a list of names is all that may fail
        EXPECT_TRUE(fs::is_directory(path_of_fault())) << path_of_fault();
      }
      EXPECT_EQ(differences(outputs(), expected), "");
      if (!was_caused || HasFailure()) break;
    }
    EXPECT_GT(refused, 0U) << job.name;
    count_faults(refused);
  }
}

/// A write may take only a part of the bytes.
TEST_F(CommandFaults, OfWritesThatTakeHalf) {
  for (const Job& job : jobs()) {
    const Files expected = expected_of(job);
    for (std::size_t n = 1;; n += job.stride) {
      SCOPED_TRACE(job.name + ", write " + std::to_string(n));
      prepare(job);
      EXPECT_EQ(run_with({"write", n, "half", "out"}, job).exit_code, 0);
      EXPECT_EQ(differences(outputs(), expected), "");
      if (!has_come() || HasFailure()) break;
      count_faults();
    }
  }
}

/// Every call on the files that a command reads fails once: it says so, or reads what is there, never a part of
/// it.
TEST_F(CommandFaults, OfReading) {
  for (const Job& job : jobs()) {
    const Files expected = expected_of(job);
    std::size_t refused = 0;
    for (std::size_t n = 1;; ++n) {
      SCOPED_TRACE(job.name + ", call " + std::to_string(n));
      prepare(job);
      const Files before = outputs();
      const Outcome outcome = run_with({"file", n, std::to_string(EIO), "in"}, job);
      if (outcome.exit_code != 0) {
        ++refused;
        expect_refusal(outcome, job, "in/", 0);
        EXPECT_EQ(differences(outputs(), before), "");
      } else {
        EXPECT_EQ(differences(outputs(), expected), "");
      }
      if (!has_come() || HasFailure()) break;
    }
    EXPECT_GT(refused, 0U) << job.name;
    count_faults(refused);
  }
}

/// Lines that cannot be read are not those after the end.
TEST_F(CommandFaults, OfReadingProblems) {
  write("in/shapes", "h=2 s=20 d=8\n");
  const Job job{.name = "check", .arguments = {"check", "--shapes", "in/shapes"}, .outputs = {}};
  ASSERT_EQ(run(job.arguments).exit_code, 0);
  for (std::size_t n = 1; n <= 2; ++n)
    expect_refusal(run_with({"read", n, std::to_string(EIO), "in"}, job), job, "in/", 0);
}

/// A disk that is really full.
TEST_F(CommandFaults, OfAFullDisk) {
  for (const Job& job : jobs()) {
    prepare(job);
    if (::mount("tmpfs", path("out").c_str(), "tmpfs", 0, "size=4k") != 0)
      GTEST_SKIP() << "a small disk cannot be mounted: " << reason(errno);
    for (const std::string& name : job.outputs) write("out/" + name, "old");
    if (job.outputs.empty()) write("out/filling", std::string(4096, 'x'));
    const Files before = outputs();
    const Outcome outcome = run(job.arguments);
    SCOPED_TRACE(job.name + ": " + outcome.err);
    count_faults();
    expect_refusal(outcome, job, "out/", ENOSPC);
    EXPECT_FALSE(has_temporary_files());
    Files after = outputs();
    after.erase("out/run");
    EXPECT_EQ(differences(after, before), "");
    ::umount(path("out").c_str());
  }
}

TEST_F(CommandFaults, OfAReadOnlyFolder) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.name);
    prepare(job);
    const Files before = outputs();
    fs::permissions(path("out"), fs::perms::owner_read | fs::perms::owner_exec);
    const Outcome outcome = run(job.arguments);
    fs::permissions(path("out"), fs::perms::owner_all);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(differences(outputs(), before), "");
  }
}

// ---- Standard output -----------------------------------------------------------------------------------------

/// Commands that print much, little, or on the way.
const std::vector<std::vector<std::string>> kPrinting = {
    {"tour"},
    {"info"},
    {"info", "--json"},
    {"--help"},
    {"--version"},
    {"completion", "bash"},
    {"look", "--help"},
    {"explain", "in/tokens.csv"},
    {"heatmap", "in/w.npy", "-o", "-"},
    {"generate", "-m", "in/decoder", "-p", "A mask", "-n", "5", "--temp", "0"}};

TEST_F(CommandFaults, OfAFullStandardOutput) {
  for (const std::vector<std::string>& arguments : kPrinting) {
    SCOPED_TRACE(arguments.back());
    const std::string line =
        last_line(run_program("/bin/sh",
                              [&] {
                                std::vector<std::string> shell{
                                    "-c", "\"$0\" \"$@\" >/dev/full; echo \"exit code $?\" >&2", SACCADE_COMMAND};
                                shell.insert(shell.end(), arguments.begin(), arguments.end());
                                return shell;
                              }())
                      .err);
    EXPECT_EQ(line, "exit code 2\n");
  }
}

/// The reader of a pipe has gone. The command ends as other programs do, by the signal; if a program has switched
/// the signal off, with one line.
TEST_F(CommandFaults, OfAClosedPipe) {
  for (const char* const trap : {"", "trap '' PIPE; "}) {
    for (const std::vector<std::string>& arguments : kPrinting) {
      SCOPED_TRACE(trap + arguments.back());
      std::vector<std::string> shell{
          "-c", std::string(trap) + "{ sleep 0.1; \"$0\" \"$@\"; echo \"exit code $?\" >&2; } | true",
          SACCADE_COMMAND};
      shell.insert(shell.end(), arguments.begin(), arguments.end());
      const std::string err = run_program("/bin/sh", shell).err;
      if (std::string(trap).empty())
        EXPECT_EQ(err, "exit code 141\n");
      else
        EXPECT_THAT(
            err, ::testing::MatchesRegex("saccade[ a-z]*: standard output could not be written\nexit code 2\n"));
    }
  }
}

}  // namespace
}  // namespace saccade::test
