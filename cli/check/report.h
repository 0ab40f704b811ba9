// What `saccade check` finds: how often each result was compared and failed, and the failures with their smallest
// forms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cases/attention_case.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"
#include "problems.h"

namespace saccade::cli {

/// All comparisons of one kind of result on one instruction set or back end.
struct Tally {
  std::string kind;    ///< of the problems
  std::string result;  ///< "o of attention()"
  std::string place;   ///< what computed it: "avx2", "reference"
  std::int64_t compared = 0, failed = 0;
  double worst_ratio = -1.0;    ///< the largest error, as a multiple of what is allowed
  std::string worst_case = "";  ///< the problem with it: "seed 17"

  /// Adds the comparisons of another tally.
  void add(const Tally& other);
};

/// A result that failed, or an exception.
struct Failure {
  std::string kind, of_case, place;
  std::string result;    ///< "o of attention()"; empty: an exception
  std::string text;      ///< what is wrong
  std::string problem;   ///< types, shapes and options
  std::string again;     ///< the command that repeats it
  std::string smallest;  ///< the command that repeats its smallest form; empty: none was looked for
  std::string smallest_problem;
};

/// What was found, in the order in which it was found.
class Report {
 public:
  void add(ProblemKind kind, const cases::Finding& finding, const std::string& of_case, const std::string& place);
  void add(const Tally& tally);
  void add(Failure failure);
  /// Counts failures without their texts.
  void count_failures(std::int64_t count) { failures_ += count; }

  /// Whether the next failure will be kept with its text: the first twenty are, the others are counted.
  bool keeps_failures() const { return kept_.size() < kMaxKept; }

  std::int64_t failures() const { return failures_; }
  const std::vector<Failure>& kept() const { return kept_; }
  const std::vector<Tally>& tallies() const { return tallies_; }

  /// "worst 0.62 of what is allowed, 0 failed"
  std::string remark() const;

 private:
  static constexpr std::size_t kMaxKept = 20;

  std::vector<Tally> tallies_;
  std::vector<Failure> kept_;
  std::int64_t failures_ = 0;
};

/// The tallies of each result, of all places together; `place` is that of the worst case.
std::vector<Tally> over_places(const std::vector<Tally>& tallies);

/// A line for each tally. `has_places`: places have a column; otherwise they are shown with the worst case.
std::string tally_table(const std::vector<Tally>& tallies, bool has_places, const Terminal& terminal);

void print_failure(const Failure& failure, const Terminal& terminal);

Json to_json(const Tally& tally);
Json to_json(const Failure& failure);

}  // namespace saccade::cli
