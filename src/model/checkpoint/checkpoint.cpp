#include "model/checkpoint/checkpoint.h"

#include <algorithm>
#include <bit>
#include <set>
#include <stdexcept>

namespace saccade::model {
namespace {

using nlohmann::json;
using std::filesystem::path;

/// The files of the tensors. A name in the index must not lead out of the folder.
std::set<std::string> files_of(const path& folder) {
  if (is_there(folder / "model.safetensors")) return {"model.safetensors"};
  const path index = folder / "model.safetensors.index.json";
  if (!is_there(index)) {
    for (const char* const other : {"pytorch_model.bin", "model.bin", "pytorch_model.bin.index.json"})
      if (is_there(folder / other))
        refuse_file("[Model] " + folder.string() + " has its weights in " + other +
                    ", which is not read; examples/python/convert_checkpoint.py makes model.safetensors "
                    "of it");
    refuse_file("[Model] " + folder.string() + " has neither model.safetensors nor model.safetensors.index.json");
  }
  const json contents = json_of(index);
  const auto map = contents.find("weight_map");
  if (map == contents.end() || !map->is_object())
    refuse_file("[Model] " + index.string() + ": weight_map must be an object");
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || path(file.get<std::string>()).filename() != path(file.get<std::string>()))
      refuse_file("[Model] " + index.string() + ": the file of " + name +
                  " must be a name in the folder, but it is " + file.dump());
    files.insert(file.get<std::string>());
  }
  return files;
}

json config_of(const path& folder) {
  if (!is_there(folder) || !is_directory(folder)) refuse_file("[Model] " + folder.string() + " is not a folder");
  return json_of(folder / "config.json");
}

}  // namespace

json json_of(const path& file) {
  const std::vector<std::byte> bytes = read_file(file);
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  try {
    return json::parse(text, text + bytes.size());
  } catch (const json::exception& error) {
    refuse_file("[Model] " + file.string() + ": " + error.what());
  }
}

Checkpoint::Checkpoint(const path& folder)
    : folder_(folder), config_(config_of(folder), (folder / "config.json").string()) {
  for (const std::string& file : files_of(folder)) {
    if constexpr (std::endian::native == std::endian::big) {  // the numbers have to be converted
      const Safetensors& read = read_.emplace_back(load_safetensors(folder / file));
      for (const auto& [name, tensor] : read.tensors) tensors_.emplace(name, tensor.view());
    } else {
      files_.emplace_back(folder / file);
      tensors_.merge(view_safetensors(files_.back().bytes(), (folder / file).string()));
    }
  }
}

const TensorView* Checkpoint::find(const std::string& name) const {
  const auto plain = tensors_.find(name);
  if (plain != tensors_.end()) return &plain->second;
  for (const std::string& prefix : prefixes_) {
    const auto found = tensors_.find(prefix + name);
    if (found != tensors_.end()) return &found->second;
  }
  return nullptr;
}

TensorView Checkpoint::tensor(const std::string& name, const Shape& shape) const {
  const TensorView* const found = find(name);
  if (found == nullptr) {
    std::string message = "[Model] " + folder_.string() + " lacks the tensor " + name;
    if (!prefixes_.empty()) message += " (also as " + prefixes_.front() + name + ")";
    refuse_file(message);
  }
  if (!std::ranges::equal(found->dims(), shape))
    refuse_file("[Model] " + folder_.string() + ": " + name + " must have shape " + to_string(shape) +
                ", but it has shape " + to_string(found->dims()));
  if (found->dtype != DType::f32 && found->dtype != DType::bf16 && found->dtype != DType::f16)
    refuse_file("[Model] " + folder_.string() + ": " + name + " must be f32, bf16 or f16, but it is " +
                std::string(name_of(found->dtype)));
  return *found;
}

Tensor Checkpoint::numbers(const std::string& name, const Shape& shape) const {
  return Tensor::copy_of(tensor(name, shape), DType::f32);
}

}  // namespace saccade::model
