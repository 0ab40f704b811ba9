// Holds "who may include whom" of docs/design.md: walks the #include lines of every source of the project.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Sources by their path from the repository's root.
using Tree = std::map<std::string, std::string>;

struct Include {
  std::string name;
  bool quoted = false;
};

bool matches(const std::string& text, const char* pattern) { return std::regex_search(text, std::regex(pattern)); }

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex line(R"re(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])re",
                               std::regex::ECMAScript | std::regex::multiline);
  std::vector<Include> result;
  for (std::sregex_iterator found(text.begin(), text.end(), line), end; found != end; ++found) {
    result.push_back({.name = (*found)[2], .quoted = (*found)[1] == "\""});
  }
  return result;
}

/// The project's file that an #include names; empty for a header from outside.
std::string resolve(const Tree& tree, const std::string& from, const Include& include) {
  if (include.name.starts_with("saccade/")) return "include/" + include.name;
  if (!include.quoted) return "";
  const std::string folder = from.substr(0, from.rfind('/') + 1);
  for (const std::string& base : {folder, std::string("src/"), std::string("tests/"), std::string()}) {
    const std::string path = std::filesystem::path(base + include.name).lexically_normal().string();
    if (tree.contains(path)) return path;
    if (tree.contains(path + ".in")) return path + ".in";  // CMake makes the header from it
  }
  return "";
}

/// Every file that `path` includes, directly or through others.
std::set<std::string> reach_of(const Tree& tree, const std::string& path) {
  std::set<std::string> seen;
  std::vector<std::string> open{path};
  while (!open.empty()) {
    const std::string from = open.back();
    open.pop_back();
    const auto file = tree.find(from);
    if (file == tree.end()) continue;
    for (const Include& include : includes_of(file->second)) {
      const std::string to = resolve(tree, from, include);
      if (!to.empty() && seen.insert(to).second) open.push_back(to);
    }
  }
  return seen;
}

struct Rule {
  const char* who;     // files that the rule is about
  const char* others;  // files that they may include, or must not reach
};

// Project files that a file may include directly.
constexpr Rule kMayInclude[] = {
    {"^include/saccade/", "^include/saccade/"},
    {"^cases/", "^(include/saccade|cases)/"},
    {"^cli/", "^(include/saccade|cases|cli)/"},
    {"^bench/", "^(include/saccade|cases|bench)/"},
    {"^python/", "^(include/saccade|python)/"},
    {"^examples/", "^(include/saccade|examples)/"},
    {"^tests/", "^(include/saccade|cases|tests)/"},
    {"^src/(?!cpu/)", "^(include/saccade/|src/(?!cpu/)|src/cpu/kernels\\.h$)"},
    {"^src/cpu/", "^(src/cpu/|src/params\\.h$|include/saccade/(cpu|dtype)\\.h$)"},
    {"^src/cpu/(scalar|avx).*\\.cpp$", "^src/cpu/(prelude|simd_.*|exp2_.*|attention_table|kernel_table)\\.h$"},
    {"^src/cpu/kernel_table\\.h$", "^src/cpu/(attention_table|convert|gemm|layers|optim|small|limits)\\.h$"},
    {"^src/cpu/attention_table\\.h$", "^src/cpu/(forward|backward|decode|inspect)\\.h$"},
    {"^src/cpu/(forward|backward|decode|inspect|gemm|small|limits)\\.h$",
     "^src/cpu/"
     "(forward|output|row_statistics|scores|tile|softmax|mask|dropout|block_sizes|math|decode_products)\\.h$"},
    {"^src/cpu/layers\\.h$", "^src/cpu/(dropout|elements)\\.h$"},
    {"^src/cpu/optim\\.h$", "^src/cpu/elements\\.h$"},
    {"^src/cpu/elements\\.h$", "^src/cpu/math\\.h$"},
    {"^src/cpu/decode_products\\.h$", "^src/cpu/packing\\.h$"},
    {"^src/cpu/output\\.h$", "^src/cpu/(scores|softmax|tile)\\.h$"},
    {"^src/cpu/scores\\.h$", "^src/cpu/(mask|dropout)\\.h$"},
    {"^src/cpu/tile\\.h$", "^src/cpu/packing\\.h$"},
    {"^src/cpu/(convert|packing|softmax|row_statistics|mask|dropout)\\.h$",
     "^src/cpu/(block_sizes|math|simd_bf16)\\.h$"},
    {"^src/cpu/(block_sizes|math|simd_.*|exp2_.*)\\.h$", "^src/cpu/(prelude|simd_avx512|simd_words_.*)\\.h$"},
    {"^src/(rope\\.cpp|kv_cache/)",
     "^(include/saccade/(kv_cache|rope|attention|decode|tensor|dtype|cpu)\\.h$|"
     "src/(kv_cache/|(axes|check|memory|parallel)\\.h$))"},
    {"^src/layers/",
     "^(include/saccade/(layers|module|linear|random|tensor|dtype)\\.h$|"
     "src/(layers/|(check|parallel|cpu/kernels)\\.h$))"},
    {"^src/optim", "^(include/saccade/(optim|module|tensor|dtype)\\.h$|src/(check|parallel|cpu/kernels)\\.h$)"},
    {"^src/(module|gpt_model|tasks|head_scores|sampling|training)\\.cpp$",
     "^(include/saccade/(?!reference|io|heatmap)|src/(check|elementwise)\\.h$)"},
    {"^src/modules",
     "^(include/saccade/(module|modules|attention|backward|linear|random|tensor|dtype)\\.h$|src/"
     "(modules|check|elementwise|parallel))"},
};

