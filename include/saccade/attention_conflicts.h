// Which options of attention exclude each other, which need another one, and which a call refuses. The checks of
// arguments read these tables, and docs/options.md lists them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "saccade/attention.h"

namespace saccade {  // without visibility: every program has its own copy, and the shared library exports none

/// An option, or one value of it, that some others exclude.
struct OptionUse {
  std::string_view name;                      ///< in C++ and in messages; empty: none
  bool (*is_given)(const AttentionOptions&);  ///< whether the options have it
};

/// Whether an option that is a tensor or a function, with this name, is given.
template <auto member>
constexpr OptionUse option_use(std::string_view name) {
  return {name, [](const AttentionOptions& options) { return bool(options.*member); }};
}

inline constexpr OptionUse kNoOption{"", [](const AttentionOptions&) { return false; }},
    kUsesBlockTable = option_use<&AttentionOptions::block_table>("block_table"),
    kUsesCuSeqlensQ = option_use<&AttentionOptions::cu_seqlens_q>("cu_seqlens_q"),
    kUsesCuSeqlensK = option_use<&AttentionOptions::cu_seqlens_k>("cu_seqlens_k"),
    kUsesKvLengths = option_use<&AttentionOptions::kv_lengths>("kv_lengths"),
    kUsesKvStarts = option_use<&AttentionOptions::kv_starts>("kv_starts"),
    kUsesQueryOffset = option_use<&AttentionOptions::query_offset>("query_offset"),
    kUsesQueryOffsets = option_use<&AttentionOptions::query_offsets>("query_offsets"),
    kUsesScoreModifier = option_use<&AttentionOptions::score_modifier>("score_modifier"),
    kUsesScoreBlockEffect = option_use<&AttentionOptions::score_block_effect>("score_block_effect"),
    kUsesScores = option_use<&AttentionOptions::scores>("scores"),
    kUsesWeights = option_use<&AttentionOptions::weights>("weights"),
    kUsesKScale = option_use<&AttentionOptions::k_scale>("k_scale"),
    kUsesVScale = option_use<&AttentionOptions::v_scale>("v_scale"),
    kUsesKMultipliers = option_use<&AttentionOptions::k_multipliers>("k_multipliers"),
    kUsesVMultipliers = option_use<&AttentionOptions::v_multipliers>("v_multipliers"),
    kUsesScales{"k_scale or v_scale",
                [](const AttentionOptions&options) { return options.k_scale || options.v_scale; }},
    kUsesRotation{"k_rotated or v_rotated",
                  [](const AttentionOptions&options) { return options.k_rotated || options.v_rotated; }},
    kUsesOrigin{"origin", [](const AttentionOptions&options) { return !(options.origin == Origin{}); }},
    kUsesOriginKey{"origin.key", [](const AttentionOptions&options) { return options.origin.key != 0; }};

/// Two options that exclude each other in every call.
struct OptionConflict {
  OptionUse first, second;  ///< those that exclude each other
  std::string_view why;     ///< for people: what would contradict
};

inline constexpr std::array kOptionConflicts{
    OptionConflict{kUsesQueryOffset, kUsesQueryOffsets, "each says at which position row 0 is"},
    OptionConflict{kUsesCuSeqlensK, kUsesBlockTable, "kv_lengths says how many keys the pages of a sequence hold"},
    OptionConflict{kUsesOriginKey, kUsesBlockTable, "the first page holds key 0"},
};

/// An option that requires another one, or either of two.
struct OptionNeed {
  OptionUse option;   ///< the one that requires another
  OptionUse needed;   ///< the one that it requires
  OptionUse or_else;  ///< one that will do as well; kNoOption: there is none
};

inline constexpr std::array kOptionNeeds{
    OptionNeed{kUsesCuSeqlensQ, kUsesCuSeqlensK, kUsesBlockTable},
    OptionNeed{kUsesCuSeqlensK, kUsesCuSeqlensQ, kNoOption},
    OptionNeed{kUsesBlockTable, kUsesKvLengths, kNoOption},
    OptionNeed{kUsesKMultipliers, kUsesKScale, kNoOption},
    OptionNeed{kUsesVMultipliers, kUsesVScale, kNoOption},
    OptionNeed{kUsesScoreBlockEffect, kUsesScoreModifier, kNoOption},
};

/// The calls that take only some of the options.
enum class AttentionCall : std::uint8_t {
  attention_backward,
  inspect,
  decode_states,
  attention_state,
  kv_cache,
  distributed,
  distributed_decode,
};

/// Their names in docs/options.md, in order.
inline constexpr std::array<std::string_view, 7> kAttentionCallNames{
    "attention_backward()",
    "inspect()",
    "decode_states(), merge_decode_states()",
    "AttentionState::add()",
    "KvCache::options(), and calls with a KvCache",
    "distributed: every function",
    "distributed::decode(), and method pass_q",
};

/// An option that a call refuses.
struct RefusedOption {
  AttentionCall call;    ///< what refuses it
  OptionUse option;      ///< what is refused
  std::string_view why;  ///< for people: the reason
};

inline constexpr std::string_view kNoQuantizedGradients = "quantized keys and values have no gradients",
                                  kCacheSets = "the cache sets it";

inline constexpr std::array kRefusedOptions{
    RefusedOption{AttentionCall::attention_backward, kUsesBlockTable, "pages have no gradients"},
    RefusedOption{AttentionCall::attention_backward, kUsesScales, kNoQuantizedGradients},
    RefusedOption{AttentionCall::attention_backward, kUsesRotation, kNoQuantizedGradients},
    RefusedOption{AttentionCall::inspect, kUsesWeights, "attention() writes them"},
    RefusedOption{AttentionCall::inspect, kUsesScores, "attention() writes them"},
    RefusedOption{AttentionCall::decode_states, kUsesCuSeqlensQ, "a part of a cache is no packed batch"},
    RefusedOption{AttentionCall::decode_states, kUsesWeights, "states do not have them"},
    RefusedOption{AttentionCall::decode_states, kUsesScores, "states do not have them"},
    RefusedOption{AttentionCall::attention_state, kUsesBlockTable, "keys arrive in parts"},
    RefusedOption{AttentionCall::attention_state, kUsesWeights, "keys arrive in parts"},
    RefusedOption{AttentionCall::attention_state, kUsesScores, "keys arrive in parts"},
    RefusedOption{AttentionCall::kv_cache, kUsesBlockTable, "the cache sets it"},
    RefusedOption{AttentionCall::kv_cache, kUsesKvLengths, "the cache sets it"},
    RefusedOption{AttentionCall::kv_cache, kUsesKvStarts, "the cache sets it: see KvCache::set_start"},
    RefusedOption{AttentionCall::kv_cache, kUsesCuSeqlensK, "only the queries of a paged cache may be packed"},
    RefusedOption{AttentionCall::kv_cache, kUsesScales, kCacheSets},
    RefusedOption{AttentionCall::kv_cache, kUsesRotation, kCacheSets},
    RefusedOption{AttentionCall::distributed, kUsesBlockTable, "pages cannot be divided among ranks"},
    RefusedOption{AttentionCall::distributed, kUsesWeights, "a distributed call does not report them"},
    RefusedOption{AttentionCall::distributed, kUsesScores, "a distributed call does not report them"},
    RefusedOption{AttentionCall::distributed, kUsesOrigin, "the options are those of the whole problem"},
    RefusedOption{AttentionCall::distributed_decode, kUsesCuSeqlensQ, "a packed batch has no cache to decode"},
};

}  // namespace saccade
