#include "io/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "io/system/system_file.h"
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
  explicit InputFile(const fs::path& path)
      : is_owned_(path != "-"), descriptor_(system_file::open_to_read(path)) {}
  ~InputFile() {
    if (is_owned_ && is_open()) system_file::close(descriptor_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  bool is_open() const { return descriptor_ >= 0; }
  system_file::Descriptor descriptor() const { return descriptor_; }

 private:
  bool is_owned_;
  system_file::Descriptor descriptor_;
};

/// The counter distinguishes files of one process, the process id those of others.
std::string temporary_name() {
  static std::atomic<unsigned> count{0};
  return ".saccade-" + std::to_string(system_file::process_id()) + "-" + std::to_string(count++) + ".tmp";
}

}  // namespace

Origin origin_of(std::string_view function, const fs::path& path) {
  if (path == "-") return {function, "standard input"};
  const std::u8string name = path.u8string();
  return {function, std::string(name.begin(), name.end())};
}

std::vector<std::byte> read_file(const Origin& origin, const fs::path& path) {
  const InputFile file(path);
  if (!file.is_open()) origin.refuse("cannot be opened: " + reason(errno));
  std::vector<std::byte> bytes;
  try {
    // With one byte more the end of the file is found without growing the buffer.
    bytes.reserve(system_file::size_of(file.descriptor()) + 1);
    for (std::size_t length = 0;;) {
      const std::size_t room = bytes.capacity() - length;
      bytes.resize(length + (room == 0 ? kReadAtOnce : std::min(room, kReadAtOnce)));
      const std::ptrdiff_t count =
          system_file::read(file.descriptor(), bytes.data() + length, bytes.size() - length);
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

FileWriter::FileWriter(const Origin& origin, const fs::path& path)
    : origin_(origin), target_(system_file::usable(path)) {
  if (path == "-") origin.refuse("files are not written to standard output; name a file");
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (fs::is_directory(status)) origin.refuse("is a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    descriptor_ = system_file::open_to_write(path);
    if (descriptor_ < 0) refuse("opened", errno);
    return;
  }
  if (fs::is_symlink(fs::symlink_status(target_, error))) {
    if (const fs::path real = fs::canonical(target_, error); !error) target_ = real;
  }
  // Renaming would replace a file that is protected against writing.
  if (fs::exists(status) && !system_file::may_write(target_)) refuse("written", errno);
  open_temporary();
  if (fs::exists(status)) fs::permissions(temporary_, status.permissions(), error);
}

void FileWriter::open_temporary() {
  do {
    temporary_ = target_.parent_path() / temporary_name();
    descriptor_ = system_file::create(temporary_);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ >= 0) return;
  temporary_.clear();
  refuse("created", errno);
}

FileWriter::~FileWriter() {
  std::error_code ignored;
  if (descriptor_ >= 0) system_file::close(descriptor_);
  if (!temporary_.empty()) fs::remove(temporary_, ignored);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::ptrdiff_t count = system_file::write(descriptor_, bytes.data(), bytes.size());
    if (count <= 0) refuse("written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void FileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void FileWriter::commit() {
  // Without this, after a crash of the machine the new name could refer to an empty file.
  if (!temporary_.empty() && !system_file::flush(descriptor_)) refuse("written", errno);
  if (!system_file::close(std::exchange(descriptor_, -1))) refuse("written", errno);
  if (temporary_.empty()) return;
  // All that needs memory comes before the file is replaced.
  const fs::path folder = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  std::error_code error;
  if (fs::rename(temporary_, target_, error); error)
    origin_.refuse("cannot be replaced: " + error.default_error_condition().message());
  temporary_.clear();
  // The file is complete under its name. Flushing the folder is best effort.
  system_file::flush_folder(folder);
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
    const io::InputFile file(path);
    if (!file.is_open()) origin.refuse("cannot be opened: " + io::reason(errno));
    if (const std::size_t size = io::system_file::size_of(file.descriptor()); size > 0) {
      const std::byte* const begin = io::system_file::map(file.descriptor(), size);
      if (begin == nullptr) origin.refuse("cannot be mapped: " + io::reason(errno));
      bytes_ = {begin, size};
      return;
    }
  }
  read_ = io::read_file(origin, path);
  bytes_ = read_;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : read_(std::move(other.read_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty() && bytes_.data() != read_.data()) io::system_file::unmap(bytes_.data(), bytes_.size());
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