// Project files that must not be reached, not even through others.
constexpr Rule kMustNotReach[] = {
    {"^(src|include/saccade)/(io|heatmap|chart|random)",
     "^include/saccade/(attention|linear|inspect|modules|reference|saccade)\\.h$|^src/(cpu/|params)"},
    {"^(src|include/saccade)/reference",
     "^src/(cpu/|params|parallel)|^include/saccade/(modules|io|heatmap|chart)\\.h$"},
    {"^src/cpu/", "^include/saccade/(reference|modules|io|heatmap|chart)\\.h$"},
    {"^(src|include/saccade)/(attention|decode|linear|layers|optim|inspect|cpu|rope|kv_cache)",
     "^include/saccade/(reference|modules|io|heatmap|chart)\\.h$"},
    {"^(src|include/saccade)/(?!io|heatmap|chart)", "^include/saccade/(io|heatmap|chart)\\.h$"},
};

// Headers from outside, and the only files that may include them.
constexpr Rule kOutside[] = {
    {"^src/cpu/(simd_|prelude)", "^([a-z]*mm|x86|avx.*|arm_neon|cpuid)intrin\\.h$|^arm_neon\\.h$"},
    {"^src/(parallel|cpu)\\.cpp$|^tests/|^bench/", "^omp\\.h$"},
    {"^src/io|^cli/|^tests/", "^(nlohmann/|zlib\\.h)"},
    {"^src/heatmap|^tests/heatmap", "^(librsvg|cairo|glib|gdk|pango)"},
    {"^cli/", "^(CLI/|fmt/)"},
    {"^tests/", "^(gtest|gmock)/"},
    {"^bench/", "^benchmark/"},
};

void check_include(const Tree& tree, const std::string& path, const Include& include,
                   std::vector<std::string>& broken) {
  const std::string line = path + ": #include " + include.name + ": ";
  const std::string target = resolve(tree, path, include);
  if (!target.empty()) {
    for (const Rule& rule : kMayInclude) {
      if (matches(path, rule.who) && !matches(target, rule.others)) {
        broken.push_back(line + "only " + rule.others + " may be included there");
      }
    }
    return;
  }
  if (include.quoted) broken.push_back(line + "names no file of the project");
  if (matches(path, "^include/") && !matches(include.name, "^[a-z0-9_]+$")) {
    broken.push_back(line + "public headers include the standard library and each other only");
  }
  for (const Rule& rule : kOutside) {
    if (matches(include.name, rule.others) && !matches(path, rule.who)) {
      broken.push_back(line + "only files " + rule.who + " may include it");
    }
  }
}

/// What breaks a rule, one line each.
std::vector<std::string> broken_rules(const Tree& tree) {
  std::vector<std::string> broken;
  for (const auto& [path, text] : tree) {
    for (const Include& include : includes_of(text)) check_include(tree, path, include, broken);
    const std::set<std::string> reach = reach_of(tree, path);
    for (const Rule& rule : kMustNotReach) {
      if (!matches(path, rule.who)) continue;
      for (const std::string& reached : reach) {
        if (matches(reached, rule.others)) broken.push_back(path + ": must not reach " + reached);
      }
    }
    if (!matches(path, "^src/cpu/simd_|^tests/include_rules_test") &&
        matches(text, R"(\b_mm\d*_|\b__m(128|256|512))")) {
      broken.push_back(path + ": intrinsics stand in src/cpu/simd_* only");
    }
  }
  return broken;
}

Tree sources_of_the_project() {
  const std::filesystem::path root = SACCADE_SOURCE_DIR;
  Tree tree;
  for (const char* folder : {"include", "src", "cases", "cli", "bench", "examples", "python", "tests"}) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (!matches(entry.path().string(), "\\.(h|hpp|cpp)(\\.in)?$")) continue;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      tree[std::filesystem::relative(entry.path(), root).generic_string()] = text.str();
    }
  }
  return tree;
}

