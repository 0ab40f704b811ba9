// The tour: contains every published number, and detects a wrong one.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "saccade/runtime.h"
#include "support/cli_support.h"
#include "support/published.h"

namespace saccade::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class TourTest : public CommandTest {
 protected:
  std::vector<json> checks_of(const json& tour) const {
    std::vector<json> checks;
    for (const json& chapter : tour.at("chapters")) {
      for (const json& step : chapter.at("steps")) {
        for (const json& check : step.at("checks")) checks.push_back(check);
      }
    }
    return checks;
  }
};

// The paths of all printed numbers in `value`: numbers, and (nested) arrays of numbers.
void collect_numbers(const json& value, const std::string& path, std::set<std::string>& paths) {
  if (value.is_number() || (value.is_array() && (value.front().is_number() || value.front().is_array()))) {
    paths.insert(path);
  } else if (value.is_object()) {
    for (const auto& [key, part] : value.items()) collect_numbers(part, path + "/" + key, paths);
  }
}

bool is_tolerance(const std::string& path) { return path.ends_with("tolerance"); }

std::int64_t count_numbers(const json& value) {
  if (!value.is_array()) return 1;
  std::int64_t count = 0;
  for (const json& part : value) count += count_numbers(part);
  return count;
}

TEST_F(TourTest, HoldsInBothLanguages) {
  const Outcome english = run({"tour"});
  EXPECT_EQ(english.exit_code, 0);
  EXPECT_EQ(english.err, "");
  EXPECT_THAT(english.out, HasSubstr("numbers, all within tolerance"));
  EXPECT_THAT(english.out, HasSubstr("printed  0.9544     1.4950"));
  EXPECT_THAT(english.out, HasSubstr("saccade  0.954400   1.495000"));
  EXPECT_THAT(english.out, HasSubstr("docs/tutorial"));

  const Outcome chinese = run({"tour", "--lang", "zh"});
  EXPECT_EQ(chinese.exit_code, 0);
  EXPECT_THAT(chinese.out, HasSubstr("全部在容差之内"));
  EXPECT_THAT(chinese.out, HasSubstr("算得  0.954400   1.495000"));
  EXPECT_THAT(chinese.out, HasSubstr("docs/tutorial/zh-CN"));
}

TEST_F(TourTest, HasNoColourOutsideOfATerminal) { EXPECT_EQ(run({"tour"}).out.find('\x1b'), std::string::npos); }

TEST_F(TourTest, ShowsEveryPublishedNumber) {
  std::set<std::string> published_paths;
  collect_numbers(published(), "", published_paths);
  std::erase_if(published_paths, is_tolerance);

  const json tour = run({"tour", "--json"}).json();
  std::set<std::string> shown;
  for (const json& check : checks_of(tour)) shown.insert(check.at("path").get<std::string>());
  for (const json& input : tour.at("inputs")) shown.insert(input.get<std::string>());
  EXPECT_EQ(shown, published_paths);
}

TEST_F(TourTest, ComparesThePrintedNumbersWithinTheirTolerance) {
  const json tour = run({"tour", "--json"}).json();
  std::int64_t numbers = 0;
  for (const json& check : checks_of(tour)) {
    SCOPED_TRACE(check.at("path").get<std::string>());
    const json& wanted = published().at(json::json_pointer(check.at("path").get<std::string>()));
    const std::vector<double> printed = flat(wanted);
    const std::vector<double> computed = flat(check.at("computed"));
    EXPECT_EQ(flat(check.at("printed")), printed);
    ASSERT_EQ(computed.size(), printed.size());
    for (std::size_t i = 0; i < printed.size(); ++i) {
      const double allowed = check.at("absolute_tolerance").get<double>() +
                             check.at("relative_tolerance").get<double>() * std::abs(printed[i]);
      EXPECT_LE(std::abs(computed[i] - printed[i]), allowed) << "number " << i;
    }
    EXPECT_EQ(check.at("numbers"), count_numbers(wanted));
    numbers += count_numbers(wanted);
  }
  EXPECT_EQ(tour.at("numbers"), numbers);
  EXPECT_EQ(tour.at("wrong"), 0);
  EXPECT_EQ(tour.at("failed_claims"), 0);
}

TEST_F(TourTest, UsesTheToleranceGivenWithTheNumbers) {
  const json tour = run({"tour", "--json"}).json();
  for (const json& check : checks_of(tour)) {
    const std::string path = check.at("path");
    SCOPED_TRACE(path);
    if (path.starts_with("/six_tokens/")) {
      EXPECT_EQ(check.at("absolute_tolerance"), published().at("six_tokens").at("tolerance"));
    }
    if (path.starts_with("/hello_shiny_sun/")) {
      EXPECT_EQ(check.at("absolute_tolerance"), published().at("hello_shiny_sun").at("tolerance"));
    }
    if (path == "/repeated_row/weights") {
      EXPECT_EQ(check.at("absolute_tolerance"), 0);
      EXPECT_EQ(check.at("relative_tolerance"), published().at("repeated_row").at("relative_tolerance"));
    }
  }
}

TEST_F(TourTest, HoldsOnEveryInstructionSet) {
  for (const Isa isa : available_isas()) {
    const Outcome tour = run({"tour", "--json"}, {.environment = {{"SACCADE_ISA", std::string(name_of(isa))}}});
    EXPECT_EQ(tour.exit_code, 0) << name_of(isa);
  }
}

TEST_F(TourTest, TellsOfTheTraps) {
  const std::string tour = run({"tour"}).out;
  EXPECT_THAT(tour, HasSubstr("0 * -inf"));
  EXPECT_THAT(tour, HasSubstr("8 dimensions cannot be split over 3"));
  EXPECT_THAT(tour, HasSubstr("The author slipped in the fourth digit"));
  EXPECT_THAT(tour, HasSubstr("builds of PyTorch draw different masks"));
}

TEST_F(TourTest, NoticesAWrongNumber) {
  const Outcome tour = run_program(SACCADE_COMMAND_WITH_SLIP, {"tour", "--json"});
  EXPECT_EQ(tour.exit_code, 1);
  for (const json& check : checks_of(tour.json())) {
    EXPECT_EQ(check.at("wrong"), check.at("path") == "/six_tokens/simple/scores_query_1" ? 1 : 0);
  }
  const Outcome text = run_program(SACCADE_COMMAND_WITH_SLIP, {"tour"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr("✗ 1 of 511 numbers beyond their tolerance"));
}

}  // namespace
}  // namespace saccade::test
