// The table of attention's options: it has every member, and everything that follows from it has every option.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "cases/options.h"
#include "cases/problem.h"
#include "cases/random_case.h"
#include "saccade/attention_options.h"

namespace saccade::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Every member of the struct. A new one does not compile until it stands here, and then the table has to have it.
std::vector<const void*> members_of(const AttentionOptions& options) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, bb, cc, dd, ee,
               ff, gg, hh, ii, jj, kk, ll, mm, nn] = options;
  return {&a, &b, &c, &d, &e, &f, &g,  &h,  &i,  &j,  &k,  &l,  &m,  &n,  &o,  &p,  &q,  &r,  &s,  &t,
          &u, &v, &w, &x, &y, &z, &aa, &bb, &cc, &dd, &ee, &ff, &gg, &hh, &ii, &jj, &kk, &ll, &mm, &nn};
}

TEST(AttentionOptionsTable, HasEveryMemberOnce) {
  const AttentionOptions options;
  std::vector<const void*> found;
  for (const AttentionOption& option : kAttentionOptions) {
    const auto add = [&](auto member) {
      if constexpr (std::is_same_v<decltype(member), OptionPair>) {
        found.push_back(&(options.*member.first));
        found.push_back(&(options.*member.second));
      } else {
        found.push_back(&(options.*member));
      }
    };
    std::visit(add, option.member);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(members_of(options)));
}

TEST(AttentionOptionsTable, SaysWhyANameDiffers) {
  for (const AttentionOption& option : kAttentionOptions) {
    SCOPED_TRACE(option.name);
    std::string as_in_cpp = "--" + std::string(option.name);
    std::ranges::replace(as_in_cpp, '_', '-');
    const bool is_one_name = option.python_name() == option.name && option.word_name() == option.name &&
                             option.command_name() == as_in_cpp;
    EXPECT_EQ(is_one_name, option.why.empty());
    EXPECT_FALSE(option.help.empty());
  }
}

TEST(AttentionOptionsTable, KnowsDefaultsAndSetsWhatTextSays) {
  for (const AttentionOption& option : kAttentionOptions) {
    SCOPED_TRACE(option.name);
    AttentionOptions options;
    EXPECT_FALSE(cases::is_set(option, options));
    if (!cases::has_text(option)) continue;
    EXPECT_THAT(cases::set_from_text(option, "nonsense", options), ::testing::Not(IsEmpty()));
    EXPECT_FALSE(cases::is_set(option, options));
    int taken = 0;  // some text of these is one of its values
    for (const char* text : {"0.25", "3", "3,4", "3x4", "bottom_right", "bshd", "biased", "reference"}) {
      AttentionOptions tried;
      if (!cases::set_from_text(option, text, tried).empty()) continue;
      EXPECT_TRUE(cases::is_set(option, tried)) << text;
      EXPECT_EQ(cases::value_text(option, tried), text);
      ++taken;
    }
    EXPECT_GT(taken, 0);
  }
}

TEST(AttentionOptionsTable, IsTheOneOfTheDocumentation) {
  std::stringstream page;
  page << std::ifstream(SACCADE_SOURCE_DIR "/docs/options.md").rdbuf();
  const auto code = [](const std::string& text) { return text.empty() ? "-" : "`" + text + "`"; };
  for (const AttentionOption& option : kAttentionOptions) {
    std::string name(option.name);
    if (const auto comma = name.find(", "); comma != std::string::npos) name.replace(comma, 2, "`, `");
    std::string command = option.command_name();
    if (!command.empty() && !option.placeholder.empty()) command += " " + std::string(option.placeholder);
    const std::string axes = option.axes.empty() ? "" : ": `" + std::string(option.axes) + "`";
    const std::string row = "| " + code(name) + " | " + code(std::string(option.python_name())) + " | " +
                            code(command) + " | " + code(std::string(option.word_name())) + " | " +
                            std::string(option.help) + axes + " | " + std::string(option.why) + " |\n";
    EXPECT_THAT(page.str(), HasSubstr(row));
  }
}

TEST(AttentionOptionsTable, HasTheWordsOfProblems) {
  std::string text;  // of every key and every flag, as refusals list them
  for (const char* line : {"nonsense", "nonsense=1"}) {
    try {
      cases::parse_problem(line);
    } catch (const std::invalid_argument& error) {
      text += error.what();
    }
  }
  for (const AttentionOption& option : kAttentionOptions)
    EXPECT_THAT(text, HasSubstr(option.word_name().empty() ? "" : " " + std::string(option.word_name())));
}

// Random problems, and with them the sweeps over attention(), decode() and the gradients, have every option.
TEST(AttentionOptionsTable, IsDrawnByRandomProblems) {
  std::set<std::string_view> missing;
  for (const AttentionOption& option : kAttentionOptions) missing.insert(option.name);
  missing.erase("score_modifier_backward");  // those that are drawn only add; backward_test.cpp has others
  missing.erase("origin");                   // origin_test.cpp cuts a problem
  missing.erase("backend");                  // backend_test.cpp solves problems on each
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const cases::AttentionCase drawn = cases::draw_case(seed);
    std::erase_if(missing, [&](std::string_view name) {
      return cases::is_set(*std::ranges::find(kAttentionOptions, name, &AttentionOption::name), drawn.options);
    });
  }
  EXPECT_THAT(missing, IsEmpty());
}

}  // namespace
}  // namespace saccade::test
