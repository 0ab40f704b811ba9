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
  static const std::regex include(R"re(^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">])re");
  std::vector<Include> result;
  std::istringstream lines(text);
  std::smatch found;
  for (std::string line; std::getline(lines, line);)
    if (line.find("include") != std::string::npos && std::regex_search(line, found, include))
      result.push_back({.name = found[2], .quoted = found[1] == "\""});
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

// ---- Rooms ---------------------------------------------------------------------------------------------------

/// A folder with all below it, and the folders that its files may include besides itself and the public headers.
/// The files beside src/cpu's folders are rooms of their own.
struct Room {
  std::string name;
  std::vector<std::string> may_include;
};

/// Every room of the project, each below the ones that may include it.
const std::vector<Room> kRooms = {
    {"include/saccade", {}},
    {"src/core", {}},
    {"src/backend", {"src/core"}},
    // The CPU's back end.
    {"src/cpu/kernels", {"src/backend", "src/core"}},
    {"src/cpu/simd", {"src/cpu/kernels", "src/backend", "src/core"}},
    {"src/cpu/policy", {"src/cpu/simd", "src/cpu/kernels", "src/backend", "src/core"}},
    {"src/cpu/elementwise", {"src/cpu/simd", "src/cpu/policy"}},
    {"src/cpu/attention", {"src/cpu/simd", "src/cpu/policy", "src/cpu/elementwise"}},
    {"src/cpu/gemm", {"src/cpu/simd", "src/cpu/policy", "src/cpu/elementwise", "src/cpu/attention"}},
    {"src/cpu/bytes", {"src/cpu/simd", "src/cpu/policy", "src/cpu/attention"}},
    {"src/cpu/amx", {"src/cpu/simd", "src/cpu/policy", "src/cpu/attention", "src/cpu/bytes"}},
    {"src/cpu/isa",
     {"src/cpu/kernels", "src/cpu/simd", "src/cpu/policy", "src/cpu/elementwise", "src/cpu/attention",
      "src/cpu/gemm", "src/cpu/bytes", "src/cpu/amx", "src/core"}},
    {"src/cpu/schedule", {"src/cpu/kernels", "src/cpu/policy", "src/backend", "src/core"}},
    {"src/cpu/cpu_backend", {"src/cpu/schedule", "src/cpu/policy", "src/backend"}},
    {"src/reference", {"src/backend", "src/core"}},
    // Above the back ends, which none of these names.
    {"src/attention", {"src/backend", "src/core"}},
    {"src/kv_cache", {"src/core"}},
    {"src/nn", {"src/backend", "src/core"}},
    {"src/distributed", {"src/attention", "src/backend", "src/core"}},
    {"src/mpi", {}},
    {"src/c_api", {"src/core"}},
    {"src/gpt", {"src/nn", "src/core"}},
    {"src/io", {"src/core"}},
    {"src/kv_cache_file", {"src/c_api"}},
    {"src/tokenizer", {}},
    {"src/model", {"src/nn", "src/core"}},
    {"src/page", {"src/core"}},
    {"src/picture", {}},
    {"src/look", {"src/core"}},
    // Programs and packages, which use the public headers as a program of yours does.
    {"cases", {}},
    {"cli", {"cases"}},
    {"bench", {"cases"}},
    // The schedules with kernels and threads that are simulated.
    {"bench/schedules", {"src/cpu/schedule", "src/cpu/policy", "src/cpu/kernels", "src/backend", "src/core"}},
    {"python", {}},
    // JavaScript calls C's interface, and functions that have its errors.
    {"web", {"cases", "src/c_api", "src/core", "src/io"}},
    {"packages", {}},
    {"examples", {}},
    // The bits of AMX tiles are compared below the public functions.
    {"tests/bits", {"cases", "src/cpu/simd", "src/cpu/amx"}},
    {"tests/bench", {"bench/schedules", "src/core"}},
    // A back end is written there.
    {"tests/backend", {"cases", "tests", "src/backend", "src/core"}},
    // So is each function of the kernels.
    {"tests/cpu",
     {"tests", "cases", "src/cpu/simd", "src/cpu/policy", "src/cpu/elementwise", "src/cpu/attention",
      "src/cpu/gemm", "src/cpu/amx", "src/backend"}},
    {"tests", {"cases"}},
};

/// The room of a file; empty for a file in none.
std::string room_of(const std::string& path) {
  std::string found;
  for (const Room& room : kRooms) {
    const bool holds = path.starts_with(room.name + "/") || path.starts_with(room.name + ".");
    if (holds && room.name.size() > found.size()) found = room.name;
  }
  return found;
}

