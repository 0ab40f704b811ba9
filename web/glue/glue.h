// What the functions that JavaScript calls share: exports, options as texts, and results by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c_api/call.h"
#include "saccade/tensor.h"

#define SACCADE_WEB_API(name) extern "C" __attribute__((export_name(#name), used))

namespace saccade::web {

/// Names and values of a call's options, in order. A list repeats its name.
class Fields {
 public:
  /// `bytes` bytes of texts, each of which ends with 0: a name, its value, the next name, ...
  Fields(std::string_view function, const char* texts, std::size_t bytes);

  /// Hands over the value of a name, which is then known. Without it the target is unchanged.
  void take(std::string_view name, std::string& target);
  void take(std::string_view name, std::vector<std::string>& target);
  void take(std::string_view name, std::int64_t& target);
  void take(std::string_view name, std::uint64_t& target);
  void take(std::string_view name, double& target);
  void take(std::string_view name, bool& target);
  template <class T>
  void take(std::string_view name, std::optional<T>& target) {
    if (!has(name)) return;
    T value{};
    take(name, value);
    target = value;
  }
  bool has(std::string_view name) const;

  /// Throws if there are names that nothing has taken.
  void check_all_taken() const;

 private:
  /// The last value of a name; nullptr: none.
  const std::string* find(std::string_view name);
  double number(std::string_view name, const std::string& value) const;

  std::string_view function_;
  std::vector<std::pair<std::string, std::string>> fields_;
  std::vector<std::string> taken_;
};

/// The text that web_text() returns until the next call.
void give_text(std::string text);

/// The tensors that web_results() lists until the next call.
void give_results(std::vector<std::pair<std::string, Tensor>> results);

/// The tensors of a call by their names, one for each of `names`, which end with 0.
std::map<std::string, TensorView> named_tensors(std::string_view function, const char* names, std::size_t bytes,
                                                const saccade_tensor* tensors);
/// Copies of them.
std::map<std::string, Tensor> state_of(std::string_view function, const char* names, std::size_t bytes,
                                       const saccade_tensor* tensors);

/// The numbers of an i64 tensor; none for nullptr.
std::vector<std::int64_t> numbers_of(std::string_view function, const char* name, const saccade_tensor* tensor);

}  // namespace saccade::web
