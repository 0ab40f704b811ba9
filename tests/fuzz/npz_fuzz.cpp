#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return saccade::fuzz::run(data, size, [](auto bytes) {
    for (const auto& [name, tensor] : saccade::parse_npz(bytes)) {
      saccade::fuzz::require(tensor.bytes() / 1032 <= bytes.size());  // deflate's maximum ratio
    }
  });
}
