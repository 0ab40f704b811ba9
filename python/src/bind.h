// What each file of this folder adds to the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace saccade::python {

void bind_attention(nanobind::module_& module);
void bind_runtime(nanobind::module_& module);
void bind_distributed(nanobind::module_& module);
void bind_heatmap(nanobind::module_& module);
void bind_inspect(nanobind::module_& module);
void bind_kv_cache(nanobind::module_& module);
void bind_look(nanobind::module_& module);
void bind_modules(nanobind::module_& module);
void bind_page(nanobind::module_& module);
void bind_score_program(nanobind::module_& module);
void bind_random(nanobind::module_& module);
void bind_torch(nanobind::module_& module);

}  // namespace saccade::python
