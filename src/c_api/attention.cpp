// Attention and what belongs to it, for C.
#include "saccade/attention.h"

#include <algorithm>

#include "c_api/call.h"
#include "c_api/options.h"
#include "c_api/rope.h"
#include "saccade/decode.h"

using namespace saccade;
using namespace saccade::c_api;

saccade_status saccade_attention(const saccade_tensor* q, const saccade_tensor* k, const saccade_tensor* v,
                                 const saccade_tensor* o, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention";
    attention(view_of(kFunction, "q", q), view_of(kFunction, "k", k), view_of(kFunction, "v", v),
              view_of(kFunction, "o", o), attention_options(kFunction, options).options());
  });
}

saccade_status saccade_decode(const saccade_tensor* q, const saccade_tensor* k, const saccade_tensor* v,
                              const saccade_tensor* o, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_decode";
    decode(view_of(kFunction, "q", q), view_of(kFunction, "k", k), view_of(kFunction, "v", v),
           view_of(kFunction, "o", o), attention_options(kFunction, options).options());
  });
}

saccade_status saccade_attention_backward(const saccade_tensor* q, const saccade_tensor* k,
                                          const saccade_tensor* v, const saccade_tensor* o,
                                          const saccade_tensor* lse, const saccade_tensor* dout,
                                          const saccade_tensor* dq, const saccade_tensor* dk,
                                          const saccade_tensor* dv, const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention_backward";
    const AttentionOptionSet& set = attention_options(kFunction, options);
    AttentionGradients gradients = set.gradients();
    gradients.dq = optional_view_of(kFunction, "dq", dq);
    gradients.dk = optional_view_of(kFunction, "dk", dk);
    gradients.dv = optional_view_of(kFunction, "dv", dv);
    attention_backward(view_of(kFunction, "q", q), view_of(kFunction, "k", k), view_of(kFunction, "v", v),
                       {.o = view_of(kFunction, "o", o),
                        .lse = view_of(kFunction, "lse", lse),
                        .dout = view_of(kFunction, "dout", dout),
                        .dlse = set.dlse()},
                       gradients, set.options());
  });
}

saccade_status saccade_merge_states(const saccade_tensor* o_a, const saccade_tensor* lse_a,
                                    const saccade_tensor* o_b, const saccade_tensor* lse_b,
                                    const saccade_tensor* o, const saccade_tensor* lse,
                                    const saccade_options* options) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_merge_states";
    merge_states(view_of(kFunction, "o_a", o_a), view_of(kFunction, "lse_a", lse_a),
                 view_of(kFunction, "o_b", o_b), view_of(kFunction, "lse_b", lse_b), view_of(kFunction, "o", o),
                 view_of(kFunction, "lse", lse), attention_options(kFunction, options).options().layout);
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

saccade_status saccade_alibi_slopes(std::int64_t num_heads, float* slopes) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_alibi_slopes";
    constexpr std::int64_t kMostHeads = std::int64_t{1} << 30;
    if (num_heads < 1 || num_heads > kMostHeads)
      refuse(kFunction, "num_heads must be from 1 to ", kMostHeads, ", but it is ", num_heads);
    float& first = required(kFunction, "slopes", slopes);
    const Tensor result = alibi_slopes(num_heads);
    std::ranges::copy(result.values<float>(), &first);
  });
}

// ---- Rotary embeddings
// ------------------------------------------------------------------------------------------

saccade_status saccade_rope_create(std::int64_t dim, const saccade_options* options, saccade_rope** rope) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_rope_create";
    saccade_rope*& result = required(kFunction, "rope", rope);
    constexpr std::int64_t kMostNumbers = 1 << 20;
    if (dim > kMostNumbers) refuse(kFunction, "dim must be at most ", kMostNumbers, ", but it is ", dim);
    result = new saccade_rope{
        Rope(dim, options_of<RopeOptionSet>(kFunction, "options", options, "SACCADE_ROPE_OPTIONS").options)};
  });
}

void saccade_rope_destroy(saccade_rope* rope) { delete rope; }

saccade_status saccade_rope_rotate(const saccade_rope* rope, const saccade_tensor* x, const saccade_tensor* y,
                                   const saccade_tensor* positions, std::int64_t start, const char* layout) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_rope_rotate";
    const Rope& own = required(kFunction, "rope", rope).rope;
    const TensorView from = view_of(kFunction, "x", x);
    const MutableTensorView to = view_of(kFunction, "y", y);
    if (positions == nullptr)
      own.rotate(from, to, start, layout_of(kFunction, layout));
    else
      own.rotate(from, to, view_of(kFunction, "positions", positions), layout_of(kFunction, layout));
  });
}
