// The packing of queries, keys and values, and the products of packed tiles: scores and weighted values.
#pragma once

#include "cpu/attention/tile.h"
#include "cpu/checks/vector.h"

namespace saccade::cpu::SACCADE_ISA_NAMESPACE {

/// Step `step` of a row of `length` numbers as products need it: a number, or for pairs a word of two; zeros
/// beyond.
template <class T>
Scalar step_of(const T* row, std::int64_t length, std::int64_t step) {
  if constexpr (kPairs) {
    std::uint16_t halves[2] = {0, 0};
    for (int half = 0; half < 2; ++half)
      if (2 * step + half < length) halves[half] = row[2 * step + half].bits;
    Scalar word;
    std::memcpy(&word, halves, sizeof word);
    return word;
  } else {
    return step < length ? static_cast<Scalar>(row[step]) : Scalar{0};
  }
}

/// Clears the payload of a NaN; leaves words of pairs as they are.
inline Scalar without_payload(Scalar x) {
  return !kPairs && Lane::is_nan(x) ? std::numeric_limits<Scalar>::quiet_NaN() : x;
}

/// A step of a query: times `factor`, or for pairs times its sign.
template <class T>
Scalar query_step(const T* row, std::int64_t length, std::int64_t step, Scalar factor) {
  const Scalar x = step_of(row, length, step);
  if constexpr (!kPairs) return without_payload(Lane::mul(x, factor));
  std::uint32_t word;
  std::memcpy(&word, &x, sizeof word);
  word ^= factor < 0 ? 0x80008000u : 0u;
  Scalar result;
  std::memcpy(&result, &word, sizeof word);
  return result;
}

/// Calls f(T{}) for the element types of queries, keys and values.
template <class F>
void for_inputs(const F& f) {
  if constexpr (!kIsDouble) {
    if constexpr (!kPairs) f(float{}), f(float16{});
    f(bfloat16{});
  } else {
    f(double{});
  }
}

/// Contiguous rows of keys or values, of which `first` is row number `key`.
template <class T>
KvRows<T> rows_from(const T* first, std::int64_t key, std::int64_t dim) {
  return KvRows<T>(KvSource{.data = first - key * dim, .dtype = dtype_of<T>, .row_stride = dim});
}

inline constexpr int kHeadDims[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 40, 64, 129};

/// Every count of rows, lengths with tails, and one longer than a chunk; zeros beyond the end.
template <class T>
void compare_pack_queries(Findings& findings, int head_dim, Scalar factor) {
  const test::GuardedMemory memory;
  const std::int64_t steps = padded_steps(steps_of(head_dim));
  alignas(64) static Scalar found[2 * kTileRows * kQueryStride], expected[2 * kTileRows * kQueryStride];
  for (int rows = 1; rows <= kTileRows; rows += head_dim > 100 ? 3 : 1) {
    findings.with("head_dim, rows", head_dim, rows);
    const std::int64_t count = std::int64_t{rows} * head_dim;
    T* const q = static_cast<T*>(memory.last(static_cast<std::size_t>(count) * sizeof(T)));
    findings.draw(q, count);
    std::fill_n(found, packed_query_size(steps), Scalar{7});
    std::fill_n(expected, packed_query_size(steps), Scalar{7});
    for (int row = 0; row < kTileRows; ++row)
      for (std::int64_t step = 0; step < steps; ++step)
        expected[step / kQueryChunk * kTileRows * kQueryStride + row * kQueryStride + step % kQueryChunk] =
            row < rows ? query_step(q + row * head_dim, head_dim, step, factor) : Scalar{0};
    pack_queries(q, head_dim, rows, head_dim, factor, found);
    findings.same_bits(found, expected, sizeof(Scalar), packed_query_size(steps));
  }
}

inline void check_pack_queries(Findings& findings) {
  for_inputs([&](auto number) {
    for (const int head_dim : kHeadDims)
      for (const Scalar factor : {Scalar(0.3), Scalar(-1)})
        compare_pack_queries<decltype(number)>(findings, head_dim, factor);
    compare_pack_queries<decltype(number)>(findings, kQueryChunk * kStepNumbers + 5, Scalar(0.3));
  });
}

/// The keys of a block, with all or some keys readable: tiles [step][key of the tile], with zeros for unreadable
/// keys in subtiles that hold a readable one.
template <class T>
void compare_pack_key_block(Findings& findings, int head_dim, KeyRange readable) {
  constexpr std::int64_t kFirst = 3;
  const test::GuardedMemory memory;
  const std::int64_t steps = padded_steps(steps_of(head_dim)), there = readable.end - readable.begin;
  findings.with("head_dim, begin, end", head_dim, readable.begin, readable.end);
  T* const k = static_cast<T*>(memory.last(static_cast<std::size_t>(there * head_dim) * sizeof(T)));
  findings.draw(k, there * head_dim);
  alignas(64) static Scalar found[kBlockK * 192];
  const KeyRange all{kFirst + readable.begin, kFirst + readable.end};
  pack_key_block(rows_from(k, all.begin, head_dim), kFirst, all, head_dim, found);
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t key = readable.begin; key < readable.end; ++key) {
      const Scalar expected = without_payload(step_of(k + (key - readable.begin) * head_dim, head_dim, step));
      const std::int64_t tile = key / kTileColumns * kTileColumns * steps;
      findings.same_bits(found + tile + step * kTileColumns + key % kTileColumns, &expected, sizeof(Scalar), 1);
    }
  }
}

