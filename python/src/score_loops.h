// The loops of score programs, in a form that compilers vectorise. Included once for each instruction set, in the
// target region of a file that has included <bit>, <cmath>, <cstdint>, <cstring>, <limits> and <type_traits>
// before it and that defines SACCADE_LOOPS_NAMESPACE.
#include "score_operations.h"

namespace saccade::python::SACCADE_LOOPS_NAMESPACE {

// ---- functions of a number. Branches would prevent vectorisation.

template <class T>
inline T floor_of(T x) {
  return std::floor(x);
}
inline std::int32_t floor_of(std::int32_t x) { return x; }

/// 2^n for whole n from -252 to 254, in two factors, so that the result may be denormal.
inline float scaled(float x, float n) {
  const auto whole = static_cast<std::int32_t>(n), half = whole >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  return x * first * std::bit_cast<float>((whole - half + 127) << 23);
}

/// e^r for |r| up to ln(2) / 2, from Cephes (expf).
inline float exp_of_rest(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}
/// The nearest whole number, for |x| < 2^22.
inline float nearest(float x) {
  const float shifted = x + 0x1.8p23f;
  return shifted - 0x1.8p23f;
}
inline float within(float x, float low, float high) {  // keeps NaN
  x = x < low ? low : x;
  return x > high ? high : x;
}

inline float exponential(float x) {
  const float y = within(x, -104.0f, 89.0f);
  const float n = nearest(y * 1.44269504f);
  const float rest = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  const float result = scaled(exp_of_rest(rest), y == y ? n : 0.0f);
  return x == x ? result : x;
}
inline double exponential(double x) { return std::exp(x); }

inline float exponential2(float x) {
  const float y = within(x, -151.0f, 129.0f);
  const float n = nearest(y);
  const float result = scaled(exp_of_rest((y - n) * 0.69314718f), y == y ? n : 0.0f);
  return x == x ? result : x;
}
inline double exponential2(double x) { return std::exp2(x); }

/// From Cephes (logf).
inline float logarithm(float x) {
  const bool is_small = x < std::numeric_limits<float>::min();
  const float normal = is_small ? x * 0x1p23f : x;
  const std::int32_t bits = std::bit_cast<std::int32_t>(normal) - 0x3f3504f3;  // sqrt(1/2)
  const float n = static_cast<float>(bits >> 23) - (is_small ? 23.0f : 0.0f);
  const float m = std::bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float square = m * m;
  const float low = p * m * square - n * 2.12194440e-4f - 0.5f * square;
  const float result = m + low + n * 0.693359375f;
  const float infinity = std::numeric_limits<float>::infinity();
  const float at_ends = x == 0.0f ? -infinity : x == infinity ? infinity : x - x + result;
  return x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : at_ends;
}
inline double logarithm(double x) { return std::log(x); }

/// Up to 0.625 the polynomial of Cephes (tanhf), beyond it 1 - 2 / (e^2x + 1).
inline float hyperbolic_tangent(float x) {
  const float size = std::abs(x), square = x * x;
  float p = -5.70498872745e-3f;
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const float small = p * square * x + x;
  const float large = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  return size < 0.625f ? small : std::copysign(large, x);
}
inline double hyperbolic_tangent(double x) { return std::tanh(x); }

template <class T>
inline T sigmoid(T x) {
  return 1 / (1 + exponential(-x));
}

/// As PyTorch's, by the remainder, because the quotient may be rounded up to a whole number.
template <class T>
inline T remainder_of(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <class T>
inline T floor_of_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T rest = std::fmod(a, b);
  const T quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
  const T whole = std::floor(quotient);
  return quotient == 0 ? std::copysign(T{0}, a / b) : quotient - whole > T(0.5) ? whole + 1 : whole;
}
/// Doubles hold these quotients exactly enough.
inline std::int32_t floor_of_quotient(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}
inline std::int32_t remainder_of(std::int32_t a, std::int32_t b) { return a - floor_of_quotient(a, b) * b; }

template <class T>
inline T power(T a, T b) {
  if constexpr (std::is_same_v<T, std::int32_t>)
    return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  else
    return std::pow(a, b);
}

// ---- loops

template <class To, class From, class Function>
inline void each(const ScoreCall& call, Function function) {
  const auto [a, b, c] = call.operands;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    To* __restrict const to = call.result.row<To>(i);
    const From* const x = a.row<From>(i);
    const std::int64_t n = call.keys;
    if (a.key_step) {
      for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<To>(function(x[j]));
    } else {
      const To y = static_cast<To>(function(*x));
      for (std::int64_t j = 0; j < n; ++j) to[j] = y;
    }
  }
}

