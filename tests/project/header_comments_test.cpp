// Every parameter of a public function and every field of a public struct is described in its header.
//
// A parameter is described if its name stands as a word in the comment of the declaration, or of another
// declaration of the same name in the same class or header ("The same, ..."); of a constructor also in that of its
// class. A parameter whose type is a struct of options is described by the fields of that struct, and those of a
// function that overrides another by the comment of the latter. A field has a comment of its own, before it or
// behind it (///<), or its name stands as a word in the comment of its struct. What is in a namespace `detail` is
// not public.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/sources/header_declarations.h"

namespace saccade::test {
namespace {

/// "attention(q)" for a parameter and "Origin.batch" for a field without a description.
std::vector<std::string> undescribed(const std::vector<Declaration>& declarations) {
  std::map<std::pair<std::string, std::string>, std::string> comments;  // of all declarations of a name
  for (const Declaration& one : declarations) comments[{one.scope, one.name}] += one.comment;
  std::vector<std::string> missing;
  for (const Declaration& one : declarations) {
    const std::string name = one.scope.empty() ? one.name : one.scope + "::" + one.name;
    for (const std::string& parameter : one.parameters)
      if (!has_word(comments[{one.scope, one.name}], parameter)) missing.push_back(name + "(" + parameter + ")");
    if (!one.is_function && one.comment.empty()) missing.push_back(name);
  }
  return missing;
}

std::vector<std::string> undescribed(const std::string& header) {
  std::istringstream file(header);
  return undescribed(Header(file).declarations());
}

TEST(HeaderComments, DescribeEveryParameterAndField) {
  std::size_t parameters = 0, fields = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SACCADE_SOURCE_DIR "/include/saccade")) {
    if (entry.path().filename() == "c_api.h") continue;  // its comments name the declarations in C++
    std::ifstream file(entry.path());
    const Header header(file);
    for (const Declaration& one : header.declarations()) {
      parameters += one.parameters.size();
      fields += one.is_function ? 0 : 1;
    }
    EXPECT_THAT(undescribed(header.declarations()), testing::IsEmpty()) << entry.path().filename();
  }
  EXPECT_GT(parameters, 500U);
  EXPECT_GT(fields, 200U);
}

TEST(HeaderComments, MissingDescriptionsAreFound) {
  const std::string header = R"(
#pragma once
namespace saccade {
/// Adds a and b.
int add(int a, const std::vector<int>& b, std::function<void(int x)> f = {}, int = 0);
/// The same with c.
inline int add(int a, int c, int d) { int local = a; return local; }

enum class Kind { one, two };

/// Has a field `first`.
struct Numbers {
  int first = 1;
  int second[2] = {1, 2};
  double third = 0;  ///< a number
  /// Two numbers.
  int fourth{}, fifth{};
  std::map<int, int> sixth{{1, 2}};
  int size() const { return first; }
  bool operator==(const Numbers& other) const = default;
};

/// A class, made from `value`.
class Thing final : public Numbers {
 public:
  explicit Thing(int value, int other, const ThingOptions& options);
  Thing(const Thing&) = delete;
  int get(int index) const;  ///< the one at `index`

 protected:
  void hidden(int x);

 private:
  int hidden_ = 0;
};
}  // namespace saccade
)";
  EXPECT_THAT(undescribed(header), testing::ElementsAre("add(f)", "add(d)", "Numbers::second", "Numbers::sixth",
                                                        "Thing::Thing(other)"));
}

}  // namespace
}  // namespace saccade::test
