#include "cpu/checks/findings.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace saccade::test {
namespace {

constexpr std::size_t kReadable = 1 << 20;
constexpr std::size_t kShown = 5;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
T special(std::uint64_t choice) {
  using Limits = std::numeric_limits<T>;
  const BitsOf<T> payload = 12345;
  const T nan = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(Limits::quiet_NaN()) | payload);
  const T numbers[] = {T{0},
                       Limits::infinity(),
                       Limits::quiet_NaN(),
                       nan,
                       Limits::denorm_min(),
                       Limits::min() - Limits::denorm_min(),
                       Limits::min(),
                       Limits::max(),
                       T{1},
                       T{1} + Limits::epsilon(),
                       T(0.5),
                       T{3}};
  const T number = numbers[choice / 2 % std::size(numbers)];
  return choice % 2 == 0 ? number : -number;
}

template <class T>
std::string shown(T number) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", static_cast<double>(number));
  return text;
}

/// 2^x, more exact than the checked type.
double exact_exp2(float x) { return std::exp2(static_cast<double>(x)); }
long double exact_exp2(double x) { return std::exp2(static_cast<long double>(x)); }

}  // namespace

GuardedMemory::GuardedMemory() : pages_(kReadable) {}

void* GuardedMemory::last(std::size_t bytes) const { return pages_.end() - bytes; }

Findings::Findings() = default;

template <class T>
T Findings::any_number() {
  const std::uint64_t bits = random_();
  if (bits % 2 == 0) return special<T>(bits / 2);
  return std::bit_cast<T>(static_cast<BitsOf<T>>(random_()));
}

template <class T>
T Findings::fraction() {
  return static_cast<T>(std::ldexp(static_cast<double>(static_cast<std::int64_t>(random_())), -62));
}

void Findings::draw(float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = any_number<float>();
}
void Findings::draw(double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = any_number<double>();
}
void Findings::draw(float16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = below(2) ? float16(any_number<float>()) : float16::from_bits(static_cast<std::uint16_t>(random_()));
}
void Findings::draw(bfloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = below(2) ? bfloat16(any_number<float>()) : bfloat16::from_bits(static_cast<std::uint16_t>(random_()));
}
void Findings::draw_numbers(float* to, std::int64_t count) {
  draw(to, count);
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isnan(to[i])) to[i] = std::numeric_limits<float>::infinity();
}
void Findings::draw_numbers(double* to, std::int64_t count) {
  draw(to, count);
  for (std::int64_t i = 0; i < count; ++i)
    if (std::isnan(to[i])) to[i] = std::numeric_limits<double>::infinity();
}
void Findings::draw_whole(float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(below(9) - 4);
}
void Findings::draw_whole(double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = below(9) - 4;
}
void Findings::draw_whole(float16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = float16(static_cast<float>(below(9) - 4));
}
void Findings::draw_whole(bfloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = bfloat16(static_cast<float>(below(9) - 4));
}
void Findings::draw_near_one(float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = fraction<float>();
}
void Findings::draw_near_one(double* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = fraction<double>();
}
void Findings::draw_near_one(float16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = float16(fraction<float>());
}
void Findings::draw_near_one(bfloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = bfloat16(fraction<float>());
}

int Findings::below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
std::uint32_t Findings::word() { return static_cast<std::uint32_t>(random_()); }

void Findings::with(const char* arguments, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  arguments_ = std::string(arguments) + " = ";
  std::size_t commas = 0;
  for (const char* at = arguments; *at != '\0'; ++at) commas += *at == ',';
  const std::int64_t numbers[] = {a, b, c, d};
  for (std::size_t i = 0; i <= commas; ++i) arguments_ += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  arguments_ += ": ";
}

void Findings::fail(const std::string& text) {
  if (failures_.size() < kShown) failures_.push_back(arguments_ + text);
}

template <class T>
void Findings::compare(const T* found, const T* expected, std::int64_t count, const T* const (&inputs)[3]) {
  compared_ += count;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    if (std::bit_cast<BitsOf<T>>(found[i]) == std::bit_cast<BitsOf<T>>(expected[i])) continue;
    std::string of;
    for (const T* input : inputs)
      if (input != nullptr) of += (of.empty() ? " of " : ", ") + shown(input[i]);
    fail("number " + std::to_string(i) + of + ": expected " + shown(expected[i]) + ", got " + shown(found[i]));
  }
}

void Findings::equal(const float* found, const float* expected, std::int64_t count, const float* a, const float* b,
                     const float* c) {
  compare(found, expected, count, {a, b, c});
}
void Findings::equal(const double* found, const double* expected, std::int64_t count, const double* a,
                     const double* b, const double* c) {
  compare(found, expected, count, {a, b, c});
}

void Findings::same_bits(const void* found, const void* expected, std::int64_t bytes_of_each, std::int64_t count) {
  compared_ += count;
  const auto size = static_cast<std::size_t>(bytes_of_each);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, static_cast<const std::byte*>(found) + i * bytes_of_each, size);
    std::memcpy(&b, static_cast<const std::byte*>(expected) + i * bytes_of_each, size);
    if (a == b) continue;
    char text[96];
    std::snprintf(text, sizeof text, "number %lld: expected bits %llx, got %llx", static_cast<long long>(i),
                  static_cast<unsigned long long>(b), static_cast<unsigned long long>(a));
    fail(text);
  }
}

void Findings::equal(std::int64_t found, std::int64_t expected) {
  ++compared_;
  if (found != expected) fail("expected " + std::to_string(expected) + ", got " + std::to_string(found));
}

template <class T>
void Findings::compare_exp2(const T* found, const T* x, std::int64_t count, double bound) {
  compared_ += count;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto exact = exact_exp2(x[i]);
    const double error = static_cast<double>(std::abs(found[i] - exact) / exact);
    if (error <= bound) continue;
    char text[128];
    const auto ulp = static_cast<double>(std::numeric_limits<T>::epsilon());
    std::snprintf(text, sizeof text, "2^%a is %a: off by %.3g (%.2f ulp), allowed are %.3g",
                  static_cast<double>(x[i]), static_cast<double>(found[i]), error, error / ulp, bound);
    fail(text);
  }
}

void Findings::near_exp2(const float* found, const float* x, std::int64_t count, double bound) {
  compare_exp2(found, x, count, bound);
}
void Findings::near_exp2(const double* found, const double* x, std::int64_t count, double bound) {
  compare_exp2(found, x, count, bound);
}

std::vector<Check> join(std::initializer_list<std::span<const Check>> lists) {
  std::vector<Check> all;
  for (const std::span<const Check> list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace saccade::test
