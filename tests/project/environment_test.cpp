// Compares the tables of docs/environment.md with the sources: they name every SACCADE_* variable of the
// environment that a program or a script reads, and every option that a CMake file declares, and nothing else.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Names = std::set<std::string>;

const fs::path kRoot = SACCADE_SOURCE_DIR;

std::string contents_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// What group 1 of the pattern matches.
Names found_in(const std::string& text, const std::regex& pattern) {
  Names names;
  for (std::sregex_iterator found(text.begin(), text.end(), pattern), end; found != end; ++found)
    names.insert((*found)[1]);
  return names;
}

/// The variables that a text in C++, Python, shell or CMake reads.
Names variables_read_by(const std::string& text) {
  static const std::regex patterns[] = {
      std::regex(R"re((?:getenv|from_environment)\(\s*"(SACCADE_[A-Z0-9_]+)")re"),
      std::regex(R"re(environ(?:\.get|\.pop|\.setdefault)?\s*[\[(]\s*["'](SACCADE_[A-Z0-9_]+)["'])re"),
      std::regex(R"re(["'](SACCADE_[A-Z0-9_]+)["']\s+(?:not\s+)?in\s+os\.environ)re"),
      std::regex(R"re(\$ENV\{(SACCADE_[A-Z0-9_]+)\})re"),
  };
  Names names;
  if (text.find("env") == std::string::npos && text.find("ENV{") == std::string::npos) return names;  // faster
  for (const std::regex& pattern : patterns) names.merge(found_in(text, pattern));
  return names;
}

/// The variables that a shell script uses.
Names variables_of_script(const std::string& text) {
  static const std::regex use(R"(\$\{?(SACCADE_[A-Z0-9_]+))");
  return found_in(text, use);
}

/// The options that a CMake file declares.
Names options_declared_by(const std::string& text) {
  static const std::regex option(R"re(\boption\((SACCADE_[A-Z0-9_]+))re"),
      cached(R"re(\bset\((SACCADE_[A-Z0-9_]+)\s+(?:"[^"]*"|[^\s")]+)\s+CACHE\b)re");
  Names names = found_in(text, option);
  names.merge(found_in(text, cached));
  return names;
}

/// The names in the first column of the tables of a section: from its heading to the next one of its level.
Names names_in_tables(const std::string& page, const std::string& heading) {
  const std::size_t begin = page.find("\n## " + heading + "\n");
  if (begin == std::string::npos) return {};
  static const std::regex row(R"(\n\| `(SACCADE_[A-Z0-9_]+)` \|)");
  return found_in(page.substr(begin, page.find("\n## ", begin + 1) - begin), row);
}

std::string environment_page() { return contents_of(kRoot / "docs/environment.md"); }

/// The files of a folder and those below it.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

constexpr std::string_view kFolders[] = {".ci",       "bench",    "cases",   "cli",      "cmake",
                                         "docs/site", "examples", "include", "packages", "packaging",
                                         "python",    "script",   "src",     "tests"};

bool is_source(const fs::path& path) {
  const fs::path ending = path.extension();
  return ending == ".cpp" || ending == ".h" || ending == ".py" || ending == ".in";
}

bool is_cmake(const fs::path& path) { return path.filename() == "CMakeLists.txt" || path.extension() == ".cmake"; }

bool is_script(const fs::path& path) {
  return path.extension() == ".sh" || (path.extension().empty() && contents_of(path).starts_with("#!/"));
}

TEST(Environment, TableNamesTheVariablesThatAreRead) {
  Names read;
  for (const std::string_view folder : kFolders) {
    for (const fs::path& file : files_below(kRoot / folder)) {
      if (file.filename() == "environment_test.cpp") continue;  // it has examples
      if (is_source(file) || is_cmake(file))
        read.merge(variables_read_by(contents_of(file)));
      else if (is_script(file))
        read.merge(variables_of_script(contents_of(file)));
    }
  }
  EXPECT_EQ(names_in_tables(environment_page(), "Environment variables"), read);
}

TEST(Environment, TableNamesTheOptionsThatAreDeclared) {
  Names declared = options_declared_by(contents_of(kRoot / "CMakeLists.txt"));
  for (const std::string_view folder : kFolders) {
    if (folder == "examples") continue;  // projects of their own
    for (const fs::path& file : files_below(kRoot / folder))
      if (is_cmake(file)) declared.merge(options_declared_by(contents_of(file)));
  }
  EXPECT_EQ(names_in_tables(environment_page(), "CMake options"), declared);
}

TEST(Environment, ReadsAreFound) {
  EXPECT_THAT(variables_read_by("f(std::getenv(\n    \"SACCADE_A\"), from_environment(\"SACCADE_B\", 1))"),
              ElementsAre("SACCADE_A", "SACCADE_B"));
  EXPECT_THAT(variables_read_by("os.environ[\"SACCADE_A\"] + os.environ.get('SACCADE_B', 1)"),
              ElementsAre("SACCADE_A", "SACCADE_B"));
  EXPECT_THAT(variables_read_by("environ.pop(\"SACCADE_A\")"), ElementsAre("SACCADE_A"));
  EXPECT_THAT(variables_read_by("if \"SACCADE_A\" not in os.environ or 'SACCADE_B' in os.environ:"),
              ElementsAre("SACCADE_A", "SACCADE_B"));
  EXPECT_THAT(variables_read_by("set(X $ENV{SACCADE_A})"), ElementsAre("SACCADE_A"));
  EXPECT_THAT(variables_read_by("setenv(\"SACCADE_A\", \"1\", 1); // SACCADE_B\n\"SACCADE_C\""), IsEmpty());
  EXPECT_THAT(variables_of_script("SACCADE_A=1 run $SACCADE_B ${SACCADE_C-x}"),
              ElementsAre("SACCADE_B", "SACCADE_C"));
}

TEST(Environment, OptionsAreFound) {
  EXPECT_THAT(options_declared_by("option(SACCADE_A \"a\" ON)\nset(SACCADE_B \"\" CACHE STRING \"b\")\n"
                                  "set(SACCADE_C 1)\nset(SACCADE_D AUTO CACHE STRING \"d\")\n"
                                  "set_property(CACHE SACCADE_E PROPERTY STRINGS ON)"),
              ElementsAre("SACCADE_A", "SACCADE_B", "SACCADE_D"));
}

TEST(Environment, RowsAreFound) {
  const std::string page =
      "\n## A\n\n| variable |\n|---|\n| `SACCADE_A` | `SACCADE_B` |\n\n### Part\n| `SACCADE_C` |\n"
      "## B\n| `SACCADE_D` |\n";
  EXPECT_THAT(names_in_tables(page, "A"), ElementsAre("SACCADE_A", "SACCADE_C"));
  EXPECT_THAT(names_in_tables(page, "B"), ElementsAre("SACCADE_D"));
  EXPECT_THAT(names_in_tables(page, "C"), IsEmpty());
}

}  // namespace
