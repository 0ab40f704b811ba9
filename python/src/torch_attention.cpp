// Attention of PyTorch's tensors with nothing but the usual arguments: what saccade.torch computes before it looks
// at them in Python, which takes longer than to attend to a few tokens.
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "bind.h"
#include "saccade/attention.h"
#include "saccade/backward.h"
#include "saccade/decode.h"
#include "torch.h"

namespace saccade::python {
namespace {

/// With more multiply-adds, some 10 microseconds, other Python threads should run meanwhile, and a second thread
/// may pay off.
constexpr double kMaxOnOneThread = 1 << 19;

/// The backward pass computes o and lse again, which pays off up to so many multiply-adds.
constexpr double kMaxWithGradients = 1 << 17;

std::optional<DType> dtype_named(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  if (type.code == static_cast<std::uint8_t>(Code::Bfloat) && type.bits == 16) return DType::bf16;
  if (type.code != static_cast<std::uint8_t>(Code::Float)) return std::nullopt;
  if (type.bits == 32) return DType::f32;
  if (type.bits == 16) return DType::f16;
  return type.bits == 64 ? std::optional(DType::f64) : std::nullopt;
}

/// A tensor of PyTorch's own class, in main memory, with contiguous rows of floating-point numbers. An empty view
/// for all others. Valid until the GIL is released, which PyTorch's own functions do: then another thread may give
/// the tensor other memory.
MutableTensorView view_of(const Torch& torch, nb::handle tensor) {
  nb::dlpack::dltensor found;
  if (!torch.is_exact(tensor)) return {};
  if (torch.exchange_api()->dltensor_from_object(tensor.ptr(), &found) != 0) {
    PyErr_Clear();
    return {};
  }
  const std::optional<DType> dtype = dtype_named(found.dtype);
  if (found.device.device_type != nb::device::cpu::value || !dtype || found.ndim < 2 || found.ndim > 4 ||
      !found.strides || found.strides[found.ndim - 1] != 1)
    return {};
  std::byte* const data = static_cast<std::byte*>(found.data) + found.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(*dtype) != 0) return {};
  const auto rank = static_cast<std::size_t>(found.ndim);
  return {data, *dtype, std::span(found.shape, rank), std::span(found.strides, rank)};
}

bool has_equal_lengths(const TensorView& a, const TensorView& b, std::size_t dims) {
  for (std::size_t dim = 0; dim < dims; ++dim)
    if (a.shape[dim] != b.shape[dim]) return false;
  return true;
}

/// [batch, count, length, head_dim]: some of `all` heads that lie side by side in the rows of [batch, length,
/// width].
MutableTensorView heads_of(const MutableTensorView& rows, std::int64_t first, std::int64_t all,
                           std::int64_t count) {
  const std::int64_t head_dim = rows.shape[2] / all;
  std::byte* const data = static_cast<std::byte*>(rows.mutable_data()) +
                          static_cast<std::size_t>(first * head_dim) * size_of(rows.dtype);
  const std::array shape{rows.shape[0], count, rows.shape[1], head_dim};
  const std::array strides{rows.strides[0], head_dim, rows.strides[1], std::int64_t{1}};
  return {data, rows.dtype, shape, strides};
}

/// q, k and v of one element type, with equal lengths but for those of the sequences and, if k and v are shared,
/// the number of heads.
struct PlainProblem {
  MutableTensorView q, k, v;

  PlainProblem(const Torch& torch, nb::handle query, nb::handle key, nb::handle value)
      : q(view_of(torch, query)), k(view_of(torch, key)), v(view_of(torch, value)) {}

  /// The heads of all three side by side: [batch, length, 3 * num_heads * head_dim].
  PlainProblem(const MutableTensorView& projected, std::int64_t num_heads) {
    if (projected.rank != 3 || num_heads <= 0 || projected.shape[2] % (3 * num_heads) != 0) return;
    q = heads_of(projected, 0, 3 * num_heads, num_heads);
    k = heads_of(projected, num_heads, 3 * num_heads, num_heads);
    v = heads_of(projected, 2 * num_heads, 3 * num_heads, num_heads);
  }

  /// The multiply-adds; 0 for any other problem.
  double operations(bool may_share) const {
    if (!q || !k || !v || k.rank != q.rank || v.rank != q.rank || k.dtype != q.dtype || v.dtype != q.dtype)
      return 0;
    const std::size_t rows = q.rank - 2u, width = q.rank - 1u;
    if (q.size() == 0 || k.size() == 0 || !has_equal_lengths(k, v, q.rank) || q.shape[width] != k.shape[width])
      return 0;
    const bool shares = may_share && rows > 0 && q.shape[rows - 1] % k.shape[rows - 1] == 0;
    if (!has_equal_lengths(q, k, shares ? rows - 1 : rows)) return 0;
    return 2.0 * static_cast<double>(q.size()) * static_cast<double>(k.shape[rows]);
  }