template <class To, class From, class Function>
inline void each2(const ScoreCall& call, Function function) {
  const auto [a, b, c] = call.operands;
  const std::int64_t n = call.keys;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    To* __restrict const to = call.result.row<To>(i);
    const From *const x = a.row<From>(i), *const y = b.row<From>(i);
    if (a.key_step && b.key_step) {
      for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<To>(function(x[j], y[j]));
    } else if (a.key_step) {
      const From second = *y;
      for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<To>(function(x[j], second));
    } else if (b.key_step) {
      const From first = *x;
      for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<To>(function(first, y[j]));
    } else {
      const To both = static_cast<To>(function(*x, *y));
      for (std::int64_t j = 0; j < n; ++j) to[j] = both;
    }
  }
}

template <class T, bool kYesDiffers, bool kNoDiffers>
inline void select_row(T* __restrict to, const std::int32_t* is, const T* yes, const T* no, std::int64_t n) {
  const T a = *yes, b = *no;
  for (std::int64_t j = 0; j < n; ++j) to[j] = is[j] ? (kYesDiffers ? yes[j] : a) : (kNoDiffers ? no[j] : b);
}

template <class T>
inline void select(const ScoreCall& call) {
  const auto [condition, yes, no] = call.operands;
  const auto row = yes.key_step ? (no.key_step ? select_row<T, true, true> : select_row<T, true, false>)
                                : (no.key_step ? select_row<T, false, true> : select_row<T, false, false>);
  for (std::int64_t i = 0; i < call.rows; ++i) {
    T* __restrict const to = call.result.row<T>(i);
    const std::int32_t* const is = condition.row<std::int32_t>(i);
    if (condition.key_step) {
      row(to, is, yes.row<T>(i), no.row<T>(i), call.keys);
      continue;
    }
    const ScoreNumbers& chosen = *is ? yes : no;
    const T* const from = chosen.row<T>(i);
    if (chosen.key_step)
      for (std::int64_t j = 0; j < call.keys; ++j) to[j] = from[j];
    else
      for (std::int64_t j = 0; j < call.keys; ++j) to[j] = *from;
  }
}

template <class T>
inline void compute_of_floats(const ScoreCall& call) {
  switch (call.operation) {
    case ScoreOperation::exponential:
      return each<T, T>(call, [](T x) { return exponential(x); });
    case ScoreOperation::exponential2:
      return each<T, T>(call, [](T x) { return exponential2(x); });
    case ScoreOperation::logarithm:
      return each<T, T>(call, [](T x) { return logarithm(x); });
    case ScoreOperation::square_root:
      return each<T, T>(call, [](T x) { return std::sqrt(x); });
    case ScoreOperation::sine:
      return each<T, T>(call, [](T x) { return std::sin(x); });
    case ScoreOperation::cosine:
      return each<T, T>(call, [](T x) { return std::cos(x); });
    case ScoreOperation::hyperbolic_tangent:
      return each<T, T>(call, [](T x) { return hyperbolic_tangent(x); });
    case ScoreOperation::sigmoid:
      return each<T, T>(call, [](T x) { return sigmoid(x); });
    case ScoreOperation::divide:
      return each2<T, T>(call, [](T x, T y) { return x / y; });
    default:
      return;
  }
}

