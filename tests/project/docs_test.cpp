// Tests the documentation. In README*.md, the other pages of the root and docs/:
// - every ```cpp block is a program that compiles and runs, and so is every ```c block, in C99; if a ```text block
//   follows directly, the program prints exactly that. A block marked ```cpp sketch is skipped, and so are those
//   of docs/tutorial, which are parts of larger programs: python/tests/test_tutorial.py runs them.
// - every line of a ```sh block that begins with `saccade` runs and exits with 0, in a folder that has examples/
//   (except `saccade bench`, which takes minutes); every script/X that a block calls exists.
// - every relative link leads to a file, and one to a section leads to its heading.
// - both READMEs link to the same pages, and code has no full-width signs.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/environment.h"

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = SACCADE_SOURCE_DIR;

struct Block {
  std::string file;
  int line = 0;          // of the opening fence
  std::string language;  // everything after the fence: "cpp", "cpp sketch", "sh", ...
  std::string text = "";
  std::string output = "";  // the ```text block that follows after blank lines only
};

void PrintTo(const Block& block, std::ostream* out) { *out << block.file << ":" << block.line; }

std::string contents_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> documents() {
  std::vector<std::string> files{"README.md",    "README.zh-CN.md", "CONTRIBUTING.md",
                                 "CHANGELOG.md", "SECURITY.md",     "CODE_OF_CONDUCT.md"};
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") files.push_back(fs::relative(entry.path(), kRoot).generic_string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Block> blocks_of(const std::string& file, const std::string& document) {
  std::vector<Block> blocks;
  std::istringstream lines(document);
  bool inside = false;
  bool text_may_follow = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      if (!inside && line == "```text" && text_may_follow) {
        while (std::getline(lines, line) && line != "```") blocks.back().output += line + "\n", ++number;
        ++number;
      } else if (!inside) {
        blocks.push_back({.file = file, .line = number, .language = line.substr(3)});
        inside = true;
        continue;
      }
      text_may_follow = inside;
      inside = false;
    } else if (inside) {
      blocks.back().text += line + "\n";
    } else if (!line.empty()) {
      text_may_follow = false;
    }
  }
  return blocks;
}

std::vector<Block> blocks_in(const std::string& language) {
  std::vector<Block> result;
  for (const std::string& file : documents()) {
    for (Block& block : blocks_of(file, contents_of(kRoot / file))) {
      const bool is_part = language == "cpp" && file.starts_with("docs/tutorial/");
      if (block.language == language && !is_part) result.push_back(std::move(block));
    }
  }
  if (saccade::test::kIsSlow && language == "cpp") {  // a third of the programs, which take long to compile
    std::size_t number = 0;
    std::erase_if(result, [&](const Block&) { return number++ % 3 != 0; });
  }
  return result;
}

std::string test_name(const testing::TestParamInfo<Block>& block) {
  std::string name = block.param.file + "_line_" + std::to_string(block.param.line);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

/// A fresh folder for one test, with a copy of examples/.
fs::path work_folder(const Block& block) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("saccade_" + std::to_string(getpid()) + "_" + test_name({block, 0}));
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy(kRoot / "examples", folder / "examples", fs::copy_options::recursive);
  return folder;
}

