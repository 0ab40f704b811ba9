#include "score_modifier.h"

#include <utility>

#include "array.h"

namespace saccade::python {
namespace {

/// A copy of a tile's numbers, because Python may keep the array.
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

bool is_boolean(nb::handle array) {
  if (PyObject_HasAttrString(array.ptr(), "dtype") != 1) return false;
  const std::string dtype = text_of(array.attr("dtype"));
  return dtype == "bool" || dtype == "torch.bool";
}

/// Writes the result of a function to the tile that it was called for.
void write(nb::handle returned, const ScoreTile& tile, std::string_view name) {
  const nb::object target = copied(tile);
  try {
    if (returned.is_none()) refuse(name, "returned None instead of a tile of scores");
    if (is_boolean(returned))
      refuse(name, "returned bool instead of a tile of scores; numpy.where(visible, scores, -numpy.inf) is one");
    nb::module_::import_("numpy").attr("copyto")(target, returned, nb::arg("casting") = "unsafe");
  } catch (const nb::python_error& error) {
    refuse(name, "returned what is no tile of " + std::to_string(tile.rows) + " x " + std::to_string(tile.keys) +
                     " scores: " + text_of(error.value()));
  }
  const std::int64_t shape[] = {tile.rows, tile.keys}, strides[] = {tile.stride, 1};
  copy(Array(target, name).view(), MutableTensorView(tile.scores, tile.dtype, shape, strides));
}

/// The modifier whose function this thread is running.
thread_local const PythonScoreModifier* running = nullptr;

struct Running {
  explicit Running(const PythonScoreModifier* modifier) { running = modifier; }
  ~Running() { running = before; }
  const PythonScoreModifier* const before = running;
};

}  // namespace

PythonScoreModifier::PythonScoreModifier(nb::object forward, nb::object backward)
    : forward_(std::move(forward)), backward_(std::move(backward)), around_(running) {
  if (!PyCallable_Check(forward_.ptr())) refuse("score_mod", "expected a function, got " + kind_of(forward_));
  if (!backward_.is_none() && !PyCallable_Check(backward_.ptr()))
    refuse("score_mod_backward", "expected a function, got " + kind_of(backward_));
}

void PythonScoreModifier::add_to(AttentionOptions& options) {
  options.score_modifier = &modify;
  if (!backward_.is_none()) options.score_modifier_backward = &differentiate;
  options.score_context = this;
}

void PythonScoreModifier::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool PythonScoreModifier::is_called_under_lock_of(const void* object) {
  const PythonScoreModifier* modifier = running;
  while (modifier && modifier->locked_ != object) modifier = modifier->around_;
  return modifier != nullptr;
}

template <class Call>
void PythonScoreModifier::replace(const ScoreTile& tile, std::string_view name, Call call) {
  if (failed_.load(std::memory_order_relaxed)) return;
  const nb::gil_scoped_acquire gil;
  const Running inside(this);
  try {
    write(call(indices(tile.first_row, tile.rows, false), indices(tile.first_key, tile.keys, true)), tile, name);
  } catch (...) {
    if (!error_) error_ = std::current_exception();
    failed_.store(true, std::memory_order_relaxed);
  }
}

void PythonScoreModifier::modify(void* context, const ScoreTile& tile) {
  auto& self = *static_cast<PythonScoreModifier*>(context);
  self.replace(tile, "score_mod", [&](nb::object rows, nb::object keys) {
    return self.forward_(copied(tile), tile.batch, tile.head, rows, keys);
  });
}

void PythonScoreModifier::differentiate(void* context, const ScoreTile& scores, const ScoreTile& gradients) {
  auto& self = *static_cast<PythonScoreModifier*>(context);
  self.replace(gradients, "score_mod_backward", [&](nb::object rows, nb::object keys) {
    return self.backward_(copied(scores), copied(gradients), scores.batch, scores.head, rows, keys);
  });
}

}  // namespace saccade::python
