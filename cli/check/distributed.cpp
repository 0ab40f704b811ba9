// saccade check --distributed: random problems sharded over ranks, against one process.
#include "check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cases/divided_case.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"

namespace saccade::cli {
namespace {

struct DividedFailure {
  std::string of_case, isa, text, problem, repetition;
};

class DividedCheck {
 public:
  DividedCheck(const CheckArguments& arguments, Ranks& ranks) : arguments_(arguments), ranks_(ranks) {}

  ExitCode run() {
    std::vector<Isa> isas;
    agree(ranks_, [&] { isas = isas_of(arguments_); });
    const std::int64_t cases = arguments_.number_of_cases();
    const auto start = std::chrono::steady_clock::now();
    {
      std::optional<ProgressBar> progress;
      if (ranks_.rank() == 0) progress.emplace(cases);
      for (std::int64_t i = 0; i < cases; ++i) {
        const std::size_t before = failures_.size();
        for (const Isa isa : isas) check(arguments_.first_seed() + static_cast<std::uint64_t>(i), isa);
        if (!progress) continue;
        if (failures_.size() > before) progress->hide();
        for (std::size_t j = before; !arguments_.json && j < failures_.size(); ++j) print(failures_[j]);
        progress->show(i + 1, fmt::format("{} failed", failures_.size()));
      }
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (ranks_.rank() == 0) report(isas, seconds);
    return failures_.empty() ? kGood : kCheckFailed;
  }

 private:
  void check(std::uint64_t seed, Isa isa) {
    set_active_isa(isa);
    std::string problem;
    try {
      // Each rank compares its own shard and shares the outcome.
      agree(ranks_, [&, lines = cases::compare_divided(ranks_.communicator, seed, problem)] {
        if (!lines.empty()) throw std::runtime_error(fmt::format("{}", fmt::join(lines, "; ")));
      });
    } catch (const distributed::CommunicationError&) {
      throw;
    } catch (const std::exception& error) {
      failures_.push_back({fmt::format("seed {}", seed), std::string(name_of(isa)), error.what(), problem,
                           fmt::format("mpirun -n {} saccade check --distributed --cases 1 --seed {} --isa {}",
                                       ranks_.size(), seed, name_of(isa))});
    }
  }

  static void print(const DividedFailure& failure) {
    fmt::print("{} {} on {}\n  {}\n  {}\n  again: {}\n", Terminal::of_standard_output().bad("FAILED"),
               failure.of_case, failure.isa, failure.text, failure.problem, failure.repetition);
  }

  void report(const std::vector<Isa>& isas, double seconds) const {
    const std::int64_t cases = arguments_.number_of_cases();
    std::vector<std::string_view> names;
    for (const Isa isa : isas) names.push_back(name_of(isa));
    if (arguments_.json) {
      Json list = Json::array();
      for (const DividedFailure& failure : failures_)
        list.push_back({{"case", failure.of_case},
                        {"isa", failure.isa},
                        {"text", failure.text},
                        {"problem", failure.problem},
                        {"again", failure.repetition}});
      print_json({{"cases", cases},
                  {"ranks", ranks_.size()},
                  {"isas", names},
                  {"seconds", seconds},
                  {"failed", failures_.size()},
                  {"failures", list}});
      return;
    }
    const Terminal terminal = Terminal::of_standard_output();
    fmt::print("{} {} on {} {}, {} in {}: {}\n", cases, cases == 1 ? "case" : "cases", ranks_.size(),
               ranks_.size() == 1 ? "rank" : "ranks", fmt::join(names, ", "), duration(seconds),
               failures_.empty() ? terminal.good("all agree with one process")
                                 : terminal.bad(fmt::format("{} failed", failures_.size())));
  }

  const CheckArguments& arguments_;
  Ranks& ranks_;
  std::vector<DividedFailure> failures_;  // the same on every rank
};

}  // namespace

ExitCode check_distributed(const CheckArguments& arguments) {
  if (arguments.shapes) refuse("--shapes cannot be combined with --distributed");
  if (!arguments.backend.empty()) refuse("--backend cannot be combined with --distributed");
  if (arguments.campaign) refuse("--campaign cannot be combined with --distributed");
  if (!arguments.kinds.empty()) refuse("--kind cannot be combined with --distributed");
  if (!arguments.simpler.empty()) refuse("--simpler cannot be combined with --distributed");
  if (arguments.threads) refuse("--threads cannot be combined with --distributed: cases say how many");
  return with_ranks("check", arguments.ranks, [&](Ranks& ranks) { return DividedCheck(arguments, ranks).run(); });
}

}  // namespace saccade::cli
