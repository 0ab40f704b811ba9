// CONTRIBUTING.md's table of the deep checks has the slices of script/deep, with their times and commands, and the
// turn comes to all of them.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

/// What the groups 1 to 3 of the pattern match, one line for each match.
std::vector<std::string> found_in(const std::string& file, const std::regex& pattern) {
  std::stringstream text;
  text << std::ifstream(std::string(SACCADE_SOURCE_DIR) + "/" + file).rdbuf();
  const std::string contents = text.str();
  std::vector<std::string> lines;
  for (std::sregex_iterator found(contents.begin(), contents.end(), pattern), end; found != end; ++found)
    lines.push_back((*found)[1].str() + ", " + (*found)[2].str() + ", " + (*found)[3].str());
  return lines;
}

std::vector<std::string> slices_of_the_script() {
  return found_in("script/deep", std::regex(R"re(\n  "([a-z0-9_.-]+) \| ([0-9-]+) \| ([^"]+)")re"));
}

TEST(DeepChecks, AreThoseOfTheirTable) {
  const std::vector<std::string> slices = slices_of_the_script();
  EXPECT_THAT(slices, SizeIs(::testing::Gt(50U)));
  EXPECT_THAT(found_in("CONTRIBUTING.md", std::regex(R"re(\n\| `([a-z0-9_.-]+)` \| ([0-9-]+) \| `([^`]+)` \|)re")),
              ElementsAreArray(slices));
}

TEST(DeepChecks, AllHaveTheirTurn) {
  const std::vector<std::string> steps = found_in("script/deep", std::regex("()local commits step=([0-9]+)()"));
  ASSERT_THAT(steps, SizeIs(1));
  const int step = std::stoi(steps.front().substr(2)), slices = static_cast<int>(slices_of_the_script().size());
  EXPECT_EQ(std::gcd(step, slices), 1) << "the turn would leave some of " << slices << " slices out";
}

}  // namespace
