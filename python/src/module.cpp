// saccade._core: the library's bindings. The package in python/saccade adds signatures and documentation.
#include "bind.h"

NB_MODULE(_core, module) {
  using namespace saccade::python;
  nanobind::set_leak_warnings(false);  // PyTorch's graphs that globals hold outlive the interpreter
  module.doc() = "The compiled part of saccade; use the functions of the package instead.";
  bind_runtime(module);
  bind_random(module);
  bind_attention(module);
  bind_inspect(module);
  bind_kv_cache(module);
  bind_distributed(module);
  bind_modules(module);
  bind_heatmap(module);
#ifdef SACCADE_HAS_PAGE
  bind_page(module);
#endif
#ifdef SACCADE_HAS_LOOK
  bind_look(module);
#endif
  bind_score_program(module);
  bind_torch(module);
}
