// Published worked examples with their printed numbers.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "saccade/tensor.h"

namespace saccade::test {

/// cases/data/published_examples.json.
inline const nlohmann::json& published() {
  static const nlohmann::json examples =
      nlohmann::json::parse(std::ifstream(SACCADE_SOURCE_DIR "/cases/data/published_examples.json"));
  return examples;
}

/// A list of numbers, or of lists of numbers, as an f64 tensor.
inline Tensor tensor_of(const nlohmann::json& numbers) {
  const bool is_matrix = numbers.at(0).is_array();
  Shape shape{static_cast<std::int64_t>(numbers.size())};
  if (is_matrix) shape.push_back(static_cast<std::int64_t>(numbers.at(0).size()));
  Tensor result(DType::f64, shape);
  double* out = result.values<double>().data();
  for (const nlohmann::json& row : numbers) {
    if (!is_matrix) {
      *out++ = row.get<double>();
      continue;
    }
    if (row.size() != numbers.at(0).size()) throw std::invalid_argument("published rows of different lengths");
    for (const nlohmann::json& number : row) *out++ = number.get<double>();
  }
  return result;
}

}  // namespace saccade::test
