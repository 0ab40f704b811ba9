#include <utility>

#include "io/elements.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/zip.h"
#include "saccade/io.h"

namespace saccade {
namespace {

constexpr std::string_view kSuffix = ".npy";

std::map<std::string, Tensor> parse_arrays(const io::Origin& origin, std::span<const std::byte> bytes) {
  std::map<std::string, Tensor> tensors;
  std::vector<std::byte> buffer;
  for (const io::ZipMember& member : io::zip_members(origin, bytes)) {
    std::string name = member.name;
    if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
    if (tensors.contains(name)) origin.refuse("has two arrays of the name " + io::in_quotes(name));
    const io::Origin inside{origin.function, origin.name + "(" + io::in_quotes(member.name) + ")"};
    Tensor tensor = io::parse_npy(inside, io::unpacked(origin, member, buffer));
    tensors.emplace(std::move(name), std::move(tensor));
  }
  return tensors;
}

}  // namespace

std::map<std::string, Tensor> load_npz(const std::filesystem::path& path) {
  const io::Origin origin = io::origin_of("load_npz", path);
  return parse_arrays(origin, io::read_file(origin, path));
}

std::map<std::string, Tensor> parse_npz(std::span<const std::byte> bytes, std::string_view name) {
  return parse_arrays({"parse_npz", std::string(name)}, bytes);
}

void save_npz(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors) {
  const io::Origin origin = io::origin_of("save_npz", path);
  io::FileWriter file(origin, path);
  io::ZipWriter archive(origin, file);
  for (const auto& [name, tensor] : tensors) {
    if (io::find_invalid_utf8(name)) origin.refuse_argument("the name " + io::in_quotes(name) + " is not UTF-8");
    const io::Origin inside{origin.function, origin.name + "(" + io::in_quotes(name) + ")"};
    archive.add(name + std::string(kSuffix), io::npy_header(inside, tensor), io::bytes_of(tensor));
  }
  archive.finish();
  file.commit();
}

}  // namespace saccade
