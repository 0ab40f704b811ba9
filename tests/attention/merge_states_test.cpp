// merge_states(): agreement with the definition for all element types, strides and numbers of parts, and parts
// without keys.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "saccade/decode.h"
#include "saccade/reference.h"
#include "support/each_isa.h"
#include "support/expect_close.h"
#include "support/tensors.h"

namespace saccade::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class MergeOnIsa : public EachIsa {};
SACCADE_FOR_EACH_ISA(MergeOnIsa);

/// Parts of the same rows, [batch, heads, rows, dim].
struct Parts {
  std::vector<Tensor> o, lse;

  Parts(std::size_t count, const Shape& shape, DType dtype, DType lse_dtype = DType::f32) {
    for (std::size_t i = 0; i < count; ++i) {
      o.push_back(random_tensor(shape, 10 * i, dtype));
      lse.push_back(random_tensor(Shape(shape.begin(), shape.end() - 1), 10 * i + 1, lse_dtype));
    }
  }
  std::vector<PartialResult> states() const {
    std::vector<PartialResult> states;
    for (std::size_t i = 0; i < o.size(); ++i) states.push_back({o[i], lse[i]});
    return states;
  }
};

/// The definition, part after part, with weights in Wide and products in T; and the sum of weight * |o|.
template <class T, class Wide>
void merge_by_definition(const Parts& parts, Tensor& o, Tensor& lse, Tensor& bound) {
  const std::int64_t dim = o.shape().back(), rows = o.size() / dim;
  std::vector<Tensor> os, lses;
  for (std::size_t i = 0; i < parts.o.size(); ++i) {
    os.push_back(Tensor::copy_of(parts.o[i], DType::f64));
    lses.push_back(Tensor::copy_of(parts.lse[i], DType::f64));
  }
  std::vector<double> sums, sizes, totals;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    Wide total = 0;
    for (const Tensor& x : lses) total += std::exp(Wide{x.values<double>()[r]});
    totals.push_back(static_cast<double>(std::log(total)));
    for (std::int64_t d = 0; d < dim; ++d) {
      T sum = 0;
      double size = 0.0;
      for (std::size_t i = 0; i < os.size(); ++i) {
        const Wide weight = std::exp(Wide{lses[i].values<double>()[r]}) / total;
        const double x = os[i].values<double>()[static_cast<std::size_t>(row * dim + d)];
        sum += static_cast<T>(weight) * static_cast<T>(x);
        size += static_cast<double>(weight) * std::abs(x);
      }
      sums.push_back(static_cast<double>(sum));
      sizes.push_back(size);
    }
  }
  o = Tensor::copy_of(TensorView(sums.data(), DType::f64, o.shape()), o.dtype());
  lse = Tensor::copy_of(TensorView(totals.data(), DType::f64, lse.shape()), lse.dtype());
  bound = Tensor::copy_of(TensorView(sizes.data(), DType::f64, o.shape()));
}

TEST_P(MergeOnIsa, AgreesWithTheDefinition) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::size_t count : {1, 2, 5}) {
      for (const std::int64_t dim : {1, 7, 64, 129}) {
        const Shape shape{2, 3, 41, dim}, rows{2, 3, 41};
        const DType exact = dtype == DType::f64 ? DType::f64 : DType::f32;
        const Parts parts(count, shape, dtype, exact);
        Tensor o(dtype, shape), lse(exact, rows), naive(dtype, shape), naive_lse(exact, rows), bound;
        merge_states(parts.states(), o, lse);
        exact == DType::f64 ? merge_by_definition<double, double>(parts, naive, naive_lse, bound)
                            : merge_by_definition<float, double>(parts, naive, naive_lse, bound);
        Tensor expected(DType::f64, shape), expected_lse(DType::f64, rows), unused;
        merge_by_definition<long double, long double>(parts, expected, expected_lse, unused);
        EXPECT_TRUE(is_close(o, {expected, naive, bound})) << name_of(dtype) << ' ' << count << ' ' << dim;
        EXPECT_TRUE(is_close(lse, {expected_lse, naive_lse})) << name_of(dtype) << ' ' << count << ' ' << dim;
      }
    }
  }
}

