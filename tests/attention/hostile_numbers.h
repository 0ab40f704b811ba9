// NaN and infinities of every element type, and attention problems with hidden keys that can hold them.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cases/attention_case.h"
#include "saccade/runtime.h"
#include "support/each_isa.h"

namespace saccade::test {

/// A number as the bits of each element type: exponentials compute with the payload of a NaN, and rounding can
/// carry out of it.
struct Bits {
  const char* name;
  std::uint64_t f32, f64, f16, bf16;

  std::uint64_t of(DType dtype) const {
    return dtype == DType::f32 ? f32 : dtype == DType::f64 ? f64 : dtype == DType::f16 ? f16 : bf16;
  }
};
inline constexpr Bits kZero{"0", 0, 0, 0, 0};
inline constexpr Bits kMinusInfinity{"-Inf", 0xff800000, 0xfff0000000000000, 0xfc00, 0xff80};
inline constexpr std::array<Bits, 5> kPoisons{
    {{"Inf", 0x7f800000, 0x7ff0000000000000, 0x7c00, 0x7f80},
     kMinusInfinity,
     {"NaN", 0x7fc00000, 0x7ff8000000000000, 0x7e00, 0x7fc0},
     {"NaN of ones", 0xffffffff, 0xffffffffffffffff, 0xffff, 0xffff},
     {"signalling NaN", 0x7f812345, 0x7ff0000000012345, 0x7c15, 0x7f95}}};

/// Writes the bits to the number at `index`, or to all numbers that match it if it leaves out dimensions.
inline void put(MutableTensorView view, std::initializer_list<std::int64_t> index, const Bits& bits) {
  for (const std::int64_t i : index) view = view.select(0, i);
  for (std::int64_t i = 0; view.rank > 1 && i < view.shape[0]; ++i) put(view, {i}, bits);
  if (view.rank > 1) return;
  const std::uint64_t word = bits.of(view.dtype);
  const std::size_t size = size_of(view.dtype);
  for (std::int64_t i = 0; i < view.size(); ++i)  // the last dimension is contiguous
    std::memcpy(static_cast<std::byte*>(view.mutable_data()) + static_cast<std::size_t>(i) * size, &word, size);
}

/// Element types of q, and of k and v.
struct Types {
  DType q, kv;
};

struct Sizes {
  std::int64_t rows, keys, head_dim, head_dim_v;
};

inline constexpr std::int64_t kHeads = 2;  // sharing one head of keys
inline constexpr std::int64_t kPageSize = 16;

/// Random numbers, [rows, heads, dim], with lse and no other option. In pages: [1, rows, heads, dim], and a table
/// that begins with the last page of the pool.
inline cases::AttentionCase plain_problem(Types types, const Sizes& sizes, bool is_paged = false) {
  cases::AttentionCase c;
  cases::Random random(1);
  const std::int64_t pages = sizes.keys / kPageSize + 1;
  const auto make = [&](DType dtype, Shape shape) {
    cases::ScatteredTensor tensor(dtype, shape, shape.size() == 4 ? std::vector{0, 1, 2} : std::vector{0, 1}, 8);
    cases::draw_numbers(tensor.view(), 1.0, random);
    return tensor;
  };
  const auto rows = [&](std::int64_t dim) {
    return is_paged ? Shape{1, sizes.rows, kHeads, dim} : Shape{sizes.rows, kHeads, dim};
  };
  const auto keys = [&](std::int64_t dim) {
    return is_paged ? Shape{pages + 2, kPageSize, 1, dim} : Shape{sizes.keys, 1, dim};
  };
  c.q = make(types.q, rows(sizes.head_dim));
  c.o = make(types.q, rows(sizes.head_dim_v));
  c.k = make(types.kv, keys(sizes.head_dim));
  c.v = make(types.kv, keys(sizes.head_dim_v));
  c.lse = Tensor(types.q == DType::f64 ? DType::f64 : DType::f32,
                 is_paged ? Shape{1, kHeads, sizes.rows} : Shape{kHeads, sizes.rows});
  c.options.lse = c.lse;
  c.options.layout = Layout::bshd;
  c.options.num_threads = 1;
  c.has_few_rows = true;
  if (is_paged) {
    c.options.block_table = c.block_table = Tensor(DType::i32, {1, pages});
    for (std::int64_t i = 0; i < pages; ++i)
      c.block_table.at<std::int32_t>(0, i) = static_cast<std::int32_t>(pages + 1 - i);
  }
  return c;
}

/// A score modifier that hides every n-th key.
inline void hide_every(void* n, const ScoreTile& tile) {
  const auto hide = [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < tile.rows; ++i)
      for (std::int64_t j = 0; j < tile.keys; ++j)
        if ((tile.first_key + j) % *static_cast<std::int64_t*>(n) == 0)
          tile.row<T>(i)[j] = -std::numeric_limits<T>::infinity();
  };
  tile.dtype == DType::f64 ? hide(0.0) : hide(0.0f);
}