/// The rooms that the files of each room include, but for the public headers.
std::map<std::string, std::set<std::string>> rooms_included(const Tree& tree) {
  std::map<std::string, std::set<std::string>> result;
  for (const auto& [path, text] : tree) {
    for (const Include& include : includes_of(text)) {
      const std::string from = room_of(path), to = room_of(resolve(tree, path, include));
      if (!to.empty() && to != from && to != "include/saccade") result[from].insert(to);
    }
  }
  return result;
}

// ---- Rules about single files --------------------------------------------------------------------------------

struct Rule {
  const char* who;     // files that the rule applies to
  const char* others;  // files that they must not reach, or external headers that only they may include
};

// Project files that must not be reached, not even indirectly.
constexpr Rule kMustNotReach[] = {
    // Files and pictures know nothing of attention.
    {"^src/(io|picture)/|^src/core/random|^include/saccade/(io|heatmap|chart|random)",
     "^include/saccade/(attention|linear|inspect|attention_modules|reference|saccade)\\.h$|^src/(cpu|attention)/"},
    {"^src/io/", "^src/core/(?!printable\\.h$)"},
    // The reference and the kernels are tested against each other.
    {"^src/reference/|^include/saccade/(reference|compare)",
     "^src/(cpu|attention)/|^include/saccade/(attention_modules|io|heatmap|chart)\\.h$"},
    {"^src/(attention|backend|core|cpu|kv_cache|nn/layers)/|^src/nn/[a-z_]*\\.|"
     "^include/saccade/(attention|decode|linear|layers|optim|inspect|runtime|rope|kv_cache)\\.h$",
     "^include/saccade/(reference|attention_modules|io|heatmap|chart)\\.h$"},
    // Libraries that a program may leave out.
    {"^src/(?!io|kv_cache_file|model|picture)|^include/saccade/(?!io|heatmap|chart)",
     "^include/saccade/(io|heatmap|chart)\\.h$"},
    {"^src/(?!gpt)|^include/saccade/(?!gpt_model|tasks|training)",
     "^include/saccade/(gpt_model|tasks|training)\\.h$"},
};

// External headers, and the only files that may include them.
constexpr Rule kOutside[] = {
    {"^src/cpu/(simd|amx)/", "^([a-z]*mm|x86|avx.*|arm_neon|cpuid)intrin\\.h$|^(arm_neon|wasm_simd128)\\.h$"},
    {"^src/core/threads/openmp\\.cpp$|^tests/|^bench/", "^omp\\.h$"},
    // WebAssembly without threads lacks these: core/threads/platform.h has what the other rooms use of them. Only
    // cli and tests include cases/local_ranks.h.
    {"^src/(core/threads|mpi|model|tokenizer)/|^(tests|bench|cli|python|packages|examples)/|^cases/"
     "local_ranks\\.h$",
     "^(mutex|thread|condition_variable|shared_mutex|future)$"},
    {"^src/(io|model|page|tokenizer)/|^cli/|^tests/", "^nlohmann/"},
    {"^src/(io|page)|^cli/|^tests/", "^zlib\\.h"},
    {"^src/tokenizer/", "^(oniguruma|utf8proc)\\.h"},
    {"^src/picture/png|^tests/.*heatmap", "^(librsvg|cairo|glib|gdk|pango)"},
    {"^cli/", "^fmt/"},
    {"^cli/.*command_line\\.cpp$", "^CLI/"},
    {"^tests/", "^(gtest|gmock)/"},
    {"^bench/", "^benchmark/"},
    {"^include/saccade/mpi\\.h$", "^mpi\\.h$"},
    // One file for each operating system, behind a header without them.
    {"_(posix|linux|macos|windows)\\.cpp$|^src/core/threads/|^cli/common/ranks\\.cpp$|^tests/|^bench/|^python/",
     "^(windows|psapi|io|process|share|unistd|fcntl|sched|pthread|dlfcn)\\.h$|^sys/"},
};

// Where intrinsics may stand: in the vector types, and in the operations of tiles.
constexpr const char* kIntrinsics =
    "^src/cpu/simd/|^src/cpu/amx/(tiles|words|tables)\\.h$|^src/cpu/bytes/\\w+_(avx512|neon)\\.h$|/"
    "include_rules_test";

/// Whether `path` is a test and `target` a header of another room of tests, support/ and data/ excepted.
bool crosses_rooms(const std::string& path, const std::string& target) {
  const std::size_t tests = std::string("tests/").size();
  const std::string room = path.substr(0, path.find('/', tests) + 1);
  return path.starts_with("tests/") && matches(target, "^tests/(?!support/|data/)") && !target.starts_with(room);
}

