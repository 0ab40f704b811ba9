// What walk-throughs of attention are made of, for JavaScript: matrix products, three ways to make weights of
// scores, and the generators of PyTorch and NumPy.
#include <memory>

#include "glue.h"
#include "saccade/random.h"
#include "saccade/reference.h"

using namespace saccade;
using namespace saccade::web;

namespace {

Shape shape_of(const char* function, const saccade_tensor* shape) { return numbers_of(function, "shape", shape); }

}  // namespace

/// The matrix product of a [m, k] and b [k, n], f64.
SACCADE_WEB_API(web_matmul) saccade_status web_matmul(const saccade_tensor* a, const saccade_tensor* b) {
  return c_api::guarded([&] {
    give_results(
        {{"product", reference::matmul(c_api::view_of("matmul", "a", a), c_api::view_of("matmul", "b", b))}});
  });
}

/// x as weights along its last dimension, f64: by "softmax", "naive" or "sum".
SACCADE_WEB_API(web_softmax)
saccade_status web_softmax(const saccade_tensor* x, const char* kind) {
  return c_api::guarded([&] {
    const TensorView view = c_api::view_of("softmax", "x", x);
    const std::string_view name = kind;
    if (name == "softmax")
      give_results({{"weights", reference::softmax(view)}});
    else if (name == "naive")
      give_results({{"weights", reference::softmax_naive(view)}});
    else if (name == "sum")
      give_results({{"weights", reference::normalized_by_sum(view)}});
    else
      refuse("softmax", "kind must be one of softmax, naive, sum, got '", name, "'");
  });
}

SACCADE_WEB_API(web_torch_create) saccade_status web_torch_create(std::uint64_t seed, TorchGenerator** generator) {
  return c_api::guarded([&] { *generator = std::make_unique<TorchGenerator>(seed).release(); });
}
SACCADE_WEB_API(web_torch_destroy) void web_torch_destroy(TorchGenerator* generator) { delete generator; }
/// f32 of a distribution: "rand", "randn", "uniform" between two numbers, or what dropout keeps with probability 1
/// - a.
SACCADE_WEB_API(web_torch_draw)
saccade_status web_torch_draw(TorchGenerator* generator, const char* distribution, const saccade_tensor* shape,
                              double a, double b) {
  return c_api::guarded([&] {
    const Shape lengths = shape_of("TorchGenerator", shape);
    const std::string_view name = distribution;
    if (name == "rand") return give_results({{"drawn", generator->rand(lengths)}});
    if (name == "randn") return give_results({{"drawn", generator->randn(lengths)}});
    if (name == "dropout") return give_results({{"drawn", generator->dropout_mask(lengths, a)}});
    give_results({{"drawn", generator->uniform(lengths, static_cast<float>(a), static_cast<float>(b))}});
  });
}

SACCADE_WEB_API(web_numpy_create)
saccade_status web_numpy_create(std::uint32_t seed, NumpyRandomState** generator) {
  return c_api::guarded([&] { *generator = std::make_unique<NumpyRandomState>(seed).release(); });
}
SACCADE_WEB_API(web_numpy_destroy) void web_numpy_destroy(NumpyRandomState* generator) { delete generator; }
/// i64 in [low, high) of "randint", or f64 of another distribution: "random_sample" or "standard_normal".
SACCADE_WEB_API(web_numpy_draw)
saccade_status web_numpy_draw(NumpyRandomState* generator, const char* distribution, const saccade_tensor* shape,
                              std::int64_t low, std::int64_t high) {
  return c_api::guarded([&] {
    const Shape lengths = shape_of("NumpyRandomState", shape);
    const std::string_view name = distribution;
    if (name == "randint") return give_results({{"drawn", generator->randint(low, high, lengths)}});
    if (name == "random_sample") return give_results({{"drawn", generator->random_sample(lengths)}});
    give_results({{"drawn", generator->standard_normal(lengths)}});
  });
}
