// The C interface of attention and its gradients, states and merging.
#include "saccade/attention.h"

#include <algorithm>

#include "c_api/call.h"
#include "c_api/options.h"
#include "saccade/decode.h"
#include "saccade/operations.h"

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

saccade_status saccade_attention_operations(const saccade_tensor* q, const saccade_tensor* k,
                                            const saccade_tensor* v, const saccade_options* options,
                                            double* operations) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_attention_operations";
    double& result = required(kFunction, "operations", operations);
    result = attention_operations(view_of(kFunction, "q", q), view_of(kFunction, "k", k),
                                  view_of(kFunction, "v", v), attention_options(kFunction, options).options());
  });
}

saccade_status saccade_alibi_slopes(std::int64_t num_heads, float* slopes) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_alibi_slopes";
    constexpr std::int64_t kMaxHeads = std::int64_t{1} << 30;
    if (num_heads < 1 || num_heads > kMaxHeads)
      refuse(kFunction, "num_heads must be from 1 to ", kMaxHeads, ", but it is ", num_heads);
    float& first = required(kFunction, "slopes", slopes);
    const Tensor result = alibi_slopes(num_heads);
    std::ranges::copy(result.values<float>(), &first);
  });
}
