// A run of a model: what it reads, and how a page shows that.
#pragma once

#include <memory>
#include <string>

#include "saccade/look.h"

namespace saccade::heads {

inline constexpr const char* kLook = "look";

/// Not copied: the inputs point to `features` and `encoded`.
struct Reading {
  const PretrainedModel* pretrained = nullptr;
  std::string name{};            ///< before the names of its parts, where a page has several readings
  ModelInput source{}, input{};  ///< of an encoder-decoder what its halves read
  PageSequence source_shown{}, shown{};
  Tensor features{}, encoded{};  ///< what the inputs point to

  const Model& model() const { return pretrained->model(); }
  const ModelSizes& sizes() const { return pretrained->model().sizes(); }
};

/// Throws std::invalid_argument for what the model does not read, and for what it needs and is not given.
std::unique_ptr<Reading> read(const PretrainedModel& pretrained, const LookInput& input, int num_threads);

}  // namespace saccade::heads
