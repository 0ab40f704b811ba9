// No AVX instruction, and on 64-bit Arm none that is newer than Armv8.0, may be outside the kernels that are
// chosen at run time: the linker might keep an inline function's AVX copy for the whole program, which would crash
// on older machines. Disassembles the core library and checks every instruction of every function.
#include <gmock/gmock.h>

#include <istream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cpu/disassembly.h"

namespace saccade {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// The level that a disassembled instruction needs: 0 baseline, 1 AVX or AVX2, 2 AVX-512; on 64-bit Arm 0
/// baseline, 1 products of bf16 or bytes and whatever else the target region allows.
int level_of(const std::string& instruction) {
  static const std::regex avx512(R"(%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2[0-9]|3[01])\b)");
  static const std::regex avx(R"(^v(?!erw|err|mcall|mlaunch|mresume|mread|mwrite)|%ymm)");
  static const std::regex arm(
      R"(^(bf(dot|mmla|mlal|cvt)|[us]+(dot|mmla)\b|(ld|st)(add|clr|set|eor)(a|l|al)?[bh]?\s|swp|cas|crc32|sqrdml))");
  // Most instructions are told apart without a search, which takes much longer.
  const auto has = [&](const char* part) { return instruction.find(part) != std::string::npos; };
  if (std::regex_search(instruction, arm, std::regex_constants::match_continuous)) return 1;
  if (!has("mm") && !has("%k") && !instruction.starts_with('v')) return 0;
  if (std::regex_search(instruction, avx512)) return 2;
  return std::regex_search(instruction, avx) ? 1 : 0;
}

/// The level that a function's namespace permits.
int allowed_in(const std::string& function) {
  static const std::regex mangled(
      "7saccade3cpu[0-9]+(avx512|avx2|neonbf16|neondot|neonmatrix)");  // objdump does not know all names
  if (function.find("saccade::cpu::avx512") != std::string::npos) return 2;
  if (std::smatch found;
      function.find("7saccade3cpu") != std::string::npos && std::regex_search(function, found, mangled))
    return found[1] == "avx512" ? 2 : 1;
  for (const char* name :
       {"saccade::cpu::avx2", "saccade::cpu::neonbf16", "saccade::cpu::neondot", "saccade::cpu::neonmatrix"})
    if (function.find(name) != std::string::npos) return 1;
  return 0;
}

struct Leaks {
  std::vector<std::string> lines;  // one for each offending function
  int lower_functions = 0;         // that need and may need level 1: proof that the search works
  int upper_functions = 0;         // the same, level 2
};

/// Whether what is before a tab is an address: binutils' objdump has no blanks between its colon and the tab,
/// LLVM's has.
bool follows_address(const std::string& line, std::size_t tab) {
  const std::size_t last = line.find_last_not_of(' ', tab - 1);
  return tab > 0 && last != std::string::npos && line[last] == ':';
}

/// Reads the output of `objdump --disassemble --demangle --no-show-raw-insn`.
Leaks find_leaks(std::istream& disassembly) {
  static const std::regex head(R"(^[0-9a-f]+ <(.*)>:$)");
  Leaks leaks;
  std::string function;
  int highest = 0;
  std::string example;
  const auto close_function = [&] {
    if (highest > allowed_in(function)) leaks.lines.push_back(function + ": " + example);
    if (highest == 1 && allowed_in(function) == 1) ++leaks.lower_functions;
    if (highest == 2 && allowed_in(function) == 2) ++leaks.upper_functions;
    highest = 0;
  };
  std::smatch found;
  for (std::string line; std::getline(disassembly, line);) {
    if (!line.empty() && line.back() == ':' && std::regex_match(line, found, head)) {
      close_function();
      function = found[1];
    } else if (const auto tab = line.find('\t');
               highest < 2 && tab != std::string::npos && follows_address(line, tab)) {
      const std::string instruction = line.substr(tab + 1);
      if (const int level = level_of(instruction); level > highest) {
        highest = level;
        example = instruction;
      }
    }
  }
  close_function();
  return leaks;
}

Leaks leaks_of(const std::string& text) {
  std::istringstream lines(text);
  return find_leaks(lines);
}

TEST(IsaLeak, IsNoticed) {
  const std::string vex = ">:\n   4:\tvmovss (%rdi),%xmm0\n";
  EXPECT_THAT(leaks_of("00000000 <float const& std::max<float>(float const&, float const&)" + vex).lines,
              ElementsAre(HasSubstr("std::max<float>")));
  EXPECT_THAT(leaks_of("00000000 <saccade::attention(int)" + vex).lines, ElementsAre(HasSubstr("vmovss")));
  EXPECT_THAT(leaks_of("00000000 <saccade::cpu::avx2::forward()>:\n   4:\tvaddps %ymm17,%ymm1,%ymm1\n").lines,
              ElementsAre(HasSubstr("avx2::forward")));
  EXPECT_THAT(leaks_of("00000000 <saccade::cpu::neon::forward()>:\n   4:\tbfdot\tv0.4s, v1.8h, v2.8h\n").lines,
              ElementsAre(HasSubstr("neon::forward")));
}

TEST(IsaLeak, IsNotSeenWhereThereIsNone) {
  const Leaks leaks = leaks_of(
      "00000000 <saccade::cpu::avx2::forward()>:\n   4:\tvaddps %ymm7,%ymm1,%ymm1\n"
      "00000010 <saccade::cpu::avx512::forward()>:\n   14:\tvaddps %zmm17,%zmm1,%zmm1\n"
      "00000018 <saccade::cpu::neonbf16::forward()>:\n   1c:\tbfdot\tv0.4s, v1.8h, v2.8h\n"
      "00000020 <saccade::copy()>:\n   24:\taddps  %xmm1,%xmm0\n   28:\tverr   %ax\n");
  EXPECT_THAT(leaks.lines, IsEmpty());
  EXPECT_EQ(leaks.lower_functions, 2);
  EXPECT_EQ(leaks.upper_functions, 1);
}

TEST(IsaLeak, IsNotInTheLibrary) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  GTEST_SKIP() << "plain C++ is the only level of this processor family";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "disassembling a library with AddressSanitizer takes minutes, and nobody ships one";
#endif
  std::istringstream disassembly(test::disassembly_of_library());
  if (disassembly.view().empty()) GTEST_SKIP() << "objdump (binutils) is not installed";
  const Leaks leaks = find_leaks(disassembly);
  EXPECT_THAT(leaks.lines, IsEmpty());
  EXPECT_GT(leaks.lower_functions, 0);
#ifdef __x86_64__
  EXPECT_GT(leaks.upper_functions, 0);
#endif
}

}  // namespace
}  // namespace saccade
