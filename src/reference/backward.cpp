// All gradients of attention, both exactly and as naive code computes them.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/axes.h"
#include "core/check.h"
#include "reference/arguments.h"
#include "reference/row.h"
#include "saccade/reference.h"

namespace saccade::reference {
namespace {

constexpr std::string_view kFunction = "reference::attention_backward";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("[" + std::string(kFunction) + "] " + what);
}

/// Sums in the arithmetic's type, with the axes of one of the caller's tensors.
template <class T>
struct Sum {
  std::vector<T> numbers;
  TensorView places;  // maps indices to numbers; has no data

  Sum() = default;
  /// As many sums as `view` has numbers; `axes` converts a view of them to the indices' axes.
  template <class Axes>
  Sum(const TensorView& view, const Axes& axes)
      : numbers(static_cast<std::size_t>(view.size())),
        places(axes(TensorView(nullptr, DType::f64, view.dims()))) {}

  T& at(std::initializer_list<std::int64_t> index) {
    std::int64_t place = 0;
    std::size_t dim = 0;
    for (const std::int64_t i : index) place += i * places.strides[dim++];
    return numbers[static_cast<std::size_t>(place)];
  }
};

template <class T>
struct Sums {
  Sum<T> dq, dk, dv, dmask, dsinks, dslopes;
};

/// One pass over all rows, which adds each row's contribution to the gradients (and to their bounds).
template <class T>
class Pass {
 public:
  Pass(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& dout,
       const TensorView& dlse, const Arguments& a, const AttentionOptions& options)
      : a_(a), options_(options) {
    if (dlse) dlse_ = Tensor::copy_of(dlse, DType::f64);
    const Layout layout = a.is_packed ? Layout::bshd : options.layout;
    const auto in_order = [layout](const TensorView& view) { return as_bhsd(view, layout); };
    dout_ = in_order(dout);
    Sums<T> zero;
    zero.dq = {q, in_order};
    zero.dk = {k, in_order};
    zero.dv = {v, in_order};
    if (a.mask && a.mask.dtype != DType::boolean) {
      const std::array<std::int64_t, 4> all{a.batch, a.num_heads, a.seqlen_q, a.seqlen_k};
      zero.dmask = {options.mask, [&](const TensorView& view) {
                      return broadcast(view, all, "reference::attention_backward", "mask");
                    }};
    }
    const auto as_they_are = [](const TensorView& view) { return view; };
    if (a.sinks) zero.dsinks = {options.sinks, as_they_are};
    if (a.alibi_slopes) {
      const std::array<std::int64_t, 2> all{a.batch, a.num_heads};
      zero.dslopes = {options.alibi_slopes, [&](const TensorView& view) {
                        return broadcast(view, all, "reference::attention_backward", "alibi_slopes");
                      }};
    }
    sums = zero;
    bounds = zero;
  }

  Sums<T> sums, bounds;

  /// `forward`: how the forward pass, of which only lse and o remain, computed its products; not given: exactly.
  void run(const DotProduct& dot_product, const DotProduct* forward, const NaiveRounding& rounding) {
    const bool rounds_o = rounding.o || rounding.exponentials;
    RowOfAttention<T> row(a_, options_, rounding);
    for (std::int64_t batch = 0; batch < a_.batch; ++batch) {
      for (std::int64_t head = 0; head < a_.num_heads; ++head) {
        const Sequence& sequence = a_.sequences[static_cast<std::size_t>(batch)];
        const Matrix<T> douts(dout_.select(0, sequence.index_in_q).select(0, head));
        for (std::int64_t i = 0; i < sequence.seqlen_q; ++i) {
          const RowIndex index{batch, head, i};
          row.at(index);
          if (forward) row.attend(*forward);
          row.attend(dot_product, forward ? std::optional(row.lse) : std::nullopt);
          const std::span<const T> dout = douts.row(static_cast<std::size_t>(sequence.first_row + i));
          row.differentiate(dout, dlse_of(sequence, index), rounds_o ? row.o : std::span<const T>());
          add(row, index, dout);
        }
      }
    }
  }

 private:
  T dlse_of(const Sequence& sequence, const RowIndex& index) const {
    if (dlse_.rank() == 0) return 0;
    const std::int64_t head = sequence.index_in_q * a_.num_heads + index.head;
    const std::int64_t place = head * dout_.shape[2] + sequence.first_row + index.row;
    return static_cast<T>(dlse_.values<double>()[static_cast<std::size_t>(place)]);
  }

