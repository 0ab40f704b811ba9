// The operations of score programs and the loops that compute them, compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace saccade::python {

enum class ScoreOperation : std::uint8_t {
  constant,
  distance,  // factor * (row - key) + offset
  load,
  negate,
  absolute,
  exponential,
  exponential2,
  logarithm,
  square_root,
  sine,
  cosine,
  hyperbolic_tangent,
  sigmoid,
  floor,
  detach,
  cast,
  logical_not,
  truth,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  remainder,
  power,
  minimum,
  maximum,
  clamp_min,
  clamp_max,
  less,
  less_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  logical_xor,
  select,
};

/// The type of a register's numbers. Booleans are integers 0 and 1; f64 also holds larger integers.
enum class Lane : std::uint8_t { f32, f64, i32 };

/// Numbers of some rows and keys. A step is 0 where they do not differ; from row to row it is -1 where they depend
/// on the distance between key and row.
struct ScoreNumbers {
  void* data = nullptr;
  std::int64_t row_step = 0, key_step = 0;

  template <class T>
  T* row(std::int64_t i) const {
    return static_cast<T*>(data) + i * row_step;
  }
};

/// One operation on rows x keys numbers.
struct ScoreCall {
  ScoreOperation operation{};
  Lane from{}, to{};  // of the operands (of select: after the condition, which is i32) and of the result
  std::int64_t rows = 1, keys = 0;
  ScoreNumbers result;
  ScoreNumbers operands[3];
  ScoreNumbers derivatives[3];  // of the operands; only for derive()
};

struct ScoreLoops {
  void (*compute)(const ScoreCall&);
  /// The derivative of the result, given those of the operands.
  void (*derive)(const ScoreCall&);
  /// scores = mask ? values : -inf, for keys of a row; values or mask may be nullptr: unchanged, all true. A step
  /// of 0: one number for all.
  void (*write)(Lane, void* scores, const void* values, std::int64_t step, const std::int32_t* mask,
                std::int64_t mask_step, std::int64_t keys);
  /// gradients *= factors, but 0 where the gradient is 0: a hidden key's factor may be infinite.
  void (*scale)(Lane, void* gradients, const void* factors, std::int64_t keys);
  /// sums += gradients * factors, likewise.
  void (*add_products)(Lane, double* sums, const void* gradients, const void* factors, std::int64_t keys);
};

/// The loops for this machine.
const ScoreLoops& score_loops();

extern const ScoreLoops kScoreLoops;
#ifdef __x86_64__
extern const ScoreLoops kScoreLoopsAvx2;
extern const ScoreLoops kScoreLoopsAvx512;
#endif

}  // namespace saccade::python