template <class T>
inline void compute_cast(const ScoreCall& call) {
  if (call.to == Lane::f32) return each<float, T>(call, [](T x) { return static_cast<float>(x); });
  if (call.to == Lane::f64) return each<double, T>(call, [](T x) { return static_cast<double>(x); });
  each<std::int32_t, T>(call, [](T x) { return static_cast<std::int32_t>(x); });
}

template <class T>
inline void compute_of(const ScoreCall& call) {
  using Truth = std::int32_t;
  switch (call.operation) {
    case ScoreOperation::negate:
      return each<T, T>(call, [](T x) { return -x; });
    case ScoreOperation::absolute:
      return each<T, T>(call, [](T x) { return std::abs(x); });
    case ScoreOperation::floor:
      return each<T, T>(call, [](T x) { return floor_of(x); });
    case ScoreOperation::detach:
      return each<T, T>(call, [](T x) { return x; });
    case ScoreOperation::cast:
      return compute_cast<T>(call);
    case ScoreOperation::truth:
      return each<Truth, T>(call, [](T x) { return x != 0; });
    case ScoreOperation::add:
      return each2<T, T>(call, [](T x, T y) { return x + y; });
    case ScoreOperation::subtract:
      return each2<T, T>(call, [](T x, T y) { return x - y; });
    case ScoreOperation::multiply:
      return each2<T, T>(call, [](T x, T y) { return x * y; });
    case ScoreOperation::floor_divide:
      return each2<T, T>(call, [](T x, T y) { return floor_of_quotient(x, y); });
    case ScoreOperation::remainder:
      return each2<T, T>(call, [](T x, T y) { return remainder_of(x, y); });
    case ScoreOperation::power:
      return each2<T, T>(call, [](T x, T y) { return power(x, y); });
    case ScoreOperation::clamp_max:
    case ScoreOperation::minimum:
      return each2<T, T>(call, [](T x, T y) { return x < y || x != x ? x : y; });
    case ScoreOperation::clamp_min:
    case ScoreOperation::maximum:
      return each2<T, T>(call, [](T x, T y) { return x > y || x != x ? x : y; });
    case ScoreOperation::less:
      return each2<Truth, T>(call, [](T x, T y) { return x < y; });
    case ScoreOperation::less_equal:
      return each2<Truth, T>(call, [](T x, T y) { return x <= y; });
    case ScoreOperation::equal:
      return each2<Truth, T>(call, [](T x, T y) { return x == y; });
    case ScoreOperation::not_equal:
      return each2<Truth, T>(call, [](T x, T y) { return x != y; });
    case ScoreOperation::select:
      return select<T>(call);
    default:
      if constexpr (!std::is_same_v<T, std::int32_t>) compute_of_floats<T>(call);
  }
}

inline void compute(const ScoreCall& call) {
  using Truth = std::int32_t;
  switch (call.operation) {
    case ScoreOperation::logical_not:
      return each<Truth, Truth>(call, [](Truth x) { return x ^ 1; });
    case ScoreOperation::logical_and:
      return each2<Truth, Truth>(call, [](Truth x, Truth y) { return x & y; });
    case ScoreOperation::logical_or:
      return each2<Truth, Truth>(call, [](Truth x, Truth y) { return x | y; });
    case ScoreOperation::logical_xor:
      return each2<Truth, Truth>(call, [](Truth x, Truth y) { return x ^ y; });
    default:
      if (call.from == Lane::f32) return compute_of<float>(call);
      if (call.from == Lane::f64) return compute_of<double>(call);
      compute_of<std::int32_t>(call);
  }
}

// ---- derivatives