/// Runs a shell command in `folder` with `saccade` on its path; its output is in folder/log.
int run(const fs::path& folder, const std::string& command) {
  const std::string path = fs::path(SACCADE_COMMAND).parent_path().string();
  const std::string line =
      "cd '" + folder.string() + "' && PATH='" + path + "':\"$PATH\" && { " + command + "\n} >log 2>&1";
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Program : public testing::TestWithParam<Block> {};

TEST_P(Program, CompilesAndPrintsWhatIsShown) {
  const Block& block = GetParam();
  const fs::path folder = work_folder(block);
  std::ofstream(folder / ("snippet." + block.language)) << block.text;
  const std::string compile =
      block.language == "c" ? SACCADE_COMPILE_C " snippet.c -x none" : SACCADE_COMPILE " snippet.cpp";
  ASSERT_EQ(run(folder, compile + " -o snippet " SACCADE_LINK), 0) << contents_of(folder / "log");
  ASSERT_EQ(run(folder, SACCADE_EMULATOR " ./snippet"), 0) << contents_of(folder / "log");
  if (!block.output.empty()) {
    EXPECT_EQ(contents_of(folder / "log"), block.output);
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Docs, Program, testing::ValuesIn(blocks_in("cpp")), test_name);
INSTANTIATE_TEST_SUITE_P(DocsInC, Program, testing::ValuesIn(blocks_in("c")), test_name);

class Commands : public testing::TestWithParam<Block> {};

TEST_P(Commands, Run) {
  const Block& block = GetParam();
  const fs::path folder = work_folder(block);
  static const std::regex script(R"(\bscript/[a-z_]+)"), steps("--steps [0-9]+");
  std::istringstream lines(block.text);
  for (std::string line; std::getline(lines, line);) {
    if (saccade::test::kIsSlow)
      line = std::regex_replace(line, steps, "--steps 4");  // training takes minutes there
    for (std::sregex_iterator found(line.begin(), line.end(), script), end; found != end; ++found) {
      EXPECT_TRUE(fs::exists(kRoot / found->str())) << line;
    }
    if (line.starts_with("saccade ") && !line.starts_with("saccade bench")) {
      EXPECT_EQ(run(folder, line), 0) << line << "\n" << contents_of(folder / "log");
    }
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Docs, Commands, testing::ValuesIn(blocks_in("sh")), test_name);

/// A page without its blocks of code, in which `[&](int i)` is no link.
std::string without_blocks(const std::string& document) {
  std::string prose;
  std::istringstream lines(document);
  bool is_code = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_fence = line.starts_with("```");
    if (!is_code && !is_fence) prose += line + "\n";
    is_code = is_code != is_fence;
  }
  return prose;
}

TEST(Docs, LinksLeadToFiles) {
  static const std::regex link(R"(\]\(([^)#]+)(#[^)]*)?\)|<img [^>]*src="([^"]+)\")");
  for (const std::string& file : documents()) {
    const std::string text = without_blocks(contents_of(kRoot / file));
    ASSERT_FALSE(text.empty()) << file;
    for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found) {
      const std::string target = (*found)[1].matched ? (*found)[1] : (*found)[3];
      if (target.find("://") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(kRoot / fs::path(file).parent_path() / target)) << file << " links to " << target;
    }
  }
}

/// The names by which links call the headings of a page: "## What it has" is what-it-has.
std::set<std::string> headings_of(const std::string& document) {
  std::set<std::string> names;
  std::istringstream lines(document);
  bool is_code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) is_code = !is_code;
    if (is_code || !line.starts_with("#")) continue;
    std::string name;
    for (const char letter : line.substr(line.find_first_not_of("# "))) {
      const auto byte = static_cast<unsigned char>(letter);
      if (std::isalnum(byte) || byte >= 0x80 || letter == '_' || letter == '-')
        name += static_cast<char>(std::tolower(byte));
      else if (letter == ' ')
        name += '-';
    }
    names.insert(name);
  }
  return names;
}

TEST(Docs, LinksToSectionsLeadToHeadings) {
  static const std::regex link(R"(\]\(([^)#]*)#([^)]+)\))");
  for (const std::string& file : documents()) {
    const std::string text = contents_of(kRoot / file);
    for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found) {
      const std::string target = (*found)[1];
      if (target.find("://") != std::string::npos || (!target.empty() && !target.ends_with(".md"))) continue;
      const fs::path page = target.empty() ? kRoot / file : kRoot / fs::path(file).parent_path() / target;
      EXPECT_TRUE(headings_of(contents_of(page)).contains((*found)[2])) << file << " links to " << found->str();
    }
  }
}

TEST(Docs, BothReadmesLinkToTheSamePages) {
  const auto links_of = [](const std::string& file) {
    static const std::regex link(R"(\]\(([^)]+)\))"), chinese(R"(\.zh-CN|zh-CN/)");
    const std::string text = contents_of(kRoot / file);
    std::set<std::string> links;
    for (std::sregex_iterator found(text.begin(), text.end(), link), end; found != end; ++found)
      if (!found->str(1).starts_with("README")) links.insert(std::regex_replace(found->str(1), chinese, ""));
    return links;
  };
  EXPECT_EQ(links_of("README.md"), links_of("README.zh-CN.md"));
}

TEST(Docs, CodeHasNoFullWidthSigns) {
  // U+FF01 to U+FF5E: the letters and the punctuation of Chinese text.
  static const std::regex full_width("\xEF(\xBC[\x81-\xBF]|\xBD[\x80-\x9E])"), comment("(#|//).*"),
      span("`[^`\n]+`");
  for (const std::string& file : documents()) {
    const std::string prose = contents_of(kRoot / file);
    EXPECT_EQ(prose.find("：："), std::string::npos) << file;
    for (const Block& block : blocks_of(file, prose))
      EXPECT_FALSE(std::regex_search(std::regex_replace(block.text, comment, ""), full_width))
          << file << ":" << block.line;
    for (std::sregex_iterator found(prose.begin(), prose.end(), span), end; found != end; ++found)
      EXPECT_FALSE(std::regex_search(found->str(), full_width)) << file << ": " << found->str();
  }
}

TEST(Docs, BlocksAreFound) {
  const std::vector<Block> blocks = blocks_of("a.md",
                                              "word\n```cpp\nint x;\n```\n\n```text\n1\n```\n"
                                              "```cpp sketch\n```\nword\n```text\nword\n```\n");
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].text, "int x;\n");
  EXPECT_EQ(blocks[0].line, 2);
  EXPECT_EQ(blocks[0].output, "1\n");
  EXPECT_EQ(blocks[1].language, "cpp sketch");
  EXPECT_EQ(blocks[1].output, "");
  EXPECT_EQ(blocks[2].language, "text");
  EXPECT_EQ(blocks[2].line, 12);
}

}  // namespace
