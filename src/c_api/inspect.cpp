// Inspection, for C.
#include "saccade/inspect.h"

#include <string>

#include "c_api/call.h"
#include "c_api/kv_cache.h"
#include "c_api/options.h"

using namespace saccade;
using namespace saccade::c_api;

struct saccade_inspection {
  Inspection found;
};

namespace {

const InspectOptions& inspect_options(std::string_view function, const saccade_options* wanted) {
  return options_of<InspectOptionSet>(function, "wanted", wanted, "SACCADE_INSPECT_OPTIONS").options;
}

}  // namespace

saccade_status saccade_inspect(const saccade_tensor* q, const saccade_tensor* k, const saccade_options* wanted,
                               const saccade_options* options, saccade_inspection** inspection) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_inspect";
    saccade_inspection*& result = required(kFunction, "inspection", inspection);
    result = new saccade_inspection{inspect(view_of(kFunction, "q", q), view_of(kFunction, "k", k),
                                            inspect_options(kFunction, wanted),
                                            attention_options(kFunction, options).options())};
  });
}

saccade_status saccade_inspect_over_cache(const saccade_tensor* q, const saccade_kv_cache* cache,
                                          const saccade_options* wanted, const saccade_options* options,
                                          saccade_inspection** inspection) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_inspect_over_cache";
    saccade_inspection*& result = required(kFunction, "inspection", inspection);
    const KvCache& own = required(kFunction, "cache", cache).cache;
    const AttentionOptions& rest = attention_options(kFunction, options).options();
    result = new saccade_inspection{inspect(view_of(kFunction, "q", q), own.k(rest.layout),
                                            inspect_options(kFunction, wanted), own.options(rest))};
  });
}

void saccade_inspection_destroy(saccade_inspection* inspection) { delete inspection; }

saccade_status saccade_inspection_get(const saccade_inspection* inspection, const char* name,
                                      saccade_tensor* result) {
  return guarded([&] {
    constexpr std::string_view kFunction = "saccade_inspection_get";
    struct Named {
      std::string_view name;
      Tensor Inspection::*result;
    };
    static constexpr Named kResults[] = {
        {"rows", &Inspection::rows},
        {"top_keys", &Inspection::top_keys},
        {"top_weights", &Inspection::top_weights},
        {"entropy", &Inspection::entropy},
        {"max_weight", &Inspection::max_weight},
        {"received", &Inspection::received},
        {"distance", &Inspection::distance},
        {"mean_distance", &Inspection::mean_distance},
        {"pooled", &Inspection::pooled},
    };
    const Inspection& own = required(kFunction, "inspection", inspection).found;
    saccade_tensor& to = required(kFunction, "result", result);
    const std::string_view wanted = text_of(kFunction, "name", name);
    for (const Named& known : kResults) {
      if (known.name != wanted) continue;
      const Tensor& tensor = own.*known.result;
      to = {.data = tensor.rank() == 0 ? nullptr : const_cast<void*>(tensor.view().data),
            .dtype = static_cast<saccade_dtype>(tensor.dtype()),
            .rank = tensor.rank(),
            .shape = tensor.shape().data(),
            .strides = nullptr};
      return;
    }
    refuse(kFunction, "there is no result '", std::string(wanted), "'");
  });
}