/// A way to hide some or all keys from every row.
struct Hiding {
  const char* name;
  void (*set)(cases::AttentionCase& c, const Sizes& sizes, bool all);
  bool is_paged = false;
};
inline constexpr std::array kHidings{
    Hiding{"causal",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.options.causal = Causal::top_left;
             c.options.query_offset = all ? -sizes.rows : sizes.keys / 3;
           }},
    Hiding{"window",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.options.query_offset = all ? 3 * sizes.keys : sizes.keys / 3;
             c.options.window_left = sizes.keys / 6;
             c.options.window_right = sizes.keys / 9;
           }},
    Hiding{"lengths",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.kv_lengths = Tensor::of<std::int64_t>({all ? 0 : sizes.keys * 2 / 3 + 1});
             c.options.kv_lengths = c.kv_lengths;
           }},
    Hiding{"bool mask",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.options.mask = c.mask = Tensor(DType::boolean, {sizes.keys});
             for (std::int64_t j = 0; j < sizes.keys; ++j) c.mask.at<bool>(j) = !all && j % 3 != 0;
           }},
    Hiding{"float mask",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.options.mask = c.mask = Tensor(DType::f32, {sizes.keys});
             for (std::int64_t j = 0; j < sizes.keys; ++j)
               c.mask.at<float>(j) = all || j % 3 == 0 ? -std::numeric_limits<float>::infinity() : 0.5f;
           }},
    Hiding{"block mask",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.options.block_mask_k = 24;  // so that its borders fall inside subtiles
             c.options.block_mask = c.block_mask = Tensor(DType::boolean, {(sizes.keys + 23) / 24});
             for (std::int64_t j = 0; j < c.block_mask.size(); ++j) c.block_mask.at<bool>(j) = !all && j % 2 == 0;
           }},
    Hiding{"score modifier",
           [](cases::AttentionCase& c, const Sizes&, bool all) {
             static std::int64_t every = 1, every_third = 3;
             c.options.score_modifier = &hide_every;
             c.options.score_context = all ? &every : &every_third;
           }},
    Hiding{"packing",  // the rows and a third of the keys are the second of three documents
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             const std::int64_t third = sizes.keys / 3;
             c.cu_seqlens_q = Tensor::of<std::int64_t>({0, 0, sizes.rows, sizes.rows});
             c.cu_seqlens_k = Tensor::of<std::int64_t>({0, third, all ? third : 2 * third, sizes.keys});
             c.options.cu_seqlens_q = c.cu_seqlens_q;
             c.options.cu_seqlens_k = c.cu_seqlens_k;
           }},
    Hiding{"pages",
           [](cases::AttentionCase& c, const Sizes& sizes, bool all) {
             c.kv_lengths = Tensor::of<std::int64_t>({all ? 0 : sizes.keys * 2 / 3 + 1});
             c.options.kv_lengths = c.kv_lengths;
           },
           true}};

