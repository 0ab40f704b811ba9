// Calls of public functions with arguments that are wrong in a place that is drawn: each returns, or throws what
// the documentation says, with a message in the house's form.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "hostile/wrong_arguments.h"
#include "support/environment.h"
#include "support/fault_count.h"
#include "support/sources/header_declarations.h"

#ifdef __SANITIZE_ADDRESS__  // which would end the program where one asks for more than a terabyte
namespace saccade::test {
inline void* memory_if_less(std::size_t bytes) noexcept {
  return bytes < std::size_t{1} << 40 ? std::malloc(bytes) : nullptr;
}
inline void* memory_or_throw(std::size_t bytes) {
  void* const memory = memory_if_less(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace saccade::test
void* operator new(std::size_t bytes) { return saccade::test::memory_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return saccade::test::memory_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return saccade::test::memory_if_less(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return saccade::test::memory_if_less(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace saccade::test {

/// What a call may throw besides std::invalid_argument.
enum class Throws { invalid_argument, runtime_error, out_of_range, logic_error };

/// Calls of one or more public functions.
struct Caller {
  std::vector<std::string> functions;  ///< as Declaration::signature()
  std::function<void(Arguments&)> call;
  Throws also = Throws::invalid_argument;
  std::vector<std::string>
      parts{};  ///< other functions and classes that its errors may name: those that it is made of
};

/// What is wrong with a message that should be one line of plain text, "[function] argument ...", with a function
/// of the caller or its class, and an argument of the call or, as `names_file` says, the name of a file.
inline std::string fault_of(const std::string& message, const Caller& caller, const Arguments& arguments,
                            bool names_file) {
  if (!message.starts_with('[') || message.find("] ") == std::string::npos) return "has no [function] in front";
  if (message.size() > 70'000) return "is too long";  // what a caller passed is cut at 65,536 bytes
  for (const char c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "has a control character";
  const std::string where = message.substr(1, message.find("] ") - 1);
  // Of a shape that does not fit into memory, and of a null pointer: the message shows the shape.
  if (where == "element_count" || where == "Tensor::copy_of") return "";
  if (names_file) return "";
  const auto is_named = [&](const std::string& part) { return has_word(where, part); };
  const bool names_function =
      std::ranges::any_of(caller.parts, is_named) ||
      std::ranges::any_of(caller.functions, [&](const std::string& function) {
        const std::string name = function.substr(0, function.find('('));
        const std::size_t colons = name.rfind("::");
        return has_word(where, colons == std::string::npos ? name : name.substr(colons + 2)) ||
               (colons != std::string::npos && has_word(where, name.substr(0, colons)));
      });
  if (!names_function) return "names another function";
  const std::string what = message.substr(message.find("] ") + 2);
  for (const std::string& name : arguments.names())
    if (has_word(what, name)) return "";
  return "names no argument";
}

/// One call of one caller. Returns what is wrong with its outcome; empty if nothing is.
inline std::string fault_of_call(const Caller& caller, std::uint64_t seed) {
  Arguments arguments(seed);
  const auto refused = [&](const std::exception& error, bool is_documented, const char* type,
                           bool names_file = false) -> std::string {
    const std::string message = error.what();
    const std::string fault =
        is_documented ? fault_of(message, caller, arguments, names_file) : std::string("is of type ") + type;
    if (fault.empty() && !arguments.are_right()) return "";
    return (arguments.are_right() ? "right arguments are refused: " : "the error " + fault + ": ") + message;
  };
  std::string fault;
  try {
    caller.call(arguments);
  } catch (const std::invalid_argument& error) {
    fault = refused(error, true, "");
  } catch (const std::out_of_range& error) {
    fault = refused(error, caller.also == Throws::out_of_range, "std::out_of_range");
  } catch (const std::length_error& error) {
    fault = refused(error, false, "std::length_error");
  } catch (const std::logic_error& error) {
    fault = refused(error, caller.also == Throws::logic_error, "std::logic_error");
  } catch (const std::runtime_error& error) {
    fault = refused(error, caller.also == Throws::runtime_error, "std::runtime_error", true);
  } catch (const std::bad_alloc&) {
    if (!arguments.are_huge()) fault = "std::bad_alloc of a small problem";
  } catch (const std::exception& error) {
    fault = refused(error, false, "another");
  }
  arguments.expect_intact();
  if (!fault.empty()) fault += " (wrong: " + arguments.wrong_names() + ")";
  return fault;
}

/// Calls the callers in turn, SACCADE_TEST_CASES times from SACCADE_TEST_SEED on. The first fault of each kind is
/// a failure.
inline void make_wrong_calls(const std::vector<Caller>& callers, std::uint64_t count) {
  const ProblemRange calls = problems_of_test(0, count);
  std::set<std::string> seen;
  std::size_t right = 0;
  count_faults(calls.end - calls.begin);
  for (std::uint64_t i = calls.begin; i < calls.end; ++i) {
    const Caller& caller = callers[i % callers.size()];
    SCOPED_TRACE(caller.functions.front() + ", SACCADE_TEST_SEED=" + std::to_string(i) + " SACCADE_TEST_CASES=1");
    if (std::getenv("SACCADE_TEST_TRACE") != nullptr)
      std::cerr << i << ' ' << caller.functions.front() << std::endl;
    const std::string fault = fault_of_call(caller, i);
    if (!fault.empty() && seen.insert(caller.functions.front() + fault.substr(0, 40)).second)
      ADD_FAILURE() << fault;
    right += fault.empty() ? 1 : 0;
  }
  EXPECT_GT(right, 0U);
}

/// The functions with arguments in some headers.
inline std::set<std::string> functions_of(const std::vector<std::string_view>& headers) {
  std::set<std::string> result;
  for (const std::string_view name : headers) {
    std::ifstream file(std::filesystem::path(SACCADE_SOURCE_DIR) / "include/saccade" / name);
    EXPECT_TRUE(file) << name;
    const Header header(file);
    for (const Declaration& one : header.declarations())
      if (one.is_function && (one.takes_options || !one.parameters.empty())) result.insert(one.signature());
  }
  return result;
}

/// Every function with arguments in these headers has a caller, or a reason to have none; and neither is stale.
inline void expect_all_called(const std::vector<std::string_view>& headers, const std::vector<Caller>& callers,
                              const std::map<std::string, std::string>& reasons) {
  const std::set<std::string> declared = functions_of(headers);
  std::set<std::string> called;
  for (const Caller& caller : callers) called.insert(caller.functions.begin(), caller.functions.end());
  for (const auto& [function, reason] : reasons) called.insert(function);
  std::vector<std::string> missing, stale;
  std::ranges::set_difference(declared, called, std::back_inserter(missing));
  std::ranges::set_difference(called, declared, std::back_inserter(stale));
  EXPECT_THAT(missing, testing::IsEmpty()) << "functions without a caller";
  EXPECT_THAT(stale, testing::IsEmpty()) << "callers of functions that no header declares";
}

/// Each header is in the list of one of the programs of this folder.
inline void expect_all_headers_listed() {
  const std::filesystem::path root = SACCADE_SOURCE_DIR;
  std::string programs;
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/hostile")) {
    std::ifstream file(entry.path());
    programs.append(std::istreambuf_iterator<char>(file), {});
  }
  for (const auto& entry : std::filesystem::directory_iterator(root / "include/saccade")) {
    const std::string name = entry.path().filename().string();
    if (name == "c_api.h") continue;  // c_api_refusals_test has the wrong calls of C
    EXPECT_THAT(programs, testing::HasSubstr('"' + name + '"'));
  }
}

}  // namespace saccade::test
