// The version: the library, the packages and the documentation have the one of CMakeLists.txt.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "saccade/runtime.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;

std::string contents_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(SACCADE_SOURCE_DIR "/" + path).rdbuf();
  return text.str();
}

/// What stands in parentheses in the first match.
std::string found(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "no " + pattern;
}

std::string number() { return found(contents_of("CMakeLists.txt"), R"(project\(saccade VERSION ([0-9.]+))"); }

TEST(Version, IsANumberAndASuffix) {
  // Not GoogleTest's matcher: it knows less on Windows.
  EXPECT_TRUE(std::regex_match(std::string(version()), std::regex("[0-9]+\\.[0-9]+\\.[0-9]+(-dev)?")))
      << version();
  const std::string suffix = found(contents_of("CMakeLists.txt"), R"~(set\(SACCADE_VERSION_SUFFIX "([^"]*)"\))~");
  EXPECT_EQ(version(), number() + suffix);
}

TEST(Version, IsThatOfVcpkgsPort) {
  const auto port = nlohmann::json::parse(contents_of("packaging/vcpkg/saccade/vcpkg.json"));
  EXPECT_EQ(port.at("version"), version());
}

TEST(Version, IsThatOfTheDocumentation) {
  const std::string page = contents_of("docs/versioning.md"), series = number().substr(0, number().rfind('.'));
  EXPECT_THAT(page, HasSubstr("find_package(saccade " + series + ")"));
  EXPECT_THAT(page, HasSubstr("'saccade~=" + series + ".0'"));
}

}  // namespace
}  // namespace saccade::test