TEST_P(MergeOnIsa, TakesAnyStridesAndTypes) {
  const Parts parts(2, {2, 3, 5, 16}, DType::f32);
  Tensor o(DType::f32, {2, 3, 5, 16}), lse(DType::f32, {2, 3, 5});
  const auto& [o_a, o_b] = std::pair(parts.o[0], parts.o[1]);
  merge_states(o_a, parts.lse[0], o_b, parts.lse[1], o, lse);

  // Columns far apart, heads within rows, everything as doubles, one by one.
  const auto scattered = [](const Tensor& x) { return Tensor::copy_of(x.view().transposed(1, 3)); };
  Tensor turned = scattered(o), lse_64(DType::f64, {2, 3, 5});
  merge_states(scattered(o_a).view().transposed(1, 3), parts.lse[0], o_b, parts.lse[1],
               MutableTensorView(turned).transposed(1, 3), lse_64);
  EXPECT_TRUE(same_bits(turned, scattered(o)));
  EXPECT_TRUE(same_bits(Tensor::copy_of(lse_64, DType::f32), lse));

  const auto by_rows = [](const Tensor& x) { return Tensor::copy_of(x.view().transposed(1, 2)); };
  Tensor of_rows = by_rows(o);
  merge_states(by_rows(o_a), parts.lse[0], by_rows(o_b), parts.lse[1], of_rows, lse, Layout::bshd);
  EXPECT_TRUE(same_bits(of_rows, by_rows(o)));

  const auto as_double = [](const Tensor& x) { return Tensor::copy_of(x, DType::f64); };
  Tensor from_doubles(DType::f64, o.shape()), from_one(DType::f32, o.shape());
  merge_states(as_double(o_a), parts.lse[0], as_double(o_b), parts.lse[1], from_doubles, lse);
  merge_states(as_double(o_a), parts.lse[0], o_b, parts.lse[1], from_one, lse);
  EXPECT_TRUE(same_bits(from_one, Tensor::copy_of(from_doubles, DType::f32)));
  Tensor in_bf16(DType::bf16, o.shape());
  merge_states(o_a, parts.lse[0], o_b, parts.lse[1], in_bf16, lse);
  EXPECT_TRUE(same_bits(in_bf16, Tensor::copy_of(o, DType::bf16)));
}

TEST_P(MergeOnIsa, HasTheSameBitsForThreadsAndInPlace) {
  const Parts parts(3, {1, 4, 2000, 64}, DType::bf16);
  Tensor o(DType::bf16, {1, 4, 2000, 64}), lse(DType::f32, {1, 4, 2000});
  merge_states(parts.states(), o, lse);
  for (const int threads : {1, 3}) {
    Parts own = parts;
    set_num_threads(threads);
    merge_states(own.states(), own.o[1], own.lse[2]);
    set_num_threads(0);
    EXPECT_TRUE(same_bits(own.o[1], o));
    EXPECT_TRUE(same_bits(own.lse[2], lse));
  }
}

TEST_P(MergeOnIsa, NumbersThatAreNotFiniteReachTheRowsThatCountThem) {
  // Rows: both count; a has no keys; b has none; lse of a is NaN; the same beside no keys; +inf.
  const Tensor lse_a = Tensor::of<float>({0, -kInf, 1, kNan, kNan, kInf}),
               lse_b = Tensor::of<float>({0, 1, -kInf, 0, -kInf, 0});
  const Tensor o_a = Tensor::of<float>({{kNan, 1}, {kNan, kInf}, {2, 3}, {1, 1}, {1, 1}, {1, 1}});
  const Tensor o_b = Tensor::of<float>({{4, kInf}, {4, 5}, {kNan, -kInf}, {1, 1}, {kInf, 1}, {1, 1}});
  Tensor o(DType::f32, {6, 2}), lse(DType::f32, {6});
  merge_states(o_a, lse_a, o_b, lse_b, o, lse);
  EXPECT_TRUE(std::isnan(o.at<float>(0, 0)));
  EXPECT_EQ(o.at<float>(0, 1), kInf);
  EXPECT_TRUE(same_bits(Tensor::copy_of(o.view().slice(0, 1, 3)), Tensor::of<float>({{4, 5}, {2, 3}})));
  EXPECT_EQ(lse.at<float>(1), 1);
  EXPECT_EQ(lse.at<float>(2), 1);
  for (const std::int64_t row : {3, 4, 5}) {
    EXPECT_TRUE(std::isnan(o.at<float>(row, 0))) << row;
    EXPECT_TRUE(std::isnan(lse.at<float>(row))) << row;
  }
}

