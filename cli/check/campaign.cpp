#include "campaign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "checking.h"
#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "record.h"

namespace saccade::cli {
namespace {

using CampaignClock = std::chrono::steady_clock;

double seconds_since(CampaignClock::time_point start) {
  return std::chrono::duration<double>(CampaignClock::now() - start).count();
}

volatile std::sig_atomic_t is_interrupted = 0;

/// While it exists, Ctrl-C asks the campaign to end after the current problem. A second one ends the program.
class Interruption {
 public:
  Interruption() {
    is_interrupted = 0;
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, ask);
  }
  ~Interruption() {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool is_asked_for() const { return is_interrupted != 0; }

 private:
  static void ask(int signal) {
    is_interrupted = 1;
    std::signal(signal, SIG_DFL);
  }
};

class Campaign {
 public:
  explicit Campaign(const CheckArguments& arguments)
      : arguments_(arguments), folder_(*arguments.campaign), kinds_(kinds_of(arguments)) {
    folder_.create();
    std::set<std::string> places;
    for (const ProblemKind kind : kinds_) {
      places_[kind] = places_of(kind, arguments);
      for (const Place& place : places_[kind])
        if (places.insert(place.name).second) record_.isas.push_back(place.name);
    }
    record_ = new_record(arguments.revision, record_.isas);
    for (const auto& [file, record] : folder_.load())
      for (const auto& [kind, done] : record.kinds)
        for (const auto& [begin, end] : done.seeds.ranges()) taken_[kind].add(begin, end);
  }

  /// Returns the file of the record.
  std::string run() {
    const Interruption interruption;
    std::string file = folder_.new_file();
    save(file);  // so that a folder that cannot be written is noticed now
    ProgressBar progress(arguments_.cases.value_or(0));
    CampaignClock::time_point saved = CampaignClock::now();
    for (std::int64_t done = 0; done < arguments_.cases.value_or(done + 1) && !interruption.is_asked_for();) {
      const std::size_t before = record_.report.kept().size();
      if (!check_next(kinds_[static_cast<std::size_t>(done) % kinds_.size()])) continue;
      ++done;
      if (record_.report.kept().size() > before) progress.hide();
      print_from(before);
      progress.show(done, record_.report.remark());
      if (CampaignClock::now() - saved < kBetweenSaves) continue;
      save(file);
      saved = CampaignClock::now();
    }
    save(file);
    return file;
  }

  const Record& record() const { return record_; }

 private:
  static constexpr std::chrono::seconds kBetweenSaves{10};

  /// Checks the next problem of a kind; returns false if its seed has none.
  bool check_next(ProblemKind kind) {
    const auto start = CampaignClock::now();
    const std::uint64_t seed = taken_[kind].next_free(arguments_.first_seed());
    const bool is_checked = check_drawing({kind, seed}, arguments_, places_[kind], record_.report);
    taken_[kind].add(seed, seed + 1);
    KindRecord& done = record_.kinds[kind];
    done.seeds.add(seed, seed + 1);
    done.problems += is_checked ? 1 : 0;
    done.seconds += seconds_since(start);
    return is_checked;
  }

  void save(const std::string& file) {
    record_.seconds = seconds_since(start_);
    folder_.save(file, record_);
  }

  void print_from(std::size_t first) const {
    if (arguments_.json) return;
    const Terminal terminal = Terminal::of_standard_output();
    for (std::size_t i = first; i < record_.report.kept().size(); ++i)
      print_failure(record_.report.kept()[i], terminal);
  }

  const CheckArguments& arguments_;
  CampaignFolder folder_;
  std::vector<ProblemKind> kinds_;
  std::map<ProblemKind, std::vector<Place>> places_;
  std::map<ProblemKind, SeedRanges> taken_;
  Record record_;
  CampaignClock::time_point start_ = CampaignClock::now();
};

/// How many problems of each kind there were.
std::string kinds_table(const std::map<ProblemKind, KindRecord>& kinds, const Terminal& terminal) {
  Table table(1);
  table.add_row({"", "problems", "a second"});
  for (const auto& [kind, done] : kinds)
    table.add_row({std::string(name_of(kind)), std::to_string(done.problems),
                   fmt::format("{:.1f}", static_cast<double>(done.problems) / std::max(done.seconds, 1e-9))});
  return table.to_string(terminal);
}

std::string verdict(std::int64_t failures, const Terminal& terminal) {
  if (failures == 0) return terminal.good("all agree with the reference");
  return terminal.bad(fmt::format("{} failed", failures));
}

std::int64_t problems_in(const Record& record) {
  std::int64_t count = 0;
  for (const auto& [kind, done] : record.kinds) count += done.problems;
  return count;
}

/// What several records say together.
struct Summary {
  std::map<ProblemKind, KindRecord> kinds;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> machines;  // records and problems of each
  Report report;
  std::vector<Failure> failures;
  std::int64_t failed = 0;

