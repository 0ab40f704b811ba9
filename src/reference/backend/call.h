// A call's plain parameters in the form of the reference, and its results in the caller's memory.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "backend/attention_params.h"
#include "backend/visibility.h"
#include "core/element_types.h"
#include "core/progress.h"
#include "reference/arguments.h"
#include "reference/row.h"

namespace saccade::reference {

/// What RowOfAttention needs to know of a call.
struct Call {
  Arguments arguments;
  AttentionOptions options;  // those that a row reads: softcap, windows, modifier, dropout, ...

  explicit Call(const AttentionParams& p);
};

/// Calls body(row, batch, head, i) for each row of q, with everything that attend() needs loaded.
template <class T, class Body>
void for_each_row(const Call& call, const Body& body) {
  const NaiveRounding exact;
  RowOfAttention<T> row(call.arguments, call.options, exact);
  for (std::int64_t batch = 0; batch < call.arguments.batch; ++batch) {
    const std::int64_t rows = call.arguments.sequences[static_cast<std::size_t>(batch)].seqlen_q;
    for (std::int64_t head = 0; head < call.arguments.num_heads; ++head) {
      for (std::int64_t i = 0; i < rows; ++i) {
        row.at({batch, head, i});
        body(row, batch, head, i);
      }
    }
  }
}

#ifdef SACCADE_SMALL
using WiderThanF64 = double;  // WebAssembly has long double as software, 100 kB of it
#else
using WiderThanF64 = long double;
#endif

/// Calls f(T()) with the type of the call's arithmetic: long double for f64, else double.
template <class F>
void in_precision_of(DType q, const F& f) {
  if (q == DType::f64)
    f(static_cast<WiderThanF64>(0));
  else
    f(0.0);
}

/// Attends each row in turn, and calls body(row, batch, head, i) with its results.
template <class Body>
void attend_each_row(const AttentionParams& p, const Body& body) {
  const Call call(p);
  const DotProduct products = usual_dot_product(p.head_dim);
  in_precision_of(p.q.dtype, [&](auto number) {
    for_each_row<decltype(number)>(call, [&](auto& row, std::int64_t b, std::int64_t head, std::int64_t i) {
      poll_progress();
      row.attend(products);
      body(row, b, head, i);
    });
  });
}

/// Calls f(T()) with the type of numbers in memory.
template <class F>
auto with_element(DType dtype, const F& f) {
  return with_type_of(
      FloatElements{}, dtype, [&]<class T>(std::type_identity<T>) { return f(T()); },
      [] { throw std::logic_error("the reference back end was given an element type that attention() refuses"); });
}

/// Number `i` of a row.
template <class Void>
double number_at(const StridedHeads<Void>& from, std::int64_t batch, std::int64_t head, std::int64_t row,
                 std::int64_t i = 0) {
  return with_element(from.dtype, [&]<class T>(T) -> double {
    const T number = from.template row<T>(batch, head, row)[i];
    if constexpr (std::is_same_v<T, double>)
      return number;
    else
      return static_cast<float>(number);
  });
}

/// Rounds x to the element type of `to`, once, and never to -0.
void store(double x, const StridedHeads<void>& to, std::int64_t batch, std::int64_t head, std::int64_t row,
           std::int64_t i = 0);

template <class Numbers>
void store_row(const Numbers& numbers, const StridedHeads<void>& to, std::int64_t batch, std::int64_t head,
               std::int64_t row) {
  std::int64_t i = 0;
  for (const auto number : numbers) store(static_cast<double>(number), to, batch, head, row, i++);
}

}  // namespace saccade::reference
