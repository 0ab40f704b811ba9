#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/output/table.h"

namespace saccade::cli {
namespace {

/// The tally of these names, a new one if there is none.
Tally& tally_of(std::vector<Tally>& tallies, std::string_view kind, const std::string& result,
                const std::string& place) {
  const auto found = std::ranges::find_if(tallies, [&](const Tally& tally) {
    return tally.kind == kind && tally.result == result && tally.place == place;
  });
  if (found != tallies.end()) return *found;
  tallies.push_back({.kind = std::string(kind), .result = result, .place = place});
  return tallies.back();
}

/// "0.62"; "7e+15".
std::string ratio_text(double ratio) {
  return ratio < 1000.0 ? fmt::format("{:.2f}", ratio) : fmt::format("{:.0e}", ratio);
}

}  // namespace

void Tally::add(const Tally& other) {
  compared += other.compared;
  failed += other.failed;
  if (other.worst_ratio <= worst_ratio) return;
  worst_ratio = other.worst_ratio;
  worst_case = other.worst_case;
}

void Report::add(ProblemKind kind, const cases::Finding& finding, const std::string& of_case,
                 const std::string& place) {
  Tally one{.kind = std::string(name_of(kind)), .result = finding.result, .place = place, .compared = 1};
  one.failed = finding.comparison.holds ? 0 : 1;
  one.worst_ratio = finding.comparison.worst_ratio;
  one.worst_case = of_case;
  add(one);
}

void Report::add(const Tally& tally) { tally_of(tallies_, tally.kind, tally.result, tally.place).add(tally); }

void Report::add(Failure failure) {
  ++failures_;
  if (keeps_failures()) kept_.push_back(std::move(failure));
}

std::string Report::remark() const {
  double worst = 0.0;
  for (const Tally& tally : tallies_) worst = std::max(worst, tally.worst_ratio);
  return fmt::format("worst {:.2f} of what is allowed, {} failed", worst, failures_);
}

std::vector<Tally> over_places(const std::vector<Tally>& tallies) {
  std::vector<Tally> results;
  for (const Tally& tally : tallies) {
    const auto is_same = [&](const Tally& other) {
      return other.kind == tally.kind && other.result == tally.result;
    };
    const auto found = std::ranges::find_if(results, is_same);
    if (found == results.end()) {
      results.push_back(tally);
    } else {
      if (tally.worst_ratio > found->worst_ratio) found->place = tally.place;
      found->add(tally);
    }
  }
  return results;
}

std::string tally_table(const std::vector<Tally>& tallies, bool has_places, const Terminal& terminal) {
  const bool has_kinds =
      std::ranges::any_of(tallies, [&](const Tally& tally) { return tally.kind != tallies.front().kind; });
  Table table(1U + (has_kinds ? 1U : 0U) + (has_places ? 1U : 0U));
  const auto add = [&](std::vector<std::string> cells, const std::string& mark) {
    if (!has_places) cells.erase(cells.begin() + 2);
    if (!has_kinds) cells.erase(cells.begin());
    table.add_row(std::move(cells), Table::Tone::normal, mark);
  };
  add({"", "", "", "compared", "failed", "worst"}, "");
  std::vector<Tally> sorted = tallies;
  std::ranges::stable_sort(sorted, {}, [](const Tally& tally) { return problem_kind(tally.kind); });
  for (const Tally& tally : sorted)
    add({tally.kind, tally.result, tally.place, std::to_string(tally.compared), std::to_string(tally.failed),
         ratio_text(tally.worst_ratio)},
        "  " + tally.worst_case + (has_places ? "" : " on " + tally.place));
  return table.to_string(terminal);
}

void print_failure(const Failure& failure, const Terminal& terminal) {
  fmt::print("{} {} on {}\n  {}\n  {}\n  again: {}\n", terminal.bad("FAILED"), failure.of_case, failure.place,
             failure.result.empty() ? failure.text : failure.result + ": " + failure.text, failure.problem,
             failure.again);
  if (!failure.smallest.empty())
    fmt::print("  smallest: {}\n  again: {}\n", failure.smallest_problem, failure.smallest);
}

Json to_json(const Tally& tally) {
  return {{"kind", tally.kind},
          {"result", tally.result},
          {"isa", tally.place},
          {"compared", tally.compared},
          {"failed", tally.failed},
          {"worst_ratio", json_number(tally.worst_ratio)},
          {"worst_case", tally.worst_case}};
}

Json to_json(const Failure& failure) {
  return {{"kind", failure.kind},
          {"case", failure.of_case},
          {"isa", failure.place},
          {"text", failure.result.empty() ? failure.text : failure.result + ": " + failure.text},
          {"problem", failure.problem},
          {"again", failure.again},
          {"smallest_problem", failure.smallest_problem},
          {"smallest", failure.smallest}};
}

}  // namespace saccade::cli
