// Rotary embeddings, for C.
#include "c_api/rope.h"

#include "c_api/call.h"
#include "c_api/options.h"

using namespace saccade;
using namespace saccade::c_api;

saccade_status saccade_rope_create(std::int64_t dim, const saccade_options* options, saccade_rope** rope) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_rope_create";
    saccade_rope*& result = required(kFunction, "rope", rope);
    constexpr std::int64_t kMaxNumbers = 1 << 20;
    if (dim > kMaxNumbers) refuse(kFunction, "dim must be at most ", kMaxNumbers, ", but it is ", dim);
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
