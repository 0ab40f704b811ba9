// saccade check: attention(), decode() and gradients against the reference, on random problems or on given ones.
#include "check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/backend.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "cases/conformance.h"
#include "cases/gradient_case.h"
#include "cases/problem.h"
#include "cases/random_case.h"
#include "cli/commands.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"

namespace saccade::cli {
namespace {

/// The work to check: random cases, each with a different seed, or the problems of a file, all with one seed.
class Work {
 public:
  explicit Work(const CheckArguments& arguments) : arguments_(arguments), seed_(arguments.first_seed()) {
    if (arguments.shapes) problems_ = load_shapes(*arguments.shapes);
  }

  std::int64_t count() const {
    if (arguments_.shapes) return static_cast<std::int64_t>(problems_.size());
    return arguments_.number_of_cases();
  }

  cases::AttentionCase draw(std::int64_t index) const {
    cases::AttentionCase drawn =
        arguments_.shapes ? cases::draw_case(problem(index), seed_) : cases::draw_case(seed_of(index));
    if (arguments_.threads) drawn.options.num_threads = static_cast<int>(*arguments_.threads);
    return drawn;
  }

  std::vector<reference::RowIndex> rows(std::int64_t index, const cases::AttentionCase& drawn) const {
    if (!arguments_.shapes) return {};
    return cases::rows_to_check(problem(index), drawn, seed_);
  }

  /// "seed 17", or the line of the file.
  std::string name(std::int64_t index) const {
    return arguments_.shapes ? problem(index).name() : fmt::format("seed {}", seed_of(index));
  }

  /// The command that reproduces it.
  std::string repetition(std::int64_t index, Isa isa) const {
    const std::string what = arguments_.shapes ? fmt::format("--shapes '{}' --seed {}", *arguments_.shapes, seed_)
                                               : fmt::format("--cases 1 --seed {}", seed_of(index));
    const std::string threads = arguments_.threads ? fmt::format(" --threads {}", *arguments_.threads) : "";
    const std::string on = arguments_.backend.empty() ? fmt::format("--isa {}", name_of(isa))
                                                      : fmt::format("--backend {}", arguments_.backend);
    return fmt::format("saccade check {}{} {}{}", arguments_.backward ? "--backward " : "", what, on, threads);
  }

  bool is_backward() const { return arguments_.backward; }
  /// The name of what computed a result.
  std::string place(Isa isa) const {
    return arguments_.backend.empty() ? std::string(name_of(isa)) : arguments_.backend;
  }
  /// Whether each problem also runs through all other functions of a back end.
  bool is_of_backend() const { return !arguments_.backend.empty() && !arguments_.shapes; }
  std::uint64_t seed_of(std::int64_t index) const { return seed_ + static_cast<std::uint64_t>(index); }

 private:
  const cases::Problem& problem(std::int64_t index) const { return problems_[static_cast<std::size_t>(index)]; }

  const CheckArguments& arguments_;
  std::uint64_t seed_;
  std::vector<cases::Problem> problems_;
};

/// All comparisons of one kind of result.
struct Tally {
  std::string result;  // "o of attention()"
  std::int64_t compared = 0, failed = 0;
  double worst_ratio = -1.0;
  std::string worst_case, worst_isa;
};

struct Failure {
  std::string text, of_case, isa, problem, repetition;
};

class Report {
 public:
  void add(const cases::Finding& finding, const std::string& of_case, const std::string& place) {
    auto tally = std::ranges::find(tallies_, finding.result, &Tally::result);
    if (tally == tallies_.end())
      tally = tallies_.insert(tally, {.result = finding.result, .worst_case = "", .worst_isa = ""});
    ++tally->compared;
    tally->failed += finding.comparison.holds ? 0 : 1;
    if (finding.comparison.worst_ratio <= tally->worst_ratio) return;
    tally->worst_ratio = finding.comparison.worst_ratio;
    tally->worst_case = of_case;
    tally->worst_isa = place;
  }

  void add(Failure failure) {
    ++failures_;
    if (kept_.size() < kMaxKept) kept_.push_back(std::move(failure));
  }

  std::int64_t failures() const { return failures_; }
  const std::vector<Failure>& kept() const { return kept_; }
  const std::vector<Tally>& tallies() const { return tallies_; }

