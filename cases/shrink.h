// The smallest form of a random problem that fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cases/simplification.h"

namespace saccade::cases {

/// What came of one form of a problem.
struct Attempt {
  bool fails = false;   ///< whether it fails as the problem itself does
  std::string problem;  ///< its types, shapes and options in one line
};

/// Makes a failing problem simpler, step by step, as long as it fails: leaves out options, then takes plain types
/// and layouts, then makes it smaller. Where a smaller problem no longer fails with its numbers, others are tried.
/// Returns the simplest form found; it fails.
///
/// `options`: the names of the options that the problem has. `attempt` computes the problem in another form; it
/// is called at most `most_attempts` times.
Simplification shrink(const std::vector<std::string>& options,
                      const std::function<Attempt(const Simplification&)>& attempt, int most_attempts = 600);

}  // namespace saccade::cases
