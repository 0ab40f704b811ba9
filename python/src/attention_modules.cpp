#include "saccade/attention_modules.h"

#include <nanobind/stl/string.h>

#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <span>

#include "array.h"
#include "bind.h"
#include "numpy.h"
#include "options.h"

namespace saccade::python {
namespace {

/// A module that Python threads may share, one call at a time. The Python class derives from it, and creates the
/// module after it.
class SharedModule {
 public:
  void become(std::unique_ptr<AttentionModule> module) {
    const nb::gil_scoped_release unlocked;
    const std::scoped_lock lock(mutex_);
    if (module_)
      throw std::logic_error("Module.__init__() was called twice");  // arrays share the first module's memory
    module_ = std::move(module);
    config_.store(&module_->config(), std::memory_order_release);
  }

  /// Null before become().
  const ModuleConfig* config() const { return config_.load(std::memory_order_acquire); }

  /// Calls call(module) without the GIL, so that no thread waits for one lock while it holds the other.
  template <class Call>
  auto locked(Call call) {
    const nb::gil_scoped_release unlocked;
    const std::scoped_lock lock(mutex_);
    if (!module_) throw std::logic_error("Module.__init__() was not called");
    return call(*module_);
  }

  /// Calls call(module) without releasing the GIL, unless another thread uses the module: then returns false.
  /// `call` must not call Python, which could wait for this lock.
  template <class Call>
  bool at_once(Call call) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    call(*module_);
    return true;
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<AttentionModule> module_;
  std::atomic<const ModuleConfig*> config_ = nullptr;
};

HeadWeights weights_named(nb::handle object) {
  if (object.is_none() || object.ptr() == Py_False) return HeadWeights::none;
  const std::string name = text_of(object);
  if (name == "per_head") return HeadWeights::per_head;
  if (name == "averaged") return HeadWeights::averaged;
  refuse("weights", "expected None, 'per_head' or 'averaged', got '" + name + "'");
}

WeightLayout weight_layout_named(nb::handle object) {
  const std::string name = text(object, "weight_layout");
  if (name == "out_in") return WeightLayout::out_in;
  if (name == "in_out") return WeightLayout::in_out;
  refuse("weight_layout", "expected 'out_in' or 'in_out', got '" + name + "'");
}

/// An input, with rows without gaps.
Array rows_of(nb::handle object, std::string_view name) {
  Array array = Array::optional(object, name);
  if (array.view()) array.make_rows_contiguous();
  return array;
}

nb::object or_none(Tensor& tensor) { return tensor.rank() > 0 ? numpy_array(std::move(tensor)) : nb::none(); }

/// Whether module(x) takes a few microseconds at most, about as long as it takes to release the GIL and get it
/// back from a thread that wants it. False for an x that the module refuses.
bool is_short_call(const ModuleConfig& config, const TensorView& x) {
  constexpr std::int64_t kMaxRows = 1 << 10;
  constexpr double kMaxOperations = 1 << 15;
  if ((x.rank != 2 && x.rank != 3) || x.shape[x.rank - 1u] != config.d_in || x.size() > kMaxRows * config.d_in)
    return false;
  const auto rows = static_cast<double>(x.size() / config.d_in);
  const auto width = static_cast<double>(config.num_heads * config.head_dim);
  return rows * width *
             (3.0 * static_cast<double>(config.d_in) + 2.0 * rows + static_cast<double>(config.d_out)) <=
         kMaxOperations;
}

/// module(x) for a NumPy array. Calling forward() in Python instead would take 0.17 of the call with six tokens of
/// three numbers (Zen 3), and releasing the GIL 0.1 us of the 0.6 that are left (Zen 5).
nb::object call_alone(SharedModule& self, nb::handle x) {
  Array input(x, "x");
  input.make_rows_contiguous();
  const TensorView& view = input.view();
  const ModuleConfig* const config = self.config();
  if (config && is_short_call(*config, view)) {
    std::array<std::int64_t, kMaxRank> shape = view.shape;
    shape[view.rank - 1u] = config->d_out;
    const std::span lengths(shape.data(), view.rank);
    nb::object output = Numpy::get().new_f32(lengths);
    const MutableTensorView to(Numpy::get().memory_of(output), DType::f32, lengths);
    if (self.at_once([&](AttentionModule& module) { module.forward_into(view, to); })) return output;
  }
  return numpy_array(self.locked([&](AttentionModule& module) { return module.forward(view).output; }));
}

/// module(...): a slot of the type, because looking up a method `__call__` takes 0.2 us more. Everything but a
/// NumPy array goes through forward() of the Python class.
PyObject* call(PyObject* self, PyObject* arguments, PyObject* options) {
  if (!options && PyTuple_Size(arguments) == 1 && nb::inst_ready(self)) {
    const nb::handle x = PyTuple_GetItem(arguments, 0);
    try {
      if (Numpy::get().is_array(x)) return call_alone(*nb::inst_ptr<SharedModule>(self), x).release().ptr();
    } catch (...) {
      // nanobind turns exceptions into Python's for its own functions only: the same call there fails likewise.
      return PyObject_CallMethod(self, "_call_alone", "O", x.ptr());
    }
  }
  const nb::object forward = nb::steal(PyObject_GetAttrString(self, "forward"));
  return forward.is_valid() ? PyObject_Call(forward.ptr(), arguments, options) : nullptr;
}

nb::tuple forward(SharedModule& self, nb::handle query, nb::handle key, nb::handle value, nb::handle mask,
                  nb::handle key_mask, nb::handle causal, nb::handle weights, nb::handle weights_after_dropout,
                  bool steps) {
  Array query_array(query, "query");
  query_array.make_rows_contiguous();
  const Array key_array = rows_of(key, "key"), value_array = rows_of(value, "value"),
              mask_array = Array::optional(mask, "mask"), key_mask_array = Array::optional(key_mask, "key_mask");
  const bool is_aligned = nb::isinstance<nb::str>(causal);
  const ForwardOptions options{.mask = mask_array.view(),
                               .key_mask = key_mask_array.view(),
                               .causal = is_aligned || boolean(causal, "causal"),
                               .alignment = is_aligned ? causal_named(causal) : Causal::top_left,
                               .weights = weights_named(weights),
                               .weights_after_dropout = boolean(weights_after_dropout, "weights_after_dropout"),
                               .steps = steps};
  ModuleOutput result = self.locked([&](AttentionModule& module) {
    return key_array.view() || value_array.view()
               ? module.forward(query_array.view(), key_array.view(), value_array.view(), options)
               : module.forward(query_array.view(), options);
  });
  nb::dict shown;
  if (steps) {
    shown["q"] = or_none(result.q);
    shown["k"] = or_none(result.k);
    shown["v"] = or_none(result.v);
    shown["context"] = or_none(result.context);
  }
  return nb::make_tuple(numpy_array(std::move(result.output)), or_none(result.weights), shown);
}

nb::tuple backward(SharedModule& self, nb::handle dout) {
  Array gradient(dout, "dout");
  gradient.make_rows_contiguous();
  InputGradients result = self.locked([&](AttentionModule& module) { return module.backward(gradient.view()); });
  return nb::make_tuple(or_none(result.x), or_none(result.query), or_none(result.key), or_none(result.value));
}

/// The parameters, or their gradients, as arrays that share the module's memory.
nb::dict arrays(nb::object self, bool gradients) {
  nb::dict result;
  const auto parameters =
      nb::cast<SharedModule&>(self).locked([](AttentionModule& module) { return module.parameters(); });
  for (const NamedParameter& parameter : parameters) {
    const MutableTensorView& view = gradients ? parameter.gradient : parameter.value;
    result[parameter.name.c_str()] = view ? numpy_view(view, self) : nb::none();
  }
  return result;
}

void load_state_dict(SharedModule& self, const nb::dict& state) {
  StateDict copies;
  for (const auto& [name, array] : state) {
    const std::string key = text_of(name);
    copies[key] = Tensor::copy_of(Array(array, key).view());
  }
  self.locked([&](AttentionModule& module) { module.load_state_dict(copies); });
}

void set_training(SharedModule& self, bool mode) {
  self.locked([&](AttentionModule& module) { module.train(mode); });
}

void seed_dropout(SharedModule& self, nb::handle seed) {
  const auto value = python::seed(seed);
  self.locked([&](AttentionModule& module) { module.seed_dropout(value); });
}

/// The options of a new module by name; the Python class passes all of them.
class Named {
 public:
  explicit Named(const nb::kwargs& options) : options_(options) {}

