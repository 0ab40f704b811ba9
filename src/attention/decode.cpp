#include "saccade/decode.h"

#include "attention/arguments.h"
#include "backend.h"
#include "core/parallel.h"

namespace saccade {

void decode(const TensorView& q, const TensorView& k, const TensorView& v, const MutableTensorView& o,
            const AttentionOptions& options) {
  const AttentionOperands operands = check_operands(q, k, v, o, o.mutable_data(), options, "decode");
  const AttentionArguments arguments(operands, q, k, options, "decode");
  if (!arguments.params.has_rows()) return;
  const ThreadLimit limit(options.num_threads);
  active_backend().decode(arguments.params);
}

Tensor decode(const TensorView& q, const TensorView& k, const TensorView& v, const AttentionOptions& options) {
  Tensor o = output_like("decode", q, v);
  decode(q, k, v, o, options);
  return o;
}

}  // namespace saccade
