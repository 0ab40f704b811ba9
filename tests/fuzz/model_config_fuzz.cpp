// A config.json beside the weights of a small model: it is refused by name, or describes that model.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz.h"
#include "saccade/model.h"

namespace {

namespace fs = std::filesystem;

/// A folder with the weights of the tests' Llama.
fs::path folder_of_weights() {
  const fs::path folder = fs::temp_directory_path() / ("saccade_fuzz_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  fs::copy_file(SACCADE_SOURCE_DIR "/tests/data/models/llama/model.safetensors", folder / "model.safetensors",
                fs::copy_options::overwrite_existing);
  return folder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path kFolder = folder_of_weights();
  return saccade::fuzz::run(
      data, size,
      [](auto bytes) {
        std::ofstream(kFolder / "config.json", std::ios::binary) << saccade::fuzz::as_text(bytes);
        const auto model = saccade::Model::load(kFolder);
        const saccade::Tensor states = model.hidden_states({.tokens = {0, 1, 2}});
        saccade::fuzz::require(states.shape(1) == model.sizes().d_model);
      },
      "[Model] ");
}
