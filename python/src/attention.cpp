#include <deque>

#include "array.h"
#include "bind.h"
#include "options.h"
#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "saccade/operations.h"

namespace saccade::python {
namespace {

/// A tensor that attention() reads, with rows without gaps.
Array operand(nb::handle object, std::string_view name) {
  Array array(object, name);
  array.make_rows_contiguous();
  return array;
}

using Attention = void (*)(const TensorView&, const TensorView&, const TensorView&, const MutableTensorView&,
                           const AttentionOptions&);

void attend(Attention function, nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
            nb::handle weights, const nb::dict& given) {
  const Array q_array = operand(q, "q"), k_array = operand(k, "k"), v_array = operand(v, "v");
  Options options(given);
  Result o(out, "out"), lse_result(lse, "lse"), weights_result(weights, "weights");
  const DType dtype = o.view().dtype;
  if (!is_floating(dtype) && is_floating(q_array.view().dtype))
    refuse("out", "expected floating numbers, got " + std::string(name_of(dtype)));
  options.require_apart(o, {{"q", &q_array}, {"k", &k_array}, {"v", &v_array}});
  options.value.lse = lse_result.view();
  options.value.weights = weights_result.view();
  {
    const nb::gil_scoped_release unlocked;
    function(q_array.view(), k_array.view(), v_array.view(), o.view(), options.value);
    o.finish();
    options.finish();
  }
  options.rethrow();
}

void attention_of(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle weights,
                  const nb::dict& given) {
  attend(&attention, q, k, v, out, lse, weights, given);
}

void decode_of(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle weights,
               const nb::dict& given) {
  attend(&decode, q, k, v, out, lse, weights, given);
}

/// dq, or dk and dv, may be None. `others`: the arrays that kOptionGradients names, or None.
void attention_backward_of(nb::handle q, nb::handle k, nb::handle v, nb::handle o, nb::handle lse, nb::handle dout,
                           nb::handle dlse, nb::handle dq, nb::handle dk, nb::handle dv, const nb::dict& others,
                           const nb::dict& given) {
  const Array q_array = operand(q, "q"), k_array = operand(k, "k"), v_array = operand(v, "v"),
              o_array = operand(o, "o"), lse_array(lse, "lse"), dout_array = operand(dout, "dout");
  std::optional<Array> dlse_array;
  if (!dlse.is_none()) dlse_array.emplace(dlse, "dlse");
  Options options(given);
  Result dq_result(dq, "dq"), dk_result(dk, "dk"), dv_result(dv, "dv");
  AttentionGradients gradients{.dq = dq_result.view(), .dk = dk_result.view(), .dv = dv_result.view()};
  std::deque<Result> other_results;
  for (const auto& gradient : kOptionGradients<MutableTensorView>) {
    const nb::str name(gradient.name.data(), gradient.name.size());
    if (!others.contains(name)) continue;
    gradients.*gradient.gradient = other_results.emplace_back(others[name], gradient.name).view();
  }
  {
    const nb::gil_scoped_release unlocked;
    attention_backward(q_array.view(), k_array.view(), v_array.view(),
                       {.o = o_array.view(),
                        .lse = lse_array.view(),
                        .dout = dout_array.view(),
                        .dlse = dlse_array ? dlse_array->view() : TensorView()},
                       gradients, options.value);
    for (Result* result : {&dq_result, &dk_result, &dv_result}) result->finish();
    for (Result& result : other_results) result.finish();
  }
  options.rethrow();
}

double attention_operations_of(nb::handle q, nb::handle k, nb::handle v, const nb::dict& given) {
  const Array q_array = operand(q, "q"), k_array = operand(k, "k"), v_array = operand(v, "v");
  const Options options(given);
  const nb::gil_scoped_release unlocked;
  return attention_operations(q_array.view(), k_array.view(), v_array.view(), options.value);
}

void merge_states_of(nb::handle o_a, nb::handle lse_a, nb::handle o_b, nb::handle lse_b, nb::handle o,
                     nb::handle lse, nb::handle layout) {
  const Array o_a_array = operand(o_a, "o_a"), lse_a_array(lse_a, "lse_a"), o_b_array = operand(o_b, "o_b"),
              lse_b_array(lse_b, "lse_b");
  Result o_result(o, "out"), lse_result(lse, "lse");
  const Layout order = layout_named(layout);
  const nb::gil_scoped_release unlocked;
  merge_states(o_a_array.view(), lse_a_array.view(), o_b_array.view(), lse_b_array.view(), o_result.view(),
               lse_result.view(), order);
  o_result.finish();
}

}  // namespace

void bind_attention(nb::module_& module) {
  using namespace nb::literals;
  module.def("attention", &attention_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "out"_a.none(), "lse"_a.none(),
             "weights"_a.none(), "options"_a);
  module.def("decode", &decode_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "out"_a.none(), "lse"_a.none(),
             "weights"_a.none(), "options"_a);
  module.def("is_decode_faster", &is_decode_faster, "seqlen_q"_a, "seqlen_k"_a, "group"_a);
  module.def("attention_backward", &attention_backward_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "o"_a.none(),
             "lse"_a.none(), "dout"_a.none(), "dlse"_a.none(), "dq"_a.none(), "dk"_a.none(), "dv"_a.none(),
             "others"_a, "options"_a);
  module.def("attention_operations", &attention_operations_of, "q"_a.none(), "k"_a.none(), "v"_a.none(),
             "options"_a);
  module.def("merge_states", &merge_states_of, "o_a"_a.none(), "lse_a"_a.none(), "o_b"_a.none(), "lse_b"_a.none(),
             "out"_a.none(), "lse"_a.none(), "layout"_a.none());
  module.def(
      "alibi_slopes",
      [](nb::handle num_heads) { return numpy_array(alibi_slopes(integer(num_heads, "num_heads"))); },
      "num_heads"_a.none());
  module.def("option_table", &option_table);
}

}  // namespace saccade::python
