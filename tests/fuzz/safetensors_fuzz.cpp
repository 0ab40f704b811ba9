#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return saccade::fuzz::run(data, size, [](auto bytes) {
    std::size_t total = 0;
    for (const auto& [name, tensor] : saccade::parse_safetensors(bytes).tensors) total += tensor.bytes();
    saccade::fuzz::require(total <= bytes.size());
  });
}
