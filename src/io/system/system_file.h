// Files as the operating system has them. Functions that fail return what their comments say and set errno.
#pragma once

#include <cstddef>
#include <filesystem>

namespace saccade::io::system_file {

/// A file that is open; -1: none.
using Descriptor = int;

/// `path`, or a form of it that the system also takes if it is long.
std::filesystem::path usable(const std::filesystem::path& path);

/// Opens a file to be read; "-" is standard input. -1 on failure.
Descriptor open_to_read(const std::filesystem::path& path);
/// Opens what exists already, such as a device, to be written. -1 on failure.
Descriptor open_to_write(const std::filesystem::path& path);
/// Makes a new file to be written. -1 on failure; errno is then EEXIST if the file exists.
Descriptor create(const std::filesystem::path& path);
/// Closes a file. Returns whether all that was written has been taken.
bool close(Descriptor file);

/// Reads at most `bytes` bytes. Returns how many: 0 at the end, -1 on failure.
std::ptrdiff_t read(Descriptor file, void* to, std::size_t bytes);
/// Writes at most `bytes` bytes. Returns how many, -1 on failure.
std::ptrdiff_t write(Descriptor file, const void* from, std::size_t bytes);
/// Flushes a file to the disk. Returns whether it is there.
bool flush(Descriptor file);
/// Flushes a folder's list of names, as far as the system can.
void flush_folder(const std::filesystem::path& folder);

/// The size of a regular file; 0 if it is unknown.
std::size_t size_of(Descriptor file);
/// Maps the first `bytes` bytes of a file, to be read; nullptr on failure. They outlive the descriptor.
const std::byte* map(Descriptor file, std::size_t bytes);
/// Ends what map() began.
void unmap(const std::byte* begin, std::size_t bytes);

/// Whether this user may write to a file that exists.
bool may_write(const std::filesystem::path& path);
/// A number that no other process has while this one runs.
int process_id();

}  // namespace saccade::io::system_file
