// The coefficients of exp2 by a polynomial, for polynomial.h and for AMX kernels and their twin.
#pragma once

#include "cpu/simd/prelude.h"

namespace saccade::cpu {

/// The polynomial of exp2 on [-1/2, 1/2]: minimax in relative error with p(0) = 1 exactly. kError bounds the
/// relative error, including the rounding of its evaluation by multiply-adds.
template <class T>
struct Exp2Polynomial;
template <>
struct Exp2Polynomial<float> {
  static constexpr double kError = 1.7e-7;
  static constexpr int kDegree = 5;
  static constexpr float kCoefficients[] = {0x1.5bba14p-10f, 0x1.3cea88p-7f, 0x1.c6b752p-5f,
                                            0x1.ebf9bcp-3f,  0x1.62e42ap-1f, 1};
  /// 1.5 * 2^23: added to a small number, it puts that number's nearest integer into the low bits of the sum.
  static constexpr float kRoundToInteger = 0x1.8p23f;
};
template <>
struct Exp2Polynomial<double> {  // 3.4e-18 before rounding
  static constexpr double kError = 0x1p-52;
  static constexpr int kDegree = 11;
  static constexpr double kCoefficients[] = {0x1.e79bb6fc55606p-32, 0x1.e61b4f9a207f5p-28, 0x1.b5267cdfd91eep-24,
                                             0x1.62bfc79d4b59fp-20, 0x1.ffcbfba980f96p-17, 0x1.4309130ed8cd5p-13,
                                             0x1.5d87fe78cd6cfp-10, 0x1.3b2ab6fba011ap-7,  0x1.c6b08d7049fe8p-5,
                                             0x1.ebfbdff82c5a4p-3,  0x1.62e42fefa39efp-1,  1};
  static constexpr double kRoundToInteger = 0x1.8p52;
};

}  // namespace saccade::cpu
