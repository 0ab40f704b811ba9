#include "cases/gradient_case.h"

#include <stdexcept>
#include <tuple>
#include <utility>

namespace saccade::cases {
namespace {

/// A tensor with the shape of another, with gaps, of a compatible element type.
ScatteredTensor draw_like(const TensorView& view, std::int64_t last, Random& random) {
  Shape shape(view.dims().begin(), view.dims().end());
  shape.back() = last;
  std::vector<int> order(shape.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const DType dtype = random.pick({DType::f32, DType::f32, DType::bf16, DType::f16});
  return {view.dtype == DType::f64 ? DType::f64 : dtype, shape, order, random.uniform(0, 3)};
}

DType coarser(DType a, std::optional<DType> b) {
  if (a == DType::bf16 || b == DType::bf16) return DType::bf16;
  return b == DType::f16 ? DType::f16 : a;
}

}  // namespace

bool has_gradients(const AttentionCase& c) { return !c.options.block_table && has_plain_keys(c); }

CheckedGradients::CheckedGradients(AttentionCase& checked, std::uint64_t seed)
    : case_(checked), options_(checked.options) {
  Random random(seed);
  const AttentionCase& c = checked;
  const std::int64_t head_dim_v = c.v.view().shape[c.v.view().rank - 1U];
  dout = draw_like(c.q.view(), head_dim_v, random);
  draw_numbers(dout.view(), 1.0, random);
  dq = draw_like(c.q.view(), c.q.view().shape[c.q.view().rank - 1U], random);
  dk = draw_like(c.k.view(), c.k.view().shape[c.k.view().rank - 1U], random);
  dv = draw_like(c.v.view(), head_dim_v, random);
  const DType dtype = c.q.view().dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto shape_of = [](const TensorView& view) { return Shape(view.dims().begin(), view.dims().end()); };
  for (std::size_t i = 0; i < of_options.size(); ++i) {
    const TensorView& option = options_.*kOptionGradients<Tensor>[i].value;
    if (option && option.dtype != DType::boolean) of_options[i] = Tensor(dtype, shape_of(option));
  }
  // The shape of lse in attention(): without the axes that q does not have, packed [num_heads, total_q].
  Shape rows = shape_of(c.q.view());
  rows.pop_back();
  if ((options_.cu_seqlens_q || options_.layout == Layout::bshd) && rows.size() > 1)
    std::swap(rows[rows.size() - 1], rows[rows.size() - 2]);
  lse_ = Tensor(dtype, rows);
  options_.lse = lse_;
  options_.weights = {};
  options_.scores = {};
  if (random.chance(0.33)) {
    dlse = Tensor(dtype, rows);
    draw_numbers(dlse, 1.0, random);
  }
  exact_ = reference::attention_backward(c.q.view(), c.k.view(), c.v.view(), std::as_const(dout).view(), options_,
                                         {}, given_dlse());
}

TensorView CheckedGradients::given_dlse() const { return dlse.rank() > 0 ? dlse.view() : TensorView(); }

std::vector<Tensor> CheckedGradients::results() const {
  std::vector<Tensor> results{dq.memory(), dk.memory(), dv.memory()};
  results.insert(results.end(), of_options.begin(), of_options.end());
  return results;
}

AttentionOutcome CheckedGradients::outcome() const {
  return {.o = std::as_const(case_.o).view(), .lse = lse_, .dout = dout.view(), .dlse = given_dlse()};
}

void CheckedGradients::compute() {
  AttentionCase& c = case_;
  const TensorView q = std::as_const(c.q).view(), k = std::as_const(c.k).view(), v = std::as_const(c.v).view();
  c.o.clear();
  attention(q, k, v, c.o.view(), options_);
  for (ScatteredTensor* gradient : {&dq, &dk, &dv}) gradient->clear();
  AttentionGradients gradients{.dq = dq.view(), .dk = dk.view(), .dv = dv.view()};
  for (std::size_t i = 0; i < of_options.size(); ++i)
    if (of_options[i].rank() > 0) gradients.*kOptionGradients<MutableTensorView>[i].gradient = of_options[i];
  attention_backward(q, k, v, outcome(), gradients, options_);
}

std::vector<Finding> CheckedGradients::compare() {
  const AttentionCase& c = case_;
  const TensorView q = c.q.view(), k = c.k.view(), v = c.v.view(), o = c.o.view();
  const reference::NaiveRounding forward = naive_rounding(q, k, v, o);
  const auto found = naive_.find(forward.exponentials);
  const reference::AttentionGradients& naive =
      found != naive_.end()
          ? found->second
          : naive_[forward.exponentials] = reference::naive_attention_backward(
                q, k, v, std::as_const(dout).view(), options_, exact_.gradients,
                {.dq = dq.view().dtype, .dk = dk.view().dtype, .dv = dv.view().dtype, .forward = forward},
                given_dlse());

  std::vector<Finding> findings;
  const auto compared = [&](std::string_view name, const TensorView& out,
                            Tensor reference::AttentionGradients::*gradient) {
    const DType coarsest = coarser(coarser(out.dtype, forward.o), forward.exponentials);
    findings.push_back(
        {std::string(name) + " of attention_backward()",
         saccade::compare(out, {exact_.gradients.*gradient, naive.*gradient, exact_.bound.*gradient, coarsest},
                          kGradient)});
  };
  for (const auto& [name, tensor, gradient] : {std::tuple{"dq", &dq, &reference::AttentionGradients::dq},
                                               {"dk", &dk, &reference::AttentionGradients::dk},
                                               {"dv", &dv, &reference::AttentionGradients::dv}}) {
    if (tensor->written() > tensor->view().size())
      throw std::runtime_error(std::string("attention_backward() wrote outside the elements of ") + name);
    compared(name, tensor->view(), gradient);
  }
  for (std::size_t i = 0; i < of_options.size(); ++i) {
    const auto& [option, name, value, gradient] = kOptionGradients<Tensor>[i];
    if (of_options[i].rank() > 0) compared(name, of_options[i], gradient);
  }
  return findings;
}

}  // namespace saccade::cases