  explicit Summary(const std::map<std::string, Record>& records) {
    for (const auto& [file, record] : records) {
      for (const auto& [kind, done] : record.kinds) {
        kinds[kind].problems += done.problems;
        kinds[kind].seconds += done.seconds;
      }
      auto& [runs, problems] = machines[record.processor + ", saccade " + record.version];
      ++runs;
      problems += problems_in(record);
      for (const Tally& tally : record.report.tallies()) report.add(tally);
      failed += record.report.failures();
      failures.insert(failures.end(), record.report.kept().begin(), record.report.kept().end());
    }
  }
};

Json summary_json(const Summary& summary, std::size_t records) {
  Json kinds = Json::object(), machines = Json::array(), results = Json::array(), failures = Json::array();
  for (const auto& [kind, done] : summary.kinds)
    kinds[std::string(name_of(kind))] = {{"problems", done.problems}, {"seconds", done.seconds}};
  for (const auto& [machine, counts] : summary.machines)
    machines.push_back({{"machine", machine}, {"records", counts.first}, {"problems", counts.second}});
  for (const Tally& tally : summary.report.tallies()) results.push_back(to_json(tally));
  for (const Failure& failure : summary.failures) failures.push_back(to_json(failure));
  return {{"records", records}, {"kinds", kinds},           {"machines", machines},
          {"results", results}, {"failed", summary.failed}, {"failures", failures}};
}

void print_summary(const Summary& summary, std::size_t records) {
  const Terminal terminal = Terminal::of_standard_output();
  for (const Failure& failure : summary.failures) print_failure(failure, terminal);
  Table machines(1);
  machines.add_row({"", "records", "problems"});
  for (const auto& [machine, counts] : summary.machines)
    machines.add_row({machine, std::to_string(counts.first), std::to_string(counts.second)});
  fmt::print("{}\n{}\n{}\n", kinds_table(summary.kinds, terminal),
             tally_table(summary.report.tallies(), true, terminal), machines.to_string(terminal));
  std::int64_t problems = 0;
  for (const auto& [kind, done] : summary.kinds) problems += done.problems;
  fmt::print("{} problems in {} {}: {}\n", problems, records, records == 1 ? "record" : "records",
             verdict(summary.failed, terminal));
}

}  // namespace

ExitCode run_campaign(const CheckArguments& arguments) {
  Campaign campaign(arguments);
  const std::string file = campaign.run();
  const Record& record = campaign.record();
  const ExitCode code = record.report.failures() == 0 ? kGood : kCheckFailed;
  if (arguments.json) {
    Json json = to_json(record);
    json["file"] = file;
    print_json(json);
    return code;
  }
  const Terminal terminal = Terminal::of_standard_output();
  fmt::print("{}\n{}\n{} problems on {} in {}: {}\nrecord: {}\n", kinds_table(record.kinds, terminal),
             tally_table(over_places(record.report.tallies()), false, terminal), problems_in(record),
             fmt::join(record.isas, ", "), duration(record.seconds), verdict(record.report.failures(), terminal),
             file);
  return code;
}

ExitCode summarize_campaign(const CheckArguments& arguments) {
  const std::map<std::string, Record> records = CampaignFolder(*arguments.campaign).load();
  if (records.empty()) refuse("--campaign: {} has no records", *arguments.campaign);
  const Summary summary(records);
  if (arguments.json)
    print_json(summary_json(summary, records.size()));
  else
    print_summary(summary, records.size());
  return summary.failed == 0 ? kGood : kCheckFailed;
}

}  // namespace saccade::cli