inline void check_pack_key_block(Findings& findings) {
  for_inputs([&](auto number) {
    using T = decltype(number);
    for (const int head_dim : kHeadDims) {
      compare_pack_key_block<T>(findings, head_dim, {0, kBlockK});
      for (int round = 0; round < 5; ++round) {
        const std::int64_t begin = findings.below(kBlockK);
        compare_pack_key_block<T>(findings, head_dim,
                                  {begin, begin + 1 + findings.below(static_cast<int>(kBlockK - begin))});
      }
    }
  });
}

/// The values of a block: a row for each step, with zeros beyond head_dim_v and, for pairs, in place of a missing
/// key.
template <class T>
void compare_pack_values(Findings& findings, int head_dim_v, KeyRange readable) {
  const test::GuardedMemory memory;
  const std::int64_t columns = packed_value_columns(head_dim_v), there = readable.end - readable.begin;
  findings.with("head_dim_v, begin, end", head_dim_v, readable.begin, readable.end);
  T* const v = static_cast<T*>(memory.last(static_cast<std::size_t>(there * head_dim_v) * sizeof(T)));
  findings.draw(v, there * head_dim_v);
  alignas(64) static Scalar found[kBlockK * 192];
  pack_values(rows_from(v, readable.begin, head_dim_v), 0, readable, head_dim_v, found);
  for (std::int64_t step = readable.begin / kStepNumbers; step < steps_of(readable.end); ++step) {
    for (std::int64_t column = 0; column < columns; ++column) {
      T of_keys[kStepNumbers] = {};
      for (int i = 0; i < kStepNumbers; ++i)
        if (const std::int64_t key = step * kStepNumbers + i;
            key >= readable.begin && key < readable.end && column < head_dim_v)
          of_keys[i] = v[(key - readable.begin) * head_dim_v + column];
      const Scalar expected = step_of(of_keys, kStepNumbers, 0);
      if (kPairs)
        findings.same_bits(found + step * columns + column, &expected, sizeof(Scalar), 1);
      else
        findings.equal(found + step * columns + column, &expected, 1);
    }
  }
}

inline void check_pack_values(Findings& findings) {
  for_inputs([&](auto number) {
    using T = decltype(number);
    for (const int head_dim_v : kHeadDims) {
      compare_pack_values<T>(findings, head_dim_v, {0, kBlockK});
      const std::int64_t begin = findings.below(kBlockK);
      compare_pack_values<T>(findings, head_dim_v,
                             {begin, begin + 1 + findings.below(static_cast<int>(kBlockK - begin))});
    }
  });
}

inline constexpr test::Check kPackingChecks[] = {{"pack_queries", check_pack_queries},
                                                 {"pack_key_block", check_pack_key_block},
                                                 {"pack_values", check_pack_values}};

}  // namespace saccade::cpu::SACCADE_ISA_NAMESPACE
