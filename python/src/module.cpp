// saccade._core: the library as Python sees it. python/saccade puts signatures and documentation in front of it.
#include "bind.h"

NB_MODULE(_core, module) {
  using namespace saccade::python;
  module.doc() = "The compiled part of saccade; use the functions of the package instead.";
  bind_runtime(module);
  bind_random(module);
  bind_attention(module);
  bind_inspect(module);
  bind_kv_cache(module);
  bind_modules(module);
  bind_heatmap(module);
}
