#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>

#include "support/system.h"

namespace saccade::test {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::size_t guard_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

std::filesystem::path new_temporary_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "saccade-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder can be made");
  return name;
}

void set_variable(const char* name, const char* value) {
  if (value != nullptr)
    ::setenv(name, value, 1);
  else
    ::unsetenv(name);
}

GuardedPages::GuardedPages(std::size_t bytes)
    : usable_((bytes + guard_bytes() - 1) / guard_bytes() * guard_bytes()) {
  void* const memory =
      ::mmap(nullptr, usable_ + guard_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<std::byte*>(memory);
  if (::mprotect(end(), guard_bytes(), PROT_NONE) != 0) throw std::bad_alloc();
}

GuardedPages::~GuardedPages() { ::munmap(begin_, usable_ + guard_bytes()); }

int exit_code_of(const Process& process) {
  std::string line = "cd " + quoted(process.folder.string()) + " && env";
  for (const auto& [name, value] : process.environment) line += " " + quoted(name + "=" + value);
  line += " " + quoted(process.program);
  for (const std::string& argument : process.arguments) line += " " + quoted(argument);
  line += " <" + quoted(process.in.string()) + " >" + quoted(process.out.string()) + " 2>" +
          quoted(process.err.string());
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

PseudoTerminal::PseudoTerminal() : screen_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
  if (screen_ < 0 || ::grantpt(screen_) != 0 || ::unlockpt(screen_) != 0)
    throw std::runtime_error("there is no terminal: " + std::string(std::strerror(errno)));
}

PseudoTerminal::~PseudoTerminal() { ::close(screen_); }

std::string PseudoTerminal::path() const { return ::ptsname(screen_); }

std::string PseudoTerminal::text() const {
  std::string text;
  std::array<char, 4096> chunk;
  for (ssize_t got = 0; (got = ::read(screen_, chunk.data(), chunk.size())) > 0;)
    text.append(chunk.data(), static_cast<std::size_t>(got));
  return text;
}

std::string output_of(const std::string& command_line) {
  FILE* const pipe = ::popen(command_line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("'" + command_line + "' cannot be run");
  std::string text;
  std::array<char, 1 << 16> chunk;
  for (std::size_t got = 0; (got = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    text.append(chunk.data(), got);
  if (::pclose(pipe) != 0) throw std::runtime_error("'" + command_line + "' failed");
  return text;
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Not aligned_alloc(), which tests of faults replace.
void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  void* memory = nullptr;
  return ::posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}
void free_aligned(void* memory) { std::free(memory); }

}  // namespace saccade::test