void check_include(const Tree& tree, const std::string& path, const Include& include,
                   std::vector<std::string>& broken) {
  const std::string line = path + ": #include " + include.name + ": ";
  const std::string target = resolve(tree, path, include);
  if (!target.empty()) {
    if (crosses_rooms(path, target)) broken.push_back(line + "what rooms of tests share is in tests/support");
    const std::string from = room_of(path), to = room_of(target);
    if (from == to || to == "include/saccade") return;
    const auto room = std::ranges::find(kRooms, from, &Room::name);
    if (room == kRooms.end() || std::ranges::find(room->may_include, to) == room->may_include.end())
      broken.push_back(line + (from.empty() ? "a file in no room" : from) + " may not include " + to);
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
    if (!matches(path, kIntrinsics) &&
        matches(
            text,
            R"(\b_mm\d*_|\bwasm_[a-z]\w*\(|\b__m(128|256|512)|\bv\w+_(b?f|[su])(8|16|32|64)\(|\b(b?float|u?int)\d+x\d)")) {
      broken.push_back(path +
                       ": intrinsics stand in src/cpu/simd, src/cpu/amx/tiles.h and words.h, and "
                       "src/cpu/bytes/*_avx512.h and *_neon.h only");
    }
    if (path.starts_with("src/") && !path.starts_with("src/cpu/") && matches(text, R"(\bcpu::)"))
      broken.push_back(path + ": only src/cpu names cpu::");
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
       {"include", "src", "cases", "cli", "bench", "examples", "packages", "python", "tests", "web"}) {
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
  const std::size_t begin = page.find("```text", page.find("## Source layout"));
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
    if (header == "visibility.h") continue;  // of src/backend/
    EXPECT_TRUE(std::filesystem::exists(header.empty() ? root / path : root / "include/saccade" / header))
        << found->str();
  }
}

TEST(Layout, NoFolderHoldsMoreThan20LooseFiles) {
  const std::filesystem::path root = SACCADE_SOURCE_DIR;
  std::map<std::string, int> files;
  for (const char* folder : {"src", "cli", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string within = std::filesystem::relative(entry.path().parent_path(), root).generic_string();
      if (entry.is_regular_file() && !matches(within, "^tests/(.*/)?(data|files|goldens)")) ++files[within];
    }
  }
  ASSERT_GT(files["src/core"], 0);
  for (const auto& [folder, count] : files) EXPECT_LE(count, 20) << folder;
}

TEST(IncludeRules, FormNoCircle) {
  std::map<std::string, std::set<std::string>> open = rooms_included(sources_of_the_project());
  ASSERT_TRUE(open["src/attention"].contains("src/backend"));
  // Rooms that include no open room are done; in the end all are.
  for (std::size_t before = open.size() + 1; open.size() < before;) {
    before = open.size();
    std::erase_if(open, [&open](const auto& room) {
      return std::ranges::none_of(room.second, [&open](const std::string& to) { return open.contains(to); });
    });
  }
  for (const auto& [room, others] : open) ADD_FAILURE() << room << " is part of a circle or includes one";
}

TEST(Layout, NoFileHasMoreThan600Lines) {
  for (const auto& [path, text] : sources_of_the_project("\\.(h|hpp|cpp|py)(\\.in)?$"))
    EXPECT_LE(std::ranges::count(text, '\n'), 600) << path;
}

TEST(Layout, NoFolderOfTestsHasMoreThan20Files) {
  std::map<std::string, int> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(SACCADE_SOURCE_DIR) / "tests"))
    if (entry.is_regular_file()) ++files[entry.path().parent_path().string()];
  ASSERT_GT(files.size(), 20u);
  for (const auto& [folder, count] : files) EXPECT_LE(count, 20) << folder;
}

TEST(IncludeRules, HoldInTheProject) {
  const Tree tree = sources_of_the_project();
  ASSERT_TRUE(tree.contains("include/saccade/attention.h"));
  ASSERT_TRUE(tree.contains("src/attention/attention.cpp"));
  EXPECT_THAT(broken_rules(tree), IsEmpty());
}

