// The files of a Hugging Face folder: config.json, and memory-mapped tensors by name.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/checkpoint/config.h"
#include "saccade/io.h"
#include "saccade/tensor.h"

namespace saccade::model {

/// Parses a JSON file. Throws std::runtime_error.
nlohmann::json json_of(const std::filesystem::path& file);

/// NAME.weight
inline std::string weight_of(std::string_view name) { return std::string(name) + ".weight"; }

class Checkpoint {
 public:
  /// Maps model.safetensors, or the files that model.safetensors.index.json names. Throws std::runtime_error.
  explicit Checkpoint(const std::filesystem::path& folder);

  const Config& config() const { return config_; }

  /// Sets the prefixes that names have in some checkpoints of a family: "bert.", "model.".
  void set_prefixes(std::vector<std::string> prefixes) { prefixes_ = std::move(prefixes); }

  bool has(const std::string& name) const { return find(name) != nullptr; }
  /// The tensor with this name, with or without one of the prefixes. Throws std::runtime_error if it is missing,
  /// is not f32, bf16 or f16, or has another shape.
  TensorView tensor(const std::string& name, const Shape& shape) const;
  /// The same tensor converted to f32.
  Tensor numbers(const std::string& name, const Shape& shape) const;

 private:
  const TensorView* find(const std::string& name) const;

  std::filesystem::path folder_;
  Config config_;
  std::vector<MappedFile> files_;
  std::vector<Safetensors> read_;  // in place of these, on big-endian machines
  std::map<std::string, TensorView> tensors_;
  std::vector<std::string> prefixes_;
};

}  // namespace saccade::model
