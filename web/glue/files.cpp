// The files of a model's folder, which JavaScript has put into memory: what src/io and std::filesystem would ask a
// system for.
#include "files.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "saccade/io.h"

namespace saccade::web {
namespace {

const Files* readable = nullptr;

/// The file of a path: of "model/config.json" the one named "config.json".
const Files::File* find(const std::string& path) {
  const std::string folder = std::string(kFolder) + "/";
  if (!readable || !path.starts_with(folder)) return nullptr;
  return readable->find(path.substr(folder.size()));
}

const Files::File& file_at(std::string_view function, const std::filesystem::path& path) {
  if (const auto* const found = find(path.string())) return *found;
  io::origin_of(function, path).refuse("was not given");
}

}  // namespace

Files::~Files() {
  for (const auto& [name, file] : files_) std::free(const_cast<std::byte*>(file.bytes.data()));
}

void Files::add(const std::string& name, File file) { files_[name] = std::move(file); }

const Files::File* Files::find(std::string_view name) const {
  const auto found = files_.find(name);
  return found == files_.end() ? nullptr : &found->second;
}

Files::Reading::Reading(const Files& files) { readable = &files; }
Files::Reading::~Reading() { readable = nullptr; }

}  // namespace saccade::web

namespace saccade {

io::Origin io::origin_of(std::string_view function, const std::filesystem::path& path) {
  return {function, path.string()};
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  const auto bytes = web::file_at("read_file", path).bytes;
  return {bytes.begin(), bytes.end()};
}

MappedFile::MappedFile(const std::filesystem::path& path) : bytes_(web::file_at("MappedFile", path).bytes) {}
MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
MappedFile::~MappedFile() = default;

std::map<std::string, TensorView> view_safetensors(std::span<const std::byte>, std::string_view name) {
  return web::file_at("view_safetensors", name).tensors;
}

}  // namespace saccade

/// In place of libc++'s: exists() and is_directory() ask it what is at a path.
std::filesystem::file_status std::filesystem::__status(const path& path, std::error_code*) {
  if (path.string() == saccade::web::kFolder) return file_status(file_type::directory);
  return file_status(saccade::web::find(path.string()) ? file_type::regular : file_type::not_found);
}
