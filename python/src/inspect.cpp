#include "saccade/inspect.h"

#include "array.h"
#include "bind.h"
#include "options.h"

namespace saccade::python {
namespace {

Pooling pooling_named(nb::handle object) {
  const std::string name = text_of(object);
  if (name == "mean") return Pooling::mean;
  if (name == "max") return Pooling::max;
  refuse("pooling", "expected 'mean' or 'max', got '" + name + "'");
}

/// The requested statistics. `asked` has the fields of InspectOptions that are used.
InspectOptions wanted(const nb::dict& asked, std::optional<Array>& lse) {
  InspectOptions result;
  const auto is_on = [&](const char* name) { return asked.contains(name) && boolean(asked[name], name); };
  const auto count = [&](const char* name) { return asked.contains(name) ? integer(asked[name], name) : 0; };
  if (asked.contains("rows")) {
    Array rows(asked["rows"], "rows");
    if (rows.view().size() > 0) {
      const DType dtype = rows.view().dtype;
      if (rows.view().rank != 1 || is_floating(dtype) || dtype == DType::boolean)
        refuse("rows", "expected a list of integers");
      const Tensor numbers = Tensor::copy_of(rows.view(), DType::i64);
      result.rows.assign(numbers.values<std::int64_t>().begin(), numbers.values<std::int64_t>().end());
    }
  }
  result.top_k = count("top_k");
  result.entropy = is_on("entropy");
  result.max_weight = is_on("max_weight");
  result.received = is_on("received");
  result.distance = is_on("distance");
  result.pool_rows = count("pool_rows");
  result.pool_keys = count("pool_keys");
  if (asked.contains("pooling")) result.pooling = pooling_named(asked["pooling"]);
  if (asked.contains("lse")) result.lse = lse.emplace(asked["lse"], "lse").view();
  return result;
}

nb::dict inspect_of(nb::handle q, nb::handle k, const nb::dict& asked, const nb::dict& given) {
  Array q_array(q, "q"), k_array(k, "k");
  q_array.make_rows_contiguous();
  k_array.make_rows_contiguous();
  std::optional<Array> lse;
  const InspectOptions request = wanted(asked, lse);
  const Options options(given);
  Inspection found;
  {
    const nb::gil_scoped_release unlocked;
    found = inspect(q_array.view(), k_array.view(), request, options.value);
  }
  options.rethrow();
  nb::dict result;
  const auto add = [&](const char* name, Tensor& tensor) {
    if (tensor.rank() > 0) result[name] = numpy_array(std::move(tensor));
  };
  add("rows", found.rows);
  add("top_keys", found.top_keys);
  add("top_weights", found.top_weights);
  add("entropy", found.entropy);
  add("max_weight", found.max_weight);
  add("received", found.received);
  add("distance", found.distance);
  add("mean_distance", found.mean_distance);
  add("pooled", found.pooled);
  return result;
}

}  // namespace

void bind_inspect(nb::module_& module) {
  module.def("inspect", &inspect_of, nb::arg("q").none(), nb::arg("k").none(), nb::arg("wanted"),
             nb::arg("options"));
}

}  // namespace saccade::python
