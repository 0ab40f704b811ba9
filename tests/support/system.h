// What tests need of the operating system: system_posix.cpp and system_windows.cpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace saccade::test {

/// Makes a new folder in the system's folder for temporary files.
std::filesystem::path new_temporary_folder();

/// Sets a variable of this process's environment; nullptr removes it.
void set_variable(const char* name, const char* value);

/// Memory that can be read and written, before memory that cannot: reading past its end stops the test.
class GuardedPages {
 public:
  /// At least `bytes` bytes, rounded up to whole pages. Throws std::bad_alloc.
  explicit GuardedPages(std::size_t bytes);
  ~GuardedPages();
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  /// The first byte that cannot be read.
  std::byte* end() const { return begin_ + usable_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t usable_ = 0;
};

/// A program and what it is given.
struct Process {
  std::string program;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  ///< in addition to this process's
  std::filesystem::path folder, in, out, err;      ///< where it runs, and the files of its standard streams
};

/// Runs a program. Returns its exit code; -1 if it did not exit normally.
int exit_code_of(const Process& process);

#ifndef _WIN32
/// A terminal whose screen is this process: Process::out may be its path().
class PseudoTerminal {
 public:
  /// Throws std::runtime_error if the system has none left.
  PseudoTerminal();
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  std::string path() const;
  /// What ended programs have written to it, at most 4 kB: line ends are "\r\n".
  std::string text() const;

 private:
  int screen_;
};
#endif

/// Runs a command line of the system's shell. Returns what it writes to standard output; throws std::runtime_error
/// if its exit code is not 0.
std::string output_of(const std::string& command_line);

/// The time that processors have spent on this process, in seconds.
double processor_seconds();

/// Memory for an operator new that tests have replaced; nullptr if there is none.
void* allocate_aligned(std::size_t alignment, std::size_t bytes);
void free_aligned(void* memory);

}  // namespace saccade::test
