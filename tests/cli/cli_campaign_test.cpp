// saccade check --campaign as a user runs it: records, seeds that no record has, the summary, Ctrl-C.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/cli_support.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class CampaignTest : public CommandTest {
 protected:
  std::vector<std::string> campaign(const std::vector<std::string>& more) {
    std::vector<std::string> all{"check", "--campaign", "records", "--isa", "scalar"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// The records, by the names of their files.
  std::map<std::string, json> records() const {
    std::map<std::string, json> found;
    for (const auto& [name, contents] : files())
      if (name.ends_with(".json")) found[name] = json::parse(contents);
    return found;
  }

  void refused(const std::vector<std::string>& arguments, const std::string& line) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(line));
  }

  /// A record as a call writes it, with one failure.
  static json record_with_failure() {
    return json::parse(R"json({"format": "saccade check --campaign, 1", "version": "0.1", "processor": "Other",
      "isas": ["scalar"], "begun": "2026-01-01T00:00:00Z", "seconds": 2.0,
      "kinds": {"forward": {"problems": 9, "seconds": 2.0, "seeds": [[5, 14]]}},
      "results": [{"kind": "forward", "result": "o of attention()", "isa": "scalar", "compared": 9, "failed": 1,
                   "worst_ratio": "inf", "worst_case": "seed 7"}],
      "failed": 1,
      "failures": [{"kind": "forward", "case": "seed 7", "isa": "scalar", "text": "o of attention(): element",
                    "problem": "q f32", "again": "saccade check --seed 7", "smallest_problem": "q f32 [1, 1]",
                    "smallest": "saccade check --seed 7 --simpler f32"}]})json");
  }
};

TEST_F(CampaignTest, ARecordSaysWhatWasDone) {
  const Outcome text = run(campaign({"--cases", "12", "--revision", "0123abc"}));
  ASSERT_EQ(text.exit_code, 0) << text.out << text.err;
  EXPECT_THAT(text.out, HasSubstr("12 problems on scalar in"));
  EXPECT_THAT(text.out, HasSubstr("all agree with the reference"));
  const auto all = records();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_THAT(text.out, HasSubstr("record: " + all.begin()->first.substr(std::string("records/").size())));
  const json& record = all.begin()->second;
  EXPECT_EQ(record.at("isas"), json::parse(R"(["scalar"])"));
  EXPECT_EQ(record.at("revision"), "0123abc");
  EXPECT_EQ(record.at("failed"), 0);
  EXPECT_THAT(record.at("begun").get<std::string>(), EndsWith("Z"));
  for (const char* kind : {"forward", "backward", "states", "inspect", "caches", "divided"})
    EXPECT_EQ(record.at("kinds").at(kind).at("problems"), 2) << kind;
  std::map<std::string, int> compared;
  for (const json& result : record.at("results"))
    compared[result.at("kind").get<std::string>() + ": " + result.at("result").get<std::string>()] +=
        result.at("compared").get<int>();
  EXPECT_EQ(compared["forward: o of attention()"], 2);
  EXPECT_EQ(compared["backward: dq of attention_backward()"], 2);
  EXPECT_EQ(compared["inspect: entropy of inspect()"], 2);
  EXPECT_EQ(compared["caches: bits of o of attention() over a KvCache"], 2);
  EXPECT_EQ(compared["divided: all results of a divided call"], 2);
}

TEST_F(CampaignTest, TakesSeedsThatNoRecordHas) {
  const std::vector<std::string> five = campaign({"--kind", "forward", "--cases", "5"});
  ASSERT_EQ(run(five).exit_code, 0);
  const auto first = records();
  EXPECT_EQ(first.begin()->second.at("kinds").at("forward").at("seeds"), json::parse("[[1, 6]]"));
  write("records/other.json", record_with_failure().dump());  // has seeds 5 to 13
  ASSERT_EQ(run(campaign({"--kind", "forward", "--cases", "3"})).exit_code, 0);
  ASSERT_EQ(run(campaign({"--kind", "forward", "--cases", "2", "--seed", "1000"})).exit_code, 0);
  ASSERT_EQ(run(campaign({"--kind", "forward", "--cases", "2", "--seed", "999"})).exit_code, 0);
  std::vector<std::string> seeds;
  for (const auto& [name, record] : records())
    if (!first.contains(name) && name != "records/other.json")
      seeds.push_back(record.at("kinds").at("forward").at("seeds").dump());
  EXPECT_THAT(seeds, ::testing::UnorderedElementsAre("[[14,17]]", "[[1000,1002]]", "[[999,1000],[1002,1003]]"));
}

TEST_F(CampaignTest, TheSummaryAddsUpAllRecords) {
  ASSERT_EQ(run(campaign({"--kind", "forward,inspect", "--cases", "6"})).exit_code, 0);
  ASSERT_EQ(run(campaign({"--kind", "forward", "--cases", "4"})).exit_code, 0);
  const Outcome good = run({"check", "--campaign", "records", "--summary", "--json"});
  ASSERT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.json().at("records"), 2);
  EXPECT_EQ(good.json().at("kinds").at("forward").at("problems"), 7);
  EXPECT_EQ(good.json().at("kinds").at("inspect").at("problems"), 3);
  EXPECT_EQ(good.json().at("machines").size(), 1U);
  EXPECT_EQ(good.json().at("results").at(0).at("compared"), 7);
  write("records/other.json", record_with_failure().dump());
  const Outcome failed = run({"check", "--campaign", "records", "--summary"});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("FAILED seed 7 on scalar\n  o of attention(): element"));
  EXPECT_THAT(failed.out, HasSubstr("smallest: q f32 [1, 1]\n  again: saccade check --seed 7 --simpler f32"));
  EXPECT_THAT(failed.out, HasSubstr("Other, saccade 0.1"));
  EXPECT_THAT(failed.out, HasSubstr("19 problems in 3 records: 1 failed"));
  EXPECT_EQ(run(campaign({"--kind", "forward", "--cases", "1"})).exit_code, 0);  // the failure is not its own
}

