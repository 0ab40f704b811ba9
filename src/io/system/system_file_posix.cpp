#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/system/system_file.h"

namespace saccade::io::system_file {

namespace fs = std::filesystem;

namespace {

/// Calls a function of the system again as long as a signal ends it early.
template <class Call>
auto through_signals(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

Descriptor open(const fs::path& path, int flags) {
  return through_signals([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

}  // namespace

fs::path usable(const fs::path& path) { return path; }

Descriptor open_to_read(const fs::path& path) { return path == "-" ? STDIN_FILENO : open(path, O_RDONLY); }
Descriptor open_to_write(const fs::path& path) { return open(path, O_WRONLY); }
Descriptor create(const fs::path& path) { return open(path, O_WRONLY | O_CREAT | O_EXCL); }
bool close(Descriptor file) { return ::close(file) == 0 || errno == EINTR; }  // Linux has closed it even then

std::ptrdiff_t read(Descriptor file, void* to, std::size_t bytes) {
  return through_signals([&] { return ::read(file, to, bytes); });
}

std::ptrdiff_t write(Descriptor file, const void* from, std::size_t bytes) {
  return through_signals([&] { return ::write(file, from, bytes); });
}

bool flush(Descriptor file) {
  return through_signals([&] { return ::fsync(file); }) == 0;
}

void flush_folder(const fs::path& folder) {
  const Descriptor opened = open(folder, O_RDONLY | O_DIRECTORY);
  if (opened < 0) return;
  ::fsync(opened);
  ::close(opened);
}

std::size_t size_of(Descriptor file) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return static_cast<std::size_t>(status.st_size);
}

const std::byte* map(Descriptor file, std::size_t bytes) {
  void* const begin = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  return begin == MAP_FAILED ? nullptr : static_cast<const std::byte*>(begin);
}

void unmap(const std::byte* begin, std::size_t bytes) { ::munmap(const_cast<std::byte*>(begin), bytes); }

bool may_write(const fs::path& path) { return ::access(path.c_str(), W_OK) == 0; }

int process_id() { return ::getpid(); }

}  // namespace saccade::io::system_file
