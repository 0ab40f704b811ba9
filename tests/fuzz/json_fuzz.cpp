#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return saccade::fuzz::run(
      data, size, [](auto bytes) { saccade::fuzz::check(saccade::parse_json(saccade::fuzz::as_text(bytes))); });
}
