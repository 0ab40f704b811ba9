#include "saccade/attention.h"

#include "array.h"
#include "bind.h"
#include "options.h"
#include "saccade/backward.h"
#include "saccade/decode.h"

namespace saccade::python {
namespace {

/// A tensor that attention() reads: its rows without gaps.
Array operand(nb::handle object, std::string_view name) {
  Array array(object, name);
  array.make_rows_contiguous();
  return array;
}

/// Where results go: the caller's array itself or, where its rows have gaps, a tensor that is copied to it at the
/// end.
class Result {
 public:
  Result() = default;
  Result(nb::handle object, std::string_view name) {
    if (object.is_none()) return;
    array_ = Array::writable(object, name);
    const TensorView& view = array_.view();
    const std::size_t last = view.rank - 1u;
    if (view.shape[last] > 1 && view.strides[last] != 1)
      dense_ = Tensor::uninitialized(view.dtype, Shape(view.dims().begin(), view.dims().end()));
  }

  MutableTensorView view() {
    if (!array_.view()) return {};
    return dense_ ? dense_->mutable_view() : array_.mutable_view();
  }
  void finish() {
    if (dense_) copy(*dense_, array_.mutable_view());
  }

  /// Refuses an array that the call also reads.
  void require_apart_from(const Array& input, std::string_view name, std::string_view input_name) const {
    const auto [begin, end] = range(array_.view());
    const auto [input_begin, input_end] = range(input.view());
    if (begin < input_end && input_begin < end)
      refuse(name, "shares memory with " + std::string(input_name) + ", which is read at the same time");
  }

 private:
  /// The bytes from the first to the last element; none for an empty view.
  static std::pair<const std::byte*, const std::byte*> range(const TensorView& view) {
    const auto* data = static_cast<const std::byte*>(view.data);
    if (view.size() == 0) return {data, data};
    std::int64_t low = 0, high = 0;
    for (std::size_t dim = 0; dim < view.rank; ++dim) {
      const std::int64_t reach = (view.shape[dim] - 1) * view.strides[dim];
      (reach < 0 ? low : high) += reach;
    }
    const auto bytes = static_cast<std::int64_t>(size_of(view.dtype));
    return {data + low * bytes, data + (high + 1) * bytes};
  }

  Array array_;
  std::optional<Tensor> dense_;
};

using Attention = void (*)(const TensorView&, const TensorView&, const TensorView&, const MutableTensorView&,
                           const AttentionOptions&);

void attend(Attention function, nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
            nb::handle weights, const nb::dict& given) {
  const Array q_array = operand(q, "q"), k_array = operand(k, "k"), v_array = operand(v, "v");
  Options options(given);
  Result o(out, "out"), lse_result(lse, "lse"), weights_result(weights, "weights");
  o.require_apart_from(q_array, "out", "q");
  o.require_apart_from(k_array, "out", "k");
  o.require_apart_from(v_array, "out", "v");
  options.value.lse = lse_result.view();
  options.value.weights = weights_result.view();
  {
    const nb::gil_scoped_release unlocked;
    function(q_array.view(), k_array.view(), v_array.view(), o.view(), options.value);
    o.finish();
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

void attention_backward_of(nb::handle q, nb::handle k, nb::handle v, nb::handle o, nb::handle lse, nb::handle dout,
                           nb::handle dq, nb::handle dk, nb::handle dv, nb::handle dmask, nb::handle dsinks,
                           nb::handle dalibi_slopes, const nb::dict& given) {
  const Array q_array = operand(q, "q"), k_array = operand(k, "k"), v_array = operand(v, "v"),
              o_array = operand(o, "o"), lse_array(lse, "lse"), dout_array = operand(dout, "dout");
  Options options(given);
  Result dq_result(dq, "dq"), dk_result(dk, "dk"), dv_result(dv, "dv"), dmask_result(dmask, "dmask"),
      dsinks_result(dsinks, "dsinks"), dslopes_result(dalibi_slopes, "dalibi_slopes");
  {
    const nb::gil_scoped_release unlocked;
    attention_backward(q_array.view(), k_array.view(), v_array.view(),
                       {.o = o_array.view(), .lse = lse_array.view(), .dout = dout_array.view()},
                       {.dq = dq_result.view(),
                        .dk = dk_result.view(),
                        .dv = dv_result.view(),
                        .dmask = dmask_result.view(),
                        .dsinks = dsinks_result.view(),
                        .dalibi_slopes = dslopes_result.view()},
                       options.value);
    for (Result* result : {&dq_result, &dk_result, &dv_result, &dmask_result, &dsinks_result, &dslopes_result})
      result->finish();
  }
  options.rethrow();
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
  module.def("attention", &attention_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "out"_a, "lse"_a.none(),
             "weights"_a.none(), "options"_a);
  module.def("decode", &decode_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "out"_a, "lse"_a.none(),
             "weights"_a.none(), "options"_a);
  module.def("attention_backward", &attention_backward_of, "q"_a.none(), "k"_a.none(), "v"_a.none(), "o"_a.none(),
             "lse"_a.none(), "dout"_a.none(), "dq"_a, "dk"_a, "dv"_a, "dmask"_a.none(), "dsinks"_a.none(),
             "dalibi_slopes"_a.none(), "options"_a);
  module.def("merge_states", &merge_states_of, "o_a"_a.none(), "lse_a"_a.none(), "o_b"_a.none(), "lse_b"_a.none(),
             "out"_a, "lse"_a, "layout"_a);
  module.def(
      "alibi_slopes", [](std::int64_t num_heads) { return numpy_array(alibi_slopes(num_heads)); }, "num_heads"_a);
}

}  // namespace saccade::python