TEST(IncludeRules, AllowWhatIsMeant) {
  EXPECT_THAT(
      broken_rules({
          {"include/saccade/tensor.h", "#include <vector>\n"},
          {"include/saccade/attention.h", "#include \"saccade/tensor.h\"\n"},
          {"src/backend/attention_params.h", ""},
          {"src/cpu/kernels.h", "#include \"backend/attention_params.h\"\n"},
          {"src/cpu/simd/avx2.h", "#include <immintrin.h>\n__m256 x = _mm256_setzero_ps();\n"},
          {"src/cpu/simd/neon.h", "#include <arm_neon.h>\nfloat32x4_t x = vdupq_n_f32(0);\n"},
          {"src/backend/backend.h", "#include \"backend/attention_params.h\"\n"},
          {"src/attention/attention.cpp", "#include \"saccade/attention.h\"\n#include \"backend/backend.h\"\n"},
          {"src/cpu/cpu_backend.cpp", "#include \"backend/backend.h\"\n"},
          {"tests/support/tensors.h", ""},
          {"tests/attention/checks.h", "#include \"support/tensors.h\"\n"},
          {"tests/attention/attention_test.cpp", "#include <saccade/attention.h>\n#include <gtest/gtest.h>\n"},
          {"tests/attention/backward/backward_test.cpp", "#include \"attention/checks.h\"\n"},
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
      {"src/backend/attention_params.h", ""},
      {"src/core/check.h", "#include \"saccade/tensor.h\"\n"},
      {"src/cpu/kernels.h", "#include \"backend/attention_params.h\"\n"},
      {"src/cpu/attention/tile.h", ""},
      {"src/cpu/simd/avx2.h", ""},
      {"tests/nn/checks.h", ""},
  };
  ASSERT_THAT(broken_rules(tree), IsEmpty());
  tree[GetParam().path] = GetParam().text;
  EXPECT_THAT(broken_rules(tree), Contains(HasSubstr(GetParam().path)));
}

INSTANTIATE_TEST_SUITE_P(
    MadeUp, BrokenIncludeRule,
    testing::Values(Broken{"include/saccade/tensor.h", "#include <nlohmann/json.hpp>\n"},
                    Broken{"include/saccade/tensor.h", "  #  include <immintrin.h>\n"},
                    Broken{"include/saccade/tensor.h", "#include \"../../src/backend/attention_params.h\"\n"},
                    Broken{"cli/run.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"cli/run.cpp", "#include <CLI/CLI.hpp>\n"},
                    Broken{"src/core/run.cpp", "#include <mutex>\n"},
                    Broken{"src/cpu/attention/tile.h", "v128_t x = wasm_f32x4_splat(0);\n"},
                    Broken{"web/glue.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"tests/a_test.cpp", "#include \"../src/backend/attention_params.h\"\n"},
                    Broken{"tests/a_test.cpp", "#include \"src/backend/attention_params.h\"\n"},
                    Broken{"tests/cpu/a_test.cpp", "#include \"nn/checks.h\"\n"},
                    Broken{"cases/a.cpp", "#include \"src/backend/attention_params.h\"\n"},
                    Broken{"examples/a.cpp", "#include \"core/check.h\"\n"},
                    Broken{"bench/a_bench.cpp", "#include \"nowhere.h\"\n"},
                    Broken{"src/attention/attention.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/backend/backend.h", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/nn/linear.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/cpu/schedule/forward.cpp", "#include \"cpu/attention/tile.h\"\n"},
                    Broken{"src/attention/attention.cpp", "#include \"saccade/reference.h\"\n"},
                    Broken{"src/reference/reference.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/cpu/attention/tile.h", "#include \"saccade/reference.h\"\n"},
                    Broken{"src/cpu/simd/math.h", "#include \"cpu/attention/tile.h\"\n"},
                    Broken{"src/nn/attention_modules/forward.cpp", "#include \"saccade/io.h\"\n"},
                    Broken{"src/kv_cache/paged.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/nn/optim.cpp", "#include \"cpu/attention/tile.h\"\n"},
                    Broken{"src/attention/rope.cpp", "#include \"saccade/reference.h\"\n"},
                    Broken{"src/io/npy.cpp", "#include \"core/check.h\"\n"},
                    Broken{"src/picture/heatmap/cells.cpp", "#include \"saccade/attention.h\"\n"},
                    Broken{"src/picture/chart/chart.cpp", "#include \"saccade/attention.h\"\n"},
                    Broken{"src/core/tensor.cpp", "#include \"saccade/chart.h\"\n"},
                    Broken{"src/backend/registry.cpp", "#include \"cpu/kernels.h\"\n"},
                    Broken{"src/nn/optim.cpp", "int x = cpu::count();\n"},
                    Broken{"src/cpu/simd/math.h", "#include \"cpu/policy/block_sizes.h\"\n"},
                    Broken{"src/core/random.cpp", "#include \"backend/attention_params.h\"\n"},
                    Broken{"src/core/tensor.cpp", "#include \"saccade/io.h\"\n"},
                    Broken{"src/attention/attention.cpp", "#include <immintrin.h>\n"},
                    Broken{"src/nn/linear.cpp", "auto x = _mm256_setzero_ps();\n"},
                    Broken{"src/cpu/attention/tile.h", "__m512 x;\n"},
                    Broken{"src/nn/linear.cpp", "auto x = vdupq_n_f32(0);\n"},
                    Broken{"src/cpu/attention/tile.h", "float32x4_t x;\n"},
                    Broken{"src/nn/linear.cpp", "#include <arm_neon.h>\n"},
                    Broken{"src/core/tensor.cpp", "#include <fmt/format.h>\n"},
                    Broken{"src/core/tensor.cpp", "#include <omp.h>\n"}));

}  // namespace
