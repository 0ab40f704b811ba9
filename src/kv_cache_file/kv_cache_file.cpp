#include "saccade/kv_cache_file.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "saccade/io.h"

namespace saccade {
namespace {

KvCache cache_in(std::string_view function, const std::string& name, Safetensors file) {
  try {
    return KvCache::from_state({std::move(file.tensors), std::move(file.metadata)});
  } catch (const std::invalid_argument& error) {
    std::string fault = error.what();
    if (fault.starts_with('[')) fault.erase(0, fault.find("] ") + 2);
    throw std::runtime_error("[" + std::string(function) + "] " + name + ": " + fault);
  }
}

}  // namespace

void save_kv_cache(const std::filesystem::path& path, const KvCache& cache) {
  KvCacheState state = cache.state();
  save_safetensors(path, {std::move(state.tensors), std::move(state.metadata)});
}

KvCache load_kv_cache(const std::filesystem::path& path) {
  return cache_in("load_kv_cache", path == "-" ? "standard input" : path.string(), load_safetensors(path));
}

KvCache parse_kv_cache(std::span<const std::byte> bytes, std::string_view name) {
  return cache_in("parse_kv_cache", std::string(name), parse_safetensors(bytes, name));
}

}  // namespace saccade
