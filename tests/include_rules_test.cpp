// Checks the layout and the include rules of docs/design.md against the #include lines of every source of the
// project.
#include <gmock/gmock.h>

#include <algorithm>
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

bool matches(const std::string& text, const char* pattern) {
  static std::map<std::string, std::regex> known;  // compiling one takes longer than searching
  auto found = known.find(pattern);
  if (found == known.end()) found = known.emplace(pattern, std::regex(pattern)).first;
  return std::regex_search(text, found->second);
}

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex line(R"re(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])re",
                               std::regex::ECMAScript | std::regex::multiline);
  std::vector<Include> result;
  for (std::sregex_iterator found(text.begin(), text.end(), line), end; found != end; ++found) {
    result.push_back({.name = (*found)[2], .quoted = (*found)[1] == "\""});
  }
  return result;
}

/// The project file that an #include refers to; empty for an external header.
std::string resolve(const Tree& tree, const std::string& from, const Include& include) {
  if (include.name.starts_with("saccade/")) return "include/" + include.name;
  if (!include.quoted) return "";
  const std::string folder = from.substr(0, from.rfind('/') + 1);
  for (const std::string& base : {folder, std::string("src/"), std::string("tests/"), std::string()}) {
    const std::string path = std::filesystem::path(base + include.name).lexically_normal().string();
    if (tree.contains(path)) return path;
    if (tree.contains(path + ".in")) return path + ".in";  // CMake generates the header from it
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
  const char* who;     // files that the rule applies to
  const char* others;  // files that they may include, or must not reach
};

// Project files that a file may include directly.
constexpr Rule kMayInclude[] = {
    {"^include/saccade/", "^include/saccade/"},
    {"^cases/", "^(include/saccade|cases)/"},
    {"^cli/", "^(include/saccade|cases|cli)/"},
    {"^bench/", "^(include/saccade|cases|bench)/"},
    {"^python/", "^(include/saccade|python)/"},
    {"^packages/jax/", "^(include/saccade|packages/jax)/"},
    {"^packages/onnxruntime/", "^(include/saccade|packages/onnxruntime)/"},
    {"^examples/", "^(include/saccade|examples)/"},
    {"^tests/(?!bits/amx_tiles)", "^(include/saccade|cases|tests)/"},
    {"^tests/bits/amx_tiles", "^src/cpu/(prelude|simd_amx|simd_amx_twin)\\.h$"},
    // Folders, with the ones they depend on.
    {"^src/core/", "^(include/saccade/(tensor|dtype|random|runtime|limits)\\.h$|src/(core/|cpu/kernels\\.h$))"},
    {"^src/attention/",
     "^(include/saccade/"
     "(attention|attention_state|backward|decode|inspect|operations|rope|tensor|dtype|runtime)\\.h$|"
     "src/(attention/|core/|backend\\.h$))"},
    {"^src/backend\\.h$", "^src/(attention|nn)/params\\.h$"},
    {"^src/kv_cache/",
     "^(include/saccade/(kv_cache|rope|attention|decode|tensor|dtype)\\.h$|"
     "src/(kv_cache/|attention/axes\\.h$|core/(ceil_div|check|memory)\\.h$))"},
    {"^src/distributed/",
     "^(include/saccade/(distributed|communicator|cost_model|attention|attention_options|attention_state|backward|"
     "decode|runtime|tensor|dtype)\\.h$|"
     "src/(distributed/|attention/(arguments|axes|backward_arguments|params|visibility)\\.h$|"
     "core/(ceil_div|check|memory)\\.h$))"},
    {"^src/c_api/", "^(include/saccade/|src/(c_api/|core/check\\.h$))"},
    {"^src/tokenizer/", "^(include/saccade/tokenizer\\.h$|src/tokenizer/)"},
    {"^src/model/",
     "^(include/saccade/"
     "(model|sentence_embeddings|image|log_mel|io|attention|backward|decode|kv_cache|functional|linear|packed_"
     "linear|rope|"
     "tensor|dtype)\\.h$|src/(model/|nn/elementwise\\.h$|core/(check|parallel)\\.h$))"},
    {"^src/page/", "^(include/saccade/(page|head_scores|tensor|dtype)\\.h$|src/(page/|core/check\\.h$))"},
    {"^src/model/families", "^src/model/(families|config|table)"},
    {"^src/mpi/", "^include/saccade/(mpi|communicator)\\.h$"},
    {"^src/reference/",
     "^(include/saccade/(reference|compare|attention|backward|tensor|dtype|random)\\.h$|"
     "src/(reference/|attention/axes\\.h$|core/check\\.h$))"},
    {"^src/nn/",
     "^(include/saccade/"
     "(module|attention_modules|layers|linear|packed_linear|functional|head_scores|sampling|optim|attention|"
     "backward|random|"
     "tensor|"
     "dtype)\\.h$|"
     "src/(nn/|core/|backend\\.h$|cpu/kernels\\.h$))"},
    {"^src/nn/linear",
     "^(include/saccade/(linear|tensor|dtype)\\.h$|src/(backend|nn/(params|strides)|core/(check|parallel))\\.h$)"},
    {"^src/nn/layers/",
     "^(include/saccade/(layers|module|linear|random|tensor|dtype)\\.h$|"
     "src/(nn/(layers/|seed\\.h$)|core/(ceil_div|check|parallel)\\.h$|cpu/kernels\\.h$))"},
    {"^src/nn/attention_modules/",
     "^(include/saccade/(module|attention_modules|attention|backward|linear|random|tensor|dtype)\\.h$|"
     "src/(nn/(attention_modules/|(elementwise|seed)\\.h$)|core/(check|parallel)\\.h$))"},
    {"^src/nn/optim",
     "^(include/saccade/(optim|module|tensor|dtype)\\.h$|src/(core/(check|parallel)|cpu/kernels)\\.h$)"},
    {"^src/nn/module\\.cpp$", "^(include/saccade/(module|random|tensor|dtype)\\.h$|src/core/check\\.h$)"},
    {"^src/gpt/",
     "^(include/saccade/(?!reference|io|heatmap|chart)|src/(gpt/|nn/elementwise\\.h$|core/check\\.h$))"},
    {"^src/io/", "^(include/saccade/(io|tensor|dtype)\\.h$|src/io/)"},
    {"^src/picture/", "^(include/saccade/(heatmap|chart|tensor|dtype)\\.h$|src/picture/)"},
    {"^src/picture/[a-z_]*\\.", "^(include/saccade/(heatmap|tensor|dtype)\\.h$|src/picture/[a-z_]*\\.h$)"},
    {"^src/picture/chart/",
     "^(include/saccade/(chart|heatmap|tensor|dtype)\\.h$|src/picture/(chart/|[a-z_]*\\.h$))"},
    {"^src/picture/heatmap/",
     "^(include/saccade/(heatmap|tensor|dtype)\\.h$|src/picture/(heatmap/|[a-z_]*\\.h$))"},
    {"^src/cpu/",
     "^(src/(cpu/|core/|(attention/(params|visibility)|nn/params|backend)\\.h$)|"
     "include/saccade/(runtime|dtype)\\.h$)"},
    {"^src/cpu/(?!policy|cpu_backend|forward_state|product_schedule)[a-z0-9_]*\\.h$|^src/cpu/(scalar|avx|neon)",
     "^(src/(cpu/(?!policy|schedules)|(attention/(params|visibility)|nn/params|core/progress)\\.h$)|"
     "include/saccade/(runtime|dtype)\\.h$)"},
    {"^src/backend\\.cpp$", "^src/(backend|cpu/cpu_backend)\\.h$"},
    {"^src/cpu/cpu_backend\\.", "^src/(backend|cpu/(cpu_backend|forward_state|product_schedule|schedules))\\.h$"},
    {"^src/cpu/product_schedule\\.h$", "^src/(backend|core/memory|cpu/kernels)\\.h$"},
    {"^src/cpu/forward_state\\.", "^src/(backend\\.h$|core/|cpu/(forward_state|kernels|schedules)\\.h$)"},
    {"^src/cpu/.*_schedule\\.cpp$",
     "^src/(cpu/(policy|schedules|forward_state|product_blas|product_schedule)\\.h$|core/)"},
    {"^src/cpu/(scalar|avx|neon).*\\.cpp$",
     "^src/cpu/(prelude|simd_.*|exp2_.*|attention_table|kernel_table|amx_table|limits)\\.h$"},
    {"^src/cpu/amx_table\\.h$",
     "^src/cpu/((backward|decode|inspect|product|limits)_amx|forward_amx_kernels)\\.h$"},
    {"^src/cpu/forward_amx_kernels\\.h$", "^src/cpu/forward_amx\\.h$"},
    {"^src/cpu/product_amx\\.h$", "^src/cpu/(elements|packing_amx)\\.h$"},
    {"^src/cpu/forward_amx\\.h$", "^src/cpu/(output|forward_amx_state)\\.h$"},
    {"^src/cpu/forward_amx_state\\.h$", "^src/cpu/(packing_amx|scores|softmax)\\.h$"},
    {"^src/cpu/row_states\\.h$", "^src/cpu/softmax\\.h$"},
    {"^src/cpu/backward_amx\\.h$", "^src/cpu/backward_amx_state\\.h$"},
    {"^src/cpu/backward_amx_state\\.h$", "^src/cpu/(backward_shared|packing_amx)\\.h$"},
    {"^src/cpu/decode_amx\\.h$", "^src/cpu/(decode_shared|packing_amx)\\.h$"},
    {"^src/cpu/(backward|decode)_shared\\.h$", "^src/cpu/output\\.h$"},
    {"^src/cpu/inspect_amx\\.h$", "^src/cpu/(inspect|packing_amx)\\.h$"},
    {"^src/cpu/inspect_products\\.h$", "^src/cpu/(inspect|forward)\\.h$"},
    {"^src/cpu/packing_amx\\.h$", "^src/cpu/(packing|terms_amx)\\.h$"},
    {"^src/cpu/kernel_table\\.h$",
     "^src/cpu/(activations|attention_table|convert|layers|optim|packed_product|small|limits)\\.h$"},
    {"^src/cpu/attention_table\\.h$", "^src/cpu/(forward|backward|decode|inspect_products|merge)\\.h$"},
    {"^src/cpu/(forward|backward|decode|inspect|gemm|small|limits)\\.h$",
     "^src/cpu/"
     "(forward|backward_shared|output|row_states|row_statistics|scores|tile|softmax|mask|dropout|block_sizes|math|"
     "elements|"
     "decode_(products|shared))"
     "\\.h$"},
    {"^src/cpu/layers\\.h$", "^src/cpu/(dropout|elements)\\.h$"},
    {"^src/cpu/packed_product\\.h$", "^src/cpu/(activations|convert|gemm)\\.h$"},
    {"^src/cpu/(activations|optim)\\.h$", "^src/cpu/elements\\.h$"},
    {"^src/cpu/elements\\.h$", "^src/cpu/math\\.h$"},
    {"^src/cpu/(decode_products|merge)\\.h$", "^src/cpu/packing\\.h$"},
    {"^src/cpu/output\\.h$", "^src/cpu/(scores|softmax|tile)\\.h$"},
    {"^src/cpu/scores\\.h$", "^src/cpu/(mask|dropout|packing)\\.h$"},
    {"^src/cpu/tile\\.h$", "^src/cpu/packing\\.h$"},
    {"^src/cpu/(convert|packing|terms_amx|limits_amx|softmax|row_statistics|mask|dropout)\\.h$",
     "^src/cpu/(block_sizes|math)\\.h$"},
    {"^src/cpu/(block_sizes|math|simd_.*|exp2_.*)\\.h$",
     "^src/cpu/(prelude|simd_avx512|simd_neon|simd_amx_tables|exp2_coefficients|simd_words_.*)\\.h$"},
};

// Project files that must not be reached, not even indirectly.
constexpr Rule kMustNotReach[] = {
    {"^src/(io|picture)/|^src/core/random|^include/saccade/(io|heatmap|chart|random)",
     "^include/saccade/(attention|linear|inspect|attention_modules|reference|saccade)\\.h$|^src/(cpu|attention)/"},
    {"^src/reference/|^include/saccade/(reference|compare)",
     "^src/(cpu/|attention/(?!axes)|core/parallel)|^include/saccade/(attention_modules|io|heatmap|chart)\\.h$"},
    {"^src/cpu/", "^include/saccade/(reference|attention_modules|io|heatmap|chart)\\.h$"},
    {"^src/(attention|core|cpu|kv_cache|nn/layers)/|^src/nn/[a-z_]*\\.|"
     "^include/saccade/(attention|decode|linear|layers|optim|inspect|runtime|rope|kv_cache)\\.h$",
     "^include/saccade/(reference|attention_modules|io|heatmap|chart)\\.h$"},
    {"^src/(?!io|model|picture)|^include/saccade/(?!io|heatmap|chart)",
     "^include/saccade/(io|heatmap|chart)\\.h$"},
    {"^src/(?!gpt)|^include/saccade/(?!gpt_model|tasks|training)",
     "^include/saccade/(gpt_model|tasks|training)\\.h$"},
};

// External headers, and the only files that may include them.
constexpr Rule kOutside[] = {
    {"^src/cpu/(simd_|prelude)", "^([a-z]*mm|x86|avx.*|arm_neon|cpuid)intrin\\.h$|^arm_neon\\.h$"},
    {"^src/core/(parallel|runtime)\\.cpp$|^tests/|^bench/", "^omp\\.h$"},
    {"^src/(io|model|page|tokenizer)/|^cli/|^tests/", "^nlohmann/"},
    {"^src/(io|page)|^cli/|^tests/", "^zlib\\.h"},
    {"^src/tokenizer/pattern\\.cpp$", "^oniguruma\\.h"},
    {"^src/tokenizer/(added_tokens|characters)\\.cpp$", "^utf8proc\\.h"},
    {"^src/picture/png|^tests/heatmap", "^(librsvg|cairo|glib|gdk|pango)"},
    {"^cli/", "^fmt/"},
    {"^cli/command_line\\.cpp$", "^CLI/"},
    {"^tests/", "^(gtest|gmock)/"},
    {"^bench/", "^benchmark/"},
    {"^include/saccade/mpi\\.h$", "^mpi\\.h$"},
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
  const bool is_mpi = path == "include/saccade/mpi.h" && include.name == "mpi.h";
  const bool is_c = path == "include/saccade/c_api.h" && matches(include.name, "^std(def|int)\\.h$");
  if (matches(path, "^include/") && !matches(include.name, "^[a-z0-9_]+$") && !is_mpi && !is_c) {
    broken.push_back(line + "public headers include the standard library and each other only");
  }
  for (const Rule& rule : kOutside) {
    if (matches(include.name, rule.others) && !matches(path, rule.who)) {
      broken.push_back(line + "only files " + rule.who + " may include it");
    }
  }
}

/// The violations of the rules, one line each.
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
        matches(text, R"(\b_mm\d*_|\b__m(128|256|512)|\bv\w+_(b?f|[su])(8|16|32|64)\(|\b(b?float|u?int)\d+x\d)")) {
      broken.push_back(path + ": intrinsics stand in src/cpu/simd_* only");
    }
  }
  return broken;
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Tree sources_of_the_project(const char* names = "\\.(h|hpp|cpp)(\\.in)?$") {
  const std::filesystem::path root = SACCADE_SOURCE_DIR;
  Tree tree;
  for (const char* folder :
       {"include", "src", "cases", "cli", "bench", "examples", "packages", "python", "tests"}) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (!matches(entry.path().string(), names)) continue;
      tree[std::filesystem::relative(entry.path(), root).generic_string()] = text_of(entry.path());
    }
  }
  return tree;
}

