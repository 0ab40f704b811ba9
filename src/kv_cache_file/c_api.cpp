// Caches in files, for C: a part of saccade::io, while the handles and the last error are the core's.
#include <cstddef>
#include <string_view>

#include "c_api/call.h"
#include "c_api/kv_cache.h"
#include "saccade/c_api.h"
#include "saccade/kv_cache_file.h"

saccade_status saccade_kv_cache_save(const saccade_kv_cache* cache, const char* path) {
  using namespace saccade::c_api;
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_save";
    const saccade::KvCache& own = required(kFunction, "cache", cache).cache;
    saccade::save_kv_cache(&required(kFunction, "path", path), own);
  });
}

saccade_status saccade_kv_cache_load(const char* path, saccade_kv_cache** cache) {
  using namespace saccade::c_api;
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_load";
    saccade_kv_cache*& result = required(kFunction, "cache", cache);
    result = new saccade_kv_cache{saccade::load_kv_cache(&required(kFunction, "path", path))};
  });
}

saccade_status saccade_kv_cache_parse(const void* bytes, std::size_t size, const char* name,
                                      saccade_kv_cache** cache) {
  using namespace saccade::c_api;
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_kv_cache_parse";
    saccade_kv_cache*& result = required(kFunction, "cache", cache);
    const std::byte& first = required(kFunction, "bytes", static_cast<const std::byte*>(bytes));
    result = new saccade_kv_cache{saccade::parse_kv_cache({&first, size}, name == nullptr ? "kv_cache" : name)};
  });
}
