// The published numbers that the tour compares with: the command needs no files for it.
#pragma once

#include <string_view>

namespace saccade::cli {

/// The contents of cases/data/published_examples.json.
extern const std::string_view kPublishedExamples;

}  // namespace saccade::cli