/// function(a, b, da, db) for each number; those of b, da or db may be equal for all keys.
template <class T, bool kB, bool kDa, bool kDb, class Function>
inline void derivative_row(T* __restrict to, const T* a, const T* b, const T* da, const T* db, std::int64_t n,
                           Function function) {
  const T y = *b, dx = *da, dy = *db;
  for (std::int64_t j = 0; j < n; ++j) to[j] = function(a[j], kB ? b[j] : y, kDa ? da[j] : dx, kDb ? db[j] : dy);
}

template <class T, class Function>
inline void each_derivative(const ScoreCall& call, Function function) {
  const auto [a, b, c] = call.operands;
  const auto [da, db, dc] = call.derivatives;
  for (std::int64_t i = 0; i < call.rows; ++i) {
    T* __restrict const to = call.result.row<T>(i);
    const T *const x = a.row<T>(i), *const y = b.row<T>(i), *const dx = da.row<T>(i), *const dy = db.row<T>(i);
    const std::int64_t n = call.keys;
    if (a.key_step && da.key_step && !db.key_step)
      b.key_step ? derivative_row<T, true, true, false>(to, x, y, dx, dy, n, function)
                 : derivative_row<T, false, true, false>(to, x, y, dx, dy, n, function);
    else if (a.key_step && b.key_step && db.key_step)
      da.key_step ? derivative_row<T, true, true, true>(to, x, y, dx, dy, n, function)
                  : derivative_row<T, true, false, true>(to, x, y, dx, dy, n, function);
    else
      for (std::int64_t j = 0; j < n; ++j)
        to[j] = function(x[j * a.key_step], y[j * b.key_step], dx[j * da.key_step], dy[j * db.key_step]);
  }
}

template <class T>
inline T derivative_of_power(T x, T y, T dx, T dy) {  // the rules of PyTorch where a number is 0
  const T of_base = dx == 0 || y == 0 ? 0 : y * std::pow(x, y - 1) * dx;
  return of_base + (dy == 0 || (x == 0 && y >= 0) ? 0 : std::log(x) * std::pow(x, y) * dy);
}

template <class T>
inline void derive_of(const ScoreCall& call) {
  const auto all = [&](auto function) { each_derivative<T>(call, function); };
  switch (call.operation) {
    case ScoreOperation::negate:
      return all([](T, T, T dx, T) { return -dx; });
    case ScoreOperation::absolute:
      return all([](T x, T, T dx, T) { return x > 0 ? dx : x < 0 ? -dx : T{0}; });
    case ScoreOperation::exponential:
      return all([](T x, T, T dx, T) { return exponential(x) * dx; });
    case ScoreOperation::exponential2:
      return all([](T x, T, T dx, T) { return T(0.69314718055994530942) * exponential2(x) * dx; });
    case ScoreOperation::logarithm:
      return all([](T x, T, T dx, T) { return dx / x; });
    case ScoreOperation::square_root:
      return all([](T x, T, T dx, T) { return dx / (2 * std::sqrt(x)); });
    case ScoreOperation::sine:
      return all([](T x, T, T dx, T) { return std::cos(x) * dx; });
    case ScoreOperation::cosine:
      return all([](T x, T, T dx, T) { return -std::sin(x) * dx; });
    case ScoreOperation::hyperbolic_tangent:
      return all([](T x, T, T dx, T) {
        const T y = hyperbolic_tangent(x);
        return (1 - y * y) * dx;
      });
    case ScoreOperation::sigmoid:
      return all([](T x, T, T dx, T) {
        const T y = sigmoid(x);
        return y * (1 - y) * dx;
      });
    case ScoreOperation::add:
      return all([](T, T, T dx, T dy) { return dx + dy; });
    case ScoreOperation::subtract:
      return all([](T, T, T dx, T dy) { return dx - dy; });
    case ScoreOperation::multiply:
      return all([](T x, T y, T dx, T dy) { return dx * y + x * dy; });
    case ScoreOperation::divide:
      return all([](T x, T y, T dx, T dy) { return (dx - x / y * dy) / y; });
    case ScoreOperation::remainder:
      return all([](T x, T y, T dx, T dy) { return dx - std::floor(x / y) * dy; });
    case ScoreOperation::power:
      return all([](T x, T y, T dx, T dy) { return derivative_of_power(x, y, dx, dy); });
    case ScoreOperation::minimum:
      return all([](T x, T y, T dx, T dy) { return x == y ? (dx + dy) / 2 : x < y ? dx : dy; });
    case ScoreOperation::maximum:
      return all([](T x, T y, T dx, T dy) { return x == y ? (dx + dy) / 2 : x > y ? dx : dy; });
    case ScoreOperation::clamp_min:
      return all([](T x, T y, T dx, T dy) { return x >= y ? dx : dy; });
    case ScoreOperation::clamp_max:
      return all([](T x, T y, T dx, T dy) { return x <= y ? dx : dy; });
    default:  // steps
      return all([](T, T, T, T) { return T{0}; });
  }
}