TEST_P(MergeOnIsa, NoPartsAreRowsWithoutKeys) {
  Tensor o(DType::f32, {2, 3}), lse(DType::f32, {2});
  o.at<float>(1, 1) = 5;
  merge_states({}, o, lse);
  EXPECT_TRUE(same_bits(o, Tensor(DType::f32, {2, 3})));
  EXPECT_EQ(lse.at<float>(1), -kInf);
  Tensor nothing(DType::f32, {0, 3}), no_lse(DType::f32, {0});
  merge_states({}, nothing, no_lse);
  Tensor no_columns(DType::f32, {2, 0});
  const Tensor lse_a = Tensor::of<float>({1, 2});
  merge_states(no_columns, lse_a, no_columns, lse_a, no_columns, lse);
  EXPECT_FLOAT_EQ(lse.at<float>(1), 2 + std::log(2.0f));
}

TEST_P(MergeOnIsa, PutsTwoHalvesTogether) {
  for (Layout layout : {Layout::bhsd, Layout::bshd}) {
    const Shape rows = layout == Layout::bhsd ? Shape{2, 3, 5, 16} : Shape{2, 5, 3, 16};
    const Shape keys = layout == Layout::bhsd ? Shape{2, 3, 40, 16} : Shape{2, 40, 3, 16};
    const int axis = layout == Layout::bhsd ? 2 : 1;
    const Tensor q = random_tensor(rows, 1), k = random_tensor(keys, 2), v = random_tensor(keys, 3);
    Tensor lse_a(DType::f32, {2, 3, 5}), lse_b(DType::f32, {2, 3, 5});
    const auto part = [&](const Tensor& x, std::int64_t begin, std::int64_t end) {
      return x.view().slice(axis, begin, end);
    };
    Tensor o_a = attention(q, part(k, 0, 13), part(v, 0, 13), {.lse = lse_a, .layout = layout});
    const Tensor o_b = attention(q, part(k, 13, 40), part(v, 13, 40), {.lse = lse_b, .layout = layout});
    merge_states(o_a, lse_a, o_b, lse_b, o_a, lse_a, layout);
    const AttentionOptions options{.layout = layout};
    const auto reference = reference::attention(q, k, v, options),
               naive = reference::naive_attention(q, k, v, options, reference);
    EXPECT_TRUE(is_close(o_a, {reference.o, naive.o, reference.bound}));
    EXPECT_TRUE(is_close(lse_a, {reference.lse, naive.lse}));
  }
}

TEST(MergeStates, LeavesOutAPartWithoutKeys) {
  const Tensor o_a = Tensor::of<float>({{1, 2}}), o_b = Tensor::of<float>({{kNan, kNan}});
  const Tensor lse_a = Tensor::of<float>({3}), none = Tensor::of<float>({-kInf});
  Tensor o(DType::f32, {1, 2}), lse(DType::f32, {1});
  merge_states(o_a, lse_a, o_b, none, o, lse);
  EXPECT_TRUE(same_bits(o, o_a));
  EXPECT_TRUE(same_bits(lse, lse_a));
  merge_states(o_b, none, o_b, none, o, lse);
  EXPECT_EQ(o.at<float>(0, 0), 0.0f);
  EXPECT_EQ(lse.at<float>(0), -kInf);
}

TEST(MergeStates, RefusesWhatDoesNotFit) {
  const Tensor o(DType::f32, {2, 3, 4}), lse(DType::f32, {2, 3}), other(DType::f32, {2, 2});
  Tensor out(DType::f32, {2, 3, 4}), out_lse(DType::f32, {2, 3});
  try {
    merge_states(o, lse, o, other, out, out_lse);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "[merge_states] lse_b must have shape [2, 3], but it has shape [2, 2]");
  }
}

TEST(MergeStates, NamesThePartThatDoesNotFit) {
  const Parts parts(2, {2, 4}, DType::f32);
  std::vector<PartialResult> states = parts.states();
  Tensor o(DType::f32, {2, 4}), lse(DType::f32, {2});
  const Tensor other = Tensor::of<std::int32_t>({{1, 2, 3, 4}, {1, 2, 3, 4}});
  states[1].o = other;
  try {
    merge_states(states, o, lse);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "[merge_states] parts[1].o must be a floating-point tensor, but it is i32");
  }
}

}  // namespace
}  // namespace saccade::test
