// saccade check: attention(), decode() and gradients against the reference, on random problems or on given ones.
#include "check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <saccade/backend.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "campaign.h"
#include "cases/problem.h"
#include "checking.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "report.h"

namespace saccade::cli {
namespace {

/// What to check: random problems, of each kind with consecutive seeds, or the problems of a file, all with one
/// seed.
class Work {
 public:
  explicit Work(const CheckArguments& arguments) : arguments_(arguments), kinds_(kinds_of(arguments)) {
    if (arguments.shapes) problems_ = load_shapes(*arguments.shapes);
    for (const ProblemKind kind : kinds_) places_.push_back(places_of(kind, arguments));
  }

  std::int64_t count() const {
    return arguments_.shapes ? static_cast<std::int64_t>(problems_.size())
                             : arguments_.number_of_cases() * static_cast<std::int64_t>(kinds_.size());
  }

  /// The names of all places, each once.
  std::vector<std::string> places() const {
    std::vector<std::string> names;
    for (const std::vector<Place>& of_kind : places_)
      for (const Place& place : of_kind)
        if (std::ranges::find(names, place.name) == names.end()) names.push_back(place.name);
    return names;
  }

  void check(std::int64_t index, Report& report) const {
    if (arguments_.shapes) return check_shape(problems_[static_cast<std::size_t>(index)], report);
    const auto kinds = static_cast<std::int64_t>(kinds_.size());
    const auto kind = static_cast<std::size_t>(index % kinds);
    const std::uint64_t seed = arguments_.first_seed() + static_cast<std::uint64_t>(index / kinds);
    check_drawing({kinds_[kind], seed}, arguments_, places_[kind], report);
  }

 private:
  void check_shape(const cases::Problem& problem, Report& report) const {
    const std::uint64_t seed = arguments_.first_seed();
    const auto again = [&](const Place& place) {
      const std::string threads = arguments_.threads ? fmt::format(" --threads {}", *arguments_.threads) : "";
      return fmt::format("saccade check --shapes '{}' --seed {} {} {}{}", *arguments_.shapes, seed,
                         place.backend.empty() ? "--isa" : "--backend", place.name, threads);
    };
    check_problem(ProblemKind::forward, *draw_problem(problem, seed, arguments_.threads), problem.name(),
                  places_.front(), again, report);
  }

