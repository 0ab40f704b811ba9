// Attention over keys in parts, for C.
#include <optional>
#include <vector>

#include "c_api/call.h"
#include "c_api/options.h"
#include "saccade/attention_state.h"
#include "saccade/decode.h"

using namespace saccade;
using namespace saccade::c_api;

static_assert(kOriginAlignment == SACCADE_ORIGIN_ALIGNMENT && kDecodeSplitKeys == SACCADE_DECODE_SPLIT_KEYS);

saccade_status saccade_merge_states(std::int64_t count, const saccade_tensor* o_parts,
                                    const saccade_tensor* lse_parts, const saccade_tensor* o,
                                    const saccade_tensor* lse, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_merge_states";
    if (count < 0 || count > std::int64_t{1} << 20)
      refuse(kFunction, "count must be from 0 to ", std::int64_t{1} << 20, ", but it is ", count);
    std::vector<PartialResult> parts;
    for (std::int64_t i = 0; i < count; ++i)
      parts.push_back({view_of(kFunction, "o_parts", &required(kFunction, "o_parts", o_parts) + i),
                       view_of(kFunction, "lse_parts", &required(kFunction, "lse_parts", lse_parts) + i)});
    merge_states(parts, view_of(kFunction, "o", o), view_of(kFunction, "lse", lse),
                 attention_options(kFunction, options).options().layout);
  });
}

struct saccade_attention_state {
  AttentionState state;
};

saccade_status saccade_attention_state_create(saccade_dtype output, saccade_attention_state** state) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention_state_create";
    saccade_attention_state*& result = required(kFunction, "state", state);
    std::optional<DType> type;
    if (output != -1) type = known_dtype(kFunction, "output", output);
    result = new saccade_attention_state{AttentionState(type)};
  });
}

void saccade_attention_state_destroy(saccade_attention_state* state) { delete state; }

saccade_status saccade_attention_state_add(saccade_attention_state* state, const saccade_tensor* q,
                                           const saccade_tensor* k, const saccade_tensor* v,
                                           const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention_state_add";
    required(kFunction, "state", state)
        .state.add(view_of(kFunction, "q", q), view_of(kFunction, "k", k), view_of(kFunction, "v", v),
                   attention_options(kFunction, options).options());
  });
}

saccade_status saccade_attention_state_finish(saccade_attention_state* state, const saccade_tensor* o,
                                              const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention_state_finish";
    required(kFunction, "state", state)
        .state.finish(view_of(kFunction, "o", o), attention_options(kFunction, options).options());
  });
}

saccade_status saccade_decode_states(const saccade_tensor* q, const saccade_tensor* k, const saccade_tensor* v,
                                     const saccade_tensor* states, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_decode_states";
    decode_states(view_of(kFunction, "q", q), view_of(kFunction, "k", k), view_of(kFunction, "v", v),
                  view_of(kFunction, "states", states), attention_options(kFunction, options).options());
  });
}

saccade_status saccade_merge_decode_states(const saccade_tensor* q, const saccade_tensor* k,
                                           const saccade_tensor* v, const saccade_tensor* states,
                                           const saccade_tensor* o, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_merge_decode_states";
    merge_decode_states(view_of(kFunction, "q", q), view_of(kFunction, "k", k), view_of(kFunction, "v", v),
                        view_of(kFunction, "states", states), view_of(kFunction, "o", o),
                        attention_options(kFunction, options).options());
  });
}
