#include "saccade/kv_cache_file.h"

#include <algorithm>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return saccade::fuzz::run(data, size, [](auto bytes) {
    const saccade::KvCache cache = saccade::parse_kv_cache(bytes);
    const saccade::KvCache again = saccade::KvCache::from_state(cache.state());
    saccade::fuzz::require(std::ranges::equal(again.lengths(), cache.lengths()));
  });
}
