#include "record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <saccade/io.h>
#include <saccade/runtime.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "cli/common/common.h"
#include "cli/output/json.h"
#include "cli/output/terminal.h"

namespace saccade::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFormat = "saccade check --campaign, 1";
constexpr const char* kEnding = ".json";

/// A number that json_number() wrote.
double number_from(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw std::invalid_argument(text + " is no number");
}

/// A count or a seed, which is not negative.
template <class T>
T count_from(const Json& json) {
  if (!json.is_number_unsigned()) throw std::invalid_argument(json.dump() + " is no whole number from 0 on");
  const auto number = json.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
    throw std::invalid_argument(json.dump() + " is too large");
  return static_cast<T>(number);
}

ProblemKind kind_from(const std::string& name) {
  const auto kind = problem_kind(name);
  if (!kind) throw std::invalid_argument(name + " is no kind of problem");
  return *kind;
}

/// An error's text, without the number that nlohmann-json begins its own with.
std::string reason(std::string_view text) {
  const std::size_t end = text.starts_with("[json.") ? text.find("] ") : std::string_view::npos;
  return message_line(end == std::string_view::npos ? text : text.substr(end + 2));
}

Json json_of_kind(const KindRecord& kind) {
  Json ranges = Json::array();
  for (const auto& [begin, end] : kind.seeds.ranges()) ranges.push_back({begin, end});
  return {{"problems", kind.problems}, {"seconds", kind.seconds}, {"seeds", ranges}};
}

KindRecord kind_record_from(const Json& json) {
  KindRecord kind;
  kind.problems = count_from<std::int64_t>(json.at("problems"));
  kind.seconds = json.at("seconds").get<double>();
  for (const Json& range : json.at("seeds")) {
    const auto begin = count_from<std::uint64_t>(range.at(0)), end = count_from<std::uint64_t>(range.at(1));
    if (begin >= end) throw std::invalid_argument("seeds " + range.dump() + " end before they begin");
    kind.seeds.add(begin, end);
  }
  return kind;
}

Tally tally_from(const Json& json) {
  Tally tally{.kind = json.at("kind").get<std::string>(),
              .result = json.at("result").get<std::string>(),
              .place = json.at("isa").get<std::string>()};
  kind_from(tally.kind);
  tally.compared = count_from<std::int64_t>(json.at("compared"));
  tally.failed = count_from<std::int64_t>(json.at("failed"));
  tally.worst_ratio = number_from(json.at("worst_ratio"));
  tally.worst_case = json.at("worst_case").get<std::string>();
  return tally;
}

Failure failure_from(const Json& json) {
  const auto text = [&](const char* key) { return json.at(key).get<std::string>(); };
  return {.kind = text("kind"),
          .of_case = text("case"),
          .place = text("isa"),
          .result = "",
          .text = text("text"),
          .problem = text("problem"),
          .again = text("again"),
          .smallest = text("smallest"),
          .smallest_problem = text("smallest_problem")};
}

Record record_from(const Json& json) {
  if (json.at("format") != kFormat) throw std::invalid_argument("its format is " + json.at("format").dump());
  Record record;
  record.version = json.at("version").get<std::string>();
  record.revision = json.value("revision", "");
  record.processor = json.at("processor").get<std::string>();
  record.isas = json.at("isas").get<std::vector<std::string>>();
  record.begun = json.at("begun").get<std::string>();
  record.seconds = json.at("seconds").get<double>();
  for (const auto& [name, done] : json.at("kinds").items()) {
    const ProblemKind kind = kind_from(name);
    record.kinds[kind] = kind_record_from(done);
  }
  for (const Json& tally : json.at("results")) record.report.add(tally_from(tally));
  for (const Json& failure : json.at("failures")) record.report.add(failure_from(failure));
  const auto failed = count_from<std::int64_t>(json.at("failed"));
  if (failed < record.report.failures()) throw std::invalid_argument("it has more failures than it counts");
  record.report.count_failures(failed - record.report.failures());
  return record;
}

}  // namespace

Json to_json(const Record& record) {
  Json kinds = Json::object(), results = Json::array(), failures = Json::array();
  for (const auto& [kind, done] : record.kinds) kinds[std::string(name_of(kind))] = json_of_kind(done);
  for (const Tally& tally : record.report.tallies()) results.push_back(to_json(tally));
  for (const Failure& failure : record.report.kept()) failures.push_back(to_json(failure));
  return {{"format", kFormat},           {"version", record.version},
          {"revision", record.revision}, {"processor", record.processor},
          {"isas", record.isas},         {"begun", record.begun},
          {"seconds", record.seconds},   {"kinds", kinds},
          {"results", results},          {"failed", record.report.failures()},
          {"failures", failures}};
}

void SeedRanges::add(std::uint64_t begin, std::uint64_t end) {
  auto next = ends_.upper_bound(begin);
  if (next != ends_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ends_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_[begin] = end;
}

std::uint64_t SeedRanges::next_free(std::uint64_t seed) const {
  const auto next = ends_.upper_bound(seed);
  return next == ends_.begin() ? seed : std::max(seed, std::prev(next)->second);
}

Record new_record(const std::string& revision, const std::vector<std::string>& isas) {
  Record record;
  record.version = version();
  record.revision = revision;
  record.processor = cpu_name();
  record.isas = isas;
  record.begun = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  return record;
}

CampaignFolder::CampaignFolder(std::string folder) : folder_(std::move(folder)) {}

void CampaignFolder::create() const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw std::runtime_error(fmt::format("--campaign: {}: {}", folder_, error.message()));
}

std::map<std::string, Record> CampaignFolder::load() const {
  std::error_code error;
  std::map<std::string, Record> records;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kEnding) continue;
    const std::vector<std::byte> bytes = read_file(entry.path().string());
    try {
      records[entry.path().filename().string()] =
          record_from(Json::parse(reinterpret_cast<const char*>(bytes.data()),
                                  reinterpret_cast<const char*>(bytes.data()) + bytes.size()));
    } catch (const std::exception& wrong) {
      refuse("{} is no record of a campaign: {}", entry.path().string(), reason(wrong.what()));
    }
  }
  if (error) throw std::runtime_error(fmt::format("--campaign: {}: {}", folder_, error.message()));
  return records;
}

std::string CampaignFolder::new_file() const {
  std::random_device random;
  const std::uint64_t number = (std::uint64_t{random()} << 32) | random();
  return fmt::format("{:%Y%m%dT%H%M%SZ}-{:016x}{}", fmt::gmtime(std::time(nullptr)), number, kEnding);
}

void CampaignFolder::save(const std::string& file, const Record& record) const {
  write_file(fs::path(folder_) / file, to_json(record).dump(1) + "\n");
}

}  // namespace saccade::cli
