// distributed::attention_backward().
#include "distributed/backward.h"

#include <algorithm>
#include <limits>

#include "attention/backward_arguments.h"
#include "core/check.h"
#include "core/conflicts.h"
#include "saccade/runtime.h"

namespace saccade::distributed {
namespace {

constexpr std::string_view kBackward = "distributed::attention_backward";

void check_option_gradients(const AttentionGradients& gradients, const AttentionOptions& options, DType dtype) {
  for (const auto& row : kOptionGradients<MutableTensorView>) {
    const MutableTensorView& gradient = gradients.*row.gradient;
    const TensorView& option = options.*row.value;
    if (!gradient) continue;
    if (!option || option.dtype == DType::boolean)
      refuse(kBackward, row.name, " was given without ", option ? "numbers in " : "", row.option);
    check_dtype(kBackward, row.name, gradient, dtype);
    if (!std::ranges::equal(gradient.dims(), option.dims()))
      refuse(kBackward, row.name, " must have the shape of ", row.option, ", ", to_string(option.dims()),
             ", but it has shape ", to_string(gradient.dims()));
    if (gradient.data == nullptr && gradient.size() > 0)
      refuse(kBackward, row.name, " has no data (null pointer)");
  }
}

LocalGradients local_gradients(const Call& call, const AttentionOutcome& outcome,
                               const AttentionGradients& gradients) {
  const auto headed = [&](const MutableTensorView& view) {
    return view ? as_headed(view, call.options) : MutableTensorView();
  };
  LocalGradients local{
      .rows = {call.local.q, call.local.o, as_headed(outcome.dout, call.options), as_column(outcome.lse)},
      .dq = headed(gradients.dq),
      .dk = headed(gradients.dk),
      .dv = headed(gradients.dv)};
  if (outcome.dlse) local.rows.push_back(as_column(outcome.dlse));
  return local;
}

}  // namespace

AttentionOutcome attention_outcome(const std::vector<TensorView>& rows, bool is_packed) {
  const auto column = [&](std::size_t i) { return lse_as_call(rows[i].select(2, 0), is_packed); };
  AttentionOutcome outcome{
      .o = as_call(rows[1], is_packed), .lse = column(3), .dout = as_call(rows[2], is_packed), .dlse = {}};
  if (rows.size() > 4) outcome.dlse = column(4);
  return outcome;
}

void attention_backward(Communicator& communicator, const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionOutcome& outcome, const AttentionGradients& gradients,
                        const ParallelConfig& division, const AttentionOptions& given) {
  Messages messages(communicator, kBackward);
  AttentionOptions options = given;
  options.lse = {};
  ParallelConfig whole_keys = division;
  if (const Method method = division.method;
      method == Method::stream || method == Method::ring || method == Method::pass_q)
    whole_keys.method = Method::gather;
  whole_keys.memory = std::numeric_limits<std::int64_t>::max();  // automatic must not choose stream either
  Call call(messages, kBackward, q, k, v, outcome.o, whole_keys, options, [&] {
    check_options_of(AttentionCall::attention_backward, kBackward, options);
    const BackwardArguments own(q, k, v, outcome,
                                {.dq = gradients.dq,
                                 .dk = gradients.dk,
                                 .dv = gradients.dv,
                                 .dmask = {},
                                 .dsinks = {},
                                 .dalibi_slopes = {}},
                                own_options(options));
    check_option_gradients(gradients, options, type_of_sums(q.dtype));
  });
  if (communicator.size() == 1) return saccade::attention_backward(q, k, v, outcome, gradients, options);
  LocalGradients local = local_gradients(call, outcome, gradients);
  OptionGradients of_options(call, gradients);
  const ProgressHook hook([&] { call.messages.make_progress(); });
  if (call.plan->division().exact && gradients.dk) {
    LocalGradients keys = local;
    local.dk = local.dv = {};
    run_key_backward(call, keys);
  }
  Tensor unused;  // the pass over rows also computes the gradients of options
  if (!local.dq && !local.dk && of_options.any()) {
    unused = Tensor(type_of_sums(q.dtype), Shape(call.local.q.dims().begin(), call.local.q.dims().end()));
    local.dq = unused;
  }
  if (local.dq || local.dk) run_row_backward(call, local, of_options);
  call.end();
}

}  // namespace saccade::distributed
