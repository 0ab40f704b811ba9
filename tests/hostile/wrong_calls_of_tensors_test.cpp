// Wrong calls of tensors, their types, quantized rows, random numbers, comparisons, the reference, and what the
// process chooses.
#include <algorithm>

#include "hostile/attention_arguments.h"
#include "hostile/wrong_calls.h"
#include "saccade/backend.h"
#include "saccade/compare.h"
#include "saccade/limits.h"
#include "saccade/quantize.h"
#include "saccade/random.h"
#include "saccade/reference.h"
#include "saccade/runtime.h"

namespace saccade::test {
namespace {

// ---- Tensors -------------------------------------------------------------------------------------------------

void call_view(Arguments& a) {
  a.name("strides");
  static const float kNumbers[24] = {};
  static float variables[24] = {};
  const Shape lengths = a.shape("lengths", {2, 3, 4}), steps = a.shape("steps", {12, 4, 1});
  TensorView(kNumbers, a.dtype("type", DType::f32), lengths);
  TensorView(kNumbers, DType::f32, lengths, steps);
  MutableTensorView(variables, DType::f32, lengths);
  MutableTensorView(variables, DType::f32, lengths, steps);
  TensorView(kNumbers, {a.number("lengths", 2), 3});
  TensorView(kNumbers, {a.number("lengths", 2), 3}, {3, 1});
  MutableTensorView(variables, {a.number("lengths", 2), 3});
  MutableTensorView(variables, {a.number("lengths", 2), 3}, {3, 1});
}

void call_part_of_view(Arguments& a) {
  const TensorView view = a.tensor("view", {2, 3, 4});
  const MutableTensorView result = a.result("view", {2, 3, 4});
  view.transposed(a.small_number("dimension", 0), a.small_number("dimension", -1));
  result.transposed(a.small_number("dimension", 0), a.small_number("dimension", -1));
  view.select(a.small_number("dimension", 1), a.number("index", 2));
  result.select(a.small_number("dimension", 1), a.number("index", 2));
  view.slice(a.small_number("dimension", 2), a.number("begin", 1), a.number("end", 3));
  result.slice(a.small_number("dimension", 2), a.number("begin", 1), a.number("end", 3));
}

void call_reshaped(Arguments& a) {
  const TensorView view = a.tensor("view", {2, 3, 4});
  view.reshaped(a.shape("shape", {6, 4}));
  view.reshaped({a.number("shape", 6), 4});
  a.result("view", {2, 3, 4}).reshaped(a.shape("shape", {6, 4}));
  a.result("view", {2, 3, 4}).reshaped({a.number("shape", 6), 4});
  Tensor tensor(DType::f32, {2, 3, 4});
  (void)tensor.reshaped(a.shape("shape", {6, 4}));
  (void)std::move(tensor).reshaped(a.shape("shape", {6, 4}));
}

void call_tensor(Arguments& a) {
  const Shape shape = a.shape("shape", {2, 3});
  Tensor tensor(a.dtype("type", DType::f32), shape);
  Tensor::uninitialized(DType::f64, shape);
  (void)tensor.shape(a.small_number("dimension", 1));
  Tensor moved = std::move(tensor);
  tensor = Tensor(DType::f32, {1});
  tensor.at<float>(a.number("index", 0));
  std::as_const(tensor).at<float>(a.number("index", 0));
  moved = a.owned("tensor", {2, 3});
  (void)moved.at<float>(a.number("index", 1), a.number("index", 2));
}

void call_copy(Arguments& a) {
  a.name("i4");
  const DType other = a.dtype("type", DType::bf16);
  copy(a.tensor("from", {2, 3, 4}, other == DType::i4 ? DType::i8 : other), a.result("to", {2, 3, 4}));
  Tensor::copy_of(a.tensor("view", {2, 3}));
  Tensor::copy_of(a.tensor("view", {2, 3}), other);
}

void call_to_string(Arguments& a) {
  PrintOptions options;
  if (a.below(2) == 0) options.precision = a.small_number("precision", 3);
  if (a.below(2) == 0) options.edge_items = a.small_number("edge_items", 2);
  // A larger threshold may ask for every number of a view of 2^40.
  if (a.below(2) == 0) options.threshold = std::min<std::int64_t>(a.number("threshold", 2), 10'000);
  to_string(a.tensor("view", {2, 7, 3}), options);
}

// ---- Random numbers ------------------------------------------------------------------------------------------

void call_torch(Arguments& a) {
  TorchGenerator generator(a.below(100));
  const Shape shape = a.shape("shape", {4, 5});
  generator.rand(shape);
  generator.uniform(shape, static_cast<float>(a.real("low", -1.0)), static_cast<float>(a.real("high", 3.0)));
  generator.randn(shape);
  generator.normal(shape, a.real("mean", 0.0), a.real("stddev", 1.0));
  generator.xavier_uniform(shape);
  generator.xavier_normal(shape);
  generator.linear(a.number("d_in", 4), a.number("d_out", 3), a.below(2) == 0);
  generator.dropout_mask(shape, a.real("p", 0.5), a.choice("build", {TorchBuild::generic, TorchBuild::mkl}));
}

void call_numpy(Arguments& a) {
  NumpyRandomState generator(7);
  const Shape shape = a.shape("shape", {4, 5});
  generator.randint(a.number("high", 9), shape);
  generator.randint(a.number("low", -1), a.number("high", 9), shape);
  generator.random_sample(shape);
  generator.standard_normal(shape);
}

// ---- The reference -------------------------------------------------------------------------------------------

void call_steps(Arguments& a) {
  a.name("dimension");
  const TensorView queries = a.tensor("queries", {3, 4}), keys = a.tensor("keys", {5, 4});
  reference::matmul(a.tensor("a", {3, 4}), a.tensor("b", {4, 5}));
  reference::transpose(a.tensor("a", {3, 4}));
  reference::scores_of_query(a.tensor("query", {4}), keys);
  reference::scores_by_loop(queries, keys);
  const Tensor scores = reference::scores(queries, keys);
  reference::scaled(a.view_of("x", scores), a.real("factor", 0.5));
  reference::normalized_by_sum(a.view_of("x", scores), a.small_number("dim", -1));
  reference::softmax_naive(a.view_of("x", scores), a.small_number("dim", 0));
  reference::softmax(a.view_of("x", scores), a.small_number("dim", 1));
  const Tensor mask = reference::causal_mask(3, 5);
  reference::masked(a.view_of("scores", scores), a.view_of("mask", mask));
  reference::dropout(a.view_of("weights", scores), a.view_of("keep", mask), a.real("p", 0.5));
  reference::context_vectors(a.view_of("weights", scores), a.tensor("values", {5, 2}));
}

void call_causal_mask(Arguments& a) {
  reference::causal_mask(a.number("seqlen_q", 3), a.number("seqlen_k", 5),
                         a.choice("causal", {Causal::top_left, Causal::bottom_right}));
}

void call_dot(Arguments& a) {
  const std::vector<double> x(3, 1.0), y(a.is_wrong("b") ? 2 : 3, 1.0);
  reference::dot(x, y);
}

std::optional<DType> precision_of(Arguments& a) {
  return a.below(2) == 0 ? std::optional(a.dtype("precision", DType::f32)) : std::nullopt;
}

void call_reference(Arguments& a) {
  AttentionOptions options;
  draw_options(a, options);
  const TensorView q = a.tensor("q", kQ), k = a.tensor("k", kK), v = a.tensor("v", kV);
  for (const char* name : {"row", "scale", "multipliers"}) a.name(name);
  const auto exact = reference::attention(q, k, v, options, precision_of(a));
  const reference::RowIndex rows[] = {{a.number("rows", 1), a.number("rows", 3), a.number("rows", 5)}, {0, 0, 0}};
  reference::attention_of_rows(q, k, v, options, rows, precision_of(a));
  reference::naive_attention(q, k, v, options, exact, {.o = a.dtype("rounding", DType::bf16)});
}

void call_reference_backward(Arguments& a) {
  for (const char* name : {"scale", "multipliers"}) a.name(name);
  AttentionOptions options;
  draw_options(a, options);
  const TensorView q = a.tensor("q", kQ), k = a.tensor("k", kK), v = a.tensor("v", kV),
                   dout = a.tensor("dout", kO);
  const TensorView dlse = a.below(2) == 0 ? a.tensor("dlse", kLse) : TensorView();
  const auto result = reference::attention_backward(q, k, v, dout, options, precision_of(a), dlse);
  reference::naive_attention_backward(q, k, v, dout, options, result.gradients,
                                      {.dq = a.dtype("rounding", DType::bf16)}, dlse);
}

void call_compare(Arguments& a) {
  const Tensor out = random_tensor({3, 4}, 1);
  Expected expected{a.view_of("reference", Tensor::copy_of(out, DType::f64)), a.view_of("naive", out)};
  if (a.below(2) == 0) expected.bound = a.view_of("bound", Tensor::copy_of(out, DType::f64));
  if (a.below(2) == 0) expected.coarsest = a.dtype("coarsest", DType::bf16);
  const Tolerance tolerance{.naive_factor = a.real("tolerance", 2.0), .eps_factor = 8};
  to_string(compare(a.view_of("out", out), expected, tolerance));
}

void call_quantize(Arguments& a) {
  a.name("i4");
  quantize(a.tensor("x", {3, 32}), a.dtype("dtype", DType::i8));
  const QuantizedTensor x = quantize(random_tensor({3, 32}, 1), a.one_of({DType::i8, DType::i4}));
  const TensorView multipliers =
      x.multipliers.rank() == 0 ? TensorView() : a.view_of("multipliers", x.multipliers);
  dequantize(x.dtype == DType::i4 ? x.view() : a.view_of("x", x.numbers), a.view_of("scale", x.scale),
             multipliers);
  dequantize(x);
  hadamard(a.tensor("x", {3, 48}));
}

/// A QuantizedTensor whose parts do not belong together.
void call_dequantize_of_parts(Arguments& a) {
  QuantizedTensor x = quantize(random_tensor({3, 32}, 1), a.one_of({DType::i8, DType::i4, DType::f8e4m3}));
  if (a.is_wrong("x")) x.shape = a.shape("shape", {3, 64});
  if (a.is_wrong("x")) x.dtype = a.dtype("dtype", DType::i8);
  if (a.is_wrong("scale")) x.scale = a.owned("scale", {3, 1});
  if (a.is_wrong("multipliers")) x.multipliers = a.owned("multipliers", {3, 2}, DType::i8);
  if (a.is_wrong("numbers")) x.numbers = a.owned("numbers", {3, 16}, DType::u8);
  dequantize(x);
}

// ---- The process ---------------------------------------------------------------------------------------------

void call_choices(Arguments& a) {
  a.name("names");
  a.name("machine");
  const std::string before(active_backend_name());
  set_active_backend(a.text("back end", "cpu"));
  set_active_backend(before);
  const std::string names = a.text("back end", "reference,cpu");
  BackendChoice(std::string_view(names)).names();
  BackendChoice(names.c_str());
  const Isa isa = active_isa();
  set_active_isa(a.is_wrong("instruction set") ? static_cast<Isa>(a.below(12)) : isa);
  set_active_isa(isa);
  set_num_threads(a.small_number("threads", 0));
  set_num_threads(0);
  std::function<void()> function = [] {};
  if (a.is_wrong("function")) function = {};
  ProgressHook hook(function);
}

void call_limits(Arguments& a) {
  // Wrong: no threads, no seconds, few bytes. All others would take as long as they say.
  const int threads = a.is_wrong("threads") ? a.one_of({0, -1}) : 1;
  const double seconds = a.is_wrong("seconds") ? a.one_of({0.0, -1.0, std::nan("")}) : 1e-4;
  measure_peak_flops(threads, seconds, a.dtype("dtype", DType::f32));
  measure_read_bandwidth(threads, a.is_wrong("bytes") ? a.one_of<std::size_t>({0, 1000}) : std::size_t{1} << 20);
}

std::vector<Caller> tensor_callers() {
  return {
      {{"element_count(shape, bytes_per_element)"},
       [](Arguments& a) {
         element_count(a.shape("shape", {2, 3}), static_cast<std::size_t>(a.one_of({1, 2, 8})));
       }},
      {{"TensorView::TensorView(numbers, type, lengths)", "TensorView::TensorView(numbers, type, lengths, steps)",
        "TensorView::TensorView(numbers, lengths)", "TensorView::TensorView(numbers, lengths, steps)",
        "MutableTensorView::MutableTensorView(numbers, type, lengths)",
        "MutableTensorView::MutableTensorView(numbers, type, lengths, steps)",
        "MutableTensorView::MutableTensorView(numbers, lengths)",
        "MutableTensorView::MutableTensorView(numbers, lengths, steps)",
        "element_count(shape, bytes_per_element)"},
       call_view},
      {{"TensorView::transposed(a, b)", "TensorView::select(dim, index)", "TensorView::slice(dim, begin, end)",
        "MutableTensorView::transposed(a, b)", "MutableTensorView::select(dim, index)",
        "MutableTensorView::slice(dim, begin, end)"},
       call_part_of_view,
       Throws::out_of_range},
      {{"TensorView::reshaped(lengths)", "MutableTensorView::reshaped(lengths)", "Tensor::reshaped(shape)",
        "element_count(shape, bytes_per_element)"},
       call_reshaped},
      {{"Tensor::Tensor(dtype, shape)", "Tensor::uninitialized(dtype, shape)", "Tensor::shape(dim)",
        "Tensor::at(index)", "element_count(shape, bytes_per_element)"},
       call_tensor,
       Throws::out_of_range,
       {"TensorView"}},
      {{"Tensor::of(values)", "Tensor::of(rows)"},
       [](Arguments& a) {
         Tensor::of<float>({1, 2, 3});
         a.is_wrong("row") ? Tensor::of<float>({{1, 2}, {3}}) : Tensor::of<float>({{1, 2}, {3, 4}});
       }},
      {{"copy(from, to)", "Tensor::copy_of(view)", "Tensor::copy_of(view, dtype)"}, call_copy},
      {{"value_at(view, index)", "TensorView::select(dim, index)"},
       [](Arguments& a) {
         value_at(a.tensor("view", {2, 3}), a.numbers("index", {1, 2}));
       },
       Throws::out_of_range},
      {{"to_string(view)"}, call_to_string},
      {{"dtype_from_name(name)"}, [](Arguments& a) { dtype_from_name(a.text("name", "bf16")); }},
      {{"name_of(dtype)", "size_of(dtype)", "bytes_of(dtype, count)", "is_floating(dtype)", "is_quantized(dtype)"},
       [](Arguments& a) {
         const DType dtype = a.choice("dtype", {DType::f32, DType::i4});
         (void)name_of(dtype), (void)bytes_of(dtype, 2), (void)is_floating(dtype), (void)is_quantized(dtype);
       }},
      {{"name_of(isa)", "multiplies_bf16(isa)", "multiplies_f16(isa)", "is_emulated(isa)"},
       [](Arguments& a) {
         const Isa isa = a.choice("isa", {Isa::scalar, Isa::avx512amx});
         (void)name_of(isa), (void)multiplies_bf16(isa), (void)multiplies_f16(isa), (void)is_emulated(isa);
       }},
      {{"TorchGenerator::rand(shape)", "TorchGenerator::uniform(shape, low, high)", "TorchGenerator::randn(shape)",
        "TorchGenerator::normal(shape, mean, stddev)", "TorchGenerator::xavier_uniform(shape)",
        "TorchGenerator::xavier_normal(shape)", "TorchGenerator::linear(d_in, d_out, bias)",
        "TorchGenerator::dropout_mask(shape, p, build)"},
       call_torch},
      {{"NumpyRandomState::randint(high, shape)", "NumpyRandomState::randint(low, high, shape)",
        "NumpyRandomState::random_sample(shape)", "NumpyRandomState::standard_normal(shape)"},
       call_numpy},
      {{"dropout_keeps(seed, offset, batch_head, row, column, p)"},
       [](Arguments& a) { dropout_keeps(1, 2, 3, 4, 5, a.real("p", 0.5)); }},
      {{"compare(out, expected, tolerance)", "to_string(comparison)"}, call_compare},
      {{"matmul(a, b)", "transpose(a)", "scores_of_query(query, keys)", "scores_by_loop(queries, keys)",
        "scores(queries, keys)", "scaled(x, factor)", "normalized_by_sum(x, dim)", "softmax_naive(x, dim)",
        "softmax(x, dim)", "masked(scores, mask)", "dropout(weights, keep, p)",
        "context_vectors(weights, values)"},
       call_steps},
      {{"causal_mask(seqlen_q, seqlen_k, causal)"}, call_causal_mask},
      {{"dot(a, b)"}, call_dot},
      {{"attention(q, k, v, precision)", "attention_of_rows(q, k, v, rows, precision)",
        "naive_attention(q, k, v, exact, rounding)", "dequantize(x, scale, multipliers)"},
       call_reference},
      {{"attention_backward(q, k, v, dout, precision, dlse)",
        "naive_attention_backward(q, k, v, dout, exact, rounding, dlse)", "attention(q, k, v, precision)"},
       call_reference_backward,
       Throws::invalid_argument,
       {"dequantize"}},
      {{"quantize(x, dtype)", "dequantize(x, scale, multipliers)", "hadamard(x)"},
       call_quantize,
       Throws::invalid_argument,
       {"copy"}},
      {{"dequantize(x)"}, call_dequantize_of_parts},
      {{"set_active_backend(names)", "BackendChoice::BackendChoice(names)", "set_active_isa(isa)",
        "set_num_threads(threads)", "ProgressHook::ProgressHook(function)"},
       call_choices},
      {{"measure_peak_flops(threads, seconds, dtype)", "measure_read_bandwidth(threads, bytes)"}, call_limits},
  };
}

const std::map<std::string, std::string> kNotCalled{
    {"to_string(shape)", "any numbers"},
    {"of(values)", "the definition of Tensor::of()"},
    {"of(rows)", "the definition of Tensor::of()"},
    {"float16::float16(value)", "any number"},
    {"float16::from_bits(bits)", "any bits"},
    {"bfloat16::bfloat16(value)", "any number"},
    {"bfloat16::from_bits(bits)", "any bits"},
    {"float8_e4m3::float8_e4m3(value)", "any number"},
    {"float8_e4m3::from_bits(bits)", "any bits"},
    {"TorchGenerator::TorchGenerator(seed)", "any number"},
    {"NumpyRandomState::NumpyRandomState(seed)", "any number"},
    {"philox4x32_10(counter, key)", "any numbers"},
    {"derived_seed(seed, index)", "any numbers"},
    {"BackendScope::BackendScope(choice)", "a BackendChoice, which was checked"},
    {"set_parallel_for(parallel_for)", "any function: its errors have tests of their own, threads_test"},
};

TEST(WrongCallsOfTensors, AreRefusedInTheHousesForm) { make_wrong_calls(tensor_callers(), 4000); }

TEST(WrongCallsOfTensors, CoverEveryFunction) {
  expect_all_called({"backend.h", "compare.h", "dtype.h", "limits.h", "quantize.h", "random.h", "reference.h",
                     "runtime.h", "saccade.h", "tensor.h"},
                    tensor_callers(), kNotCalled);
}

TEST(WrongCallsOfTensors, AndOfTheOthersCoverEveryHeader) { expect_all_headers_listed(); }

}  // namespace
}  // namespace saccade::test
