#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return saccade::fuzz::run(data, size, [](auto bytes) {
    const saccade::Tensor tensor = saccade::parse_npy(bytes);
    saccade::fuzz::require(tensor.bytes() <= bytes.size());
  });
}
