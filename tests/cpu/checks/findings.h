// Gives the checks of kernels their numbers, and collects their failures. Every function is defined in
// findings.cpp, which is compiled for the baseline: checks include this before their target region opens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "saccade/dtype.h"
#include "support/system.h"

namespace saccade::test {

/// Memory followed by a guard page, which must not be read or written.
class GuardedMemory {
 public:
  GuardedMemory();

  /// The last bytes of it, at most 1 MiB.
  void* last(std::size_t bytes) const;

 private:
  GuardedPages pages_;
};

class Findings {
 public:
  Findings();

  /// Numbers of any bits. Half of them are zeros, infinities, NaN, denormal numbers or the largest, of either
  /// sign.
  void draw(float* to, std::int64_t count);
  void draw(double* to, std::int64_t count);
  void draw(float16* to, std::int64_t count);
  void draw(bfloat16* to, std::int64_t count);
  /// The same without NaN.
  void draw_numbers(float* to, std::int64_t count);
  void draw_numbers(double* to, std::int64_t count);
  /// Whole numbers from -4 to 4: sums of up to 2^18 products of two are exact in every type, in any order.
  void draw_whole(float* to, std::int64_t count);
  void draw_whole(double* to, std::int64_t count);
  void draw_whole(float16* to, std::int64_t count);
  void draw_whole(bfloat16* to, std::int64_t count);
  /// Numbers from -2 to 2 with so many bits that every operation rounds.
  void draw_near_one(float* to, std::int64_t count);
  void draw_near_one(double* to, std::int64_t count);
  void draw_near_one(float16* to, std::int64_t count);
  void draw_near_one(bfloat16* to, std::int64_t count);
  /// A whole number in [0, end).
  int below(int end);
  std::uint32_t word();

  /// Sets the arguments that failures of the next comparisons show.
  void with(const char* arguments, std::int64_t a, std::int64_t b = 0, std::int64_t c = 0, std::int64_t d = 0);

  /// Fails unless the numbers have the same bits or both are NaN. A failure shows the numbers of a, b and c there.
  void equal(const float* found, const float* expected, std::int64_t count, const float* a = nullptr,
             const float* b = nullptr, const float* c = nullptr);
  void equal(const double* found, const double* expected, std::int64_t count, const double* a = nullptr,
             const double* b = nullptr, const double* c = nullptr);
  /// Fails unless the bits are the same.
  void same_bits(const void* found, const void* expected, std::int64_t bytes_of_each, std::int64_t count);
  void equal(std::int64_t found, std::int64_t expected);
  /// Fails if the relative error of a number, against 2^x, exceeds `bound`.
  void near_exp2(const float* found, const float* x, std::int64_t count, double bound);
  void near_exp2(const double* found, const double* x, std::int64_t count, double bound);

  /// The first failures.
  const std::vector<std::string>& failures() const { return failures_; }
  std::int64_t compared() const { return compared_; }

 private:
  void fail(const std::string& text);
  template <class T>
  void compare(const T* found, const T* expected, std::int64_t count, const T* const (&inputs)[3]);
  template <class T>
  void compare_exp2(const T* found, const T* x, std::int64_t count, double bound);
  template <class T>
  T any_number();
  template <class T>
  T fraction();

  std::mt19937_64 random_{1};
  std::string arguments_;
  std::vector<std::string> failures_;
  std::int64_t compared_ = 0;
};

/// One function of a level of instruction sets, compared with plain loops.
struct Check {
  const char* name;
  void (*run)(Findings&);
};

/// The checks of all these lists.
std::vector<Check> join(std::initializer_list<std::span<const Check>> lists);

// The checks of each level, compiled for its instructions: tests/cpu/levels.
std::vector<Check> checks_of_scalar();
std::vector<Check> checks_of_scalar_f64();
std::vector<Check> checks_of_avx2();
std::vector<Check> checks_of_avx2_f64();
std::vector<Check> checks_of_avx2_amx_twin();
std::vector<Check> checks_of_avx512();
std::vector<Check> checks_of_avx512_f64();
std::vector<Check> checks_of_avx512bf16();
std::vector<Check> checks_of_avx512amx();
std::vector<Check> checks_of_neon();
std::vector<Check> checks_of_neon_f64();
std::vector<Check> checks_of_neonbf16();

}  // namespace saccade::test