TEST(IncludeRules, HoldInTheProject) {
  const Tree tree = sources_of_the_project();
  ASSERT_TRUE(tree.contains("include/saccade/attention.h"));
  ASSERT_TRUE(tree.contains("src/attention.cpp"));
  EXPECT_THAT(broken_rules(tree), IsEmpty());
}

TEST(IncludeRules, AllowWhatIsMeant) {
  EXPECT_THAT(broken_rules({
                  {"include/saccade/tensor.h", "#include <vector>\n"},
                  {"include/saccade/attention.h", "#include \"saccade/tensor.h\"\n"},
                  {"src/params.h", ""},
                  {"src/cpu/kernels.h", "#include \"params.h\"\n"},
                  {"src/cpu/simd_avx2.h", "#include <immintrin.h>\n__m256 x = _mm256_setzero_ps();\n"},
                  {"src/attention.cpp", "#include \"saccade/attention.h\"\n#include \"cpu/kernels.h\"\n"},
                  {"tests/attention_test.cpp", "#include <saccade/attention.h>\n#include <gtest/gtest.h>\n"},
              }),
              IsEmpty());
}

struct Broken {
  const char* path;
  const char* text;
};

class BrokenIncludeRule : public testing::TestWithParam<Broken> {};

TEST_P(BrokenIncludeRule, IsNoticed) {
  Tree tree{
      {"include/saccade/tensor.h", ""},
      {"include/saccade/attention.h", ""},
      {"include/saccade/chart.h", ""},
      {"include/saccade/io.h", ""},
      {"include/saccade/reference.h", ""},
      {"src/params.h", ""},
      {"src/check.h", "#include \"saccade/attention.h\"\n"},
      {"src/cpu/kernels.h", "#include \"params.h\"\n"},
      {"src/cpu/tile.h", ""},
      {"src/cpu/simd_avx2.h", ""},
  };
  ASSERT_THAT(broken_rules(tree), IsEmpty());
  tree[GetParam().path] = GetParam().text;
  EXPECT_THAT(broken_rules(tree), Contains(HasSubstr(GetParam().path)));
}

INSTANTIATE_TEST_SUITE_P(
    MadeUp, BrokenIncludeRule,
    testing::Values(Broken{"include/saccade/tensor.h", "#include <nlohmann/json.hpp>\n"},
                    Broken{"include/saccade/tensor.h", "  #  include <immintrin.h>\n"},
                    Broken{"include/saccade/tensor.h", "#include \"../../src/params.h\"\n"},
                    Broken{"cli/run.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"tests/a_test.cpp", "#include \"../src/params.h\"\n"},
                    Broken{"tests/a_test.cpp", "#include \"src/params.h\"\n"},
                    Broken{"cases/a.cpp", "#include \"src/params.h\"\n"},
                    Broken{"examples/a.cpp", "#include \"check.h\"\n"},
                    Broken{"bench/a_bench.cpp", "#include \"nowhere.h\"\n"},
                    Broken{"src/attention.cpp", "#include \"cpu/tile.h\"\n"},
                    Broken{"src/attention.cpp", "#include \"saccade/reference.h\"\n"},
                    Broken{"src/reference.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/cpu/tile.h", "#include \"saccade/reference.h\"\n"},
                    Broken{"src/cpu/tile.h", "#include \"saccade/attention.h\"\n"},
                    Broken{"src/cpu/math.h", "#include \"cpu/tile.h\"\n"},
                    Broken{"src/cpu/forward.h", "#include \"cpu/simd_avx2.h\"\n"},
                    Broken{"src/modules.cpp", "#include \"saccade/io.h\"\n"},
                    Broken{"src/modules.cpp", "#include \"params.h\"\n"},
                    Broken{"src/kv_cache/paged.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/layers/gelu.cpp", "#include \"saccade/attention.h\"\n"},
                    Broken{"src/optim.cpp", "#include \"cpu/tile.h\"\n"},
                    Broken{"src/rope.cpp", "#include \"saccade/reference.h\"\n"},
                    Broken{"src/io/npy.cpp", "#include \"check.h\"\n"},  // which reaches attention.h
                    Broken{"src/heatmap.cpp", "#include \"saccade/attention.h\"\n"},
                    Broken{"src/chart/chart.cpp", "#include \"saccade/attention.h\"\n"},
                    Broken{"src/tensor.cpp", "#include \"saccade/chart.h\"\n"},
                    Broken{"src/random.cpp", "#include \"params.h\"\n"},
                    Broken{"src/tensor.cpp", "#include \"saccade/io.h\"\n"},
                    Broken{"src/attention.cpp", "#include <immintrin.h>\n"},
                    Broken{"src/linear.cpp", "auto x = _mm256_setzero_ps();\n"},
                    Broken{"src/cpu/math.h", "__m512 x;\n"}, Broken{"src/tensor.cpp", "#include <fmt/format.h>\n"},
                    Broken{"src/tensor.cpp", "#include <omp.h>\n"}));

}  // namespace