  void add(const RowOfAttention<T>& row, const RowIndex& index, std::span<const T> dout) {
    const auto [batch, head, i] = index;
    const Sequence& sequence = row.sequence();
    const std::int64_t kv_head = head / (a_.num_heads / a_.num_kv_heads);
    const T scale = static_cast<T>(a_.scale);
    for (std::int64_t j = sequence.begin_key; j < sequence.end_key; ++j) {
      const auto key = static_cast<std::size_t>(j);
      if (!row.has_part(key)) continue;
      const std::int64_t key_in_k = sequence.first_key + j;
      const T dscore = row.dscores[key] * scale, bound = row.dscores_bound[key] * std::abs(scale);
      for (std::int64_t d = 0; d < a_.head_dim; ++d) {
        const auto dim = static_cast<std::size_t>(d);
        const T k = row.keys().row(dim)[static_cast<std::size_t>(j - sequence.begin_key)], q = row.query()[dim];
        sums.dq.at({sequence.index_in_q, head, sequence.first_row + i, d}) += dscore * k;
        bounds.dq.at({sequence.index_in_q, head, sequence.first_row + i, d}) += bound * std::abs(k);
        sums.dk.at({sequence.index_in_k, kv_head, key_in_k, d}) += dscore * q;
        bounds.dk.at({sequence.index_in_k, kv_head, key_in_k, d}) += bound * std::abs(q);
      }
      for (std::int64_t d = 0; d < a_.head_dim_v; ++d) {
        const T given = dout[static_cast<std::size_t>(d)];
        sums.dv.at({sequence.index_in_k, kv_head, key_in_k, d}) += row.weights[key] * given;
        bounds.dv.at({sequence.index_in_k, kv_head, key_in_k, d}) +=
            row.weight_bound(row.weights[key]) * std::abs(given);
      }
      if (!sums.dmask.numbers.empty()) {
        sums.dmask.at({batch, head, i, j}) += row.dlogits[key];
        bounds.dmask.at({batch, head, i, j}) += row.dlogits_bound[key];
      }
    }
    if (a_.sinks) {
      sums.dsinks.at({head}) += row.dsink;
      bounds.dsinks.at({head}) += row.dsink_bound;
    }
    if (a_.alibi_slopes) {
      sums.dslopes.at({batch, head}) += row.dslope;
      bounds.dslopes.at({batch, head}) += row.dslope_bound;
    }
  }

