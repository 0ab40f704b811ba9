#include "options.h"

#include <algorithm>
#include <array>

namespace saccade::python {
namespace {

Causal causal_named(nb::handle object) {
  if (PyBool_Check(object.ptr()))
    refuse("causal", "wanted None, 'top_left' or 'bottom_right', got " + shown(object) +
                         ", which does not say where the first row stands");
  const std::string name = text(object, "causal");
  if (name == "none") return Causal::none;
  if (name == "top_left") return Causal::top_left;
  if (name == "bottom_right") return Causal::bottom_right;
  refuse("causal", "wanted None, 'top_left' or 'bottom_right', got " + shown(object));
}

bool is_integer(nb::handle object) {
  const nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  PyErr_Clear();
  return index.is_valid();
}

/// Two integers of at least `smallest`, or one that is meant twice.
std::array<std::int64_t, 2> pair(nb::handle object, std::string_view name, std::int64_t smallest) {
  const auto within = [&](nb::handle item) {
    const std::int64_t value = integer(item, name);
    if (value < smallest)
      refuse(name, "wanted integers of at least " + std::to_string(smallest) + ", got " + shown(object));
    return value;
  };
  if (!PyTuple_Check(object.ptr()) && is_integer(object)) return {within(object), within(object)};
  const bool are_two = PySequence_Check(object.ptr()) && PySequence_Size(object.ptr()) == 2;
  const nb::object first = nb::steal(are_two ? PySequence_GetItem(object.ptr(), 0) : nullptr),
                   second = nb::steal(first.is_valid() ? PySequence_GetItem(object.ptr(), 1) : nullptr);
  if (!second.is_valid()) {
    PyErr_Clear();
    refuse(name, "wanted two integers, got " + shown(object));
  }
  return {within(first), within(second)};
}

ScoreStage stage_named(nb::handle object) {
  const std::string name = text(object, "score_stage");
  if (name == "raw") return ScoreStage::raw;
  if (name == "softcapped") return ScoreStage::softcapped;
  if (name == "biased") return ScoreStage::biased;
  if (name == "probabilities") return ScoreStage::probabilities;
  refuse("score_stage", "wanted 'raw', 'softcapped', 'biased' or 'probabilities', got " + shown(object));
}

/// Numbers by dtype f32: a list becomes f64 or i64 on its way here.
Array floats(nb::handle object, std::string_view name) {
  Array array(object, name);
  if (array.view().dtype != DType::boolean) array.convert_to(DType::f32);
  return array;
}

Array integers(nb::handle object, std::string_view name) {
  Array array(object, name);
  const DType dtype = array.view().dtype;
  if (is_floating(dtype)) refuse(name, "wanted integers, got " + std::string(name_of(dtype)));
  return array;
}

/// A mask of a 16-bit type widens exactly.
Array mask(nb::handle object) {
  Array array(object, "mask");
  const DType dtype = array.view().dtype;
  if (dtype != DType::boolean && !is_floating(dtype))
    refuse("mask",
           "wanted bool (True = attend) or floating numbers to be added, got " + std::string(name_of(dtype)));
  if (dtype == DType::f16 || dtype == DType::bf16) array.convert_to(DType::f32);
  return array;
}

struct Entry {
  std::string_view name;
  void (*set)(Options&, nb::handle);
};

constexpr std::array kEntries{
    Entry{"alibi_slopes",
          [](Options& o, nb::handle v) { o.value.alibi_slopes = o.hold(floats(v, "alibi_slopes")); }},
    Entry{"block_mask", [](Options& o, nb::handle v) { o.value.block_mask = o.hold(Array(v, "block_mask")); }},
    Entry{"block_mask_size",
          [](Options& o, nb::handle v) {
            const auto [rows, keys] = pair(v, "block_mask_size", 1);
            o.value.block_mask_q = rows;
            o.value.block_mask_k = keys;
          }},
    Entry{"block_table",
          [](Options& o, nb::handle v) {
            Array table(v, "block_table");
            table.copy_numbers();  // they are checked once and then read for as long as the call takes
            o.value.block_table = o.hold(std::move(table));
          }},
    Entry{"causal", [](Options& o, nb::handle v) { o.value.causal = causal_named(v); }},
    Entry{"cu_seqlens_k",
          [](Options& o, nb::handle v) { o.value.cu_seqlens_k = o.hold(Array(v, "cu_seqlens_k")); }},
    Entry{"cu_seqlens_q",
          [](Options& o, nb::handle v) { o.value.cu_seqlens_q = o.hold(Array(v, "cu_seqlens_q")); }},
    Entry{"dropout_p", [](Options& o, nb::handle v) { o.value.dropout_p = number(v, "dropout_p"); }},
    Entry{"kv_lengths", [](Options& o, nb::handle v) { o.value.kv_lengths = o.hold(Array(v, "kv_lengths")); }},
    Entry{"layout", [](Options& o, nb::handle v) { o.value.layout = layout_named(v); }},
    Entry{"mask", [](Options& o, nb::handle v) { o.value.mask = o.hold(mask(v)); }},
    Entry{"num_threads",
          [](Options& o, nb::handle v) {
            o.value.num_threads =
                static_cast<int>(std::clamp<std::int64_t>(integer(v, "num_threads"), -1, 1 << 16));
          }},
    Entry{"query_offset",
          [](Options& o, nb::handle v) {
            if (is_integer(v))
              o.value.query_offset = integer(v, "query_offset");
            else
              o.value.query_offsets = o.hold(integers(v, "query_offset"));
          }},
    Entry{"scale", [](Options& o, nb::handle v) { o.value.scale = number(v, "scale"); }},
    Entry{"score_mod", [](Options& o, nb::handle v) { o.hold_modifier(v); }},
    Entry{"score_mod_backward", [](Options&, nb::handle) {}},  // read with score_mod
    Entry{"score_stage", [](Options& o, nb::handle v) { o.value.score_stage = stage_named(v); }},
    Entry{"scores", [](Options& o, nb::handle v) { o.hold_scores(v); }},
    Entry{"seed", [](Options& o, nb::handle v) { o.value.dropout_seed = seed(v); }},
    Entry{"sinks", [](Options& o, nb::handle v) { o.value.sinks = o.hold(floats(v, "sinks")); }},
    Entry{"softcap", [](Options& o, nb::handle v) { o.value.softcap = number(v, "softcap"); }},
    Entry{"weights_after_dropout",
          [](Options& o, nb::handle v) { o.value.weights_after_dropout = boolean(v, "weights_after_dropout"); }},
    Entry{"window",
          [](Options& o, nb::handle v) {
            const auto [left, right] = pair(v, "window", -1);
            o.value.window_left = left;
            o.value.window_right = right;
          }},
};
static_assert(std::ranges::is_sorted(kEntries, {}, &Entry::name));

}  // namespace

Options::Options(const nb::dict& given) {
  if (given.contains("score_mod_backward")) modifier_backward_ = nb::borrow(given["score_mod_backward"]);
  for (const auto& [key, object] : given) {
    if (object.is_none()) continue;
    const std::string name = text_of(key);
    const auto entry = std::ranges::lower_bound(kEntries, name, {}, &Entry::name);
    if (entry == kEntries.end() || entry->name != name)
      throw nb::type_error(("got an unexpected keyword argument '" + name + "'").c_str());
    entry->set(*this, object);
    names_.resize(held_.size(), entry->name);
  }
}

const TensorView& Options::hold(Array array) { return held_.emplace_back(std::move(array)).view(); }

void Options::hold_scores(nb::handle scores) {
  scores_ = Result(scores, "scores");
  value.scores = scores_.view();
}

void Options::hold_modifier(nb::handle forward) {
  modifier_ = std::make_unique<PythonScoreModifier>(nb::borrow(forward), modifier_backward_);
  modifier_->add_to(value);
}

void Options::require_apart(const Result& out, std::initializer_list<Operand> operands) const {
  const auto check = [&](const TensorView& view, std::string_view name) {
    out.require_apart_from(view, name);
    if (value.scores) scores_.require_apart_from(view, name);
  };
  for (const auto& [name, array] : operands) check(array->given(), name);
  for (std::size_t i = 0; i < held_.size(); ++i) check(held_[i].given(), names_[i]);
}

void Options::set_locked(const void* object) {
  if (modifier_) modifier_->set_locked(object);
}

void Options::rethrow() const {
  if (modifier_) modifier_->rethrow();
}

Layout layout_named(nb::handle object) {
  const std::string name = text(object, "layout");
  if (name == "bhld") return Layout::bhld;
  if (name == "blhd") return Layout::blhd;
  refuse("layout", "wanted 'bhld' or 'blhd', got " + shown(object));
}

}  // namespace saccade::python
