// A KvCache after random changes, compared with plain tensors that hold the same tokens.
#pragma once

#include <saccade/kv_cache.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cases/attention_case.h"
#include "cases/simplification.h"

namespace saccade::cases {

/// A change of a cache. What depends on lengths is drawn as a share of them.
struct CacheStep {
  enum class Kind : std::uint8_t { append_to_all, append, truncate, clear, share_prefix, set_start, restore };

  Kind kind = Kind::append_to_all;
  std::int64_t sequence = 0;     ///< the sequence that changes
  std::int64_t from = 0;         ///< the sequence whose prefix it gets
  std::int64_t count = 0;        ///< how many tokens are appended
  double share = 1.0;            ///< of a sequence's tokens: those that stay, or the first that queries see
  Layout layout = Layout::bhsd;  ///< of the appended tokens
  std::uint64_t seed = 0;        ///< of the appended numbers
  double scale = 1.0;            ///< the size of these numbers
};

/// The options of a cache, its changes, and the call of attention that reads it in the end.
class CacheCase {
 public:
  /// Draws everything from a seed. `simpler` changes it.
  explicit CacheCase(std::uint64_t seed, const Simplification& simpler = {});
  CacheCase(const CacheCase&) = delete;
  CacheCase& operator=(const CacheCase&) = delete;

  /// Types, shapes, options and changes in one line.
  std::string describe() const;
  /// The names of the options that `simpler` can leave out.
  std::vector<std::string> options() const;

  /// Makes the changes to a cache and to plain tensors. Compares, on the active instruction set, what the cache
  /// holds with the plain tensors, bit for bit, and attention() and decode() over the cache with the same over the
  /// plain tensors, bit for bit, and with the reference.
  std::vector<Finding> run() const;

 private:
  class Drawing;
  class Replay;

  KvCacheOptions cache_;
  std::vector<CacheStep> steps_;
  std::int64_t heads_ = 1, rows_ = 1;
  DType q_type_ = DType::f32, o_type_ = DType::f32;
  std::uint64_t q_seed_ = 0;
  AttentionOptions call_;
  std::vector<Tensor> head_numbers_;
};

}  // namespace saccade::cases
