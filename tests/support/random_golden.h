// Random numbers of other programs, in the form written by tests/goldens/make_random_goldens.py.
#pragma once

#include <cstdint>
#include <vector>

#include "saccade/tensor.h"

struct RandomGolden {
  const char* call;  ///< a function of TorchGenerator or NumpyRandomState
  std::uint64_t seed;
  saccade::Shape shape;           ///< for a linear layer {d_in, d_out}
  std::vector<double> arguments;  ///< of the call, besides the shape
  std::uint64_t digest;           ///< digest_of the numbers drawn
};

struct RandintGolden {
  std::uint32_t seed;
  std::int64_t low, high;
  std::uint64_t digest;  ///< of 100 numbers
};