/// The table of design.md, "Source layout".
std::string layout_table() {
  const std::string page = text_of(std::filesystem::path(SACCADE_SOURCE_DIR) / "docs/design.md");
  const std::size_t begin = page.find("```text", page.find("## 2. Source layout"));
  return page.substr(begin, page.find("```\n", begin + 1) - begin);
}

TEST(Layout, TableNamesEveryHeaderAndFolder) {
  const std::filesystem::path root = SACCADE_SOURCE_DIR;
  const std::string table = layout_table();
  for (const auto& entry : std::filesystem::directory_iterator(root / "include/saccade"))
    EXPECT_TRUE(matches(table, ("(^|\\s)" + entry.path().filename().string() + "\\s").c_str())) << entry.path();
  for (const auto& entry : std::filesystem::directory_iterator(root / "src")) {
    const std::string name = "src/" + entry.path().filename().string() + (entry.is_directory() ? "/" : "");
    if (name == "src/CMakeLists.txt") continue;
    EXPECT_THAT(table, HasSubstr(name + " "));
  }
}

TEST(Layout, TableNamesNothingElse) {
  const std::filesystem::path root = SACCADE_SOURCE_DIR;
  const std::string table = layout_table();
  static const std::regex name(R"re((?:^|\s)([a-z_]+\.h)\s|(?:^|\s)((?:src|python|include)/[a-z_/.]+))re");
  for (std::sregex_iterator found(table.begin(), table.end(), name), end; found != end; ++found) {
    const std::string header = (*found)[1], path = (*found)[2];
    if (header == "visibility.h" || header == "params.h") continue;  // of src/attention/
    EXPECT_TRUE(std::filesystem::exists(header.empty() ? root / path : root / "include/saccade" / header))
        << found->str();
  }
}

