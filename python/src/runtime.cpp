#include "saccade/runtime.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "array.h"
#include "bind.h"
#include "saccade/backend.h"

namespace saccade::python {
namespace {

std::vector<std::string> names(const std::vector<Isa>& isas) {
  std::vector<std::string> result;
  for (const Isa isa : isas) result.emplace_back(name_of(isa));
  return result;
}

std::vector<std::string> backends() {
  std::vector<std::string> result;
  for (const BackendInfo& backend : available_backends()) result.emplace_back(backend.name);
  return result;
}

nb::dict info() {
  nb::dict result;
  result["version"] = version();
  result["cpu"] = cpu_name();
  result["built_isas"] = names(built_isas());
  result["available_isas"] = names(available_isas());
  result["active_isa"] = name_of(active_isa());
  result["available_backends"] = backends();
  result["active_backend"] = active_backend_name();
  result["num_threads"] = num_threads();
  result["threading_layer"] = threading_layer();
  return result;
}

/// A BackendScope that Python opens and closes.
class PythonBackendScope {
 public:
  explicit PythonBackendScope(std::string_view names) : choice_(names) {}
  PythonBackendScope(const PythonBackendScope&) = delete;
  PythonBackendScope& operator=(const PythonBackendScope&) = delete;
  void enter() { scopes_.push_back(std::make_unique<BackendScope>(choice_)); }
  void exit(const nb::args&) { scopes_.pop_back(); }

 private:
  BackendChoice choice_;
  std::vector<std::unique_ptr<BackendScope>> scopes_;  // a `with` may be inside another of the same object
};

void set_threads(nb::handle threads) {
  set_num_threads(static_cast<int>(std::clamp<std::int64_t>(integer(threads, "num_threads"), -1, 1 << 16)));
}

}  // namespace

void bind_runtime(nb::module_& module) {
  nb::class_<PythonBackendScope>(module, "BackendScope")
      .def(nb::init<std::string_view>(), nb::arg("names"))
      .def("__enter__", &PythonBackendScope::enter)
      .def("__exit__", &PythonBackendScope::exit);
  module.def("info", &info);
  module.def("num_threads", &num_threads);
  module.def("set_num_threads", &set_threads, nb::arg("num_threads").none());
  module.def("release_workspaces", &release_workspaces);
}

}  // namespace saccade::python
