// A reading: the inputs of one run of a model, and how a page shows them.
#pragma once

#include <memory>
#include <string>

#include "saccade/look.h"

namespace saccade::heads {

inline constexpr const char* kLook = "look";

/// Not copied: the inputs point to `features` and `encoded`.
struct Reading {
  const PretrainedModel* pretrained = nullptr;
  std::string name{};            ///< precedes the names of its parts if a page has several readings
  ModelInput source{}, input{};  ///< for an encoder-decoder, the inputs of the two halves
  PageSequence source_shown{}, shown{};
  Tensor features{}, encoded{};  ///< what the inputs point to

  const Model& model() const { return pretrained->model(); }
  const ModelSizes& sizes() const { return pretrained->model().sizes(); }
};

/// Throws std::invalid_argument for inputs that the model does not read, and for missing ones that it needs.
std::unique_ptr<Reading> read(const PretrainedModel& pretrained, const LookInput& input, int num_threads);

}  // namespace saccade::heads