  bool suits_decode() const {
    const std::size_t rows = q.rank - 2u;
    const std::int64_t group = rows > 0 ? q.shape[rows - 1] / k.shape[rows - 1] : 1;
    return is_decode_faster(q.shape[rows], k.shape[rows], group);
  }
};

bool is_like(const TensorView& a, const TensorView& b) {
  return a.rank == b.rank && a.dtype == b.dtype && has_equal_lengths(a, b, a.rank);
}

/// The arguments of F.scaled_dot_product_attention that are not tensors, if they are the usual ones.
std::optional<AttentionOptions> usual_options(nb::handle causal, nb::handle scale) {
  AttentionOptions options;
  if (causal.ptr() == Py_True)
    options.causal = Causal::top_left;
  else if (causal.ptr() != Py_False)
    return std::nullopt;
  if (!scale.is_none()) {
    if (!PyFloat_CheckExact(scale.ptr())) return std::nullopt;
    options.scale = PyFloat_AsDouble(scale.ptr());
    if (!std::isfinite(*options.scale)) return std::nullopt;
  }
  return options;
}

bool is_zero(nb::handle number) {
  return PyFloat_CheckExact(number.ptr()) && PyFloat_AsDouble(number.ptr()) == 0.0;
}

bool is_on_one_thread(double operations) { return operations <= kMaxOnOneThread; }

/// Releases the GIL while other threads have something of it: the caller keeps the memory.
void compute(const Torch& torch, const PlainProblem& problem, const MutableTensorView& o, AttentionOptions options,
             double operations) {
  options.num_threads = is_on_one_thread(operations) ? 1 : torch.num_threads();
  std::optional<nb::gil_scoped_release> unlocked;
  if (!is_on_one_thread(operations)) unlocked.emplace();
  if (problem.suits_decode())
    decode(problem.q, problem.k, problem.v, o, options);
  else
    attention(problem.q, problem.k, problem.v, o, options);
}

/// The output of a call for which PyTorch records no gradients; None if the tensors are no longer what they were.
nb::object output_of(const Torch& torch, nb::handle q, nb::handle k, nb::handle v, AttentionOptions options,
                     double operations) {
  nb::object output = torch.empty_like(q);
  std::array<nb::object, 3> memory;
  if (!is_on_one_thread(operations)) memory = {torch.storage_of(q), torch.storage_of(k), torch.storage_of(v)};
  const PlainProblem problem(torch, q, k, v);  // again, for empty_like releases the GIL
  const MutableTensorView o = view_of(torch, output);
  if (problem.operations(true) != operations || !is_like(o, problem.q)) return nb::none();
  compute(torch, problem, o, options, operations);
  return output;
}

/// The same, of few tokens, in a tuple if PyTorch records gradients. Computes with the GIL, so the tensors' memory
/// needs nothing else to keep it.
nb::object output_with_gradients(const Torch& torch, nb::handle q, nb::handle k, nb::handle v,
                                 AttentionOptions options, double operations) {
  nb::object output = torch.empty_like(q);
  options.num_threads = 1;
  const PlainProblem problem(torch, q, k, v);
  const MutableTensorView o = view_of(torch, output);
  if (problem.operations(true) != operations || !is_like(o, problem.q)) return nb::none();
  attention(problem.q, problem.k, problem.v, o, options);
  return nb::make_tuple(output);
}

/// The output for three tensors that saccade.torch would compute on its own; None if anything about them or about
/// the state of PyTorch is unusual, or if they are long and PyTorch records gradients: Python decides. In a tuple
/// if PyTorch records gradients of them.
nb::object plain_attention(nb::handle q, nb::handle k, nb::handle v, nb::handle dropout_p, nb::handle causal,
                           nb::handle scale, nb::handle gqa) {
  const Torch* const torch = Torch::of(q);
  const std::optional<AttentionOptions> options = usual_options(causal, scale);
  if (!torch || !torch->exchange_api() || !options || !is_zero(dropout_p) || !PyBool_Check(gqa.ptr()))
    return nb::none();
  const double operations = PlainProblem(*torch, q, k, v).operations(gqa.ptr() == Py_True);
  if (!(operations > 0) || !torch->is_plain() || !torch->holds_numbers(q) || !torch->holds_numbers(k) ||
      !torch->holds_numbers(v))
    return nb::none();
  const bool has_gradients = torch->records_gradients() &&
                             (torch->requires_grad(q) || torch->requires_grad(k) || torch->requires_grad(v));
  if (has_gradients && operations > kMaxWithGradients) return nb::none();
  try {
    return (has_gradients ? output_with_gradients : output_of)(*torch, q, k, v, *options, operations);
  } catch (const std::invalid_argument&) {  // Python says it with the names of PyTorch's arguments
    return nb::none();
  }
}

/// Self-attention of rows in which q, k and v lie side by side, each with its heads: [batch, length, 3 * width]
/// gives [batch, length, width]. None where plain_attention() is, and where PyTorch records gradients.
nb::object plain_self_attention(nb::handle projected, std::int64_t num_heads) {
  const Torch* const torch = Torch::of(projected);
  if (!torch || !torch->exchange_api()) return nb::none();
  const MutableTensorView rows = view_of(*torch, projected);
  const double operations = PlainProblem(rows, num_heads).operations(false);
  if (!(operations > 0) || !torch->is_plain() || !torch->holds_numbers(projected) ||
      (torch->records_gradients() && torch->requires_grad(projected)))
    return nb::none();
  nb::object output = torch->new_empty(projected, nb::make_tuple(rows.shape[0], rows.shape[1], rows.shape[2] / 3));
  const nb::object memory = is_on_one_thread(operations) ? nb::none() : torch->storage_of(projected);
  const PlainProblem problem(view_of(*torch, projected), num_heads);
  const MutableTensorView o = view_of(*torch, output);
  if (problem.operations(false) != operations || o.rank != 3) return nb::none();
  compute(*torch, problem, heads_of(o, 0, num_heads, num_heads), {}, operations);
  return output;
}

/// (dq, dk, dv) of a call for which plain_attention() returned a tuple; None if a tensor is no longer what it was,
/// as hooks of saved tensors can have it. Computes lse again, which is faster than to keep it in a tensor of
/// PyTorch's.
nb::object plain_attention_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle dout, nb::handle causal,
                                    nb::handle scale) {
  const Torch* const torch = Torch::of(q);
  std::optional<AttentionOptions> options = usual_options(causal, scale);
  if (!torch || !torch->exchange_api() || !options) return nb::none();
  for (const nb::handle tensor : {q, k, v, dout})
    if (!torch->is_exact(tensor) || !torch->holds_numbers(tensor)) return nb::none();
  const double operations = PlainProblem(*torch, q, k, v).operations(true);
  if (!(operations > 0 && operations <= kMaxWithGradients)) return nb::none();
  options->num_threads = 1;
  // The gradient of a sum is a single number, expanded: it has no contiguous rows.
  const nb::object dout_rows = view_of(*torch, dout) ? nb::borrow(dout) : torch->contiguous(dout);
  const nb::object dq = torch->empty_like(q), dk = torch->empty_like(k), dv = torch->empty_like(v);
  const PlainProblem problem(*torch, q, k, v);
  const TensorView dout_view = view_of(*torch, dout_rows);
  const AttentionGradients gradients{
      .dq = view_of(*torch, dq), .dk = view_of(*torch, dk), .dv = view_of(*torch, dv)};
  if (problem.operations(true) != operations || !is_like(dout_view, problem.q) ||
      !is_like(gradients.dq, problem.q) || !is_like(gradients.dk, problem.k) || !is_like(gradients.dv, problem.v))
    return nb::none();
  const std::span<const std::int64_t> dims = problem.q.dims();
  Tensor o = Tensor::uninitialized(problem.q.dtype, Shape(dims.begin(), dims.end()));
  Tensor lse = Tensor::uninitialized(problem.q.dtype == DType::f64 ? DType::f64 : DType::f32,
                                     Shape(dims.begin(), dims.end() - 1));
  options->lse = lse.mutable_view();
  attention(problem.q, problem.k, problem.v, o, *options);
  options->lse = {};
  attention_backward(problem.q, problem.k, problem.v, {.o = o, .lse = lse, .dout = dout_view}, gradients,
                     *options);
  return nb::make_tuple(dq, dk, dv);
}

}  // namespace

void bind_torch(nb::module_& module) {
  using namespace nb::literals;
  module.def("plain_attention", &plain_attention, "query"_a.none(), "key"_a.none(), "value"_a.none(),
             "dropout_p"_a.none(), "is_causal"_a.none(), "scale"_a.none(), "enable_gqa"_a.none());
  module.def("plain_self_attention", &plain_self_attention, "projected"_a, "num_heads"_a);
  module.def("plain_attention_backward", &plain_attention_backward, "query"_a, "key"_a, "value"_a, "dout"_a,
             "is_causal"_a, "scale"_a.none());
}

}  // namespace saccade::python