  nb::object operator[](const char* name) const { return nb::borrow(options_[name]); }
  std::int64_t integer(const char* name) const { return python::integer((*this)[name], name); }
  double number(const char* name) const { return python::number((*this)[name], name); }
  bool boolean(const char* name) const { return python::boolean((*this)[name], name); }

 private:
  const nb::kwargs& options_;
};

/// Creates the module, with parameters as PyTorch draws them after torch.manual_seed(seed).
template <class Module, class ModuleOptions>
void make(SharedModule& self, const ModuleOptions& options, const nb::object& seed) {
  TorchGenerator generator(seed.is_none() ? std::random_device()() : python::seed(seed));
  self.become(std::make_unique<Module>(options, generator));
}

void make_self_attention(SharedModule& self, const nb::kwargs& given) {
  const Named options(given);
  make<SelfAttention>(self,
                      SelfAttentionOptions{.d_in = options.integer("d_in"),
                                           .d_out = options.integer("d_out"),
                                           .weight_layout = weight_layout_named(options["weight_layout"]),
                                           .qkv_bias = options.boolean("qkv_bias")},
                      options["seed"]);
}

void make_causal_attention(SharedModule& self, const nb::kwargs& given) {
  const Named options(given);
  make<CausalAttention>(self,
                        CausalAttentionOptions{.d_in = options.integer("d_in"),
                                               .d_out = options.integer("d_out"),
                                               .context_length = options.integer("context_length"),
                                               .dropout = options.number("dropout"),
                                               .qkv_bias = options.boolean("qkv_bias")},
                        options["seed"]);
}

void make_multi_head_attention_wrapper(SharedModule& self, const nb::kwargs& given) {
  const Named options(given);
  make<MultiHeadAttentionWrapper>(
      self,
      MultiHeadAttentionWrapperOptions{.d_in = options.integer("d_in"),
                                       .d_out = options.integer("d_out"),
                                       .num_heads = options.integer("num_heads"),
                                       .context_length = options.integer("context_length"),
                                       .dropout = options.number("dropout"),
                                       .qkv_bias = options.boolean("qkv_bias")},
      options["seed"]);
}

void make_multi_head_attention(SharedModule& self, const nb::kwargs& given) {
  const Named options(given);
  const bool from_torch = options.boolean("torch_initialization");
  make<MultiHeadAttention>(self,
                           MultiHeadAttentionOptions{.d_in = options.integer("d_in"),
                                                     .d_out = options.integer("d_out"),
                                                     .num_heads = options.integer("num_heads"),
                                                     .num_kv_heads = options.integer("num_kv_heads"),
                                                     .key_width = options.integer("key_width"),
                                                     .value_width = options.integer("value_width"),
                                                     .context_length = options.integer("context_length"),
                                                     .causal = options.boolean("causal"),
                                                     .dropout = options.number("dropout"),
                                                     .qkv_bias = options.boolean("qkv_bias"),
                                                     .out_bias = options.boolean("out_bias"),
                                                     .add_bias_kv = options.boolean("add_bias_kv"),
                                                     .add_zero_attn = options.boolean("add_zero_attn"),
                                                     .batch_first = options.boolean("batch_first"),
                                                     .init = from_torch ? Initialization::torch_multihead
                                                                        : Initialization::linear_layers},
                           options["seed"]);
}

}  // namespace

void bind_modules(nb::module_& module) {
  using namespace nb::literals;
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(&call)}, {0, nullptr}};
  nb::class_<SharedModule>(module, "Module", nb::type_slots(slots))
      .def(nb::init<>())
      .def("_call_alone", &call_alone, "x"_a.none())
      .def("_forward", &forward, "query"_a.none(), "key"_a.none(), "value"_a.none(), "mask"_a.none(),
           "key_mask"_a.none(), "causal"_a.none(), "weights"_a.none(), "weights_after_dropout"_a.none(), "steps"_a)
      .def("_backward", &backward, "dout"_a.none())
      .def("_parameters", [](nb::object self) { return arrays(std::move(self), false); })
      .def("_gradients", [](nb::object self) { return arrays(std::move(self), true); })
      .def("_zero_grad", [](SharedModule& self) { self.locked([](AttentionModule& m) { m.zero_grad(); }); })
      .def("_load_state_dict", &load_state_dict, "state"_a)
      .def("_train", &set_training, "mode"_a)
      .def("_training",
           [](SharedModule& self) { return self.locked([](AttentionModule& m) { return m.training(); }); })
      .def("_seed_dropout", &seed_dropout, "seed"_a.none())
      .def("_make_self_attention", &make_self_attention)
      .def("_make_causal_attention", &make_causal_attention)
      .def("_make_multi_head_attention_wrapper", &make_multi_head_attention_wrapper)
      .def("_make_multi_head_attention", &make_multi_head_attention);
}

}  // namespace saccade::python
