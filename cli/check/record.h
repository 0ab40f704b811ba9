// The record of one run of a campaign, a JSON file: which problems it computed, on which machine, and what it
// found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/output/json.h"
#include "problems.h"
#include "report.h"

namespace saccade::cli {

/// A set of seeds, as ranges.
class SeedRanges {
 public:
  /// Adds the seeds from `begin` to before `end`.
  void add(std::uint64_t begin, std::uint64_t end);
  /// The first seed from `seed` on that is not in the set.
  std::uint64_t next_free(std::uint64_t seed) const;
  /// By their begins: where each ends.
  const std::map<std::uint64_t, std::uint64_t>& ranges() const { return ends_; }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;
};

/// What a run did of one kind of problem.
struct KindRecord {
  SeedRanges seeds;           ///< those done, also where a seed has no problem of the kind
  std::int64_t problems = 0;  ///< how many problems they had
  double seconds = 0.0;       ///< the time that these took
};

/// What a run did so far.
struct Record {
  std::string version;            ///< of saccade
  std::string revision;           ///< of its source, as --revision says; "": not said
  std::string processor;          ///< its name
  std::vector<std::string> isas;  ///< the instruction sets that were checked
  std::string begun;              ///< the time, UTC: "2026-11-28T06:24:46Z"
  double seconds = 0.0;           ///< how long it took
  std::map<ProblemKind, KindRecord> kinds;
  Report report;
};

/// A record of this program, built from this revision of the source, and machine that begins now.
Record new_record(const std::string& revision, const std::vector<std::string>& isas);

Json to_json(const Record& record);

/// The folder of a campaign.
class CampaignFolder {
 public:
  explicit CampaignFolder(std::string folder);

  /// Makes the folder if there is none. Throws std::runtime_error if that is not possible.
  void create() const;
  /// The records in it, by the names of their files. Throws std::runtime_error with the name of a file that is no
  /// record.
  std::map<std::string, Record> load() const;
  /// A name for the file of a new record, which no other machine is likely to choose.
  std::string new_file() const;
  /// Writes the record, as a whole.
  void save(const std::string& file, const Record& record) const;

  const std::string& name() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace saccade::cli
