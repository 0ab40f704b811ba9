#include "checking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/backend.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "cases/shrink.h"
#include "cli/common/common.h"

namespace saccade::cli {
namespace {

/// Makes calls compute in a place while the object exists.
class InPlace {
 public:
  explicit InPlace(const Place& place) {
    set_active_isa(place.isa);
    if (!place.backend.empty()) scope_.emplace(BackendChoice(place.backend));
  }

 private:
  std::optional<BackendScope> scope_;
};

/// An error's text without its numbers, so that a smaller problem can have the same.
std::string text_without_numbers(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c >= '0' && c <= '9'; });
  return text;
}

/// Whether a problem fails in the way of a failure.
bool fails_likewise(DrawnProblem& problem, const Failure& failure) {
  try {
    const std::vector<cases::Finding> findings = problem.run();
    return std::ranges::any_of(findings, [&](const cases::Finding& finding) {
      return finding.result == failure.result && !finding.comparison.holds;
    });
  } catch (const std::exception& error) {
    return failure.result.empty() && text_without_numbers(error.what()) == text_without_numbers(failure.text);
  }
}

/// Finds the smallest form of a failure.
void make_smallest(Failure& failure, const Drawing& drawing, const Place& place, const CheckArguments& arguments) {
  const InPlace here(place);
  const auto attempt = [&](const cases::Simplification& simpler) -> cases::Attempt {
    try {
      const auto problem = draw_problem(drawing.kind, drawing.seed, simpler, arguments.threads);
      if (!problem) return {};
      const bool fails = fails_likewise(*problem, failure);
      return {fails, problem->describe()};
    } catch (const std::exception&) {  // there is no such problem
      return {};
    }
  };
  const auto whole = draw_problem(drawing.kind, drawing.seed, {}, arguments.threads);
  std::vector<std::string> options = whole->options();
  std::erase(options, "num_threads");  // a Simplification has a word of its own
  const cases::Simplification smallest = cases::shrink(options, attempt);
  failure.smallest = drawing.again(place, arguments, smallest);
  failure.smallest_problem = attempt(smallest).problem;
}

}  // namespace

std::vector<Isa> isas_of(const CheckArguments& arguments) {
  if (arguments.isas.empty())
    return std::getenv("SACCADE_ISA") != nullptr ? std::vector{active_isa()} : available_isas();
  std::vector<Isa> isas;
  std::vector<std::string_view> names;
  for (const Isa isa : available_isas()) names.push_back(name_of(isa));
  for (const std::string& name : arguments.isas) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) refuse("--isa: this machine has no {}; it has {}", name, fmt::join(names, ", "));
    isas.push_back(available_isas()[static_cast<std::size_t>(found - names.begin())]);
  }
  return isas;
}

std::vector<Place> places_of(ProblemKind kind, const CheckArguments& arguments) {
  if (!arguments.backend.empty()) return {{arguments.backend, active_isa(), arguments.backend}};
  std::vector<Place> places;
  for (const Isa isa : isas_of(arguments)) places.push_back({std::string(name_of(isa)), isa, ""});
  if (kind != ProblemKind::states || !arguments.isas.empty()) return places;
  for (const BackendInfo& backend : available_backends()) {
    const std::string name(backend.name);
    if (name != "cpu") places.push_back({name, places.back().isa, name});
  }
  return places;
}

std::string Drawing::name() const { return fmt::format("seed {}", seed); }

std::string Drawing::again(const Place& place, const CheckArguments& arguments,
                           const cases::Simplification& simpler) const {
  const bool is_plain = kind == ProblemKind::forward || (kind == ProblemKind::states && !place.backend.empty());
  std::string line = "saccade check";
  if (kind == ProblemKind::backward) line += " --backward";
  if (!is_plain && kind != ProblemKind::backward) line += fmt::format(" --kind {}", name_of(kind));
  line += fmt::format(" --cases 1 --seed {}", seed);
  line += place.backend.empty() ? " --isa " + place.name : " --backend " + place.backend;
  if (arguments.threads) line += fmt::format(" --threads {}", *arguments.threads);
  if (!simpler.empty()) line += fmt::format(" --simpler '{}'", simpler.text());
  return line;
}

bool check_drawing(const Drawing& drawing, const CheckArguments& arguments, const std::vector<Place>& places,
                   Report& report) {
  const auto problem = draw_problem(drawing.kind, drawing.seed, arguments.simpler, arguments.threads);
  if (!problem) return false;
  const auto again = [&](const Place& place) { return drawing.again(place, arguments, arguments.simpler); };
  const auto make_smaller = [&](Failure& failure, const Place& place) {
    if (arguments.simpler.empty()) make_smallest(failure, drawing, place, arguments);
  };
  check_problem(drawing.kind, *problem, drawing.name(), places, again, report, make_smaller);
  return true;
}

void check_problem(ProblemKind kind, DrawnProblem& problem, const std::string& name,
                   const std::vector<Place>& places, const std::function<std::string(const Place&)>& again,
                   Report& report, const std::function<void(Failure&, const Place&)>& make_smaller) {
  for (const Place& place : places) {
    const InPlace here(place);
    const auto fail = [&](const std::string& result, const std::string& text) {
      Failure failure{.kind = std::string(name_of(kind)),
                      .of_case = name,
                      .place = place.name,
                      .result = result,
                      .text = text,
                      .problem = problem.describe(),
                      .again = again(place),
                      .smallest = "",
                      .smallest_problem = ""};
      if (make_smaller && report.keeps_failures()) make_smaller(failure, place);
      report.add(std::move(failure));
    };
    try {
      for (const cases::Finding& finding : problem.run()) {
        report.add(kind, finding, name, place.name);
        if (!finding.comparison.holds) fail(finding.result, to_string(finding.comparison));
      }
    } catch (const std::exception& error) {
      report.add({.kind = std::string(name_of(kind)),
                  .result = "an exception",
                  .place = place.name,
                  .compared = 1,
                  .failed = 1,
                  .worst_ratio = std::numeric_limits<double>::infinity(),
                  .worst_case = name});
      fail("", error.what());
    }
  }
}

}  // namespace saccade::cli