TEST_F(CampaignTest, ThePageOfTheDocumentationSaysWhatItsRecordsSay) {
  const std::filesystem::path folder = std::filesystem::path(SACCADE_SOURCE_DIR) / "docs/campaign";
  const Outcome summary = run({"check", "--campaign", (folder / "records").string(), "--summary", "--json"});
  std::stringstream page;
  page << std::ifstream(folder / "README.md").rdbuf();
  std::int64_t all = 0;
  const json found = summary.json();
  for (const auto& [kind, done] : found.at("kinds").items()) {
    const auto problems = done.at("problems").get<std::int64_t>();
    EXPECT_THAT(page.str(), HasSubstr("\n| " + kind + " | " + std::to_string(problems) + " |\n"));
    all += problems;
  }
  for (const json& failure : found.at("failures")) {
    const std::string again = failure.at("again").get<std::string>(), option = " --seed ";
    const std::string seed = again.substr(again.find(option) + option.size());
    EXPECT_THAT(page.str(), HasSubstr(seed.substr(0, seed.find(' ')))) << again;  // and what was wrong
  }
  EXPECT_GT(all, 0);
  EXPECT_THAT(page.str(), HasSubstr("\n| all | " + std::to_string(all) + " |\n"));
}

TEST_F(CampaignTest, RefusesDamagedRecords) {
  ASSERT_EQ(run(campaign({"--kind", "forward", "--cases", "1"})).exit_code, 0);
  const auto damaged = [&](const std::string& contents, const std::string& why) {
    write("records/bad.json", contents);
    for (const char* what : {"--summary", "--cases=1"})
      refused({"check", "--campaign", "records", what}, "bad.json is no record of a campaign: " + why);
  };
  damaged("{", "parse error at line 1, column 2");
  damaged("{}", "key 'format' not found");
  const auto with = [](const char* pointer, const json& value) {
    json record = record_with_failure();
    record[json::json_pointer(pointer)] = value;
    return record.dump();
  };
  damaged(with("/format", "another"), "its format is \"another\"");
  damaged(with("/kinds/forward/seeds/0/0", 14), "seeds [14,14] end before they begin");
  damaged(with("/kinds/forward/problems", -1), "-1 is no whole number from 0 on");
  damaged(with("/kinds/sideways", json::object()), "sideways is no kind of problem");
  damaged(with("/results/0/worst_ratio", "much"), "much is no number");
  damaged(with("/failed", 0), "it has more failures than it counts");
}

TEST_F(CampaignTest, RefusesWhatItCannotDo) {
  refused({"check", "--summary"}, "saccade check: --summary needs --campaign FOLDER");
  refused({"check", "--revision", "0123abc"}, "saccade check: --revision needs --campaign FOLDER");
  refused({"check", "--campaign", "nowhere", "--summary"}, "nowhere");
  write("shapes.txt", "s=5\n");
  refused({"check", "--campaign", "records", "--shapes", "shapes.txt"},
          "--campaign cannot be combined with --shapes");
  refused({"check", "--campaign", "records", "--simpler", "f32"}, "--campaign cannot be combined with --simpler");
  refused({"check", "--kind", "sideways"}, "--kind");
  refused({"check", "--simpler", "smaller"}, "saccade check: --simpler: smaller: expected one of without=");
}

TEST_F(CampaignTest, KindsAndSimplerFormsCanBeCheckedWithoutACampaign) {
  const json report =
      run({"check", "--kind", "inspect,caches", "--cases", "3", "--isa", "scalar", "--json"}).json();
  EXPECT_EQ(report.at("cases"), 6);
  EXPECT_EQ(report.at("failed"), 0);
  const Outcome simpler = run({"check", "--cases", "1", "--seed", "7", "--isa", "scalar", "--simpler",
                               "without=lse,weights,scores seqlen_q=1 f32", "--json"});
  ASSERT_EQ(simpler.exit_code, 0) << simpler.err;
  const json of_simpler = simpler.json();
  for (const json& result : of_simpler.at("results"))
    EXPECT_THAT(result.at("result").get<std::string>(), ::testing::StartsWith("o of "));
}

#ifndef _WIN32
TEST_F(CampaignTest, CtrlCEndsItWithARecordOfWhatItDid) {
  const std::string script =
      "\"$0\" check --campaign records --kind forward --isa scalar & "
      "until ls records/*.json >/dev/null 2>&1; do sleep 0.1; done; sleep 2; kill -INT $!; "
      "pid=$!; (sleep 20; kill -KILL $pid) & killer=$!; wait $pid; code=$?; kill $killer; exit $code";
  const Outcome outcome = run_program("sh", {"-c", script, SACCADE_COMMAND});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("all agree with the reference"));
  const auto all = records();
  ASSERT_EQ(all.size(), 1U);
  const json& forward = all.begin()->second.at("kinds").at("forward");
  EXPECT_GT(forward.at("problems"), 0);
  EXPECT_EQ(forward.at("seeds").at(0).at(1), forward.at("problems").get<int>() + 1);
}
#endif

}  // namespace
}  // namespace saccade::test
