// Lets the first, the second, ... allocation of an operation fail, as SQLite's tests do, and compares what is left
// with what was before. A program includes this in one source.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "saccade/runtime.h"
#include "saccade/tensor.h"
#include "support/allocations.h"
#include "support/environment.h"
#include "support/fault_count.h"
#include "support/system.h"

#ifdef __GLIBC__  // which declares it so
#define SACCADE_TEST_NOEXCEPT noexcept
#else
#define SACCADE_TEST_NOEXCEPT
#endif

// The library's memory that is not from operator new: src/core/memory.cpp.
extern "C" [[gnu::noinline]] void* aligned_alloc(std::size_t alignment, std::size_t bytes) SACCADE_TEST_NOEXCEPT {
  return saccade::test::fails_now(bytes) ? nullptr : saccade::test::allocate_aligned(alignment, bytes);
}

namespace saccade::test {

/// Shape, element type and bits.
inline std::string bits_of(const Tensor& tensor) {
  std::string bits = to_string(tensor.shape()) + std::string(name_of(tensor.dtype()));
  if (tensor.bytes() > 0) bits.append(static_cast<const char*>(tensor.data()), tensor.bytes());
  return bits;
}
inline std::string bits_of(const std::string& text) { return text; }

/// The same of tensors by name.
template <class Tensors>
std::string bits_of_all(const Tensors& tensors) {
  std::string bits;
  for (const auto& [name, tensor] : tensors) bits += name + bits_of(tensor);
  return bits;
}

/// An operation that is ready to run, with all that it works on.
struct Operation {
  std::function<void()> run{};
  std::function<std::string()> result{};                   ///< the bits of what a run has given or changed
  std::function<std::string()> state = [] { return ""; };  ///< the bits of what a failed run must leave alone
  std::function<void()> prepare = [] {};                   ///< what has to come before a failed run is repeated
};

/// An operation that only gives something: `bits` turns it into a text.
template <class Call, class Bits>
Operation giving(Call call, Bits bits) {
  const auto given = std::make_shared<std::optional<std::invoke_result_t<Call>>>();
  return {.run = [=] { given->emplace(call()); }, .result = [=] { return bits(**given); }};
}
template <class Call>
Operation giving(Call call) {
  return giving(std::move(call), [](const auto& given) { return bits_of(given); });
}

namespace detail {

/// How a run with an AllocationFault ended.
struct Attempt {
  bool has_failed = false, has_come = false;
  std::array<char, 200> message{};  ///< of an exception that does not say that memory ran out; else empty

  Attempt(const Operation& operation, const FailingAllocations& failing) {
    const AllocationFault fault(failing);
    try {
      operation.run();
    } catch (const std::bad_alloc&) {
      has_failed = true;
    } catch (const std::exception& error) {
      has_failed = true;
      // What the readers of files say of one for which there is no memory.
      if (!std::string_view(error.what()).ends_with("does not fit in memory"))
        std::snprintf(message.data(), message.size(), "%s", error.what());
    }
    has_come = fault.has_come();
  }
};

}  // namespace detail

/// Runs operations that `make` makes anew each time, once with each of the first allocations failing, and from
/// then on with one in ten, until a run has no more of them: as the only one that fails, and with all after it. A
/// run throws std::bad_alloc, leaves the operation's state as it was, and gives the same bits when it is repeated.
/// Smaller allocations than `least_bytes` succeed. Returns how many runs failed.
inline std::size_t failures_of(const std::function<Operation()>& make, std::size_t least_bytes = 0) {
  const std::size_t one_by_one = from_environment("SACCADE_TEST_CASES", 60);
  const Operation undisturbed = make();
  const std::string before = undisturbed.state();
  undisturbed.run();
  const std::string expected = undisturbed.result(), after = undisturbed.state();
  std::size_t failures = 0;
  for (const bool for_good : {false, true}) {
    for (std::size_t n = 1;; n += n < one_by_one ? 1 : 1 + n / 10) {
      SCOPED_TRACE("allocation " + std::to_string(n) + (for_good ? " and all later ones" : ""));
      const Operation operation = make();
      release_workspaces();
      const detail::Attempt attempt(operation, {n, for_good, least_bytes});
      EXPECT_STREQ(attempt.message.data(), "");
      if (attempt.has_failed) {
        ++failures;
        EXPECT_TRUE(operation.state() == before) << "the failed run has left something";
        operation.prepare();
        operation.run();
      }
      EXPECT_TRUE(operation.result() == expected && operation.state() == after) << "other bits";
      if (!attempt.has_come || ::testing::Test::HasFailure()) break;
    }
  }
  count_faults(failures);
  return failures;
}

/// The same for an operation that allocates.
inline void expect_survives(const std::function<Operation()>& make, std::size_t least_bytes = 0) {
  EXPECT_GT(failures_of(make, least_bytes), 0U);
}

}  // namespace saccade::test
