// JSON as the subcommands print it. Who looks into a document includes nlohmann/json.hpp.
#pragma once

#include <saccade/tensor.h>

#include <nlohmann/json_fwd.hpp>

namespace saccade::cli {

/// JSON that keeps its keys in the order they were written.
using Json = nlohmann::ordered_json;

/// A number; NaN and infinities, which JSON lacks, as "nan", "inf" and "-inf".
Json json_number(double value);

/// The numbers of a tensor as nested arrays, each as json_number has it.
Json to_json(const TensorView& tensor);

/// Prints one JSON document.
void print_json(const Json& document);

}  // namespace saccade::cli