TEST(Layout, NoFileHasMoreThan600Lines) {
  for (const auto& [path, text] : sources_of_the_project("\\.(h|hpp|cpp|py)(\\.in)?$"))
    EXPECT_LE(std::ranges::count(text, '\n'), 600) << path;
}

TEST(IncludeRules, HoldInTheProject) {
  const Tree tree = sources_of_the_project();
  ASSERT_TRUE(tree.contains("include/saccade/attention.h"));
  ASSERT_TRUE(tree.contains("src/attention/attention.cpp"));
  EXPECT_THAT(broken_rules(tree), IsEmpty());
}

TEST(IncludeRules, AllowWhatIsMeant) {
  EXPECT_THAT(broken_rules({
                  {"include/saccade/tensor.h", "#include <vector>\n"},
                  {"include/saccade/attention.h", "#include \"saccade/tensor.h\"\n"},
                  {"src/attention/params.h", ""},
                  {"src/cpu/kernels.h", "#include \"attention/params.h\"\n"},
                  {"src/cpu/simd_avx2.h", "#include <immintrin.h>\n__m256 x = _mm256_setzero_ps();\n"},
                  {"src/cpu/simd_neon.h", "#include <arm_neon.h>\nfloat32x4_t x = vdupq_n_f32(0);\n"},
                  {"src/backend.h", "#include \"attention/params.h\"\n"},
                  {"src/attention/attention.cpp", "#include \"saccade/attention.h\"\n#include \"backend.h\"\n"},
                  {"src/cpu/cpu_backend.cpp", "#include \"backend.h\"\n"},
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
      {"src/attention/params.h", ""},
      {"src/core/check.h", "#include \"saccade/tensor.h\"\n"},
      {"src/cpu/kernels.h", "#include \"attention/params.h\"\n"},
      {"src/cpu/tile.h", ""},
      {"src/cpu/simd_avx2.h", ""},
  };
  ASSERT_THAT(broken_rules(tree), IsEmpty());
  tree[GetParam().path] = GetParam().text;
  EXPECT_THAT(broken_rules(tree), Contains(HasSubstr(GetParam().path)));
}

INSTANTIATE_TEST_SUITE_P(
    MadeUp, BrokenIncludeRule,
    testing::Values(
        Broken{"include/saccade/tensor.h", "#include <nlohmann/json.hpp>\n"},
        Broken{"include/saccade/tensor.h", "  #  include <immintrin.h>\n"},
        Broken{"include/saccade/tensor.h", "#include \"../../src/attention/params.h\"\n"},
        Broken{"cli/run.cpp", "#include \"cpu/kernels.h\"\n"}, Broken{"cli/run.cpp", "#include <CLI/CLI.hpp>\n"},
        Broken{"tests/a_test.cpp", "#include \"../src/attention/params.h\"\n"},
        Broken{"tests/a_test.cpp", "#include \"src/attention/params.h\"\n"},
        Broken{"cases/a.cpp", "#include \"src/attention/params.h\"\n"},
        Broken{"examples/a.cpp", "#include \"core/check.h\"\n"},
        Broken{"bench/a_bench.cpp", "#include \"nowhere.h\"\n"},
        Broken{"src/attention/attention.cpp", "#include \"cpu/kernels.h\"\n"},
        Broken{"src/backend.h", "#include \"cpu/kernels.h\"\n"},
        Broken{"src/nn/linear.cpp", "#include \"cpu/kernels.h\"\n"},
        Broken{"src/cpu/forward_schedule.cpp", "#include \"cpu/tile.h\"\n"},
        Broken{"src/attention/attention.cpp", "#include \"saccade/reference.h\"\n"},
        Broken{"src/reference/reference.cpp", "#include \"cpu/kernels.h\"\n"},
        Broken{"src/cpu/tile.h", "#include \"saccade/reference.h\"\n"},
        Broken{"src/cpu/tile.h", "#include \"saccade/attention.h\"\n"},
        Broken{"src/cpu/math.h", "#include \"cpu/tile.h\"\n"},
        Broken{"src/cpu/forward.h", "#include \"cpu/simd_avx2.h\"\n"},
        Broken{"src/nn/attention_modules/forward.cpp", "#include \"saccade/io.h\"\n"},
        Broken{"src/nn/attention_modules/forward.cpp", "#include \"attention/params.h\"\n"},
        Broken{"src/kv_cache/paged.cpp", "#include \"cpu/kernels.h\"\n"},
        Broken{"src/nn/layers/gelu.cpp", "#include \"saccade/attention.h\"\n"},
        Broken{"src/nn/optim.cpp", "#include \"cpu/tile.h\"\n"},
        Broken{"src/attention/rope.cpp", "#include \"saccade/reference.h\"\n"},
        Broken{"src/io/npy.cpp", "#include \"core/check.h\"\n"},
        Broken{"src/picture/heatmap/cells.cpp", "#include \"saccade/attention.h\"\n"},
        Broken{"src/picture/chart/chart.cpp", "#include \"saccade/attention.h\"\n"},
        Broken{"src/core/tensor.cpp", "#include \"saccade/chart.h\"\n"},
        Broken{"src/core/random.cpp", "#include \"attention/params.h\"\n"},
        Broken{"src/core/tensor.cpp", "#include \"saccade/io.h\"\n"},
        Broken{"src/attention/attention.cpp", "#include <immintrin.h>\n"},
        Broken{"src/nn/linear.cpp", "auto x = _mm256_setzero_ps();\n"}, Broken{"src/cpu/math.h", "__m512 x;\n"},
        Broken{"src/nn/linear.cpp", "auto x = vdupq_n_f32(0);\n"}, Broken{"src/cpu/math.h", "float32x4_t x;\n"},
        Broken{"src/nn/linear.cpp", "#include <arm_neon.h>\n"},
        Broken{"src/core/tensor.cpp", "#include <fmt/format.h>\n"},
        Broken{"src/core/tensor.cpp", "#include <omp.h>\n"}));

}  // namespace
