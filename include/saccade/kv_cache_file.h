// A KvCache as a safetensors file: a long prompt is computed once, and its keys and values are read again later.
// docs/files.md describes the format. Link saccade::io for this header.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "saccade/kv_cache.h"

#pragma GCC visibility push(default)
namespace saccade {

/// Writes what `cache` holds to a safetensors file at `path`: KvCache::state(), so as many rows as there are
/// tokens, and not the spare room. Throws std::runtime_error when writing fails; an old file is then unchanged.
void save_kv_cache(const std::filesystem::path& path, const KvCache& cache);

/// The cache in the file at `path`, as KvCache::from_state(): with the bits of the one that was saved, and ready
/// for more tokens. Throws std::runtime_error, one line with the error and its place, for a file that
/// save_kv_cache() did not write or that was damaged.
KvCache load_kv_cache(const std::filesystem::path& path);
/// The same from the bytes of such a file, which messages call `name`.
KvCache parse_kv_cache(std::span<const std::byte> bytes, std::string_view name = "kv_cache");

}  // namespace saccade
#pragma GCC visibility pop
