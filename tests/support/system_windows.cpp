#include <malloc.h>
#include <windows.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "support/system.h"

namespace saccade::test {
namespace {

constexpr std::size_t kGuardBytes = 1 << 16;  // the granularity of addresses

std::wstring wide(const std::string& utf8) {
  const std::u8string text(utf8.begin(), utf8.end());
  return std::filesystem::path(text).native();
}

/// An argument as the run-time library of C takes it apart again.
std::wstring quoted(const std::wstring& text) {
  std::wstring result = L"\"";
  std::size_t backslashes = 0;
  for (const wchar_t c : text) {
    if (c == L'"') result.append(backslashes + 1, L'\\');
    backslashes = c == L'\\' ? backslashes + 1 : 0;
    result += c;
  }
  return result + std::wstring(backslashes, L'\\') + L"\"";
}

/// A file that a program may inherit.
class Stream {
 public:
  Stream(const std::filesystem::path& path, bool writes) {
    SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
    handle_ = CreateFileW(path.c_str(), writes ? GENERIC_WRITE : GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE,
                          &inherited, writes ? CREATE_ALWAYS : OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle_ == INVALID_HANDLE_VALUE) throw std::runtime_error(path.string() + " cannot be opened");
  }
  ~Stream() { CloseHandle(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  HANDLE handle() const { return handle_; }

 private:
  HANDLE handle_ = nullptr;
};

/// The environment of this process with more variables: NAME=VALUE texts, each with a 0 behind it, and one more 0.
std::wstring environment_with(const std::map<std::string, std::string>& more) {
  std::map<std::wstring, std::wstring> variables;
  wchar_t* const own = GetEnvironmentStringsW();
  for (const wchar_t* at = own; *at != 0;) {
    const std::wstring text = at;
    const std::size_t equals = text.find(L'=', 1);
    variables[text.substr(0, equals)] = text.substr(equals + 1);
    at += text.size() + 1;
  }
  FreeEnvironmentStringsW(own);
  for (const auto& [name, value] : more) variables[wide(name)] = wide(value);
  std::wstring block;
  for (const auto& [name, value] : variables) block += name + L"=" + value + std::wstring(1, 0);
  return block + std::wstring(1, 0);
}

}  // namespace

std::filesystem::path new_temporary_folder() {
  static std::atomic<unsigned> count = 0;
  for (;;) {
    const std::string name =
        "saccade-test-" + std::to_string(GetCurrentProcessId()) + "-" + std::to_string(count++);
    const std::filesystem::path path = std::filesystem::temp_directory_path() / name;
    if (std::filesystem::create_directory(path)) return path;
  }
}

void set_variable(const char* name, const char* value) { _putenv_s(name, value == nullptr ? "" : value); }

GuardedPages::GuardedPages(std::size_t bytes) : usable_((bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes) {
  begin_ = static_cast<std::byte*>(VirtualAlloc(nullptr, usable_ + kGuardBytes, MEM_RESERVE, PAGE_NOACCESS));
  if (begin_ == nullptr) throw std::bad_alloc();
  if (usable_ > 0 && VirtualAlloc(begin_, usable_, MEM_COMMIT, PAGE_READWRITE) == nullptr) throw std::bad_alloc();
}

GuardedPages::~GuardedPages() { VirtualFree(begin_, 0, MEM_RELEASE); }

int exit_code_of(const Process& process) {
  std::wstring line = quoted(wide(process.program));
  for (const std::string& argument : process.arguments) line += L" " + quoted(wide(argument));
  std::wstring environment = environment_with(process.environment);
  const Stream in(process.in, false), out(process.out, true), err(process.err, true);
  STARTUPINFOW start{};
  start.cb = sizeof start;
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = in.handle(), start.hStdOutput = out.handle(), start.hStdError = err.handle();
  PROCESS_INFORMATION started{};
  if (CreateProcessW(wide(process.program).c_str(), line.data(), nullptr, nullptr, TRUE,
                     CREATE_UNICODE_ENVIRONMENT, environment.data(), process.folder.c_str(), &start,
                     &started) == FALSE)
    throw std::runtime_error(process.program + " cannot be started");
  WaitForSingleObject(started.hProcess, INFINITE);
  DWORD code = 0;
  GetExitCodeProcess(started.hProcess, &code);
  CloseHandle(started.hThread);
  CloseHandle(started.hProcess);
  return code < 0x8000'0000 ? static_cast<int>(code) : -1;  // above: the exception that ended it
}

std::string output_of(const std::string& command_line) {
  FILE* const pipe = _popen(command_line.c_str(), "rb");
  if (pipe == nullptr) throw std::runtime_error("'" + command_line + "' cannot be run");
  std::string text;
  std::array<char, 1 << 16> chunk;
  for (std::size_t got = 0; (got = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    text.append(chunk.data(), got);
  if (_pclose(pipe) != 0) throw std::runtime_error("'" + command_line + "' failed");
  return text;
}

double processor_seconds() {
  FILETIME created{}, ended{}, kernel{}, user{};
  GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user);
  const auto ticks = [](const FILETIME& time) {
    return static_cast<double>(std::uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime);
  };
  return 1e-7 * (ticks(kernel) + ticks(user));
}

void* allocate_aligned(std::size_t alignment, std::size_t bytes) { return _aligned_malloc(bytes, alignment); }
void free_aligned(void* memory) { _aligned_free(memory); }

}  // namespace saccade::test
