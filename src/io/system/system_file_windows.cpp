#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <share.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "io/system/system_file.h"

namespace saccade::io::system_file {
namespace {

namespace fs = std::filesystem;

constexpr int kStandardInput = 0;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // the functions take an unsigned int and return an int

/// What keeps every byte as it is, and files from programs that this one starts.
constexpr int kAlways = _O_BINARY | _O_NOINHERIT;

Descriptor open(const fs::path& path, int flags, int permission) {
  Descriptor file = -1;
  errno = _wsopen_s(&file, usable(path).c_str(), flags | kAlways, _SH_DENYNO, permission);
  return file;
}

}  // namespace

// Windows takes paths of more than 260 characters only in this form, unless the program and the system both allow
// them.
fs::path usable(const fs::path& path) {
  constexpr std::size_t kLong = 240;  // a folder may need 12 characters more
  if (path.native().starts_with(LR"(\\?\)")) return path;
  std::error_code error;
  const fs::path full = fs::absolute(path, error).lexically_normal().make_preferred();
  if (error || full.native().size() < kLong) return path;
  if (full.native().starts_with(LR"(\\)")) return LR"(\\?\UNC)" + full.native().substr(1);
  return LR"(\\?\)" + full.native();
}

Descriptor open_to_read(const fs::path& path) {
  if (path == "-") {
    _setmode(kStandardInput, _O_BINARY);
    return kStandardInput;
  }
  std::error_code ignored;
  if (fs::is_directory(usable(path), ignored)) {  // opening one would say that permission is denied
    errno = EISDIR;
    return -1;
  }
  return open(path, _O_RDONLY, 0);
}

Descriptor open_to_write(const fs::path& path) { return open(path, _O_WRONLY, 0); }

Descriptor create(const fs::path& path) {
  return open(path, _O_WRONLY | _O_CREAT | _O_EXCL, _S_IREAD | _S_IWRITE);
}

bool close(Descriptor file) { return _close(file) == 0; }

std::ptrdiff_t read(Descriptor file, void* to, std::size_t bytes) {
  return _read(file, to, static_cast<unsigned>(std::min(bytes, kMostAtOnce)));
}

std::ptrdiff_t write(Descriptor file, const void* from, std::size_t bytes) {
  return _write(file, from, static_cast<unsigned>(std::min(bytes, kMostAtOnce)));
}

bool flush(Descriptor file) { return _commit(file) == 0; }

void flush_folder(const fs::path&) {}  // Windows writes names with the files

std::size_t size_of(Descriptor file) {
  struct _stat64 status {};
  if (_fstat64(file, &status) != 0 || (status.st_mode & _S_IFMT) != _S_IFREG) return 0;
  return static_cast<std::size_t>(status.st_size);
}

const std::byte* map(Descriptor file, std::size_t bytes) {
  const auto handle = reinterpret_cast<HANDLE>(_get_osfhandle(file));
  const HANDLE mapping = CreateFileMappingW(handle, nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const void* const begin = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, bytes);
  CloseHandle(mapping);  // the view keeps it
  if (begin == nullptr) errno = ENOMEM;
  return static_cast<const std::byte*>(begin);
}

void unmap(const std::byte* begin, std::size_t) { UnmapViewOfFile(begin); }

bool may_write(const fs::path& path) {
  constexpr int kWrite = 2;
  return _waccess(usable(path).c_str(), kWrite) == 0;
}

int process_id() { return _getpid(); }

}  // namespace saccade::io::system_file
