// The error of a call.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace saccade::test {

/// The message of the std::invalid_argument that a call throws; empty if it throws none.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace saccade::test