inline cases::AttentionCase problem_that_hides(const Hiding& hiding, Types types, const Sizes& sizes, bool all) {
  cases::AttentionCase c = plain_problem(types, sizes, hiding.is_paged);
  hiding.set(c, sizes, all);
  return c;
}

/// Overwrites the keys and values that no row of the reference sees: with zeros, or with all poisons in turn, each
/// in all numbers of a vector or in one.
class HiddenKeys {
 public:
  explicit HiddenKeys(cases::AttentionCase& c) : c_(c) {
    const Tensor logits = reference::attention(c.q.view(), c.k.view(), c.v.view(), c.options).logits;
    const std::int64_t keys = logits.shape(-1),
                       first = c.options.cu_seqlens_k ? c.cu_seqlens_k.at<std::int64_t>(1) : 0;
    std::vector<char> is_seen(static_cast<std::size_t>(c.k.memory().size()));
    for (std::int64_t i = 0; i < logits.size(); ++i) {
      const std::int64_t key = i % keys;
      if (logits.values<double>()[static_cast<std::size_t>(i)] == -std::numeric_limits<double>::infinity())
        continue;
      const std::int64_t place =
          c.options.block_table ? c.block_table.at<std::int32_t>(0, key / kPageSize) * kPageSize + key % kPageSize
                                : first + key;
      is_seen[static_cast<std::size_t>(place)] = 1;
    }
    const TensorView k = c.k.view();
    const std::int64_t places = k.rank == 4 ? k.shape[0] * kPageSize : k.shape[0];
    for (std::int64_t place = 0; place < places; ++place)
      if (!is_seen[static_cast<std::size_t>(place)]) places_.push_back(place);
  }

  std::size_t count() const { return places_.size(); }

  void fill(bool with_poison) {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const bool in_one = i / kPoisons.size() % 2 == 1;
      for (cases::ScatteredTensor* kv : {&c_.k, &c_.v}) {
        const MutableTensorView vector = at(*kv, places_[i]);
        put(vector, {}, kZero);
        if (!with_poison) continue;
        const Bits& poison = kPoisons[i % kPoisons.size()];
        in_one ? put(vector, {places_[i] % vector.shape[0]}, poison) : put(vector, {}, poison);
      }
    }
  }

 private:
  static MutableTensorView at(cases::ScatteredTensor& kv, std::int64_t place) {
    const MutableTensorView view = kv.view();
    if (view.rank == 3) return view.select(0, place).select(0, 0);
    return view.select(0, place / kPageSize).select(0, place % kPageSize).select(0, 0);
  }

  cases::AttentionCase& c_;
  std::vector<std::int64_t> places_;  // rows of k and v; in pages counted over the pool
};

/// For each head and key, whether a row whose softmax is NaN sees the key.
inline std::vector<bool> keys_that_nan_rows_see(const cases::AttentionCase& c) {
  const auto exact = reference::attention(c.q.view(), c.k.view(), c.v.view(), c.options);
  const std::int64_t rows = exact.logits.shape(1), keys = exact.logits.shape(2);
  std::vector<bool> result(static_cast<std::size_t>(kHeads * keys));
  for (std::int64_t i = 0; i < exact.logits.size(); ++i) {
    const bool is_hidden = exact.logits.values<double>()[static_cast<std::size_t>(i)] == -INFINITY;
    if (!is_hidden && std::isnan(exact.lse.values<double>()[static_cast<std::size_t>(i / keys)]))
      result[static_cast<std::size_t>(i / (rows * keys) * keys + i % keys)] = true;
  }
  return result;
}

/// Calls f on every instruction set that the machine has or emulates.
template <class F>
void on_each_isa(F f) {
  const Isa before = active_isa();
  for (const Isa isa : isas_of_tests()) {
    SCOPED_TRACE(name_of(isa));
    set_active_isa(isa);
    f();
  }
  set_active_isa(before);
}

}  // namespace saccade::test
