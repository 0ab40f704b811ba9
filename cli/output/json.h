// JSON output of the subcommands. Files that access a document's content include nlohmann/json.hpp.
#pragma once

#include <saccade/tensor.h>

#include <nlohmann/json_fwd.hpp>

namespace saccade::cli {

/// JSON that keeps its keys in the order they were written.
using Json = nlohmann::ordered_json;

/// A number as JSON; NaN and infinities, which JSON lacks, become "nan", "inf" and "-inf".
Json json_number(double value);

/// The numbers of a tensor as nested arrays of json_number() values.
Json to_json(const TensorView& tensor);

/// Prints one JSON document.
void print_json(const Json& document);

}  // namespace saccade::cli
