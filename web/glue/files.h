// The files of a model's folder in memory.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "saccade/tensor.h"

namespace saccade::web {

/// The folder that the library reads them from.
inline constexpr std::string_view kFolder = "model";

/// Files by name, as long as the model that views their tensors.
class Files {
 public:
  struct File {
    std::span<const std::byte> bytes;
    /// What JavaScript found in it: a parser in the module would be 30 kB more to download.
    std::map<std::string, TensorView> tensors{};
  };

  Files() = default;
  ~Files();
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  /// Takes over a file's memory, which is of malloc().
  void add(const std::string& name, File file);

  /// While it lives, the library reads these files.
  class Reading {
   public:
    explicit Reading(const Files& files);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
  };

  /// nullptr: there is none of that name.
  const File* find(std::string_view name) const;

 private:
  std::map<std::string, File, std::less<>> files_;
};

}  // namespace saccade::web
