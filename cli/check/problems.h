// The problems of `saccade check`: random ones of several kinds, each drawn from a seed, and those of a file.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/attention_case.h"
#include "cases/problem.h"
#include "cases/simplification.h"

namespace saccade::cli {

/// What a random problem checks.
enum class ProblemKind : std::uint8_t {
  forward,   ///< attention() and decode()
  backward,  ///< attention_backward()
  states,    ///< these, AttentionState and the states of decode, on each back end
  inspect,   ///< inspect()
  caches,    ///< KvCache
  divided,   ///< calls divided among ranks, which are threads of this process
};
inline constexpr std::array<std::string_view, 6> kProblemKinds{"forward", "backward", "states",
                                                               "inspect", "caches",   "divided"};
inline std::string_view name_of(ProblemKind kind) { return kProblemKinds[static_cast<std::size_t>(kind)]; }
std::optional<ProblemKind> problem_kind(std::string_view name);

/// A problem with what the reference says of it, to be checked any number of times.
class DrawnProblem {
 public:
  virtual ~DrawnProblem() = default;

  /// Computes it on the active instruction set and back end, and compares each result.
  virtual std::vector<cases::Finding> run() = 0;
  /// Types, shapes and options in one line; of a divided call, after run().
  virtual std::string describe() const = 0;
  /// The names of the options that a Simplification can leave out.
  virtual std::vector<std::string> options() const = 0;
};

/// The problem of a seed; nullptr if this seed has none of the kind. `simpler` changes it; `threads`, if given, is
/// how many each call uses.
std::unique_ptr<DrawnProblem> draw_problem(ProblemKind kind, std::uint64_t seed,
                                           const cases::Simplification& simpler,
                                           std::optional<std::int64_t> threads);

/// A problem of a file, with numbers drawn from a seed. `threads` as above.
std::unique_ptr<DrawnProblem> draw_problem(const cases::Problem& problem, std::uint64_t seed,
                                           std::optional<std::int64_t> threads);

}  // namespace saccade::cli
