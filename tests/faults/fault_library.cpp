// A library for LD_PRELOAD that causes one fault in a program, as its environment says:
//
// FAULT_CALL    the call that fails: open, read, write, fsync, close, rename, mmap, ftruncate or mkdir, "file" for
// any
//               of these, or "allocation"
// FAULT_NUMBER  which of these calls, counted from 1 since main() began
// FAULT_FOLDER  of calls on files: only files below this folder count
// FAULT_ERROR   the value of errno; "half": a write takes half of the bytes; "kill": the program is killed before
// the
//               call
// FAULT_REPORT  a file that is made when the fault comes; it holds the path of the call
//
// A program may set these as it runs, and have the calls counted anew by fault_begin().
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<bool> has_begun{false};
std::atomic<long> calls{0};

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The function that this library stands in front of.
template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

void report(const char* path) {
  static const auto open_file = real<int (*)(const char*, int, ...)>("open");
  static const auto write_file = real<ssize_t (*)(int, const void*, std::size_t)>("write");
  static const auto close_file = real<int (*)(int)>("close");
  const int file = open_file(variable("FAULT_REPORT"), O_WRONLY | O_CREAT, 0600);
  if (write_file(file, path, std::strlen(path)) < 0) std::abort();
  close_file(file);
}

/// Counts a call of the kind that fails. Returns whether it fails now, with errno set.
bool fails_now(const char* path) {
  if (++calls != std::atol(variable("FAULT_NUMBER"))) return false;
  report(path);
  if (std::strcmp(variable("FAULT_ERROR"), "kill") == 0) ::raise(SIGKILL);
  errno = std::atoi(variable("FAULT_ERROR"));
  return true;
}

bool is_wanted(const char* call) {
  if (!has_begun) return false;
  const char* const wanted = variable("FAULT_CALL");
  return std::strcmp(wanted, call) == 0 || std::strcmp(wanted, "file") == 0;
}

bool is_in_folder(const char* path) {
  const char* const folder = variable("FAULT_FOLDER");
  const std::size_t length = std::strlen(folder);
  return length > 0 && std::strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/// Whether a call on the file of a path fails.
bool fails(const char* call, const char* path) {
  if (!is_wanted(call)) return false;
  char absolute[2 * PATH_MAX] = "";
  if (path[0] != '/' && ::getcwd(absolute, PATH_MAX) != nullptr) std::strcat(absolute, "/");
  std::strncat(absolute, path, PATH_MAX - 1);
  return is_in_folder(absolute) && fails_now(absolute);
}

/// The same of an open file.
bool fails(const char* call, int file) {
  if (!is_wanted(call)) return false;
  char link[64], path[PATH_MAX] = "";
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = ::readlink(link, path, sizeof path - 1);
  return length > 0 && is_in_folder(path) && fails_now(path);
}

bool allocation_fails() {
  return has_begun && std::strcmp(variable("FAULT_CALL"), "allocation") == 0 && fails_now("");
}

int (*real_main)(int, char**, char**) = nullptr;

int counted_main(int argc, char** argv, char** environment) {
  has_begun = true;
  return real_main(argc, argv, environment);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

/// Counts from 1 again.
void fault_begin() { calls = 0; }

/// How many calls of the kind that fails there were.
long fault_calls() { return calls; }

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*loader_fini)(), void* stack_end) {
  real_main = main;
  using Start = int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  return real<Start>("__libc_start_main")(counted_main, argc, argv, init, fini, loader_fini, stack_end);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  static const auto next = real<int (*)(const char*, int, ...)>("open");
  return fails("open", path) ? -1 : next(path, flags, mode);
}

ssize_t read(int file, void* to, std::size_t bytes) {
  static const auto next = real<ssize_t (*)(int, void*, std::size_t)>("read");
  return fails("read", file) ? -1 : next(file, to, bytes);
}

ssize_t write(int file, const void* from, std::size_t bytes) {
  static const auto next = real<ssize_t (*)(int, const void*, std::size_t)>("write");
  if (!fails("write", file)) return next(file, from, bytes);
  if (std::strcmp(variable("FAULT_ERROR"), "half") != 0) return -1;
  return next(file, from, std::max<std::size_t>(bytes / 2, 1));
}

int fsync(int file) {
  static const auto next = real<int (*)(int)>("fsync");
  return fails("fsync", file) ? -1 : next(file);
}

/// The file is closed in any case, as by the system.
int close(int file) {
  static const auto next = real<int (*)(int)>("close");
  const bool fails_to = fails("close", file);
  const int error = errno, result = next(file);
  if (!fails_to) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  static const auto next = real<int (*)(const char*, const char*)>("rename");
  return fails("rename", to) ? -1 : next(from, to);
}

void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  static const auto next = real<void* (*)(void*, std::size_t, int, int, int, off_t)>("mmap");
  return file >= 0 && fails("mmap", file) ? MAP_FAILED : next(at, bytes, protection, flags, file, offset);
}

int ftruncate(int file, off_t bytes) noexcept {
  static const auto next = real<int (*)(int, off_t)>("ftruncate");
  return fails("ftruncate", file) ? -1 : next(file, bytes);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto next = real<int (*)(const char*, mode_t)>("mkdir");
  return fails("mkdir", path) ? -1 : next(path, mode);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  static const auto next = real<void* (*)(std::size_t, std::size_t)>("aligned_alloc");
  return allocation_fails() ? nullptr : next(alignment, bytes);
}

}  // extern "C"

void* operator new(std::size_t bytes) {
  void* const memory = allocation_fails() ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
#pragma GCC visibility pop
