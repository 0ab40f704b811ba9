// Reading the state of a cache, which may come from a damaged file.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "saccade/kv_cache.h"

namespace saccade {

inline constexpr std::string_view kFromState = "KvCache::from_state";

/// The tensors and options of a state, each checked when it is asked for. Throws std::invalid_argument, with its
/// name, for one that is missing or another one than expected.
class StateReader {
 public:
  explicit StateReader(const KvCacheState& state) : state_(state) {}

  const std::string& text(const std::string& name) const;
  std::int64_t number(const std::string& name) const;
  bool flag(const std::string& name) const;
  DType dtype(const std::string& name) const;
  bool has_text(const std::string& name) const { return state_.metadata.contains(name); }

  /// A tensor of this type and shape; nullopt: any length.
  const Tensor& tensor(const std::string& name, DType dtype,
                       std::initializer_list<std::optional<std::int64_t>> shape);
  /// Throws unless every tensor has been asked for.
  void check_all_read() const;

 private:
  const KvCacheState& state_;
  std::set<std::string> read_;
};

}  // namespace saccade
