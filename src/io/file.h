// Reading and writing whole files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "io/message.h"

namespace saccade::io {

/// The origin for messages about a path; "-" is called standard input.
Origin origin_of(std::string_view function, const std::filesystem::path& path);

std::vector<std::byte> read_file(const Origin& origin, const std::filesystem::path& path);

/// Writes a file piece by piece to a temporary one beside `path`. commit() renames it to `path`; without commit()
/// it is deleted. Devices and pipes cannot be replaced and are written to directly.
class FileWriter {
 public:
  FileWriter(const Origin& origin, const std::filesystem::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  void open_temporary();
  [[noreturn]] void refuse(std::string_view step, int error) const;

  const Origin& origin_;
  std::filesystem::path target_;
  std::filesystem::path temporary_;  ///< empty if the target is written to directly
  int descriptor_ = -1;
};

}  // namespace saccade::io
