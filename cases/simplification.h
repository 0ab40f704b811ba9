// What makes a random problem simpler: options left out, fewer rows, keys or heads, plain types and layouts. As
// text, it repeats the smallest form of a failure: `saccade check --seed 7 --simpler 'without=mask seqlen_q=1'`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace saccade::cases {

/// Changes to the problem that a seed draws. What they do not concern is drawn as without them.
struct Simplification {
  std::vector<std::string> without{};        ///< options, by their names in C++
  std::optional<std::int64_t> batch{};       ///< at most so many entries of the batch
  std::optional<std::int64_t> kv_heads{};    ///< at most so many heads of k and v
  std::optional<std::int64_t> heads{};       ///< at most so many heads of q
  std::optional<std::int64_t> seqlen_q{};    ///< at most so many rows
  std::optional<std::int64_t> seqlen_k{};    ///< at most so many keys; for a cache, tokens of an append
  std::optional<std::int64_t> head_dim{};    ///< at most so many numbers of a query or key
  std::optional<std::int64_t> head_dim_v{};  ///< at most so many numbers of a value
  std::optional<std::int64_t> steps{};       ///< at most so many changes of a cache
  bool f32 = false;                          ///< all tensors are f32
  bool contiguous = false;                   ///< tensors have no gaps, and their axes are in order
  bool one_thread = false;                   ///< calls use one thread
  std::optional<std::uint64_t> numbers{};    ///< the numbers in the tensors are drawn from this seed

  /// Whether it changes nothing.
  bool empty() const;
  /// Whether the option of this name is left out.
  bool leaves_out(std::string_view name) const;
  /// `size`, or the most that `cap` allows, whichever is less.
  static std::int64_t capped(std::int64_t size, std::optional<std::int64_t> cap) {
    return cap && *cap < size ? *cap : size;
  }
  /// Words with spaces between them: "without=mask,dropout_p seqlen_q=1 f32".
  std::string text() const;
};

/// The caps with their words, in the order in which a problem is made smaller.
using SizeCap = std::pair<std::string_view, std::optional<std::int64_t> Simplification::*>;
inline constexpr SizeCap kSizeCaps[] = {
    {"steps", &Simplification::steps},       {"batch", &Simplification::batch},
    {"kv_heads", &Simplification::kv_heads}, {"heads", &Simplification::heads},
    {"seqlen_q", &Simplification::seqlen_q}, {"seqlen_k", &Simplification::seqlen_k},
    {"head_dim", &Simplification::head_dim}, {"head_dim_v", &Simplification::head_dim_v}};

/// The flags with their words.
using SimplerFlag = std::pair<std::string_view, bool Simplification::*>;
inline constexpr SimplerFlag kSimplerFlags[] = {{"one_thread", &Simplification::one_thread},
                                                {"contiguous", &Simplification::contiguous},
                                                {"f32", &Simplification::f32}};

/// The inverse of Simplification::text(). Throws std::invalid_argument that names the word and what was expected.
Simplification parse_simplification(std::string_view text);

}  // namespace saccade::cases
