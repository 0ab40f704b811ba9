#include "saccade/backward.h"

#include <array>
#include <span>

#include "attention/backward_arguments.h"
#include "backend.h"
#include "core/parallel.h"

namespace saccade {
namespace {

void clear(const MutableTensorView& view) {
  constexpr double kZero = 0.0;
  const std::array<std::int64_t, kMaxRank> strides{};
  copy(TensorView(&kZero, DType::f64, view.dims(), std::span(strides).first(view.rank)), view);
}

}  // namespace

void attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const AttentionOptions& options) {
  const BackwardArguments arguments(q, k, v, outcome, gradients, options);
  const AttentionParams& p = arguments.params.attention;
  if (!p.has_rows() || p.seqlen_k == 0) {
    for (const MutableTensorView* gradient : {&gradients.dq, &gradients.dk, &gradients.dv, &gradients.dmask,
                                              &gradients.dsinks, &gradients.dalibi_slopes}) {
      if (*gradient) clear(*gradient);
    }
    return;
  }
  if (gradients.dmask) clear(gradients.dmask);
  const ThreadLimit limit(options.num_threads);
  active_backend().attention_backward(arguments.params);
}

}  // namespace saccade
