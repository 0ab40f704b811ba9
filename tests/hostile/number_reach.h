// One hostile number at a random place of one input of a function: what does not depend on it keeps its bits, and
// a NaN makes NaN of what does.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "saccade/tensor.h"
#include "support/each_isa.h"
#include "support/environment.h"
#include "support/fault_count.h"
#include "support/tensors.h"

namespace saccade::test {

/// What a number does to a number of a result.
enum class Reach { nothing, may_change, makes_nan };

using Place = std::vector<std::int64_t>;

/// A function, and which numbers of its inputs reach which of its results.
struct Function {
  std::string name;
  std::vector<Tensor> inputs;
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> call;
  std::function<Reach(std::size_t input, const Place& at, std::size_t result, const Place& of)> reach;
};

inline Reach nan_if(bool reaches) { return reaches ? Reach::makes_nan : Reach::nothing; }
inline Reach change_if(bool reaches) { return reaches ? Reach::may_change : Reach::nothing; }

inline Place place_of(std::int64_t element, const Shape& shape) {
  Place place(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; element /= shape[i]) place[i] = element % shape[i];
  return place;
}

struct HostileNumber {
  const char* name;
  double f32, f16;
};
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline const std::array kHostile{
    HostileNumber{"NaN", std::nan(""), std::nan("")}, HostileNumber{"Inf", kInfinity, kInfinity},
    HostileNumber{"-Inf", -kInfinity, -kInfinity},    HostileNumber{"huge", 3e38, 65504.0},
    HostileNumber{"denormal", 1e-40, 6e-8},           HostileNumber{"-0", -0.0, -0.0}};

inline Tensor with(const Tensor& tensor, std::int64_t element, const HostileNumber& number) {
  Tensor result = tensor;
  const double value = tensor.dtype() == DType::f16 ? number.f16 : number.f32;
  const TensorView flat = result.mutable_view().reshaped({result.size()});
  const Tensor one = Tensor::copy_of(TensorView(&value, {1}), result.dtype());
  copy(one, MutableTensorView(result.data(), result.dtype(), flat.dims()).slice(0, element, element + 1));
  return result;
}

/// Compares the results of a call with one hostile number with those of harmless ones.
inline void expect_reach(const Function& function, std::size_t input, std::int64_t element,
                         const HostileNumber& number, const std::vector<Tensor>& clean) {
  std::vector<Tensor> inputs = function.inputs;
  inputs[input] = with(inputs[input], element, number);
  const Place at = place_of(element, inputs[input].shape());
  const std::vector<Tensor> results = function.call(inputs);
  ASSERT_EQ(results.size(), clean.size());
  for (std::size_t r = 0; r < results.size(); ++r) {
    const std::size_t size = size_of(clean[r].dtype());
    const auto* const before = static_cast<const std::byte*>(clean[r].data());
    const auto* const after = static_cast<const std::byte*>(results[r].data());
    const Tensor values = Tensor::copy_of(results[r], DType::f64);
    std::int64_t changed = 0, lost = 0;
    for (std::int64_t i = 0; i < clean[r].size(); ++i) {
      const Reach reach = function.reach(input, at, r, place_of(i, clean[r].shape()));
      const std::size_t byte = static_cast<std::size_t>(i) * size;
      changed += reach == Reach::nothing && std::memcmp(before + byte, after + byte, size) != 0;
      lost += reach == Reach::makes_nan && std::isnan(number.f32) &&
              !std::isnan(values.values<double>()[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(changed, 0) << "numbers of result " << r << " that do not depend on " << number.name << " at "
                          << to_string(at) << " of input " << input;
    EXPECT_EQ(lost, 0) << "numbers of result " << r << " that should be NaN, by " << to_string(at) << " of input "
                       << input;
  }
}

class NumberReach : public EachIsa {
 protected:
  void expect_reaches(const std::vector<Function>& functions) {
    std::mt19937_64 random(1);
    for (const Function& function : functions) {
      SCOPED_TRACE(function.name);
      const std::vector<Tensor> clean = function.call(function.inputs);
      for (std::size_t input = 0; input < function.inputs.size(); ++input) {
        const auto size = static_cast<std::uint64_t>(function.inputs[input].size());
        const int places = size >= 4000 ? 1 : kIsSlow ? 4 : 8;  // calls of small problems take little time
        std::vector<HostileNumber> numbers(kHostile.begin(), kHostile.end());
        if (kIsSlow) numbers = {kHostile[0], kHostile[1 + random() % (kHostile.size() - 1)]};
        for (const HostileNumber& number : numbers)
          for (int i = 0; i < places; ++i)
            expect_reach(function, input, static_cast<std::int64_t>(random() % size), number, clean);
        count_faults(numbers.size() * static_cast<std::size_t>(places));
      }
    }
  }
};

}  // namespace saccade::test