  const CheckArguments& arguments_;
  std::vector<ProblemKind> kinds_;
  std::vector<std::vector<Place>> places_;  // of each kind
  std::vector<cases::Problem> problems_;
};

Json report_json(const Report& report, std::int64_t cases, const std::vector<std::string>& isas, double seconds) {
  Json results = Json::array(), failures = Json::array();
  for (const Tally& tally : over_places(report.tallies())) {
    results.push_back({{"kind", tally.kind},
                       {"result", tally.result},
                       {"compared", tally.compared},
                       {"failed", tally.failed},
                       {"worst_ratio", json_number(tally.worst_ratio)},
                       {"worst_case", tally.worst_case},
                       {"worst_isa", tally.place}});
  }
  for (const Failure& failure : report.kept()) failures.push_back(to_json(failure));
  return {{"cases", cases},
          {"isas", isas},
          {"seconds", seconds},
          {"results", results},
          {"failed", report.failures()},
          {"failures", failures}};
}

void print_report(const Report& report, std::int64_t cases, const std::vector<std::string>& isas, double seconds,
                  const Terminal& terminal) {
  fmt::print("{}\n", tally_table(over_places(report.tallies()), false, terminal));
  const std::string what = fmt::format("{} {} on {} in {}", cases, cases == 1 ? "case" : "cases",
                                       fmt::join(isas, ", "), duration(seconds));
  if (report.failures() == 0) {
    fmt::print("{}: {} (1.00 is what the rule of compare.h allows)\n", what,
               terminal.good("all agree with the reference"));
  } else {
    fmt::print("{}: {}\n", what, terminal.bad(fmt::format("{} failed", report.failures())));
  }
}

/// Refuses a back end that does not exist.
void require_backend(const CheckArguments& arguments) {
  try {
    static_cast<void>(BackendChoice(arguments.backend));
  } catch (const std::invalid_argument& error) {
    refuse("--backend: {}", message_line(error.what()));
  }
}

ExitCode check_cases(const CheckArguments& arguments) {
  const Work work(arguments);
  const Terminal terminal = Terminal::of_standard_output();
  Report report;
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar progress(work.count());
    for (std::int64_t i = 0; i < work.count(); ++i) {
      const std::size_t before = report.kept().size();
      work.check(i, report);
      if (!arguments.json && report.kept().size() > before) {
        progress.hide();
        for (std::size_t j = before; j < report.kept().size(); ++j) print_failure(report.kept()[j], terminal);
      }
      progress.show(i + 1, report.remark());
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (arguments.json) {
    print_json(report_json(report, work.count(), work.places(), seconds));
  } else {
    print_report(report, work.count(), work.places(), seconds, terminal);
  }
  return report.failures() == 0 ? kGood : kCheckFailed;
}

ExitCode check(const CheckArguments& arguments) {
  require_backend(arguments);
  if (arguments.campaign && arguments.shapes) refuse("--campaign cannot be combined with --shapes");
  if (arguments.campaign && !arguments.simpler.empty()) refuse("--campaign cannot be combined with --simpler");
  if (arguments.ranks.distributed) return check_distributed(arguments);
  if (arguments.summary && !arguments.campaign) refuse("--summary needs --campaign FOLDER");
  if (!arguments.revision.empty() && !arguments.campaign) refuse("--revision needs --campaign FOLDER");
  if (arguments.summary) return summarize_campaign(arguments);
  return arguments.campaign ? run_campaign(arguments) : check_cases(arguments);
}

constexpr const char* kFooter =
    "Each problem combines options, shapes, element types and layouts of memory at random, and goes through\n"
    "attention() and, where it has few rows, decode(). Exit code 1 if a result is further from the reference\n"
    "than the rule of compare.h allows; each failure is printed with the command that repeats it.\n\n"
    "A line of FILE is a problem, '#' begins a comment:\n"
    "  b=1 h=32 hkv=8 sq=1 sk=32768 d=128 dtype=bf16 causal=bottom_right page=16 decode   # a long cache\n"
    "  h=8 s=4096 d=64 window=256,0 alibi lse threads=2\n"
    "Of problems that would take the reference too long, some rows are checked.\n\n"
    "With --campaign, problems are those whose seeds no record in FOLDER has, so that many runs, on many "
    "machines\n"
    "with different --seed, together check millions; records may be copied into one folder.\n\n"
    "With --distributed, problems are divided at random among the processes of mpirun, forward, backward and\n"
    "decode, and compared with one process to the last bit; where another order of additions is promised only,\n"
    "within some roundings.\n\n"
    "Examples:\n"
    "  saccade check\n"
    "  saccade check --cases 20000 --seed 500000\n"
    "  saccade check --backward --cases 6000\n"
    "  saccade check --shapes shapes.txt --isa avx2\n"
    "  saccade check --backend reference --cases 2000\n"
    "  saccade check --kind inspect,caches --cases 500\n"
    "  saccade check --campaign records --seed 1000000000\n"
    "  saccade check --campaign records --summary\n"
    "  mpirun -n 4 saccade check --distributed";

/// Which problems, and where they are computed.
void add_problem_options(Command command, CheckArguments& arguments) {
  const Option cases =
      add_integer(command, "--cases", arguments.cases,
                  "How many random problems of each kind; without, 1000. Of a campaign: how many in all; without, "
                  "until Ctrl-C",
                  1)
          .type_name("N");
  add_integer(command, "--seed", arguments.seed,
              "The seed of the first problem, each next one has the next; without, 1", 0)
      .type_name("S");
  const Option isa =
      command
          .add_option("--isa", arguments.isas,
                      "Instruction sets to check; without, all that this machine has, or SACCADE_ISA")
          .delimiter(',')
          .type_name("NAME,...");
  command
      .add_option("--backend", arguments.backend,
                  "Check every function of this back end instead: attention, states, decode, gradients")
      .type_name("NAME")
      .excludes(isa);
  const Option kind = command.add_option("--kind", arguments.kinds, "What random problems check; without, forward")
                          .delimiter(',')
                          .one_of({kProblemKinds.begin(), kProblemKinds.end()})
                          .type_name("NAME,...");
  const Option shapes =
      command.add_option("--shapes", arguments.shapes, "Check the problems of this file instead, one a line")
          .type_name("FILE")
          .excludes(cases)
          .excludes(kind);
  command
      .add_flag("--backward", arguments.backward, "Check attention_backward(); problems with pages are left out")
      .excludes(shapes)
      .excludes(kind);
  const auto simplify = [&arguments](const std::string& text) {
    try {
      arguments.simpler = cases::parse_simplification(text);
    } catch (const std::invalid_argument& error) {
      refuse("--simpler: {}", error.what());
    }
  };
  command
      .add_option("--simpler", simplify,
                  "A simpler form of each problem, in the words of a failure's smallest form")
      .type_name("WORDS")
      .excludes(shapes);
  add_integer(command, "--threads", arguments.threads, "Threads of each call; without, as the problem says", 1)
      .between(1, 1024)
      .type_name("N");
}

void add_campaign_options(Command command, CheckArguments& arguments) {
  command
      .add_option(
          "--campaign", arguments.campaign,
          "Check random problems of every kind that no record in this folder has, and write a record there")
      .type_name("FOLDER");
  command
      .add_option("--revision", arguments.revision,
                  "Of the source that this command was built from, such as a commit; the record keeps it")
      .type_name("TEXT");
  command.add_flag("--summary", arguments.summary, "Print what all records of --campaign say, and check nothing");
}

}  // namespace

std::vector<ProblemKind> kinds_of(const CheckArguments& arguments) {
  std::vector<ProblemKind> kinds;
  for (const std::string& name : arguments.kinds) kinds.push_back(*problem_kind(name));
  if (!kinds.empty()) return kinds;
  if (arguments.backward) return {ProblemKind::backward};
  if (!arguments.backend.empty() && !arguments.shapes) return {ProblemKind::states};
  if (!arguments.campaign) return {ProblemKind::forward};
  for (const std::string_view name : kProblemKinds) kinds.push_back(*problem_kind(name));
  return kinds;
}

void add_check(Command app, Action& action) {
  const Command command = app.add_subcommand("check", "Random problems against the reference in double precision");
  const auto arguments = std::make_shared<CheckArguments>();
  add_problem_options(command, *arguments);
  add_campaign_options(command, *arguments);
  arguments->ranks.add_options(command);
  command.add_flag("--json", arguments->json, "Print the findings as JSON");
  command.footer(kFooter);
  command.callback([=, &action] { action = [=] { return check(*arguments); }; });
}

}  // namespace saccade::cli
