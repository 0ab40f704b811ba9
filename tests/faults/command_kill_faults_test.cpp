// The command killed: at each of its calls on files, and at random moments. What it has written is whole, and the
// next run works; a training run goes on to the same bits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "faults/command_faults.h"
#include "support/environment.h"
#include "support/fault_count.h"

namespace saccade::test {
namespace {

using Clock = std::chrono::steady_clock;

class CommandKills : public CommandFaults {
 protected:
  /// After a kill: nothing is half written, and the next run ends as one that follows none.
  void expect_recovery(const Job& job, const Files& before, const Files& expected) {
    expect_old_or_new(outputs(), before, expected);
    run_again(job);
    EXPECT_EQ(differences(outputs(), expected), "");
  }

  /// Runs a job, and kills it after a time. Returns whether it was still running.
  bool killed_after(const Job& job, std::chrono::microseconds time) const {
    std::vector<std::string> arguments{SACCADE_COMMAND};
    arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const std::string folder = path("");
    const pid_t child = ::fork();
    if (child == 0) {
      const int nothing = ::open("/dev/null", O_WRONLY);
      ::dup2(nothing, STDOUT_FILENO), ::dup2(nothing, STDERR_FILENO);
      if (::chdir(folder.c_str()) == 0) ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    std::this_thread::sleep_for(time);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }
};

TEST_F(CommandKills, BeforeEachCall) {
  for (const Job& job : jobs()) {
    const Files expected = expected_of(job);
    std::size_t killed = 0;
    for (std::size_t n = 1;; n += job.stride, ++killed) {
      SCOPED_TRACE(job.name + ", call " + std::to_string(n));
      prepare(job);
      const Files before = outputs();
      const Outcome outcome = run_with({"file", n, "kill", "out"}, job);
      if (!has_come()) break;
      EXPECT_EQ(outcome.exit_code, 137);
      expect_recovery(job, before, expected);
      if (HasFailure()) break;
    }
    EXPECT_GT(killed, 0U) << job.name;
    count_faults(killed);
  }
}

/// SACCADE_TEST_CASES kills.
TEST_F(CommandKills, AtRandomMoments) {
  std::mt19937_64 random(from_environment("SACCADE_TEST_SEED", 1));
  const std::uint64_t kills = from_environment("SACCADE_TEST_CASES", 20);
  const std::vector<Job> all = jobs();
  std::uint64_t killed = 0;
  for (std::uint64_t i = 0; killed < kills && i < 4 * kills; ++i) {
    const Job& job = all[i % all.size()];
    const Clock::time_point begin = Clock::now();
    const Files expected = expected_of(job);
    const auto longest = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
    const std::chrono::microseconds time(random() % static_cast<std::uint64_t>(longest));
    SCOPED_TRACE(job.name + " after " + std::to_string(time.count()) + " us");
    prepare(job);
    const Files before = outputs();
    if (killed_after(job, time)) ++killed;
    expect_recovery(job, before, expected);
    if (HasFailure()) break;
  }
  count_faults(killed);
  EXPECT_EQ(killed, kills) << "too many runs had ended before they were killed";
}

}  // namespace
}  // namespace saccade::test
