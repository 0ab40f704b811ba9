#include "saccade/backward.h"

#include <array>
#include <span>

#include "attention/backward_arguments.h"
#include "backend/backend.h"
#include "core/conflicts.h"
#include "core/parallel.h"

namespace saccade {
namespace {

void clear(const MutableTensorView& view) {
  constexpr double kZero = 0.0;
  const std::array<std::int64_t, kMaxRank> strides{};
  copy(TensorView(&kZero, DType::f64, view.dims(), std::span(strides).first(view.rank)), view);
}

/// The sinks' gradient of a call without keys, where lse is the sink: dlse, summed over the rows.
template <class T>
void pass_on_to_sinks(const BackwardParams& b) {
  const AttentionParams& p = b.attention;
  for (std::int64_t head = 0; head < p.num_heads; ++head) {
    double sum = 0.0;
    for (std::int64_t batch = 0; batch < p.batch; ++batch)
      for (std::int64_t i = 0; i < p.rows(batch); ++i)
        sum += static_cast<double>(*p.row_of<const T>(b.dlse, batch, head, i));
    *b.dsink.row<T>(0, head, 0) = static_cast<T>(sum);
  }
}

}  // namespace

void attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const AttentionOptions& options) {
  const BackendScope scope(options.backend);
  check_options_of(AttentionCall::attention_backward, "attention_backward", options);
  const BackwardArguments arguments(q, k, v, outcome, gradients, options);
  const AttentionParams& p = arguments.params.attention;
  if (!p.has_rows() || p.seqlen_k == 0) {
    for (const MutableTensorView* gradient : {&gradients.dq, &gradients.dk, &gradients.dv, &gradients.dmask,
                                              &gradients.dsinks, &gradients.dalibi_slopes}) {
      if (*gradient) clear(*gradient);
    }
    const BackwardParams& b = arguments.params;
    if (b.dsink.data && b.dlse.data)
      b.dsink.dtype == DType::f64 ? pass_on_to_sinks<double>(b) : pass_on_to_sinks<float>(b);
    return;
  }
  if (gradients.dmask) clear(gradients.dmask);
  const ThreadLimit limit(options.num_threads);
  active_backend().attention_backward(arguments.params);
}

}  // namespace saccade
