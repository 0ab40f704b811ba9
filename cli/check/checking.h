// Checks one problem everywhere that it can be computed, and looks for the smallest form of what fails.
#pragma once

#include <saccade/runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "problems.h"
#include "report.h"

namespace saccade::cli {

/// Where a problem is computed: an instruction set of the CPU, or another back end.
struct Place {
  std::string name;  ///< "avx2", "reference"
  Isa isa = Isa::scalar;
  std::string backend;  ///< "": that of the command
};

/// Where problems of a kind are checked: on the back end of --backend; else on each instruction set, and those of
/// the kind `states` on each other back end, too, unless --isa says where.
std::vector<Place> places_of(ProblemKind kind, const CheckArguments& arguments);

/// What one random problem is, by name, and how a command repeats it.
struct Drawing {
  ProblemKind kind = ProblemKind::forward;
  std::uint64_t seed = 1;

  std::string name() const;
  /// The command that repeats it in a place, in a simpler form.
  std::string again(const Place& place, const CheckArguments& arguments,
                    const cases::Simplification& simpler) const;
};

/// Checks the problem of a seed in each place. A failure that the report keeps is made as small as possible.
/// Returns false if the seed has no problem of its kind.
bool check_drawing(const Drawing& drawing, const CheckArguments& arguments, const std::vector<Place>& places,
                   Report& report);

/// Checks a problem in each place. `again`: the command that repeats it in a place.
void check_problem(ProblemKind kind, DrawnProblem& problem, const std::string& name,
                   const std::vector<Place>& places, const std::function<std::string(const Place&)>& again,
                   Report& report, const std::function<void(Failure&, const Place&)>& make_smaller = {});

}  // namespace saccade::cli