  std::string remark() const {
    double worst = 0.0;
    for (const Tally& tally : tallies_) worst = std::max(worst, tally.worst_ratio);
    return fmt::format("worst {:.2f} of what is allowed, {} failed", worst, failures_);
  }

 private:
  static constexpr std::size_t kMaxKept = 20;

  std::vector<Tally> tallies_;
  std::vector<Failure> kept_;
  std::int64_t failures_ = 0;
};

/// The checks of one case: attention() and decode(), or gradients, or all functions of a back end.
std::function<std::vector<cases::Finding>()> checks_of(const Work& work, std::int64_t index,
                                                       cases::AttentionCase& drawn) {
  if (work.is_backward()) {
    return [checked = std::make_shared<cases::CheckedGradients>(drawn, work.seed_of(index))] {
      return checked->run();
    };
  }
  const auto checked = std::make_shared<cases::CheckedCase>(drawn, work.rows(index, drawn));
  if (!work.is_of_backend()) return [checked] { return checked->run(); };
  return [&work, index, checked, &drawn] { return cases::run_conformance(drawn, *checked, work.seed_of(index)); };
}

/// Runs one case on each instruction set, or on the back end.
void check_case(const Work& work, std::int64_t index, const std::vector<Isa>& isas, Report& report) {
  cases::AttentionCase drawn = work.draw(index);
  if (work.is_backward() && !cases::has_gradients(drawn)) return;
  const std::string name = work.name(index);
  const auto run = checks_of(work, index, drawn);
  for (const Isa isa : isas) {
    const auto fail = [&](std::string text) {
      report.add({std::move(text), name, work.place(isa), cases::describe(drawn), work.repetition(index, isa)});
    };
    set_active_isa(isa);
    try {
      for (const cases::Finding& finding : run()) {
        report.add(finding, name, work.place(isa));
        if (!finding.comparison.holds) fail(finding.result + ": " + to_string(finding.comparison));
      }
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
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

namespace {

void print_failure(const Failure& failure, const Terminal& terminal) {
  fmt::print("{} {} on {}\n  {}\n  {}\n  again: {}\n", terminal.bad("FAILED"), failure.of_case, failure.isa,
             failure.text, failure.problem, failure.repetition);
}

Json report_json(const Report& report, std::int64_t cases, const std::vector<std::string>& isas, double seconds) {
  Json results = Json::array(), failures = Json::array();
  for (const Tally& tally : report.tallies()) {
    results.push_back({{"result", tally.result},
                       {"compared", tally.compared},
                       {"failed", tally.failed},
                       {"worst_ratio", json_number(tally.worst_ratio)},
                       {"worst_case", tally.worst_case},
                       {"worst_isa", tally.worst_isa}});
  }
  for (const Failure& failure : report.kept()) {
    failures.push_back({{"case", failure.of_case},
                        {"isa", failure.isa},
                        {"text", failure.text},
                        {"problem", failure.problem},
                        {"again", failure.repetition}});
  }
  return {{"cases", cases},
          {"isas", isas},
          {"seconds", seconds},
          {"results", results},
          {"failed", report.failures()},
          {"failures", failures}};
}

void print_report(const Report& report, std::int64_t cases, const std::vector<std::string>& isas, double seconds,
                  const Terminal& terminal) {
  Table table(1);
  table.add_row({"", "compared", "failed", "worst"});
  for (const Tally& tally : report.tallies()) {
    table.add_row({tally.result, std::to_string(tally.compared), std::to_string(tally.failed),
                   fmt::format("{:.2f}", tally.worst_ratio)},
                  Table::Tone::normal, fmt::format("  {} on {}", tally.worst_case, tally.worst_isa));
  }
  fmt::print("{}\n", table.to_string(terminal));
  const std::string what = fmt::format("{} {} on {} in {}", cases, cases == 1 ? "case" : "cases",
                                       fmt::join(isas, ", "), duration(seconds));
  if (report.failures() == 0) {
    fmt::print("{}: {} (1.00 is what the rule of compare.h allows)\n", what,
               terminal.good("all agree with the reference"));
  } else {
    fmt::print("{}: {}\n", what, terminal.bad(fmt::format("{} failed", report.failures())));
  }
}

/// The back end by name, refused if there is none.
BackendChoice backend_of(const CheckArguments& arguments) {
  try {
    return BackendChoice(arguments.backend);
  } catch (const std::invalid_argument& error) {
    refuse("--backend: {}", message_line(error.what()));
  }
}

ExitCode check(const CheckArguments& arguments) {
  const BackendScope scope(backend_of(arguments));
  const Work work(arguments);
  const std::vector<Isa> isas = arguments.backend.empty() ? isas_of(arguments) : std::vector{active_isa()};
  std::vector<std::string> places;
  for (const Isa isa : isas) places.push_back(work.place(isa));

  const Terminal terminal = Terminal::of_standard_output();
  Report report;
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar progress(work.count());
    for (std::int64_t i = 0; i < work.count(); ++i) {
      const std::size_t before = report.kept().size();
      check_case(work, i, isas, report);
      if (!arguments.json && report.kept().size() > before) {
        progress.hide();
        for (std::size_t j = before; j < report.kept().size(); ++j) print_failure(report.kept()[j], terminal);
      }
      progress.show(i + 1, report.remark());
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (arguments.json) {
    print_json(report_json(report, work.count(), places, seconds));
  } else {
    print_report(report, work.count(), places, seconds, terminal);
  }
  return report.failures() == 0 ? kGood : kCheckFailed;
}

}  // namespace

void add_check(Command app, Action& action) {
  const Command command = app.add_subcommand("check", "Random problems against the reference in double precision");
  const auto arguments = std::make_shared<CheckArguments>();
  const Option cases =
      add_integer(command, "--cases", arguments->cases, "How many random problems; without, 1000", 1)
          .type_name("N");
  add_integer(command, "--seed", arguments->seed,
              "The seed of the first problem, each next one has the next; without, 1", 0)
      .type_name("S");
  const Option isa =
      command
          .add_option("--isa", arguments->isas,
                      "Instruction sets to check; without, all that this machine has, or SACCADE_ISA")
          .delimiter(',')
          .type_name("NAME,...");
  command
      .add_option("--backend", arguments->backend,
                  "Check every function of this back end instead: attention, states, decode, gradients")
      .type_name("NAME")
      .excludes(isa);
  const Option shapes =
      command.add_option("--shapes", arguments->shapes, "Check the problems of this file instead, one a line")
          .type_name("FILE")
          .excludes(cases);
  command
      .add_flag("--backward", arguments->backward, "Check attention_backward(); problems with pages are left out")
      .excludes(shapes);
  add_integer(command, "--threads", arguments->threads, "Threads of each call; without, as the problem says", 1)
      .between(1, 1024)
      .type_name("N");
  arguments->ranks.add_options(command);
  command.add_flag("--json", arguments->json, "Print the findings as JSON");
  command.footer(
      "Each problem combines options, shapes, element types and layouts of memory at random, and goes through\n"
      "attention() and, where it has few rows, decode(). Exit code 1 if a result is further from the reference\n"
      "than the rule of compare.h allows; each failure is printed with the command that repeats it.\n\n"
      "A line of FILE is a problem, '#' begins a comment:\n"
      "  b=1 h=32 hkv=8 sq=1 sk=32768 d=128 dtype=bf16 causal=bottom_right page=16 decode   # a long cache\n"
      "  h=8 s=4096 d=64 window=256,0 alibi lse threads=2\n"
      "Of problems that would take the reference too long, some rows are checked.\n\n"
      "With --distributed, problems are divided at random among the processes of mpirun, forward, backward and\n"
      "decode, and compared with one process to the last bit; where another order of additions is promised only,\n"
      "within some roundings.\n\n"
      "Examples:\n"
      "  saccade check\n"
      "  saccade check --cases 20000 --seed 500000\n"
      "  saccade check --backward --cases 6000\n"
      "  saccade check --shapes shapes.txt --isa avx2\n"
      "  saccade check --backend reference --cases 2000\n"
      "  mpirun -n 4 saccade check --distributed");
  command.callback([=, &action] {
    action = [=] { return arguments->ranks.distributed ? check_distributed(*arguments) : check(*arguments); };
  });
}

}  // namespace saccade::cli
