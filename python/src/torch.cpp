#include "torch.h"

#include <atomic>

#include "array.h"

namespace saccade::python {

const ExchangeApi* exchange_api_of(nb::handle type) {
  const nb::object capsule = nb::steal(PyObject_GetAttrString(type.ptr(), "__dlpack_c_exchange_api__"));
  const auto* api =
      capsule.is_valid()
          ? static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"))
          : nullptr;
  if (!api) PyErr_Clear();
  return api && api->version.major == 1 && api->dltensor_from_object ? api : nullptr;
}

Torch::Torch(nb::object module)
    : module_(std::move(module)),
      tensor_(module_.attr("Tensor")),
      parameter_(module_.attr("nn").attr("Parameter")),
      exchange_api_(exchange_api_of(tensor_)),
      requires_grad_(nb::str("requires_grad")),
      untyped_storage_(nb::str("untyped_storage")),
      is_neg_(nb::str("is_neg")),
      contiguous_(nb::str("contiguous")),
      new_empty_(nb::str("new_empty")),
      is_grad_enabled_(module_.attr("is_grad_enabled")),
      num_threads_(module_.attr("get_num_threads")),
      empty_like_(module_.attr("empty_like")) {
  try {
    const nb::object functions = module_.attr("_C");
    modes_ = {functions.attr("_is_torch_function_mode_enabled"),
              functions.attr("_are_functorch_transforms_active"), functions.attr("_is_any_autocast_enabled"),
              functions.attr("_is_tracing")};
    dispatch_modes_ = functions.attr("_len_torch_dispatch_stack");
    forward_ad_ = nb::module_::import_("torch.autograd.forward_ad");
    level_ = nb::str("_current_level");
    knows_modes_ = has(forward_ad_, "_current_level");
  } catch (const nb::python_error&) {  // an older or a newer version
  }
}

const Torch* Torch::of(nb::handle object) {
  static std::atomic<const Torch*> known = nullptr;
  const Torch* torch = known.load();
  if (torch && torch->is_exact(object)) return torch;
  if (!torch) {
    nb::object loaded = nb::steal(PyImport_GetModule(nb::str("torch").ptr()));
    if (!loaded.is_valid() || !has(loaded, "Tensor") || !has(loaded, "nn")) return nullptr;
    torch = new Torch(std::move(loaded));  // lives as long as the interpreter
    known.store(torch);
  }
  return PyObject_IsInstance(object.ptr(), torch->tensor_.ptr()) == 1 ? torch : nullptr;
}

void Torch::require_numbers(nb::handle tensor, std::string_view name) const {
  const nb::handle type = type_of(tensor);
  if (!is_exact(tensor) && (!type.attr("__torch_dispatch__").is(tensor_.attr("__torch_dispatch__")) ||
                            text_of(type.attr("__module__")) == "torch.nn.attention.bias"))
    refuse(name, "expected a plain tensor, got " + kind_of(tensor));
  if (requires_grad(tensor) && records_gradients())
    refuse(name, "requires a gradient, which this function does not record; use saccade.torch, or .detach() it");
}

nb::object Torch::storage_of(nb::handle tensor) const { return tensor.attr(untyped_storage_)(); }

bool Torch::is_plain() const {
  if (!knows_modes_) return false;
  for (const nb::object& is_in_mode : modes_)
    if (nb::object(is_in_mode()).ptr() != Py_False) return false;
  return PyLong_AsLong(nb::object(dispatch_modes_()).ptr()) == 0 &&
         PyLong_AsLong(nb::object(forward_ad_.attr(level_)).ptr()) < 0;
}

}  // namespace saccade::python
