// Vectors of 256 and 512 bits that are spilled with aligned instructions need a stack that is aligned for them.
// Windows aligns it to 16 bytes, and GCC does not align it further there (GCC bug 54412), so a build for Windows
// needs Clang.
#include <gmock/gmock.h>

#include <regex>

#include "cpu/disassembly.h"
#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "support/each_isa.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

using ::testing::IsEmpty;

class StackOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(StackOnIsa);

/// Calls `body` with the stack 16 * steps bytes further down.
template <class Body>
[[gnu::noinline]] void with_stack_moved(int steps, const Body& body) {
  volatile char* const room = static_cast<char*>(__builtin_alloca(static_cast<std::size_t>(16 * steps) + 16));
  room[0] = 1;
  body();
}

TEST_P(StackOnIsa, MayBeginAtAnyMultipleOf16) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor q = random_tensor({1, 2, 70, 64}, 1, dtype), k = random_tensor({1, 2, 150, 64}, 2, dtype),
                 v = random_tensor({1, 2, 150, 64}, 3, dtype), row = random_tensor({1, 2, 1, 64}, 4, dtype);
    const AttentionOptions options{.num_threads = 1};
    const Tensor expected = attention(q, k, v, options), expected_row = decode(row, k, v);
    for (int steps = 0; steps < 8; ++steps) {
      with_stack_moved(steps, [&] {
        EXPECT_TRUE(same_bits(attention(q, k, v, options), expected));
        EXPECT_TRUE(same_bits(decode(row, k, v), expected_row));
      });
    }
  }
}

/// Functions that store vectors of more than 16 bytes at aligned places of a stack that they do not align.
struct Frames {
  std::vector<std::string> faulty;
  int aligned = 0;  ///< functions that do align it
};

Frames frames_of(const std::string& disassembly) {
  static const std::regex head(R"(^[0-9a-f]+ <(.*)>:$)");
  static const std::regex aligned_access(R"(\tv?mov(aps|apd|dqa|dqa32|dqa64|ntps|ntdq)\s.*-?\w*\(%r[sb]p.*)");
  Frames frames;
  std::string function, example;
  bool aligns = false;
  const auto close = [&] {
    if (aligns) ++frames.aligned;
    if (!aligns && !example.empty()) frames.faulty.push_back(function + ": " + example);
    aligns = false;
    example.clear();
  };
  std::istringstream lines(disassembly);
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with(">:") && std::regex_match(line, found, head)) {
      close();
      function = found[1];
    } else if (line.find("\tandq\t$-") != std::string::npos && line.ends_with("%rsp")) {
      aligns = aligns || std::regex_search(line, std::regex(R"(\$-(32|64|128|256|512|1024|2048|4096), %rsp)"));
    } else if (example.empty() &&
               (line.find("%ymm") != std::string::npos || line.find("%zmm") != std::string::npos) &&
               line.find("(%r") != std::string::npos && std::regex_search(line, aligned_access)) {
      example = line;
    }
  }
  close();
  return frames;
}

TEST(StackAlignment, FaultsAreFound) {
  const std::string spill = "   4:\tvmovaps\t%ymm6, 64(%rsp)\n";
  EXPECT_EQ(frames_of("00000000 <f()>:\n" + spill).faulty.size(), 1U);
  EXPECT_EQ(frames_of("00000000 <f()>:\n   0:\tandq\t$-16, %rsp\n" + spill).faulty.size(), 1U);
  const Frames good =
      frames_of("00000000 <f()>:\n   0:\tandq\t$-32, %rsp\n" + spill +
                "00000000 <g()>:\n   4:\tvmovups\t%ymm6, 64(%rsp)\n   4:\tvmovaps\t%xmm6, 64(%rsp)\n");
  EXPECT_THAT(good.faulty, IsEmpty());
  EXPECT_EQ(good.aligned, 1);
}

TEST(StackAlignment, IsMadeByEveryFunctionThatNeedsIt) {
#if !defined(_WIN32) || !defined(__x86_64__)
  GTEST_SKIP() << "a question of Windows on x86-64";
#else
  const Frames frames = frames_of(disassembly_of_library());
  EXPECT_THAT(frames.faulty, IsEmpty());
  EXPECT_GT(frames.aligned, 100);
#endif
}

}  // namespace
}  // namespace saccade::test
