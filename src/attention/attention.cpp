#include "saccade/attention.h"

#include <bit>
#include <cmath>

#include "attention/arguments.h"
#include "attention/transforms.h"
#include "backend/backend.h"
#include "core/check.h"
#include "core/parallel.h"

namespace saccade {

void attention(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
               const AttentionOptions& options) {
  const AttentionOperands operands = check_operands(q, k, v, o, o.mutable_data(), options, "attention");
  const ThreadLimit limit(options.num_threads);
  const BackendScope scope(options.backend);
  const Backend& backend = active_backend();
  // A small call should not spend time on checking options one by one.
  if (has_operands_only(options) && backend.try_small_attention(operands)) return;
  const AttentionArguments arguments(operands, q, k, v, options, "attention");
  if (!arguments.params.has_rows()) return;
  with_transforms(arguments, [&](const AttentionParams& p) { backend.attention(p); });
}

Tensor attention(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  Tensor o = output_like("attention", q, v);
  attention(q, k, v, o, options);
  return o;
}

Tensor alibi_slopes(std::int64_t num_heads) {
  if (num_heads < 0) refuse("alibi_slopes", "num_heads must be 0 or more, got ", num_heads);
  Tensor slopes(DType::f32, {num_heads});
  const auto even = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(num_heads)));
  for (std::int64_t i = 0; i < num_heads; ++i) {
    const double exponent = i < even ? static_cast<double>(i + 1) / static_cast<double>(even)
                                     : static_cast<double>(2 * (i - even) + 1) / static_cast<double>(2 * even);
    slopes.at<float>(i) = static_cast<float>(std::exp2(-8.0 * exponent));
  }
  return slopes;
}

}  // namespace saccade