  const Arguments& a_;
  const AttentionOptions& options_;
  TensorView dout_;  // as a.q, with head_dim_v
  Tensor dlse_;      // the rows of each head, in the order of lse; empty: 0
};

/// The place of each gradient among the sums, and its shape.
struct Place {
  Tensor AttentionGradients::*gradient;
  TensorView shape;
};
std::vector<Place> places(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options) {
  std::vector<Place> result{
      {&AttentionGradients::dq, q}, {&AttentionGradients::dk, k}, {&AttentionGradients::dv, v}};
  if (options.mask && options.mask.dtype != DType::boolean)
    result.push_back({&AttentionGradients::dmask, options.mask});
  if (options.sinks) result.push_back({&AttentionGradients::dsinks, options.sinks});
  if (options.alibi_slopes) result.push_back({&AttentionGradients::dalibi_slopes, options.alibi_slopes});
  return result;
}

template <class T>
const std::vector<T>& numbers_of(const Sums<T>& sums, Tensor AttentionGradients::*gradient) {
  if (gradient == &AttentionGradients::dq) return sums.dq.numbers;
  if (gradient == &AttentionGradients::dk) return sums.dk.numbers;
  if (gradient == &AttentionGradients::dv) return sums.dv.numbers;
  if (gradient == &AttentionGradients::dmask) return sums.dmask.numbers;
  if (gradient == &AttentionGradients::dsinks) return sums.dsinks.numbers;
  return sums.dslopes.numbers;
}

std::optional<DType> type_of(const GradientRounding& rounding, Tensor AttentionGradients::*gradient) {
  if (gradient == &AttentionGradients::dq) return rounding.dq;
  if (gradient == &AttentionGradients::dk) return rounding.dk;
  if (gradient == &AttentionGradients::dv) return rounding.dv;
  return {};
}

Arguments checked(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& dout,
                  const TensorView& dlse, const AttentionOptions& options) {
  if (options.block_table) refuse("block_table is given: caches are not trained");
  Arguments a = checked_arguments(q, k, v, options);
  Shape wanted(q.dims().begin(), q.dims().end() - 1);
  wanted.push_back(a.head_dim_v);
  if (!std::ranges::equal(dout.dims(), wanted))
    refuse("dout has shape " + to_string(dout.dims()) + ", not that of o, " + to_string(wanted));
  if (dlse && dlse.size() * a.head_dim_v != dout.size())
    refuse("dlse has shape " + to_string(dlse.dims()) + ", not that of lse");
  for (const auto& [name, view] : {std::pair<const char*, const TensorView&>("dout", dout), {"dlse", dlse}}) {
    if (!view) continue;
    check_data(kFunction, name, view);
    check_has_numbers(kFunction, name, view);
  }
  return a;
}

template <class T>
AttentionBackwardResult exact(const TensorView& q, const TensorView& k, const TensorView& v,
                              const TensorView& dout, const TensorView& dlse, const Arguments& a,
                              const AttentionOptions& options) {
  Pass<T> pass(q, k, v, dout, dlse, a, options);
  pass.run(usual_dot_product(a.head_dim), nullptr, {});
  AttentionBackwardResult result;
  for (const auto& [gradient, shape] : places(q, k, v, options)) {
    for (const bool is_bound : {false, true}) {
      Tensor& to = (is_bound ? result.bound : result.gradients).*gradient;
      to = Tensor(DType::f64, Shape(shape.dims().begin(), shape.dims().end()));
      std::ranges::transform(numbers_of(is_bound ? pass.bounds : pass.sums, gradient), to.values<double>().begin(),
                             [](T x) { return static_cast<double>(x); });
    }
  }
  return result;
}

template <class T>
AttentionGradients naive(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& dout,
                         const TensorView& dlse, const Arguments& a, const AttentionOptions& options,
                         const AttentionGradients& exact, const GradientRounding& rounding) {
  std::int64_t rows = 0;
  for (const Sequence& sequence : a.sequences) rows += a.num_heads * sequence.seqlen_q;
  AttentionGradients worst;
  const std::vector<DotProduct> ways = naive_dot_products(a.head_dim, static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const bool is_first = i == 0;
    Pass<T> pass(q, k, v, dout, dlse, a, options);
    pass.run(ways[i], &ways[(i + 1) % ways.size()], rounding.forward);
    for (const auto& [gradient, shape] : places(q, k, v, options)) {
      const std::optional<DType> type = type_of(rounding, gradient);
      Tensor& to = worst.*gradient;
      if (is_first) to = Tensor(DType::f64, Shape(shape.dims().begin(), shape.dims().end()));
      const std::span<double> kept = to.values<double>();
      const std::span<const double> wanted = (exact.*gradient).template values<double>();
      const std::vector<T>& numbers = numbers_of(pass.sums, gradient);
      for (std::size_t n = 0; n < kept.size(); ++n) {
        const auto number = static_cast<double>(rounded(numbers[n], type));
        if (is_first || std::abs(number - wanted[n]) > std::abs(kept[n] - wanted[n])) kept[n] = number;
      }
    }
  }
  return worst;
}

bool is_any_f64(const TensorView& q, const TensorView& k, const TensorView& v) {
  return q.dtype == DType::f64 || k.dtype == DType::f64 || v.dtype == DType::f64;
}

}  // namespace

AttentionBackwardResult attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                                           const TensorView& dout, const AttentionOptions& options,
                                           std::optional<DType> precision, const TensorView& dlse) {
  const Arguments a = checked(q, k, v, dout, dlse, options);
  if (precision == DType::f32) return exact<float>(q, k, v, dout, dlse, a, options);
  if (precision == DType::f64 || !is_any_f64(q, k, v)) return exact<double>(q, k, v, dout, dlse, a, options);
  return exact<long double>(q, k, v, dout, dlse, a, options);
}

AttentionGradients naive_attention_backward(const TensorView& q, const TensorView& k, const TensorView& v,
                                            const TensorView& dout, const AttentionOptions& options,
                                            const AttentionGradients& exact, const GradientRounding& rounding,
                                            const TensorView& dlse) {
  const Arguments a = checked(q, k, v, dout, dlse, options);
  if (is_any_f64(q, k, v)) return naive<double>(q, k, v, dout, dlse, a, options, exact, rounding);
  return naive<float>(q, k, v, dout, dlse, a, options, exact, rounding);
}

}  // namespace saccade::reference