inline void derive(const ScoreCall& call) {
  ScoreCall of_derivatives = call;
  of_derivatives.operands[0] = call.derivatives[0];
  if (call.operation == ScoreOperation::cast) return compute(of_derivatives);
  if (call.operation == ScoreOperation::select) {
    of_derivatives.operands[0] = call.operands[0];
    of_derivatives.operands[1] = call.derivatives[1];
    of_derivatives.operands[2] = call.derivatives[2];
    return compute(of_derivatives);
  }
  call.to == Lane::f32 ? derive_of<float>(call) : derive_of<double>(call);
}

// ---- results

template <class T>
inline void write_row(T* __restrict to, const T* values, std::int64_t step, const std::int32_t* mask,
                      std::int64_t mask_step, std::int64_t n) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  if (values && step)
    for (std::int64_t j = 0; j < n; ++j) to[j] = values[j];
  else if (values)
    for (std::int64_t j = 0; j < n; ++j) to[j] = *values;
  if (mask && mask_step)
    for (std::int64_t j = 0; j < n; ++j) to[j] = mask[j] ? to[j] : kHidden;
  else if (mask && !*mask)
    for (std::int64_t j = 0; j < n; ++j) to[j] = kHidden;
}

inline void write(Lane lane, void* scores, const void* values, std::int64_t step, const std::int32_t* mask,
                  std::int64_t mask_step, std::int64_t keys) {
  if (lane == Lane::f32)
    write_row(static_cast<float*>(scores), static_cast<const float*>(values), step, mask, mask_step, keys);
  else
    write_row(static_cast<double*>(scores), static_cast<const double*>(values), step, mask, mask_step, keys);
}

template <class T>
inline void scale_row(T* __restrict gradients, const T* factors, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) gradients[j] = gradients[j] == 0 ? T{0} : gradients[j] * factors[j];
}
inline void scale(Lane lane, void* gradients, const void* factors, std::int64_t keys) {
  if (lane == Lane::f32)
    scale_row(static_cast<float*>(gradients), static_cast<const float*>(factors), keys);
  else
    scale_row(static_cast<double*>(gradients), static_cast<const double*>(factors), keys);
}

template <class T>
inline void add_row(double* __restrict sums, const T* gradients, const T* factors, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j)
    sums[j] += gradients[j] == 0 ? 0.0 : static_cast<double>(gradients[j]) * static_cast<double>(factors[j]);
}
inline void add_products(Lane lane, double* sums, const void* gradients, const void* factors, std::int64_t keys) {
  if (lane == Lane::f32)
    add_row(sums, static_cast<const float*>(gradients), static_cast<const float*>(factors), keys);
  else
    add_row(sums, static_cast<const double*>(gradients), static_cast<const double*>(factors), keys);
}

constexpr ScoreLoops score_loops_table() { return {compute, derive, write, scale, add_products}; }

}  // namespace saccade::python::SACCADE_LOOPS_NAMESPACE
