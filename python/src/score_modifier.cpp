#include "score_modifier.h"

#include "array.h"

namespace saccade::python {
namespace {

/// A tile's numbers in an array of their own: Python may keep it.
nb::object copied(const ScoreTile& tile) {
  const std::int64_t shape[] = {tile.rows, tile.keys}, strides[] = {tile.stride, 1};
  return numpy_array(Tensor::copy_of(TensorView(tile.scores, tile.dtype, shape, strides)));
}

/// first, first + 1, ... as [count, 1], or [1, count] for keys.
nb::object indices(std::int64_t first, std::int64_t count, bool keys) {
  Tensor result(DType::i64, keys ? Shape{1, count} : Shape{count, 1});
  for (std::int64_t i = 0; i < count; ++i) result.values<std::int64_t>()[static_cast<std::size_t>(i)] = first + i;
  return numpy_array(std::move(result));
}

}  // namespace

PythonScoreModifier::PythonScoreModifier(nb::object forward, nb::object backward)
    : forward_(std::move(forward)), backward_(std::move(backward)) {
  if (!PyCallable_Check(forward_.ptr())) refuse("score_mod", "wanted a function, got " + kind_of(forward_));
  if (!backward_.is_none() && !PyCallable_Check(backward_.ptr()))
    refuse("score_mod_backward", "wanted a function, got " + kind_of(backward_));
}

void PythonScoreModifier::add_to(AttentionOptions& options) {
  options.score_modifier = &modify;
  if (!backward_.is_none()) options.score_modifier_backward = &differentiate;
  options.score_context = this;
}

void PythonScoreModifier::rethrow() {
  if (error_) throw std::move(*error_);
}

template <class Call>
void PythonScoreModifier::replace(const ScoreTile& tile, Call call) {
  if (failed_.load(std::memory_order_relaxed)) return;
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object numpy = nb::module_::import_("numpy");
    nb::object result = call(indices(tile.first_row, tile.rows, false), indices(tile.first_key, tile.keys, true));
    const std::int64_t shape[] = {tile.rows, tile.keys}, strides[] = {tile.stride, 1};
    const nb::object target = copied(tile);
    numpy.attr("copyto")(target, result, nb::arg("casting") = "unsafe");
    const Array changed(target, "score_mod");
    copy(changed.view(), MutableTensorView(tile.scores, tile.dtype, shape, strides));
  } catch (nb::python_error& error) {
    if (!error_) error_.emplace(std::move(error));
    failed_.store(true, std::memory_order_relaxed);
  }
}

void PythonScoreModifier::modify(void* context, const ScoreTile& tile) {
  auto& self = *static_cast<PythonScoreModifier*>(context);
  self.replace(tile, [&](nb::object rows, nb::object keys) {
    return self.forward_(copied(tile), tile.batch, tile.head, rows, keys);
  });
}

void PythonScoreModifier::differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients) {
  auto& self = *static_cast<PythonScoreModifier*>(context);
  self.replace(gradients, [&](nb::object rows, nb::object keys) {
    return self.backward_(copied(scores), copied(gradients), scores.batch, scores.head, rows, keys);
  });
}

}  // namespace saccade::python
