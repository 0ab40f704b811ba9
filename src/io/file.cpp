#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "saccade/io.h"

namespace saccade {
namespace io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;

std::string reason(int error) { return std::generic_category().message(error); }

/// A file opened for reading, or standard input, which stays open.
class InputFile {
 public:
  InputFile(const fs::path& path, int flags)
      : is_owned_(path != "-"),
        descriptor_(is_owned_ ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags) : STDIN_FILENO) {}
  ~InputFile() {
    if (is_owned_ && descriptor_ >= 0) ::close(descriptor_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  bool is_owned_;
  int descriptor_;
};

/// The size of a regular file, to avoid growing the buffer; 0 if unknown.
std::size_t expected_size(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return static_cast<std::size_t>(status.st_size);
}

/// The counter distinguishes files of one process, the process id those of others.
std::string temporary_name() {
  static std::atomic<unsigned> count{0};
  return ".saccade-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".tmp";
}

}  // namespace

Origin origin_of(std::string_view function, const fs::path& path) {
  return {function, path == "-" ? "standard input" : path.string()};
}

std::vector<std::byte> read_file(const Origin& origin, const fs::path& path) {
  const InputFile file(path, 0);
  if (file.descriptor() < 0) origin.refuse("cannot be opened: " + reason(errno));
  std::vector<std::byte> bytes;
  try {
    // With one byte more the end of the file is found without growing the buffer.
    bytes.reserve(expected_size(file.descriptor()) + 1);
    for (std::size_t length = 0;;) {
      const std::size_t room = bytes.capacity() - length;
      bytes.resize(length + (room == 0 ? kReadAtOnce : std::min(room, kReadAtOnce)));
      const ssize_t count = ::read(file.descriptor(), bytes.data() + length, bytes.size() - length);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) origin.refuse("cannot be read: " + reason(errno));
      length += static_cast<std::size_t>(count);
      bytes.resize(length);
      if (count == 0) return bytes;
    }
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  origin.refuse("does not fit in memory");
}

FileWriter::FileWriter(const Origin& origin, const fs::path& path) : origin_(origin), target_(path) {
  if (path == "-") origin.refuse("files are not written to standard output under this name; use /dev/stdout");
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) origin.refuse("is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) refuse("opened", errno);
    return;
  }
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    if (const fs::path real = fs::canonical(path, error); !error) target_ = real;
  }
  // Renaming would replace a file that is protected against writing.
  if (fs::exists(status) && ::access(target_.c_str(), W_OK) != 0) refuse("written", errno);
  open_temporary();
  if (fs::exists(status)) ::fchmod(descriptor_, static_cast<mode_t>(status.permissions()));
}

void FileWriter::open_temporary() {
  do {
    temporary_ = target_.parent_path() / temporary_name();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ >= 0) return;
  temporary_.clear();
  refuse("created", errno);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse("written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void FileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void FileWriter::commit() {
  // Without this, after a crash of the machine the new name could refer to an empty file.
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) refuse("written", errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) refuse("written", errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) refuse("replaced", errno);
  temporary_.clear();
  // The file is complete under its name. Flushing the folder is best effort.
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  if (const InputFile opened(folder, O_DIRECTORY); opened.descriptor() >= 0) ::fsync(opened.descriptor());
}

void FileWriter::refuse(std::string_view step, int error) const {
  origin_.refuse("cannot be " + std::string(step) + ": " + reason(error));
}

}  // namespace io

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  return io::read_file(io::origin_of("read_file", path), path);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("MappedFile", path);
  if (path != "-") {
    const io::InputFile file(path, 0);
    if (file.descriptor() < 0) origin.refuse("cannot be opened: " + io::reason(errno));
    if (const std::size_t size = io::expected_size(file.descriptor()); size > 0) {
      void* const begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
      if (begin == MAP_FAILED) origin.refuse("cannot be mapped: " + io::reason(errno));
      bytes_ = {static_cast<const std::byte*>(begin), size};
      return;
    }
  }
  read_ = io::read_file(origin, path);
  bytes_ = read_;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : read_(std::move(other.read_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty() && bytes_.data() != read_.data())
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const io::Origin origin = io::origin_of("write_file", path);
  io::FileWriter file(origin, path);
  file.write(bytes);
  file.commit();
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text)));
}

}  // namespace saccade
